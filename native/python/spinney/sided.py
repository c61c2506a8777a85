"""Ranges with one end: what begins at or below a number, and what ends at or above it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import itemgetter
from typing import Generic, TypeVar

from .boxes import Range

T = TypeVar("T")

_bound = itemgetter(0)
_place = itemgetter(0, 1)


class Sided(Generic[T]):
    """Items with such ranges, sorted by their end."""

    def __init__(self) -> None:
        self._from: list[tuple[float, int, T]] = []
        """(low, serial, item)"""
        self._to: list[tuple[float, int, T]] = []
        """(high, serial, item)"""

    def add(self, stretch: Range, serial: int, item: T) -> None:
        """Adds an item under a serial number of its own."""
        if stretch.high == math.inf:
            insort(self._from, (stretch.low, serial, item), key=_place)
        else:
            insort(self._to, (stretch.high, serial, item), key=_place)

    def remove(self, stretch: Range, serial: int) -> None:
        """Removes it."""
        items, bound = (self._from, stretch.low) if stretch.high == math.inf else (self._to, stretch.high)
        del items[bisect_left(items, (bound, serial), key=_place)]

    def holding(self, number: float) -> Iterator[T]:
        """The items whose range has the number in it."""
        for _, _, item in self._from[: bisect_right(self._from, number, key=_bound)]:
            yield item
        for _, _, item in self._to[bisect_left(self._to, number, key=_bound) :]:
            yield item
