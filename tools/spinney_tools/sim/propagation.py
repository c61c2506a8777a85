"""What a receiver gets of a packet: signal strength by distance, and the chance that it is lost."""

from __future__ import annotations

import math
import random
import zlib
from dataclasses import dataclass

Place = tuple[float, float]
"""East and north of the area's corner, in metres."""

_NEAREST_M = 0.5
_CAPTURE_DB = 6.0
"""A packet is received through another that is weaker by this."""


@dataclass(frozen=True)
class Propagation:
    """Log-distance path loss with shadowing per pair and fading per packet, as outdoors at 2.4 GHz."""

    path_loss_1m_db: float = 40.0
    exponent: float = 2.6
    shadowing_db: float = 3.0
    fading_db: float = 1.5
    sensitivity_dbm: float = -97.0
    seed: int = 0

    def mean_dbm(self, sender: str, sender_at: Place, receiver: str, receiver_at: Place, power_dbm: float) -> float:
        """Without fading; the same in both directions."""
        metres = max(_NEAREST_M, math.dist(sender_at, receiver_at))
        loss_db = self.path_loss_1m_db + 10 * self.exponent * math.log10(metres)
        return power_dbm - loss_db + self._shadow_db(sender, receiver)

    def faded_dbm(self, mean_dbm: float, chance: random.Random) -> float:
        return mean_dbm + (chance.gauss(0.0, self.fading_db) if self.fading_db else 0.0)

    def loss(self, rssi_dbm: float) -> float:
        """The chance that a packet of this strength is lost: 1 below the sensitivity, soon 0 above."""
        margin_db = rssi_dbm - self.sensitivity_dbm
        return 1.0 if margin_db < 0 else math.exp(-margin_db)

    def range_m(self, power_dbm: float = 0.0) -> float:
        """Where the mean strength without shadowing meets the sensitivity."""
        return float(10 ** ((power_dbm - self.path_loss_1m_db - self.sensitivity_dbm) / (10 * self.exponent)))

    def _shadow_db(self, one: str, other: str) -> float:
        if not self.shadowing_db:
            return 0.0
        pair = f"{self.seed}/{min(one, other)}/{max(one, other)}".encode()
        # two halves of a checksum, added up: near enough to a bell, and the same on every machine
        mixed = zlib.crc32(pair)
        return self.shadowing_db * ((mixed & 0xFFFF) + (mixed >> 16) - 0xFFFF) / 0x7FFF


@dataclass(frozen=True)
class Interference:
    """Another network, a microwave oven: within `radius_m`, it spoils this share of all packets."""

    place: Place
    radius_m: float
    share: float


def survives(rssi_dbm: float, others_dbm: list[float]) -> bool:
    """Whether a packet is received through others on the air at the same time."""
    return all(rssi_dbm >= other + _CAPTURE_DB for other in others_dbm)
