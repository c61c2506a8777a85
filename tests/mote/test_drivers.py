"""The drivers against recorded dialogues, on buses that keep to the datasheets, and with all that goes wrong there."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import sensor_kit as kit
from hypothesis import given
from hypothesis import strategies as st
from spinney_mote.drivers import bme280, ds18b20, load, sensirion, sps30
from spinney_mote.sensor import Sensor, SensorError


@dataclass
class Bench:
    """A driver on its fake bus, with what it should read there."""

    clock: kit.FakeClock
    bus: Any
    sensor: Sensor
    values: list[int]
    device: Any


def i2c_bench(driver: str, device: Callable[[kit.FakeClock], kit.Device], values: list[int], **options: Any) -> Bench:
    clock = kit.FakeClock()
    made = device(clock)
    bus = kit.FakeI2c(clock, {})
    sensor = load(driver)(bus, clock, **options)
    bus.devices[sensor.address] = made
    clock.passes(3)
    return Bench(clock, bus, sensor, values, made)


def bme280_bench() -> Bench:
    def device(clock: kit.FakeClock) -> kit.Bme280Device:
        return kit.Bme280Device(clock, kit.BME280_CALIBRATION, kit.BME280_DATA)

    return i2c_bench("bme280", device, kit.BME280_VALUES)


def sht3x_bench() -> Bench:
    answer, values = kit.SHT31_ANSWERS[0]
    return i2c_bench("sht3x", lambda clock: kit.Sht3xDevice(clock, answer), values)


def sht4x_bench() -> Bench:
    # The words of the SHT31: the same temperature, and humidity by the SHT4x's own formula.
    answer, _ = kit.SHT31_ANSWERS[0]
    return i2c_bench("sht4x", lambda clock: kit.Sht4xDevice(clock, answer), [2215, 4765])


def scd4x_bench(is_running: bool = False, **options: Any) -> Bench:
    def device(clock: kit.FakeClock) -> kit.Scd4xDevice:
        return kit.Scd4xDevice(clock, kit.SCD4X_ANSWER, is_running)

    return i2c_bench("scd4x", device, kit.SCD4X_VALUES, **options)


def sps30_bench(is_running: bool = False) -> Bench:
    return i2c_bench("sps30", lambda clock: kit.Sps30Device(clock, kit.SPS30_ANSWER, is_running), kit.SPS30_VALUES)


def ds18b20_bench(**options: Any) -> Bench:
    clock = kit.FakeClock()
    scratchpad, values = kit.DS18B20_SCRATCHPADS[0]
    wire = kit.FakeOneWire(clock, kit.DS18B20_ROM, scratchpad)
    return Bench(clock, wire, load("ds18b20")(wire, clock, **options), values, wire)


def pms5003_bench() -> Bench:
    clock = kit.FakeClock()
    uart = kit.FakeUart(clock, kit.PMS5003_FRAME)
    return Bench(clock, uart, load("pms5003")(uart, clock), kit.PMS5003_VALUES, uart)


I2C = {
    "bme280": bme280_bench,
    "sht3x": sht3x_bench,
    "sht4x": sht4x_bench,
    "scd4x": scd4x_bench,
    "scd4x single shot": lambda: scd4x_bench(single_shot=True),
    "sps30": sps30_bench,
}
ALL = {**I2C, "ds18b20": ds18b20_bench, "pms5003": pms5003_bench}
CHECKED = {name: bench for name, bench in I2C.items() if name != "bme280"}

each = pytest.mark.parametrize("bench", ALL.values(), ids=ALL.keys())
each_on_i2c = pytest.mark.parametrize("bench", I2C.values(), ids=I2C.keys())
each_with_crc = pytest.mark.parametrize("bench", CHECKED.values(), ids=CHECKED.keys())


def fails(bench: Bench, words: str) -> None:
    """The next read is missing altogether, for a reason that has these words."""
    assert bench.sensor.read() == [None] * len(bench.values)
    assert words in (bench.sensor.error or "")
    bench.clock.passes(bench.sensor.back_off_ms)


@each
def test_recorded_dialogues_read_as_recorded(bench: Callable[[], Bench]) -> None:
    it = bench()
    for _ in range(3):
        assert it.sensor.read() == it.values, it.sensor.error
        assert it.sensor.error is None
        it.clock.passes(10_000)


@each
def test_reads_in_a_row_wait_as_long_as_the_sensor_needs(bench: Callable[[], Bench]) -> None:
    it = bench()
    for _ in range(5):
        assert it.sensor.read() == it.values, it.sensor.error


@each
def test_a_read_takes_no_longer_than_said(bench: Callable[[], Bench]) -> None:
    it = bench()
    for _ in range(3):
        before_us = it.clock.us
        it.sensor.read()
        assert (it.clock.us - before_us) / 1000 <= it.sensor.limit_ms


@each
def test_a_sensor_that_is_taken_off_is_missing_and_comes_back(bench: Callable[[], Bench]) -> None:
    it = bench()
    it.sensor.read()
    take_off(it, True)
    before_us = it.clock.us
    fails(it, "no answer")
    assert (it.clock.us - before_us) / 1000 <= it.sensor.limit_ms + it.sensor.back_off_ms
    take_off(it, False)
    assert it.sensor.read() == it.values, it.sensor.error


def take_off(it: Bench, is_off: bool) -> None:
    if isinstance(it.bus, kit.FakeI2c):
        it.bus.devices = {} if is_off else {it.sensor.address: it.device}  # type: ignore[attr-defined]
    elif isinstance(it.bus, kit.FakeOneWire):
        it.bus.is_there = not is_off
    else:
        it.bus.is_dead = is_off


@each_on_i2c
def test_a_stuck_bus_is_an_error_within_bounds_and_then_left_alone(bench: Callable[[], Bench]) -> None:
    it = bench()
    it.sensor.read()
    it.bus.is_stuck = True
    before_us = it.clock.us
    assert it.sensor.read() == [None] * len(it.values)
    assert "bus timed out" in (it.sensor.error or "")
    assert (it.clock.us - before_us) / 1000 <= it.sensor.limit_ms + 2 * kit.BUS_TIMEOUT_US / 1000
    before_us = it.clock.us
    it.sensor.read()
    assert it.clock.us == before_us
    it.bus.is_stuck = False
    it.clock.passes(it.sensor.back_off_ms)
    assert it.sensor.read() == it.values


@each_with_crc
def test_any_byte_damaged_in_any_bit_is_noticed(bench: Callable[[], Bench]) -> None:
    it = bench()
    it.sensor.read()
    for at in range(3 * len(it.values) if it.sensor.driver != "sps30" else 24):
        for bit in range(8):
            it.bus.corrupt = {at: 1 << bit}
            fails(it, "wrong CRC in word")
            it.bus.corrupt = {}
            assert it.sensor.read() == it.values, (at, bit, it.sensor.error)


@each_with_crc
def test_a_short_answer_is_noticed_though_the_last_one_was_whole(bench: Callable[[], Bench]) -> None:
    it = bench()
    it.sensor.read()
    for count in range(3 * (len(it.values) if it.sensor.driver != "sps30" else 8)):
        it.bus.short = count
        fails(it, "wrong CRC in word")
        it.bus.short = -1
        it.sensor.read()


def test_crc_of_the_datasheets() -> None:
    assert sensirion.crc8(b"\xbe\xef", 0, 2) == 0x92  # SHT3x, SHT4x, SCD4x, SPS30: the same example
    assert sensirion.crc8(b"\x00\xbe\xef\x00", 1, 3) == 0x92
    assert ds18b20.dallas_crc8(kit.DALLAS_EXAMPLE[:7]) == 0xA2
    assert ds18b20.dallas_crc8(kit.DALLAS_EXAMPLE) == 0


@pytest.mark.parametrize(("answer", "values"), kit.SHT31_ANSWERS)
def test_sht3x_as_recorded(answer: bytes, values: list[int]) -> None:
    it = i2c_bench("sht3x", lambda clock: kit.Sht3xDevice(clock, answer), values)
    assert it.sensor.read() == values


@pytest.mark.parametrize(
    ("driver", "ticks", "values"),
    [
        ("sht3x", (0, 0), [None, 0]),  # -45 degrees is outside what it measures
        ("sht3x", (1873, 65535), [-4000, 10000]),
        ("sht3x", (63662, 32768), [12500, 5000]),
        ("sht4x", (1873, 0), [-4000, 0]),  # -6 % is cropped to 0
        ("sht4x", (26214, 65535), [2500, 10000]),  # 119 % is cropped to 100
    ],
)
def test_humidity_sensors_at_the_ends(driver: str, ticks: tuple[int, int], values: list[int | None]) -> None:
    device = kit.Sht3xDevice if driver == "sht3x" else kit.Sht4xDevice
    it = i2c_bench(driver, lambda clock: device(clock, kit.words(*ticks)), [])
    assert it.sensor.read() == values


def test_the_second_address_of_a_sensor() -> None:
    answer, values = kit.SHT31_ANSWERS[0]
    it = i2c_bench("sht3x", lambda clock: kit.Sht3xDevice(clock, answer), values, address=0x45)
    assert it.sensor.read() == values
    assert {address for _, address, _ in it.bus.log} == {0x45}


# --- BME280


def test_bme280_formulas_give_the_datasheets_example() -> None:
    # BST-BMP280-DS001, 3.12: the calculation example for the calibration that the two chips share.
    calibration = (27504, 26435, -1000, 36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000)
    fine = bme280.fine_temperature(calibration, 519888)
    assert fine == 128422
    assert bme280.pressure_256(calibration, 415148, fine) / 256 == pytest.approx(100653.27, abs=0.02)


def test_bme280_formulas_give_what_others_compute() -> None:
    # bme280-rs, tests of its calibration: raw 0x84510, 0x4f570, 0x5eb4.
    calibration = bme280.parse_calibration(kit.BME280_CALIBRATION)
    assert calibration[12:] == (0x4B, 0x177, 0, 0x120, 0x32, 0x1E)
    assert bme280.fine_temperature(calibration, 0x84510) == 0x22391
    assert bme280.pressure_256(calibration, 0x4F570, 0x22391) == 0x018B663F
    assert bme280.humidity_1024(calibration, 0x5EB4, 0x22391) == 0x8399


def double_compensation(calibration: tuple[int, ...], t: int, p: int, h: int) -> tuple[float, float, float]:
    """The datasheet's formulas in double precision (appendix 8.1)."""
    t1, t2, t3, p1, p2, p3, p4, p5, p6, p7, p8, p9, h1, h2, h3, h4, h5, h6 = calibration
    fine = (t / 16384 - t1 / 1024) * t2 + (t / 131072 - t1 / 8192) ** 2 * t3
    a = fine / 2 - 64000
    b = (a * a * p6 / 32768 + a * p5 * 2) / 4 + p4 * 65536
    c = (1 + (p3 * a * a / 524288 + p2 * a) / 524288 / 32768) * p1
    pressure = (1048576 - p - b / 4096) * 6250 / c
    pressure += (p9 * pressure * pressure / 2147483648 + pressure * p8 / 32768 + p7) / 16
    x = fine - 76800
    scaled = h2 / 65536 * (1 + h6 / 67108864 * x * (1 + h3 / 67108864 * x))
    humidity = (h - (h4 * 64 + h5 / 16384 * x)) * scaled
    humidity *= 1 - h1 * humidity / 524288
    return fine / 5120, min(max(humidity, 0), 100), pressure


@given(st.integers(0x5A000, 0x95000), st.integers(0x30000, 0xA0000), st.integers(0x4000, 0x9000))
def test_bme280_integers_follow_the_formulas_in_doubles(t: int, p: int, h: int) -> None:
    calibration = bme280.parse_calibration(kit.BME280_CALIBRATION)
    fine = bme280.fine_temperature(calibration, t)
    temperature, humidity, pressure = double_compensation(calibration, t, p, h)
    assert ((fine * 5 + 128) >> 8) / 100 == pytest.approx(temperature, abs=0.011)
    assert bme280.pressure_256(calibration, p, fine) / 256 == pytest.approx(pressure, abs=1)
    assert bme280.humidity_1024(calibration, h, fine) / 1024 == pytest.approx(humidity, abs=0.02)


def test_bme280_calibration_has_signed_twelve_bits() -> None:
    data = bytearray(kit.BME280_CALIBRATION)
    data[29:32] = b"\xff\x21\xfe"  # H4 = 0xff1, H5 = 0xfe2
    assert bme280.parse_calibration(bytes(data))[15:17] == (-15, -30)


def test_another_chip_at_that_address_is_named() -> None:
    it = bme280_bench()
    it.device.registers[0xD0] = 0x58
    fails(it, "bme280: chip id 0x58 is not 0x60")


def test_bme280_that_only_lost_its_humidity_keeps_the_rest() -> None:
    it = bme280_bench()
    it.device.measured = kit.BME280_DATA[:6] + b"\x80\x00"
    assert it.sensor.read() == [2733, None, 101233]
    assert it.sensor.error == "bme280: no humidity"


def test_bme280_that_is_never_done_has_failed() -> None:
    it = bme280_bench()
    it.device.is_slow = True
    fails(it, "still measuring")


def test_bme280_that_never_copies_its_calibration_has_failed() -> None:
    it = bme280_bench()
    it.device.copied_us = it.clock.us + 10**9
    it.device.set = lambda *_: None
    fails(it, "never ready after its reset")


def test_bme280_calibration_that_differs_when_read_again_is_refused() -> None:
    it = bme280_bench()
    it.bus.flaky = lambda number: number == 3  # after the chip id and the status
    fails(it, "calibration differs")
    assert it.sensor.read() == it.values


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_bme280_calibration_that_is_blank_is_refused(byte: int) -> None:
    it = bme280_bench()
    it.device.registers[0x88:0xA2] = bytes([byte]) * 26
    it.device.registers[0xE1:0xE8] = bytes([byte]) * 7
    fails(it, "calibration is blank")


def test_bme280_calibration_that_would_divide_by_zero_is_refused() -> None:
    it = bme280_bench()
    it.device.registers[0x8E:0x90] = bytes(2)
    fails(it, "calibration makes no pressure")


def test_bme280_that_lost_power_between_reads_measures_on() -> None:
    it = bme280_bench()
    it.sensor.read()
    it.device.registers[0xF2:0xF6] = bytes(4)
    it.device.humidity_setting = 0
    assert it.sensor.read() == it.values


def test_bme280_short_answer_is_no_old_reading() -> None:
    it = bme280_bench()
    it.sensor.read()
    it.bus.short = 1
    fails(it, "still measuring" if it.device.registers[0xF3] & 8 else "no temperature")


# --- SCD4x and SPS30


def test_scd4x_that_measures_since_before_a_reboot_is_stopped_first() -> None:
    it = scd4x_bench(is_running=True)
    assert it.sensor.read() == it.values


def test_scd4x_waits_for_the_next_measurement_of_its_own() -> None:
    it = scd4x_bench()
    it.sensor.read()
    it.clock.passes(2000)
    assert 2900 <= it.sensor.start() <= 3000
    assert it.sensor.finish() == [None, None, None]
    assert (it.sensor.back_off_ms, it.sensor.failures) == (0, 0)


def test_scd4x_that_measures_no_more_is_started_again() -> None:
    it = scd4x_bench()
    it.sensor.read()
    it.device.is_silent = True
    for _ in range(3):
        fails(it, "no new measurement")
        assert it.sensor.back_off_ms == 0
    fails(it, "no new measurement")
    assert it.sensor.back_off_ms == 1000
    it.device.is_silent = False
    assert it.sensor.read() == it.values


def test_scd4x_zero_ppm_is_no_reading() -> None:
    it = scd4x_bench()
    it.device.measured = kit.words(0, 0x6667, 0x5EB9)
    assert it.sensor.read() == [None, 2500, 3700]


def test_sps30_that_runs_since_before_a_reboot_is_started_anew() -> None:
    it = sps30_bench(is_running=True)
    assert it.sensor.read() == it.values


def test_particle_sensors_are_missing_until_they_are_warm() -> None:
    for it in (sps30_bench(), pms5003_bench()):
        assert it.sensor.start() >= 29_000
        it.clock.passes(20_000)
        assert it.sensor.finish() == [None] * 3
        assert it.sensor.failures == 0
        it.clock.passes(it.sensor.start())
        assert it.sensor.finish() == it.values


@given(st.floats(min_value=-(2.0**29), max_value=2.0**29, width=32))
def test_singles_become_the_nearest_integers(number: float) -> None:
    high, low = struct.unpack(">HH", struct.pack(">f", number))
    nearest = sps30.nearest_integer(high, low)
    assert abs(nearest - number) <= 0.5
    assert abs(nearest) == int(abs(number) + 0.5)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 2.0**31, -(2.0**40)])
def test_singles_that_are_no_reading(number: float) -> None:
    with pytest.raises(SensorError):
        sps30.nearest_integer(*struct.unpack(">HH", struct.pack(">f", number)))


# --- DS18B20


@pytest.mark.parametrize(("scratchpad", "values"), kit.DS18B20_SCRATCHPADS)
def test_ds18b20_as_recorded(scratchpad: bytes, values: list[int]) -> None:
    it = ds18b20_bench()
    it.device.measured = scratchpad
    assert it.sensor.read() == values


@pytest.mark.parametrize(
    ("raw", "hundredths"),
    # The datasheet's table 1; 10.125 and 25.0625 are rounded to hundredths, halves up.
    [
        (0x07D0, 12500),
        (0x0550, 8500),
        (0x0191, 2506),
        (0x00A2, 1013),
        (0x0008, 50),
        (0x0000, 0),
        (0xFFF8, -50),
        (0xFF5E, -1012),
        (0xFE6F, -2506),
        (0xFC90, -5500),
    ],
)
def test_ds18b20_by_the_datasheets_table(raw: int, hundredths: int) -> None:
    it = ds18b20_bench()
    head = bytes([raw & 0xFF, raw >> 8, 0x4B, 0x46, 0x7F, 0xFF, 0x10, 0x10])
    it.device.measured = head + bytes([ds18b20.dallas_crc8(head)])
    assert it.sensor.read() == [hundredths]


def test_ds18b20_any_bit_damaged_is_noticed() -> None:
    it = ds18b20_bench()
    for at in range(9):
        for bit in range(8):
            it.device.corrupt = {at: 1 << bit}
            fails(it, "wrong CRC")


def test_ds18b20_wire_held_low_is_no_zero_degrees() -> None:
    it = ds18b20_bench()
    it.device.is_held_low = True
    fails(it, "wire held low")


def test_ds18b20_power_on_value_is_no_85_degrees() -> None:
    it = ds18b20_bench()
    it.device.loses_power = True
    fails(it, "lost power while it measured")


@pytest.mark.parametrize("rom", [kit.DS18B20_ROM, kit.DS18B20_ROM.hex()])
def test_ds18b20_one_of_many_is_addressed(rom: bytes | str) -> None:
    it = ds18b20_bench(rom=rom)
    assert it.sensor.read() == it.values
    it.device.rom = b"\x28\x11\x22\x33\x44\x55\x66\x77"
    fails(it, "wrong CRC")  # nobody answers to that address: all ones


@pytest.mark.parametrize("rom", [b"", kit.DS18B20_ROM[:7], kit.DALLAS_EXAMPLE, kit.DS18B20_ROM[:7] + b"\x00", "zz" * 8])
def test_ds18b20_wrong_address_is_refused_when_configured(rom: bytes | str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        ds18b20_bench(rom=rom)


# --- PMS5003


def test_pms5003_finds_its_frame_behind_noise() -> None:
    it = pms5003_bench()
    for noise in (b"\x00\x42", b"\x42", b"\x42\x42", b"BM"[:1] * 5, bytes(31)):
        it.device.noise = noise
        assert it.sensor.read() == it.values, (noise, it.sensor.error)


def test_pms5003_any_bit_damaged_is_noticed() -> None:
    it = pms5003_bench()
    it.sensor.read()
    for at in range(32):
        it.device.corrupt = {at: 0x40}
        assert it.sensor.read() == [None] * 3, at
        assert it.sensor.error
        it.device.corrupt = {}
        it.clock.passes(it.sensor.back_off_ms)
        assert it.sensor.read() == it.values


def test_pms5003_frame_that_breaks_off_is_noticed_within_its_limit() -> None:
    it = pms5003_bench()
    it.sensor.read()
    for count in (1, 2, 16, 31):
        it.device.short = count
        before_us = it.clock.us
        assert it.sensor.read() == [None] * 3
        assert "its frame broke off" in (it.sensor.error or "")
        assert it.clock.us - before_us <= 1_200_000
        it.device.short = -1
        it.clock.passes(it.sensor.back_off_ms)
        assert it.sensor.read() == it.values


def test_pms5003_that_streams_since_before_is_made_to_wait_for_questions() -> None:
    it = pms5003_bench()
    it.clock.passes(60_000)
    it.device.any()
    assert it.sensor.read() == it.values
    assert it.device.is_passive
    assert it.device.questions == 1


def test_pms5003_never_reads_an_old_frame() -> None:
    it = pms5003_bench()
    it.sensor.read()
    it.device.send(it.device.measured())  # an answer that came too late
    it.clock.passes(500)
    newer = bytearray(kit.PMS5003_FRAME)
    newer[11] += 1
    newer[31] += 1
    it.device.frame = bytes(newer)
    assert it.sensor.read() == [5, 5, 8]
