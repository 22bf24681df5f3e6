"""What waits: rows whose key is on its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from srj.lookup.flight import Flight
    from srj.lookup.probe import Missing

T = TypeVar("T")


@dataclass(frozen=True)
class Waiting(Generic[T]):
    """Stream rows that wait for one flight, and the bytes they take."""

    rows: T
    missing: Missing
    size: int


class WaitingQueue(Generic[T]):
    """Waiting rows by the flight they wait for, in the order of their arrival."""

    def __init__(self) -> None:
        self._by_flight: dict[Flight, list[Waiting[T]]] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._by_flight)

    def add(self, waiting: Waiting[T]) -> None:
        """Put rows behind those that already wait for the same flight."""
        self._by_flight.setdefault(waiting.missing.flight, []).append(waiting)
        self.bytes += waiting.size

    def take(self, flight: Flight) -> list[Waiting[T]]:
        """All that waited for a flight that has landed; nothing if it was taken before."""
        landed = self._by_flight.pop(flight, [])
        self.bytes -= sum(waiting.size for waiting in landed)
        return landed
