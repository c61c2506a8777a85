"""Holding labels back in the cloud, so that they take effect in the order of their time (rule S5)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter, itemgetter
from typing import Any

from .label import Label, Order
from .snapshots import check_snapshot

MAX_HELD = 100_000
"""Labels held at most; beyond it the earliest is let go before its time, and counted."""

MIN_COMPACTED = 64
"""Entries of a heap that are not worth looking for dead ones."""

Key = tuple[float, str]
"""(time, source): the order in which labels take effect."""


@dataclass(slots=True)
class Held:
    """A label with its publication, waiting."""

    label: Label
    publication: Mapping[str, Any] | None
    time: float
    """Of the sample; the log's where the sample has none."""
    arrival: float
    """Of the log."""
    waiting: bool = True

    @property
    def order(self) -> Order:
        """Within its source."""
        return self.label.mark.order

    @property
    def source(self) -> str:
        """Whose bit it sets."""
        return self.label.mark.source

    @property
    def key(self) -> Key:
        """Among the sources."""
        return self.time, self.source


class Reorder:
    """Lets labels go `delay` seconds after their arrival, in the order of (time, source).

    When one falls due, all that precede it go first. Those of one source go in that source's own order whatever their
    times say: only the first of each source takes part in the comparison.
    """

    def __init__(self, delay: float, *, limit: int = MAX_HELD) -> None:
        self.late = 0
        """Labels that came after one of a later time had been let go."""
        self.hurried = 0
        """Labels that were let go before their time, for lack of room."""
        self._delay = delay
        self._limit = limit
        self._held: dict[str, list[Held]] = {}  # by source, in the source's order
        self._firsts: list[tuple[Key, Order]] = []  # heap; what is no longer its source's first is skipped
        self._arrivals: list[tuple[float, int, Held]] = []  # heap; what no longer waits is skipped
        self._size = 0
        self._arrived = 0
        self._passed: Key | None = None

    def hold(self, held: Held) -> list[Held]:
        """Take a label; those that go at once: itself if it is too late, or the earliest if there is no room."""
        if self._is_late(held):
            self.late += 1
            return [held]
        self._add(held)
        if self._size <= self._limit:
            return []
        self.hurried += 1
        return [self.pop()]

    def _is_late(self, held: Held) -> bool:
        """Whether a later one has gone. Never if it waits behind one of its own source, which it must follow."""
        waiting = self._held.get(held.source)
        preceded = waiting is not None and waiting[0].order < held.order
        return self._passed is not None and held.key < self._passed and not preceded

    def _add(self, held: Held) -> None:
        waiting = self._held.setdefault(held.source, [])
        insort(waiting, held, key=attrgetter("order"))
        if waiting[0] is held:
            heappush(self._firsts, (held.key, held.order))
        self._arrived += 1
        heappush(self._arrivals, (held.arrival, self._arrived, held))
        self._size += 1
        self._compact()

    def _compact(self) -> None:
        """Drop what is only there to be skipped, once it is most of it."""
        if len(self._arrivals) > 2 * self._size + MIN_COMPACTED:
            self._arrivals = sorted(entry for entry in self._arrivals if entry[2].waiting)
        if len(self._firsts) > 2 * self._size + MIN_COMPACTED:
            self._firsts = sorted((waiting[0].key, waiting[0].order) for waiting in self._held.values())

    def holds(self, source: str) -> bool:
        """Whether a label of the source waits."""
        return source in self._held

    def next_wake(self) -> float | None:
        """When the next label falls due."""
        while self._arrivals and not self._arrivals[0][2].waiting:
            heappop(self._arrivals)
        return self._arrivals[0][0] + self._delay if self._arrivals else None

    def pop(self) -> Held:
        """The label that goes next. There must be one."""
        while True:
            key, order = heappop(self._firsts)
            waiting = self._held.get(key[1])
            if waiting and waiting[0].order == order:
                break
        held = self._remove(waiting, 0)
        if key[1] in self._held:
            heappush(self._firsts, (waiting[0].key, waiting[0].order))
        self._passed = key if self._passed is None else max(key, self._passed)
        return held

    def withdraw(self, source: str, after: Order) -> None:
        """Take back the labels of a source that follow a reading: it was late, and they are evaluated anew."""
        waiting = self._held.get(source, [])
        while waiting and waiting[-1].order > after:
            self._remove(waiting, len(waiting) - 1)

    def _remove(self, waiting: list[Held], index: int) -> Held:
        held = waiting.pop(index)
        held.waiting = False
        self._size -= 1
        if not waiting:
            del self._held[held.source]
        return held

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects that json.dumps takes."""
        return {
            "format": "reorder",
            "version": 1,
            "held": [_to_json(held) for _, _, held in sorted(self._arrivals, key=itemgetter(0, 1)) if held.waiting],
            "passed": self._passed,
            "counts": [self.late, self.hurried],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the delay is the same."""
        check_snapshot(snapshot, "reorder", 1)
        self._held, self._firsts, self._arrivals, self._size = {}, [], [], 0
        for held in snapshot["held"]:
            self._add(_from_json(held))
        passed = snapshot["passed"]
        self._passed = None if passed is None else (passed[0], passed[1])
        self.late, self.hurried = snapshot["counts"]


def _to_json(held: Held) -> list[Any]:
    return [held.label.to_json(), held.publication, held.time, held.arrival]


def _from_json(item: list[Any]) -> Held:
    return Held(Label.from_json(item[0]), *item[1:])
