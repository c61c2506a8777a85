"""What falls due when, by log time (rule I3)."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Protocol

MIN_COMPACTED = 64
"""Entries that are not worth looking for dead ones."""


class Sleeper(Protocol):
    """Something that is to be woken."""

    wake: float | None
    """When; None for never. Set by Wakes alone."""

    @property
    def key(self) -> str: ...  # of its subscription, with the tenant in it


class Wakes:
    """Sleepers by the time at which they are due; of those due at one time, by key."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, int, Sleeper]] = []  # what is no longer its sleeper's wake is skipped
        self._serial = 0
        self._sleeping = 0

    def set(self, sleeper: Sleeper, wake: float | None) -> None:
        """From now on it is to be woken then, and at no other time."""
        if wake == sleeper.wake:
            return
        self._sleeping += (wake is not None) - (sleeper.wake is not None)
        sleeper.wake = wake
        if wake is not None:
            self._push(wake, sleeper)
        if len(self._heap) > 2 * self._sleeping + MIN_COMPACTED:
            self._heap = [entry for entry in self._heap if entry[3].wake == entry[0]]
            heapify(self._heap)

    def _push(self, wake: float, sleeper: Sleeper) -> None:
        self._serial += 1
        heappush(self._heap, (wake, sleeper.key, self._serial, sleeper))

    def next(self) -> float | None:
        """When the next is due."""
        while self._heap and self._heap[0][3].wake != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, time: float) -> Iterator[Sleeper]:
        """Those that are due, each once; whoever gets one sets when it is due next."""
        while (wake := self.next()) is not None and wake <= time:
            sleeper = heappop(self._heap)[3]
            sleeper.wake = None
            self._sleeping -= 1
            yield sleeper
