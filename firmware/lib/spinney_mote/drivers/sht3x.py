"""Sensirion SHT30, SHT31 and SHT35: temperature and humidity over I2C (datasheet SHT3x-DIS, version 7)."""

from ..sensor import Attribute, const, divide
from .sensirion import Sensirion

_MEASURE = const(0x2400)  # single shot, high repeatability, no clock stretching
_SOFT_RESET = const(0x30A2)
_MEASURE_MS = const(16)
_RESET_MS = const(2)
_FULL_SCALE = const(65535)


class Sht3x(Sensirion):
    """`address` is 0x44, or 0x45 with ADDR at VDD."""

    driver = "sht3x"
    address = 0x44
    measures = (
        Attribute("temperature", "C", 1, 100, -4000, 12500, "temperature"),
        Attribute("humidity", "%", 1, 100, 0, 10000, "humidity"),
    )

    def _set_up(self) -> None:
        self._send(_SOFT_RESET)
        self.clock.sleep_ms(_RESET_MS)

    def _begin(self) -> int:
        self._send(_MEASURE)
        return _MEASURE_MS

    def _fetch(self, values) -> None:
        self._receive(2)
        values[0] = divide(17500 * self._word(0), _FULL_SCALE) - 4500
        values[1] = divide(10000 * self._word(1), _FULL_SCALE)
