"""The locks of the executor's cache belong to the file that is mapped, to one process, and never fail a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.shared_map import fill, known, shared

if TYPE_CHECKING:
    from pathlib import Path


def remove_as_a_cleaner(folder: Path) -> None:
    """Every file beside the map: all that a cleaner of old files may find untouched for days."""
    for path in (folder / "srj").iterdir():
        if path.name != "one":
            path.unlink()


def test_two_never_hold_one_map_alone_whatever_is_removed_from_its_folder(tmp_path: Path) -> None:
    """What was opened before and after."""
    old = shared(tmp_path, patience=0.01)
    fill(old, [1])
    remove_as_a_cleaner(tmp_path)
    new = shared(tmp_path, patience=0.01)
    assert known(new, [1]) == [1]
    with old._lock.exclusive() as one, new._lock.exclusive() as other:
        assert (one, other) == (True, False)


def test_a_map_that_was_removed_is_not_mixed_up_with_the_next_of_its_name(tmp_path: Path) -> None:
    """Each has its own lock and its own rows."""
    old = shared(tmp_path, patience=0.01)
    fill(old, [1])
    (tmp_path / "srj" / "one").unlink()
    new = shared(tmp_path, patience=0.01)
    assert known(new, [1]) == []
    with old._lock.exclusive() as one, new._lock.exclusive() as other:
        assert (one, other) == (True, True)
    assert known(old, [1]) == [1]
    assert old.stats().bypasses == new.stats().bypasses == 0
