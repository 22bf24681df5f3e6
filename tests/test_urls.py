"""URLs that people write, and secrets in them."""

from __future__ import annotations

import pickle

import pytest

from srj import RequestError, Table
from srj.table import DatabaseUrl


def test_any_part_of_a_url_may_be_a_variable_host_included(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of variables are usually in upper case."""
    monkeypatch.setenv("SRJ_ATTACKS_HOST", "db.example")
    assert DatabaseUrl.parse("postgresql://reader@${SRJ_ATTACKS_HOST}/shop").resolve().host == "db.example"


def test_a_password_among_the_options_of_a_url_is_kept_out_of_pickles() -> None:
    """``?password=`` is one of PostgreSQL's own ways to write it."""
    with pytest.raises(RequestError) as caught:
        pickle.dumps(Table("postgresql://reader@db/shop?password=s3cret#products"))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "reader:s3cret@db/shop",
        "postgresql:reader:s3cret@db/shop",
        "postgresql:/reader:s3cret@db/shop",
        "postgresql://reader:123/s3cret@db/shop",
        "postgresql://reader:s3#cret@db/shop#products",
        "postgresql://reader:s3cret@db",
        "oracle://reader:s3cret@db/shop",
    ],
)
def test_a_url_that_is_not_well_formed_is_refused_without_its_password(url: str) -> None:
    """Slips that people make: no scheme, one slash, a slash inside the password."""
    with pytest.raises(RequestError) as caught:
        Table(url if "#" in url else f"{url}#products")
    assert "cret" not in str(caught.value)


def test_a_jdbc_url_is_told_what_to_leave_out() -> None:
    """The likeliest slip of who comes from Spark's own JDBC source."""
    with pytest.raises(RequestError, match=r"^expected a URL of the form .* which is JDBC's; leave out jdbc:$") as caught:
        Table("jdbc:postgresql://reader:secret@db/shop#products")
    assert "secret" not in str(caught.value)
