"""A user's rule is his own code: what it must be is checked on the driver, what it answers wherever it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from srj.cache_policies.policy import Rule
from srj.errors import RequestError
from srj.quantities import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from srj.cache_policies.policy import Fields, Policy

_NUMBERS = "biuf"  # NumPy's kinds of type whose bytes are the whole value
_LARGEST = 8
_MOST = 2**32 - 1
_WAYS = 16


class CheckedRule:
    """A rule whose choice of victims is checked, and whose failures name the policy: workers would show a bare traceback.

    Args:
        name: of the policy.
        rule: the policy's.
    """

    def __init__(self, name: str, rule: Rule) -> None:
        self._name, self._rule = name, rule

    @property
    def fields(self) -> Mapping[str, np.dtype[Any]]:
        """The rule's own."""
        return self._rule.fields

    def on_hit(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """What the rule does.

        Raises:
            RequestError: it raised something.
        """
        with self._said("on_hit"):
            self._rule.on_hit(fields, ways, ticks)

    def on_insert(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """What the rule does.

        Raises:
            RequestError: it raised something.
        """
        with self._said("on_insert"):
            self._rule.on_insert(fields, ways, ticks)

    def victim(self, fields: Fields, tick: int) -> npt.NDArray[np.uint32]:
        """What the rule says.

        Raises:
            RequestError: other than whole numbers of 32 bits, one for each candidate; or it raised something.
        """
        with self._said("victim"):
            order: object = self._rule.victim(fields, tick)
        shape = next(iter(fields.values())).shape
        if not isinstance(order, np.ndarray):
            raise self._refused(shape, shown(order))
        if order.dtype.kind not in "bui" or order.shape != shape:
            raise self._refused(shape, f"{order.dtype} of shape {order.shape}")
        # Only a type that can hold other numbers is looked through.
        if order.size and not np.can_cast(order.dtype, np.uint32) and not 0 <= order.min() <= order.max() <= _MOST:
            raise self._refused(shape, f"numbers from {order.min()} to {order.max()}")
        return order.astype(np.uint32, copy=False)

    @contextmanager
    def _said(self, step: str) -> Iterator[None]:
        """Whatever the rule raises in this step, said in one sentence."""
        try:
            yield
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
            raise RequestError(
                f"expected {step} of the policy {self._name!r} to work on any ways, got {reason}; correct it, see "
                "srj.cache_policies.Rule"
            ) from error

    def _refused(self, shape: tuple[int, ...], got: str) -> RequestError:
        return RequestError(
            f"expected victim of the policy {self._name!r} to return an array of shape {shape} of whole numbers "
            f"from 0 to {_MOST}, got {got}; see srj.cache_policies.Rule"
        )


def checked_rule(policy: Policy) -> CheckedRule:
    """The rule of a policy that has one, tried on entries that were never used.

    Raises:
        RequestError: something is missing, a field is not of plain numbers, or the victims are no 32-bit numbers.
    """
    rule = policy.rule
    # The class of a rule has all that its instances have, but lacks the instance.
    if not isinstance(rule, Rule) or isinstance(rule, type) or not all(map(callable, (rule.on_hit, rule.on_insert, rule.victim))):
        raise RequestError(
            f"expected the rule of the policy {policy.name!r} with fields, on_hit, on_insert and victim, got {shown(rule)}; "
            "see srj.cache_policies.Rule"
        )
    fields: object = rule.fields
    if not isinstance(fields, Mapping) or not fields:
        raise RequestError(
            f"expected fields of the policy {policy.name!r} as a dictionary of at least one name and NumPy type, "
            f"got {shown(fields)}; see srj.cache_policies.Rule"
        )
    for name, dtype in fields.items():
        # Anything else, an object above all, would be a pointer that means nothing in another process.
        plain = isinstance(dtype, np.dtype) and dtype.kind in _NUMBERS and dtype.itemsize <= _LARGEST
        if not isinstance(name, str) or not plain:
            raise RequestError(
                f"expected each of the fields of the policy {policy.name!r} as a name and a NumPy type of numbers or booleans, "
                f"got {shown(name)}: {shown(dtype)}; write for example {{'last_use': np.dtype(np.uint32)}}"
            )
    checked = CheckedRule(policy.name, rule)
    checked.victim({name: np.zeros((1, _WAYS), dtype) for name, dtype in fields.items()}, 1)
    return checked
