"""Sensirion SHT40, SHT41 and SHT45: temperature and humidity over I2C (datasheet SHT4x, version 6)."""

from ..sensor import Attribute, const, divide
from .sensirion import Sensirion

_MEASURE = b"\xfd"  # high precision
_SOFT_RESET = b"\x94"
_MEASURE_MS = const(10)
_RESET_MS = const(2)
_FULL_SCALE = const(65535)


class Sht4x(Sensirion):
    """`address` is 0x44, 0x45 or 0x46, by the part's order code."""

    driver = "sht4x"
    address = 0x44
    measures = (
        Attribute("temperature", "C", 1, 100, -4000, 12500, "temperature"),
        Attribute("humidity", "%", 1, 100, 0, 10000, "humidity"),
    )

    def _set_up(self) -> None:
        self.bus.writeto(self.address, _SOFT_RESET)
        self.clock.sleep_ms(_RESET_MS)

    def _begin(self) -> int:
        self.bus.writeto(self.address, _MEASURE)
        return _MEASURE_MS

    def _fetch(self, values) -> None:
        self._receive(2)
        values[0] = divide(17500 * self._word(0), _FULL_SCALE) - 4500
        # The formula passes 0 and 100 % a little at the ends; the datasheet says to crop.
        values[1] = min(10000, max(0, divide(12500 * self._word(1), _FULL_SCALE) - 600))
