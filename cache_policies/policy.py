"""What a replacement policy is: an exact form, and a rule that works on whole batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from srj.errors import RequestError
from srj.quantities import one_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import cachetools
    import numpy as np
    import numpy.typing as npt

    Fields = Mapping[str, npt.NDArray[Any]]


@runtime_checkable
class Rule(Protocol):
    """A policy as arithmetic on arrays: one number for each way of the cache and each of the rule's fields.

    A rule keeps nothing but its fields: it is pickled to Spark's workers, and every process that uses a cache has a copy.

    `tick` is the cache's own count of use: it rises at least once a batch, modulo 2**32. Where processes
    share a cache, one that was held up may set it back a little: an age of 2**31 and more means 0.
    """

    @property
    def fields(self) -> Mapping[str, np.dtype[Any]]:
        """Name and type of each array that the rule keeps, one at least; all start as zeros.

        Types are NumPy's numbers and booleans of up to 8 bytes: processes share the arrays, so they can't hold objects.
        """
        ...

    def on_hit(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """Note that these ways were hit, each at its tick; a way hit twice occurs twice, the later one last."""
        ...

    def on_insert(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """Note that these ways hold new entries. There is at least one, as for `on_hit`.

        The fields are still those of the entries that left for them by `victim`, and zeros where none did. An entry whose rows are
        fetched again, after its time to live or by a second process, is no new one: that counts as a hit.
        """
        ...

    def victim(self, fields: Fields, tick: int) -> npt.NDArray[np.uint32]:
        """How soon each entry shall leave: of several candidates the one with the highest number is the victim.

        Args:
            fields: the candidates' values, of any one shape: (n, 16) for an insert, (ways,) when bytes run out.
            tick: now.

        Returns:
            Whole numbers from 0 to 2**32 - 1, in the shape of the fields.
        """
        ...


@dataclass(frozen=True)
class Policy:
    """A replacement policy.

    Attributes:
        name: what users write, not empty.
        exact: makes the exact policy for a capacity in entries, and for parameters of its own.
        rule: the rule for the columnar cache; None where the policy has only its exact form.
        offline: whether `exact` has to be told all keys beforehand, as its parameter `future`.

    Raises:
        RequestError: a name that is no text, or an `exact` that can't be called.
    """

    name: str
    exact: Callable[..., cachetools.Cache[Any, Any]]
    rule: Rule | None = None
    offline: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise RequestError(f"expected the name of a policy as a text that is not empty, got {shown(self.name)}")
        if not callable(self.exact):
            raise RequestError(
                f"expected exact of the policy {self.name!r} as what makes a cachetools cache, got {shown(self.exact)}; "
                "give a class or a function of the capacity"
            )
        one_of("offline", self.offline, (True, False))
