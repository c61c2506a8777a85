"""Finds the few filters that a publication, or another filter, needs to be compared with; in plain Python.

Every filter has a slot, a bit in Python's long integers. For each attribute the index keeps, per stretch of its values,
the mask of the slots that a value there leaves possible; the masks of all attributes are combined with AND, a thousand
filters at a time. Answers are supersets: stretches are coarse, and bounds are only what a filter needs to be true.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .bounds import AnyValue, Bound, Bounds, Values
from .boxes import Range

STRETCHES = 64
"""Pieces into which an attribute's values are cut, at quantiles of the bounds seen."""

_FIRST_CUT = 8
"""So many bounds are collected before the values are cut for the first time."""


class Possible(NamedTuple):
    """What an attribute of publications to come can be, at most."""

    numbers: Range | None
    """Between which; None for no number at all."""
    values: frozenset[str | bool] | None
    """Which strings and booleans; None for any."""


def slots(mask: int) -> Iterator[int]:
    """The set bits of a mask, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Column:
    """What the filters say of one attribute."""

    def __init__(self) -> None:
        self.constrained = 0
        """Slots that say something of it; only these can be ruled out by it."""
        self._ranges: dict[int, Range] = {}
        self._undemanding = 0
        """Slots that any value will do for."""
        self._choosy = 0
        """Slots that need one of some values."""
        self._values: dict[object, int] = {}
        self._edges: list[float] = []
        self._low_at_most: list[int] = [0]
        """[i]: slots whose low bound lies in stretch i or before..."""
        self._high_at_least: list[int] = [0]
        """...and whose high bound lies in stretch i or after."""
        self._cut_at = _FIRST_CUT

    def add(self, slot: int, bound: Bound) -> None:
        bit = 1 << slot
        self.constrained |= bit
        if isinstance(bound, AnyValue):
            self._undemanding |= bit
            return
        if isinstance(bound, Values):
            self._choosy |= bit
            for value in bound.values:
                self._values[_key(value)] = self._values.get(_key(value), 0) | bit
            return
        self._ranges[slot] = bound
        if len(self._ranges) >= self._cut_at:
            self._cut()
            return
        for i in range(self._stretch(bound.low), len(self._edges) + 1):
            self._low_at_most[i] |= bit
        for i in range(self._stretch(bound.high) + 1):
            self._high_at_least[i] |= bit

    def remove(self, slot: int, bound: Bound) -> None:
        bit = 1 << slot
        self.constrained &= ~bit
        if isinstance(bound, AnyValue):
            self._undemanding &= ~bit
            return
        if isinstance(bound, Values):
            self._choosy &= ~bit
            for value in bound.values:
                self._values[_key(value)] &= ~bit
                if not self._values[_key(value)]:
                    del self._values[_key(value)]
            return
        del self._ranges[slot]
        for i in range(self._stretch(bound.low), len(self._edges) + 1):
            self._low_at_most[i] &= ~bit
        for i in range(self._stretch(bound.high) + 1):
            self._high_at_least[i] &= ~bit

    def _stretch(self, number: float) -> int:
        return bisect_right(self._edges, number)

    def _cut(self) -> None:
        """Cuts the values anew, so that about equally many bounds fall into each stretch."""
        self._cut_at = 2 * len(self._ranges)
        ends = sorted({end for bound in self._ranges.values() for end in (bound.low, bound.high)})
        step = max(1, len(ends) // STRETCHES)
        self._edges = ends[step // 2 :: step]
        count = len(self._edges) + 1
        lows, highs = _Bits(count), _Bits(count)
        for slot, bound in self._ranges.items():
            lows.set(self._stretch(bound.low), slot)
            highs.set(self._stretch(bound.high), slot)
        self._low_at_most, self._high_at_least = lows.masks(), highs.masks()
        for i in range(1, count):
            self._low_at_most[i] |= self._low_at_most[i - 1]
            self._high_at_least[-1 - i] |= self._high_at_least[-i]

    def holding(self, value: Any) -> int:
        """Constrained slots that the value may leave possible."""
        if value.__class__ is float or value.__class__ is int:
            stretch = bisect_right(self._edges, value)
            return self._low_at_most[stretch] & self._high_at_least[stretch] | self._undemanding
        return self._values.get(_key(value), 0) | self._undemanding

    def containing(self, bound: Bound) -> int:
        """Constrained slots whose bound may contain this one."""
        if isinstance(bound, Range):
            low, high = self._stretch(bound.low), self._stretch(bound.high)
            return self._low_at_most[low] & self._high_at_least[high] | self._undemanding
        if isinstance(bound, AnyValue):
            return self._undemanding
        mask = self.constrained
        for value in bound.values:
            mask &= self.holding(value)
        return mask

    def within(self, bound: Bound) -> int:
        """Constrained slots whose bound may lie within this one."""
        if isinstance(bound, AnyValue):
            return self.constrained
        if isinstance(bound, Values):
            mask = 0
            for value in bound.values:
                mask |= self._values.get(_key(value), 0)
            return mask
        low, high = self._stretch(bound.low), self._stretch(bound.high)
        too_low = self._low_at_most[low - 1] if low else 0
        too_high = self._high_at_least[high + 1] if high < len(self._edges) else 0
        return self.constrained & ~(too_low | too_high)

    def meeting(self, possible: Possible) -> int:
        """Constrained slots whose bound some possible value may hold."""
        mask = self._undemanding
        if possible.numbers is not None:
            low, high = self._stretch(possible.numbers.low), self._stretch(possible.numbers.high)
            mask |= self._low_at_most[high] & self._high_at_least[low]
        if possible.values is None:
            return mask | self._choosy
        for value in possible.values:
            mask |= self._values.get(_key(value), 0)
        return mask


def _key(value: object) -> object:
    """A key that keeps TRUE apart from 1."""
    return (value,) if isinstance(value, bool) else value


class _Bits:
    """Masks under construction, as bytes: setting a bit in a long integer copies it."""

    def __init__(self, count: int) -> None:
        self._bytes = [bytearray() for _ in range(count)]

    def set(self, index: int, slot: int) -> None:
        mask = self._bytes[index]
        if slot // 8 >= len(mask):
            mask.extend(bytes(slot // 8 + 1 - len(mask)))
        mask[slot // 8] |= 1 << slot % 8

    def masks(self) -> list[int]:
        return [int.from_bytes(mask, "little") for mask in self._bytes]


class MaskIndex:
    """Slots with bounds."""

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}
        self._bounds: dict[int, Bounds] = {}
        self._free: list[int] = []
        self.live = 0
        """The mask of all slots in use."""

    def __len__(self) -> int:
        return len(self._bounds)

    def add(self, bounds: Bounds) -> int:
        """Takes a slot for something with these bounds."""
        slot = self._free.pop() if self._free else len(self._bounds)
        self._bounds[slot] = bounds
        self.live |= 1 << slot
        for name, bound in bounds.items():
            self._columns.setdefault(name, _Column()).add(slot, bound)
        return slot

    def remove(self, slot: int) -> None:
        """Gives a slot back."""
        for name, bound in self._bounds.pop(slot).items():
            self._columns[name].remove(slot, bound)
            if not self._columns[name].constrained:
                del self._columns[name]
        self.live &= ~(1 << slot)
        self._free.append(slot)

    def candidates(self, publication: Mapping[str, Any], among: int) -> int:
        """The slots among a mask that the publication may match."""
        get = publication.get
        for name, column in self._columns.items():
            value = get(name)
            ruled = among & column.constrained
            if ruled:
                among ^= ruled if value is None else ruled & ~column.holding(value)
        return among

    def containing(self, bounds: Bounds) -> int:
        """The slots whose bounds may contain these."""
        mask = self.live
        for name, column in self._columns.items():
            bound = bounds.get(name)
            mask &= ~column.constrained if bound is None else ~column.constrained | column.containing(bound)
        return mask

    def within(self, bounds: Bounds) -> int:
        """The slots whose bounds may lie within these."""
        mask = self.live
        for name, bound in bounds.items():
            column = self._columns.get(name)
            mask &= column.within(bound) if column else 0
        return mask

    def meeting(self, possible: Mapping[str, Possible]) -> int:
        """The slots that a publication may match which has none but these attributes, each with a possible value."""
        mask = self.live
        for name, column in self._columns.items():
            found = possible.get(name)
            mask &= ~column.constrained if found is None else ~column.constrained | column.meeting(found)
        return mask
