"""Sensirion SPS30: particulate matter over I2C, with SEL at GND (datasheet SPS30, version 1.0)."""

from ..sensor import Attribute, NotReady, SensorError, const
from .sensirion import Sensirion

_START = b"\x00\x10\x03\x00\xac"  # floats, which every firmware of the sensor knows; with CRC
_RESET = const(0xD304)
_DATA_READY = const(0x0202)
_READ = const(0x0300)
_RESET_MS = const(100)
_START_MS = const(20)
_ASK_MS = const(5)
_WARM_UP_MS = const(30000)  # in clean air; 8 s in polluted
_INTERVAL_MS = const(1000)
_MASS_WORDS = const(8)  # mass of PM1, PM2.5, PM4 and PM10; the rest is left in the sensor
_MAX_EXPONENT = const(0xFF)


class Sps30(Sensirion):
    """Missing until it is warm: 30 s from the start of its fan, which runs until the power is off."""

    driver = "sps30"
    address = 0x69
    word_count = _MASS_WORDS
    limit_ms = _WARM_UP_MS + 1000
    measures = (
        Attribute("pm1", "ug/m3", 1, 1, 0, 1000),
        Attribute("pm25", "ug/m3", 1, 1, 0, 1000, "pm25"),
        Attribute("pm10", "ug/m3", 1, 1, 0, 1000, "pm10"),
    )

    def __init__(self, bus, clock, names=None, warm_up_ms=_WARM_UP_MS):
        Sensirion.__init__(self, bus, clock, names)
        self.warm_up_ms = warm_up_ms
        self._due_ms = 0
        self._since_ms = 0

    def _set_up(self) -> None:
        self._send(_RESET)  # it starts from idle only, and may run since before a reboot
        self.clock.sleep_ms(_RESET_MS)
        self.bus.writeto(self.address, _START)
        self.clock.sleep_ms(_START_MS)
        self._since_ms = self.clock.ticks_ms()
        self._due_ms = max(self.warm_up_ms, _INTERVAL_MS)

    def _begin(self) -> int:
        return max(0, self._due_ms - self._elapsed_ms(self._since_ms))

    def _fetch(self, values) -> None:
        self._ask(_DATA_READY, 1)
        if not self._word(0) & 1:
            raise NotReady("no new measurement")
        self._ask(_READ, _MASS_WORDS)
        self._since_ms = self.clock.ticks_ms()
        self._due_ms = _INTERVAL_MS
        values[0] = self._mass(0)
        values[1] = self._mass(2)
        values[2] = self._mass(6)

    def _ask(self, command: int, words: int) -> None:
        self._send(command)
        self.clock.sleep_ms(_ASK_MS)
        self._receive(words)

    def _mass(self, i: int) -> int:
        return nearest_integer(self._word(i), self._word(i + 1))


def nearest_integer(high: int, low: int) -> int:
    """The integer nearest an IEEE single, given as two words, without a float; what is no number is no reading."""
    exponent = (high >> 7) & 0xFF
    if exponent == _MAX_EXPONENT:
        raise SensorError("not a number")
    if exponent == 0:
        return 0
    shift = 150 - exponent  # value = mantissa / 2 ** shift
    mantissa = (high & 0x7F | 0x80) << 16 | low
    if shift > 24:
        size = 0
    elif shift > 0:
        size = (mantissa + (1 << (shift - 1))) >> shift
    elif shift > -7:
        size = mantissa << -shift
    else:
        raise SensorError("too large for a reading")
    return -size if high & 0x8000 else size
