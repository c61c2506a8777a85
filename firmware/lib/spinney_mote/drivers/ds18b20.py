"""Maxim DS18B20: temperature over 1-Wire (datasheet DS18B20, 19-7487); a `onewire.OneWire` is handed in."""

from ..sensor import Attribute, Sensor, SensorError, const, divide

_SKIP_ROM = const(0xCC)
_MATCH_ROM = const(0x55)
_CONVERT = const(0x44)
_READ_SCRATCHPAD = const(0xBE)
_CONVERT_MS = const(750)  # 12 bits
_FAMILY = const(0x28)
_POWER_ON = const(0x0550)  # 85 degrees, before any conversion
_POWER_ON_RESERVED = const(0x0C)
_CONFIGURATION = const(4)
_RESERVED = const(6)


class Ds18b20(Sensor):
    """Without `rom` it must be alone on its wire; with it, eight bytes or 16 hexadecimal digits, it is one of many."""

    driver = "ds18b20"
    bus_kind = "onewire"
    limit_ms = 900
    measures = (Attribute("temperature", "C", 1, 100, -5500, 12500, "temperature"),)

    def __init__(self, bus, clock, names=None, rom=None):
        Sensor.__init__(self, bus, clock, names)
        self.rom = None if rom is None else check_rom(rom)
        self._scratchpad = bytearray(9)

    def _begin(self) -> int:
        self._select()
        self.bus.writebyte(_CONVERT)
        return _CONVERT_MS

    def _fetch(self, values) -> None:
        self._select()
        self.bus.writebyte(_READ_SCRATCHPAD)
        data = self._scratchpad
        for i in range(len(data)):
            data[i] = self.bus.readbyte()
        if dallas_crc8(data):
            raise SensorError("wrong CRC")
        # A wire that is held low reads as zeros, whose CRC is right; five bits of the configuration are always 1.
        if data[_CONFIGURATION] & 0x9F != 0x1F:
            raise SensorError("wire held low, or another kind of sensor")
        # Some makers' sensors say 0x0C always; then 85.00 degrees, and that alone, is never a reading.
        raw = data[1] << 8 | data[0]
        if raw == _POWER_ON and data[_RESERVED] == _POWER_ON_RESERVED:
            raise SensorError("lost power while it measured")
        if raw & 0x8000:
            raw -= 0x10000
        values[0] = divide(raw * 100, 16)

    def _select(self) -> None:
        if not self.bus.reset():
            raise SensorError("no answer")
        if self.rom is None:
            self.bus.writebyte(_SKIP_ROM)
            return
        self.bus.writebyte(_MATCH_ROM)
        for byte in self.rom:
            self.bus.writebyte(byte)


def check_rom(rom) -> bytes:
    """Eight bytes of a DS18B20's address, from bytes or hexadecimal digits; ValueError for anything else."""
    if isinstance(rom, str):
        rom = bytes([int(rom[i : i + 2], 16) for i in range(0, len(rom), 2)])
    if len(rom) != 8 or rom[0] != _FAMILY or dallas_crc8(rom):
        raise ValueError("a rom is eight bytes from 28 to their CRC")
    return rom


def dallas_crc8(data) -> int:
    """CRC-8 of Maxim's 1-Wire parts; 0 over data that end in their own CRC."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x8C if crc & 1 else crc >> 1
    return crc
