"""What is due when: each key has one time, which can be moved or taken back."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_MOST_STALE = 2
"""Entries of the heap for each key that has a time; beyond that it is built anew."""


class Expiry(Generic[K]):
    """Keys with the time at which they are due."""

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._times)

    def set(self, key: K, time: float | None) -> None:
        """When the key is due from now on; None: never."""
        if time is None:
            self._times.pop(key, None)
        elif self._times.get(key) != time:
            self._times[key] = time
            self._push(time, key)
            if len(self._heap) > _MOST_STALE * len(self._times) + 64:
                self._rebuild()

    def due(self, now: float) -> list[K]:
        """Takes out what is due, the earliest first."""
        found = []
        while (time := self.next()) is not None and time <= now:
            key = heappop(self._heap)[2]
            del self._times[key]
            found.append(key)
        return found

    def next(self) -> float | None:
        """When something is due next."""
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _push(self, time: float, key: K) -> None:
        self._serial += 1  # so that keys need no order
        heappush(self._heap, (time, self._serial, key))

    def _rebuild(self) -> None:
        self._heap = [(time, number, key) for number, (key, time) in enumerate(self._times.items())]
        self._serial = len(self._heap)
        heapify(self._heap)
