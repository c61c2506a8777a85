"""What a mote measures: int32 in a declared scale, and the doubles that they stand for."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from spinney import intervals
from spinney.domain import Domain
from spinney.known import Knowledge, Known

LOWEST, HIGHEST = -(2**31), 2**31 - 1
MAX_ATTRIBUTES = 29
"""So many fit beside the sum in one small int of a mote."""
_LARGEST_SCALE = 2**31


@dataclass(frozen=True, slots=True)
class Attribute:
    """A raw number stands for the double nearest to raw * p / q; it is from `low` to `high`."""

    name: str
    p: int
    q: int
    low: int
    high: int

    def __post_init__(self) -> None:
        if not self.name or not (0 < self.p <= _LARGEST_SCALE and 0 < self.q <= _LARGEST_SCALE):
            raise ValueError(f"{self.name!r}: an attribute has a name and a scale p/q, both from 1 to {_LARGEST_SCALE}")
        if not LOWEST <= self.low <= self.high <= HIGHEST:
            raise ValueError(f"{self.name}: low and high are int32, and low is not above high")

    def decode(self, raw: int) -> float:
        """The number that a raw one stands for."""
        return raw * self.p / self.q

    def domain(self, low: int, high: int, *, null: bool) -> Domain:
        """The numbers of a stretch of raw ones, and those between them."""
        return Domain(numbers=intervals.from_to(self.decode(low), self.decode(high)), null=null)


class Mote:
    """The attributes of a mote in its order, and what else is known of its publications."""

    def __init__(self, attributes: Sequence[Attribute], known: Known) -> None:
        self.attributes = tuple(attributes)
        self.index = {attribute.name: index for index, attribute in enumerate(attributes)}
        if len(self.index) != len(self.attributes) or len(self.attributes) > MAX_ATTRIBUTES:
            raise ValueError(f"a mote has at most {MAX_ATTRIBUTES} attributes, each with a name of its own")
        own = {item.name: Knowledge(item.domain(item.low, item.high, null=True)) for item in attributes}
        self.known = Known({**known.attributes, **own}, known.closed)
        """A sensor may fail at any time, whatever was announced."""
        self.environment = self.known.environment


def layout(attributes: Sequence[Attribute]) -> int:
    """The sum by which a mote knows that a program was compiled for its attributes."""
    text = "".join(f"{item.name} {item.p}/{item.q} {item.low} {item.high};" for item in attributes)
    return zlib.crc32(text.encode()) & 0xFFFF
