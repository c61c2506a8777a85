"""Sensirion SCD40 and SCD41: carbon dioxide, temperature and humidity over I2C (datasheet SCD4x, version 1.4)."""

from ..sensor import Attribute, NotReady, const, divide
from .sensirion import Sensirion

_START_PERIODIC = const(0x21B1)
_STOP_PERIODIC = const(0x3F86)
_SINGLE_SHOT = const(0x219D)
_DATA_READY = const(0xE4B8)
_READ = const(0xEC05)
_WAKE_UP = const(0x36F6)

_STOP_MS = const(500)
_WAKE_MS = const(30)
_COMMAND_MS = const(2)
_INTERVAL_MS = const(5000)
_READY_BITS = const(0x7FF)
_FULL_SCALE = const(65535)


class Scd4x(Sensirion):
    """Periodic by default: a measurement each 5 s. `single_shot` (SCD41 only) measures on demand and draws less."""

    driver = "scd4x"
    address = 0x62
    word_count = 3
    limit_ms = 6000
    # The sensor says 0 ppm where it could not measure.
    measures = (
        Attribute("co2", "ppm", 1, 1, 1, 40000, "co2"),
        Attribute("temperature", "C", 1, 100, -1000, 6000, "temperature"),
        Attribute("humidity", "%", 1, 100, 0, 10000, "humidity"),
    )

    def __init__(self, bus, clock, names=None, single_shot=False):
        Sensirion.__init__(self, bus, clock, names)
        self.single_shot = single_shot
        self._last_ms = 0

    def _set_up(self) -> None:
        """Ends a periodic measurement that runs since before a reboot: it refuses all else."""
        self._wake()
        self.clock.sleep_ms(_WAKE_MS)
        self._send(_STOP_PERIODIC)
        self.clock.sleep_ms(_STOP_MS)
        if not self.single_shot:
            self._send(_START_PERIODIC)
            self._last_ms = self.clock.ticks_ms()

    def _wake(self) -> None:
        try:
            self._send(_WAKE_UP)
        except OSError:
            return  # a sleeping sensor wakes up and does not acknowledge

    def _begin(self) -> int:
        if self.single_shot:
            self._send(_SINGLE_SHOT)
            return _INTERVAL_MS
        return max(0, _INTERVAL_MS - self._elapsed_ms(self._last_ms))

    def _fetch(self, values) -> None:
        self._ask(_DATA_READY, 1)
        if not self._word(0) & _READY_BITS:
            raise NotReady("no new measurement")
        self._ask(_READ, 3)
        self._last_ms = self.clock.ticks_ms()
        values[0] = self._word(0)
        values[1] = divide(17500 * self._word(1), _FULL_SCALE) - 4500
        values[2] = divide(10000 * self._word(2), _FULL_SCALE)

    def _ask(self, command: int, words: int) -> None:
        self._send(command)
        self.clock.sleep_ms(_COMMAND_MS)
        self._receive(words)
