"""The city of `spinney up`: squares in the middle of Madrid, a mobile broker on each, motes on the posts around it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..sim.propagation import Place

METRES_PER_DEGREE: Final = 111_320.0
NEAREST_M, FARTHEST_M = 12.0, 95.0
"""Of a mote from its mobile broker: Bluetooth reaches some 150 m over a square."""
CORNER: Final = (40.4060, -3.7100)
"""South-west of everything: where the radio's metres begin."""


@dataclass(frozen=True)
class Square:
    """A mobile broker's place; its name is the broker's."""

    name: str
    lat: float
    long: float


SQUARES: Final = (
    Square("sol", 40.41694, -3.70346),
    Square("callao", 40.41994, -3.70583),
    Square("cibeles", 40.41935, -3.69310),
    Square("atocha", 40.40815, -3.69270),
    Square("retiro", 40.41530, -3.68870),
)


@dataclass(frozen=True)
class Spot:
    """A mote's place."""

    name: str
    address: str
    square: Square
    lat: float
    long: float


@dataclass(frozen=True)
class Plan:
    """The same for the same numbers, in every process that asks."""

    motes: int = 100
    brokers: int = len(SQUARES)
    seed: int = 1
    every_s: int = 5
    """Between two samples of a mote."""

    @property
    def squares(self) -> Sequence[Square]:
        """Those with a mobile broker."""
        return SQUARES[: self.brokers]

    def spots(self) -> list[Spot]:
        """Of all motes, taking turns among the squares."""
        chance = random.Random(f"spots {self.seed}")  # noqa: S311 - repeatable on purpose
        return [self._spot(number, chance) for number in range(self.motes)]

    def _spot(self, number: int, chance: random.Random) -> Spot:
        square = self.squares[number % self.brokers]
        angle = chance.uniform(0.0, math.tau)
        metres = math.sqrt(chance.uniform(NEAREST_M**2, FARTHEST_M**2))
        lat = square.lat + metres * math.cos(angle) / METRES_PER_DEGREE
        long = square.long + metres * math.sin(angle) / _metres_per_degree_east(square.lat)
        name = f"{square.name}-{number // self.brokers + 1:02d}"
        return Spot(name, address(0xC0, number), square, round(lat, 6), round(long, 6))


def on_air(lat: float, long: float) -> Place:
    """A place as the radio has it: metres to the east and to the north."""
    return (long - CORNER[1]) * _metres_per_degree_east(CORNER[0]), (lat - CORNER[0]) * METRES_PER_DEGREE


def _metres_per_degree_east(lat: float) -> float:
    return METRES_PER_DEGREE * math.cos(math.radians(lat))


def address(first: int, number: int) -> str:
    """A static random Bluetooth address."""
    return ":".join(f"{byte:02X}" for byte in (first, 0, *number.to_bytes(4, "big")))
