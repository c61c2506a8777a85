"""Bosch BME280: temperature, humidity and pressure over I2C (datasheet BST-BME280-DS002, integer formulas)."""

import struct

from ..sensor import Attribute, Sensor, SensorError, const, divide

_CHIP_ID = const(0x60)
_REGISTER_ID = const(0xD0)
_REGISTER_RESET = const(0xE0)
_REGISTER_HUMIDITY_CONTROL = const(0xF2)
_REGISTER_STATUS = const(0xF3)
_REGISTER_CONTROL = const(0xF4)
_REGISTER_CONFIG = const(0xF5)
_REGISTER_DATA = const(0xF7)
_REGISTER_CALIBRATION = const(0x88)
_REGISTER_HUMIDITY_CALIBRATION = const(0xE1)

_RESET = b"\xb6"
_OVERSAMPLING_1 = b"\x01"
_NO_FILTER = b"\x00"
_FORCED = b"\x25"  # temperature and pressure once, then sleep
_COPYING_CALIBRATION = const(0x01)
_MEASURING = const(0x08)
_RESET_MS = const(3)
_MAX_COPY_READS = const(10)
_MEASURE_MS = const(10)  # 9.3 at most with oversampling 1

_SKIPPED = b"\x80\x00\x00\x80\x00\x00\x80\x00"
_NO_20_BITS = const(0x80000)
_NO_16_BITS = const(0x8000)


class Bme280(Sensor):
    """`address` is 0x76, or 0x77 with SDO high. The chip has no checksums: its calibration is read twice."""

    driver = "bme280"
    bus_kind = "i2c"
    measures = (
        Attribute("temperature", "C", 1, 100, -4000, 8500, "temperature"),
        Attribute("humidity", "%", 1, 100, 0, 10000, "humidity"),
        Attribute("pressure", "hPa", 1, 100, 30000, 110000, "pressure"),
    )

    def __init__(self, bus, clock, names=None, address=0x76):
        Sensor.__init__(self, bus, clock, names)
        self.address = address
        self.calibration = None
        self._byte = bytearray(1)
        self._data = bytearray(8)

    def _set_up(self) -> None:
        chip_id = self._register(_REGISTER_ID)
        if chip_id != _CHIP_ID:
            raise SensorError(f"chip id 0x{chip_id:02x} is not 0x60")
        self.bus.writeto_mem(self.address, _REGISTER_RESET, _RESET)
        self.clock.sleep_ms(_RESET_MS)
        for _ in range(_MAX_COPY_READS):
            if not self._register(_REGISTER_STATUS) & _COPYING_CALIBRATION:
                break
            self.clock.sleep_ms(1)
        else:
            raise SensorError("never ready after its reset")
        self.calibration = self._read_calibration()
        self.bus.writeto_mem(self.address, _REGISTER_CONFIG, _NO_FILTER)

    def _begin(self) -> int:
        # What humidity is set to takes effect by the write of the control register that follows.
        self.bus.writeto_mem(self.address, _REGISTER_HUMIDITY_CONTROL, _OVERSAMPLING_1)
        self.bus.writeto_mem(self.address, _REGISTER_CONTROL, _FORCED)
        return _MEASURE_MS

    def _fetch(self, values) -> None:
        if self._register(_REGISTER_STATUS) & _MEASURING:
            raise SensorError("still measuring")
        data = self._data
        for i in range(len(data)):
            data[i] = _SKIPPED[i]
        self.bus.readfrom_mem_into(self.address, _REGISTER_DATA, data)
        pressure = data[0] << 12 | data[1] << 4 | data[2] >> 4
        temperature = data[3] << 12 | data[4] << 4 | data[5] >> 4
        humidity = data[6] << 8 | data[7]
        if temperature == _NO_20_BITS:
            raise SensorError("no temperature, without which there is nothing")
        fine = fine_temperature(self.calibration, temperature)
        values[0] = (fine * 5 + 128) >> 8
        if humidity != _NO_16_BITS:
            values[1] = divide(humidity_1024(self.calibration, humidity, fine) * 100, 1024)
        if pressure != _NO_20_BITS:
            values[2] = divide(pressure_256(self.calibration, pressure, fine), 256)

    def _register(self, register: int) -> int:
        self._byte[0] = 0
        self.bus.readfrom_mem_into(self.address, register, self._byte)
        return self._byte[0]

    def _read_calibration(self):
        first, second = self._calibration_bytes(), self._calibration_bytes()
        if first != second:
            raise SensorError("calibration differs when read again")
        if len(set(first)) == 1:
            raise SensorError("calibration is blank")
        return parse_calibration(first)

    def _calibration_bytes(self) -> bytes:
        data = bytearray(33)
        view = memoryview(data)
        self.bus.readfrom_mem_into(self.address, _REGISTER_CALIBRATION, view[:26])
        self.bus.readfrom_mem_into(self.address, _REGISTER_HUMIDITY_CALIBRATION, view[26:])
        return bytes(data)


def parse_calibration(data):
    """T1..T3, P1..P9, H1..H6 from the registers 0x88..0xA1 and 0xE1..0xE7."""
    first = struct.unpack_from("<HhhHhhhhhhhh", data)
    h2, h3, h4_high, low_nibbles, h5_high, h6 = struct.unpack_from("<hBbBbb", data, 26)
    h4 = h4_high * 16 + (low_nibbles & 15)
    h5 = h5_high * 16 + (low_nibbles >> 4)
    humidity = (data[25], h2, h3, h4, h5, h6)
    return first + humidity


def fine_temperature(calibration, raw: int) -> int:
    """The datasheet's t_fine, in 1/5120 degree."""
    t1, t2, t3 = calibration[:3]
    linear = (((raw >> 3) - (t1 << 1)) * t2) >> 11
    off = (raw >> 4) - t1
    return linear + ((((off * off) >> 12) * t3) >> 14)


def pressure_256(calibration, raw: int, fine: int) -> int:
    """Pascal x 256, by the datasheet's 64-bit formula."""
    p1, p2, p3, p4, p5, p6, p7, p8, p9 = calibration[3:12]
    t = fine - 128000
    offset = t * t * p6 + ((t * p5) << 17) + (p4 << 35)
    slope = (((1 << 47) + ((t * t * p3) >> 8) + ((t * p2) << 12)) * p1) >> 33
    if slope <= 0:
        raise SensorError("calibration makes no pressure")
    p = (((1048576 - raw) << 31) - offset) * 3125 // slope
    square = (p9 * (p >> 13) * (p >> 13)) >> 25
    return ((p + square + ((p8 * p) >> 19)) >> 8) + (p7 << 4)


def humidity_1024(calibration, raw: int, fine: int) -> int:
    """Percent x 1024, by the datasheet's 32-bit formula, which cuts at 0 and 100 %."""
    h1, h2, h3, h4, h5, h6 = calibration[12:]
    t = fine - 76800
    level = ((raw << 14) - (h4 << 20) - h5 * t + 16384) >> 15
    gain = ((((t * h6) >> 10) * (((t * h3) >> 11) + 32768)) >> 10) + 2097152
    x = level * ((gain * h2 + 8192) >> 14)
    x -= (((x >> 15) * (x >> 15)) >> 7) * h1 >> 4
    return min(max(x, 0), 419430400) >> 12
