"""Readings that come late, put in where they belong while their source's labels are still held (rule S5)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from .evaluator import Evaluator, SourceState, state_from_json, state_to_json
from .identity import PublicationId
from .label import Mark, Order
from .snapshots import check_snapshot

MAX_READINGS = 100_000
"""Readings kept at most; beyond it the source that sends one more loses its oldest."""

MAX_OF_SOURCE = 1_000
"""Readings kept of one source at most, since a late one costs as much as evaluating all that follow it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading, and what was known of its source before it."""

    order: Order
    publication: Mapping[str, Any]
    arrival: float
    found: SourceState | None


@dataclass(frozen=True, slots=True)
class Marked:
    """A mark with the reading that brought it about."""

    mark: Mark
    reading: Reading


class LateReadings:
    """Feeds an evaluator, and rewinds it for a late reading: what follows of that source is evaluated anew."""

    def __init__(self, evaluator: Evaluator, delay: float, *, limit: int = MAX_READINGS) -> None:
        self.admitted = 0
        """Late readings that were put in."""
        self._evaluator = evaluator
        self._delay = delay
        self._limit = limit
        self._readings: dict[str, list[Reading]] = {}  # by source, in the source's order
        self._size = 0

    def place(self, source: str, order: Order) -> int | None:
        """Where a late reading belongs among those kept of its source; None if it is too late, or not the first."""
        readings = self._readings.get(source, [])
        place = bisect_left(readings, order, key=attrgetter("order"))
        if place == len(readings) or readings[place].order == order:
            return None
        found = readings[place].found
        return place if found is None or found.newest < order else None

    def admit(self, publication_id: PublicationId, reading: Reading, place: int) -> list[Marked]:
        """Put a late reading in; the marks from it on, which replace those given before."""
        following = self._readings[publication_id.source][place:]
        del self._readings[publication_id.source][place:]
        self._size -= len(following)
        self._evaluator.put_back(publication_id.source, following[0].found)
        self.admitted += 1
        return [marked for one in (reading, *following) for marked in self.observe(publication_id.source, one)]

    def observe(self, source: str, reading: Reading) -> list[Marked]:
        """Evaluate a reading that follows all those kept; its mark, if it gives one."""
        found = self._evaluator.state(source)
        epoch, boot, sequence = reading.order
        mark = self._evaluator.observe(PublicationId(source, boot, sequence), reading.publication, epoch)
        if self._evaluator.state(source) is not found:
            self._keep(source, replace(reading, found=found))
        return [] if mark is None else [Marked(mark, reading)]

    def _keep(self, source: str, reading: Reading) -> None:
        readings = self._readings.setdefault(source, [])
        readings.append(reading)
        self._size += 1
        while (
            self._size > self._limit
            or len(readings) > MAX_OF_SOURCE
            or readings[0].arrival + self._delay <= reading.arrival
        ):
            del readings[0]
            self._size -= 1
            if not readings:
                return

    def forget(self, source: str) -> None:
        """Before a source is given up."""
        self._size -= len(self._readings.pop(source, []))
        self._evaluator.forget(source)

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects that json.dumps takes."""
        return {
            "format": "late readings",
            "version": 1,
            "admitted": self.admitted,
            "readings": {source: [_to_json(one) for one in readings] for source, readings in self._readings.items()},
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the delay is the same."""
        check_snapshot(snapshot, "late readings", 1)
        self.admitted = snapshot["admitted"]
        self._readings = {source: [_from_json(*one) for one in kept] for source, kept in snapshot["readings"].items()}
        self._size = sum(map(len, self._readings.values()))


def _to_json(reading: Reading) -> list[Any]:
    found = None if reading.found is None else state_to_json(reading.found)
    return [reading.order, reading.publication, reading.arrival, found]


def _from_json(order: Any, publication: Any, arrival: float, found: Any) -> Reading:
    state = None if found is None else state_from_json(*found)
    return Reading((order[0], order[1], order[2]), publication, arrival, state)
