"""How Sensirion's sensors talk over I2C: commands of two bytes, words of two bytes, and a CRC-8 after each word."""

from ..sensor import Sensor, SensorError, const

_POLYNOMIAL = const(0x31)


def crc8(data, start: int, end: int) -> int:
    """CRC-8 of data[start:end]: polynomial 0x31, from 0xFF, nothing reflected."""
    crc = 0xFF
    for i in range(start, end):
        crc ^= data[i]
        for _ in range(8):
            crc = (crc << 1) ^ _POLYNOMIAL if crc & 0x80 else crc << 1
            crc &= 0xFF
    return crc


class Sensirion(Sensor):
    """A sensor of commands and checked words."""

    bus_kind = "i2c"
    address = 0
    word_count = 2

    def __init__(self, bus, clock, names=None, address=None):
        Sensor.__init__(self, bus, clock, names)
        if address is not None:
            self.address = address
        self._buffer = bytearray(3 * self.word_count)
        self._view = memoryview(self._buffer)
        self._command = bytearray(2)

    def _send(self, command: int) -> None:
        self._command[0] = command >> 8
        self._command[1] = command & 0xFF
        self.bus.writeto(self.address, self._command)

    def _receive(self, count: int) -> None:
        """Reads checked words into the buffer, where `_word` finds them."""
        buffer = self._buffer
        for i in range(3 * count):
            buffer[i] = 0  # the CRC of a zero word is not 0: what is not received is noticed
        self.bus.readfrom_into(self.address, self._view[: 3 * count])
        for i in range(count):
            if crc8(buffer, 3 * i, 3 * i + 2) != buffer[3 * i + 2]:
                raise SensorError(f"wrong CRC in word {i}")

    def _word(self, i: int) -> int:
        return self._buffer[3 * i] << 8 | self._buffer[3 * i + 1]
