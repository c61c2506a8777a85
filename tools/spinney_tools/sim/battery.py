"""What a mote's battery has given: by current while awake and asleep, by wake, by advert and by byte sent."""

from __future__ import annotations

from dataclasses import dataclass

_UC_PER_MAH = 3_600_000.0


@dataclass(frozen=True)
class Consumption:
    """An ESP32-C3's, rounded; what is measured on a board replaces it."""

    awake_ma: float = 22.0
    light_sleep_ma: float = 0.35
    deep_sleep_ma: float = 0.008
    wake_uc: float = 9_000.0
    """From deep sleep to the first line of main.py: 300 ms at 30 mA."""
    advert_uc: float = 110.0
    """The radio's ramp on three channels, before the first byte."""
    byte_uc: float = 2.2
    """130 mA for the 8 us of a byte, twice over: on air, and to and from the stack."""


class Battery:
    """`capacity_mah`, of which `percent` is left; a mote stops at 0."""

    def __init__(self, capacity_mah: float = 1000.0, consumption: Consumption | None = None) -> None:
        self.capacity_mah = capacity_mah
        self.consumption = consumption or Consumption()
        self._used_uc = 0.0

    @property
    def used_mah(self) -> float:
        return self._used_uc / _UC_PER_MAH

    @property
    def percent(self) -> float:
        return max(0.0, 100.0 * (1.0 - self.used_mah / self.capacity_mah))

    def drain(self, percent: float) -> None:
        """Takes so much of the capacity at once, for a test or a scenario."""
        self._used_uc += percent / 100.0 * self.capacity_mah * _UC_PER_MAH

    def pass_time(self, seconds: float, current_ma: float) -> None:
        self._used_uc += seconds * current_ma * 1000.0

    def wake(self) -> None:
        self._used_uc += self.consumption.wake_uc

    def radio(self, adverts: int, sent_bytes: int) -> None:
        self._used_uc += adverts * self.consumption.advert_uc + sent_bytes * self.consumption.byte_uc

    def millivolts(self) -> int:
        """Of one lithium cell under a light load, straight from 4.2 V to 3.3 V: what the divider's input shows."""
        return round(3300 + 9 * self.percent)
