"""Plantower PMS5003: particulate matter over UART, 9600 8N1 (data manual, version 2.3)."""

from ..sensor import Attribute, Sensor, SensorError, const

_WAKE_UP = b"\x42\x4d\xe4\x00\x01\x01\x74"
_PASSIVE = b"\x42\x4d\xe1\x00\x00\x01\x70"
_ASK = b"\x42\x4d\xe2\x00\x00\x01\x71"
_FRAME_BYTES = const(32)
_LENGTH = const(28)
_WARM_UP_MS = const(30000)
_COMMAND_MS = const(100)
_READ_LIMIT_MS = const(1000)
_POLL_MS = const(10)
_MAX_STALE_BYTES = const(1024)
_ATMOSPHERIC = const(10)  # where PM1, PM2.5 and PM10 under atmospheric conditions begin


class Pms5003(Sensor):
    """Missing until it is warm: 30 s from its waking up, as its fan must settle."""

    driver = "pms5003"
    bus_kind = "uart"
    limit_ms = _WARM_UP_MS + 2000
    measures = (
        Attribute("pm1", "ug/m3", 1, 1, 0, 10000),
        Attribute("pm25", "ug/m3", 1, 1, 0, 10000, "pm25"),
        Attribute("pm10", "ug/m3", 1, 1, 0, 10000, "pm10"),
    )

    def __init__(self, bus, clock, names=None, warm_up_ms=_WARM_UP_MS):
        Sensor.__init__(self, bus, clock, names)
        self.warm_up_ms = warm_up_ms
        self._since_ms = 0
        self._is_warm = False
        self._frame = bytearray(_FRAME_BYTES)
        self._view = memoryview(self._frame)

    def _set_up(self) -> None:
        self.bus.write(_WAKE_UP)
        self.clock.sleep_ms(_COMMAND_MS)
        self.bus.write(_PASSIVE)
        self.clock.sleep_ms(_COMMAND_MS)
        self._since_ms = self.clock.ticks_ms()
        self._is_warm = False

    def _begin(self) -> int:
        """Nothing is asked yet: the answer would lie about in the UART while the sensor gets warm."""
        if self._is_warm:
            return 0
        return max(0, self.warm_up_ms - self._elapsed_ms(self._since_ms))

    def _fetch(self, values) -> None:
        self._is_warm = True
        self._drain()
        self.bus.write(_ASK)
        self._receive_frame()
        frame = self._frame
        if frame[2] << 8 | frame[3] != _LENGTH:
            raise SensorError("wrong length of its frame")
        if sum(self._view[:30]) != frame[30] << 8 | frame[31]:
            raise SensorError("wrong checksum")
        for i in range(3):
            at = _ATMOSPHERIC + 2 * i
            values[i] = frame[at] << 8 | frame[at + 1]

    def _drain(self) -> None:
        """Drops what came unasked: answers to commands, and frames from before the passive mode."""
        left = _MAX_STALE_BYTES
        while left > 0 and self.bus.any():
            count = self.bus.readinto(self._view)
            if not count:
                return
            left -= count

    def _receive_frame(self) -> None:
        """Fills the frame from its first two bytes on; whatever comes before them is dropped."""
        started_ms = self.clock.ticks_ms()
        filled = 0
        while filled < _FRAME_BYTES:
            if self._elapsed_ms(started_ms) > _READ_LIMIT_MS:
                raise SensorError("its frame broke off" if filled else "no answer")
            count = self.bus.any() and self.bus.readinto(self._view[filled:])
            if not count:
                self.clock.sleep_ms(_POLL_MS)
                continue
            filled = self._align(filled + count)

    def _align(self, filled: int) -> int:
        """Moves the first possible start of a frame to the front; gives how many bytes are left."""
        frame = self._frame
        for at in range(filled):
            if frame[at] == 0x42 and (at + 1 == filled or frame[at + 1] == 0x4D):
                if at:
                    for i in range(at, filled):
                        frame[i - at] = frame[i]
                return filled - at
        return 0
