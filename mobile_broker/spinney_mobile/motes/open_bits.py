"""Bits that a mote does not know, and its owner does: they are to be written down to it (rule S2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from spinney.mote.protocol import Event, EventFlag

MAX_WRITES: Final = 3
"""Attempts after one sample that the mote left undecided; then the next such sample is waited for."""


class OpenBits:
    """Of one mote, by the numbers of its filters."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}
        """Attempts."""
        self._refused: dict[int, int] = {}
        """The newest event at that time: what the mote refused then, it would refuse again."""

    def told(self, events: Iterable[Event]) -> None:
        """The owner has taken these events of a sample, and knows the bits that they left undecided."""
        for event in events:
            if event.is_undecided:
                self._left[event.filter_id] = MAX_WRITES
            elif EventFlag.LABEL in event.flags:
                self.close(event.filter_id)

    def due(self, newest: int) -> Sequence[int]:
        """The filters to write the bit of, where event `newest` is the last that the owner has."""
        return [number for number in self._left if self._refused.get(number) != newest]

    def refused(self, number: int, newest: int) -> None:
        """The mote does not take it: most often it has told something since."""
        self._refused[number] = newest
        self._left[number] = self._left.get(number, 1) - 1
        if not self._left[number]:
            self.close(number)

    def close(self, number: int) -> None:
        """The mote knows the bit, or nobody does."""
        self._left.pop(number, None)
        self._refused.pop(number, None)

    def clear(self) -> None:
        """The mote has started anew: what it told of its bits is over."""
        self._left.clear()
        self._refused.clear()
