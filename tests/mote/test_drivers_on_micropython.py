"""Every driver on real MicroPython, on the same fake buses, reads what it reads on CPython."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sensor_kit
from places import FIRMWARE
from spinney_mote.drivers import DRIVERS

from spinney_tools import micropython

READS = """
import json
import sensor_kit as kit
from spinney_mote.drivers import load

def i2c(driver, make, **options):
    clock = kit.FakeClock()
    bus = kit.FakeI2c(clock, {})
    sensor = load(driver)(bus, clock, **options)
    bus.devices[sensor.address] = make(clock)
    clock.passes(3)
    return sensor, bus

def reading(sensor, damage=None):
    values = list(sensor.read())
    damage and damage()
    damaged = list(sensor.read())
    return [values, damaged, sensor.error, sensor.failures]

def damaged(sensor, bus):
    def damage():
        bus.corrupt = {0: 0x81}
    return reading(sensor, damage)

found = {}
found["bme280"] = reading(
    i2c("bme280", lambda clock: kit.Bme280Device(clock, kit.BME280_CALIBRATION, kit.BME280_DATA))[0]
)
answer = kit.SHT31_ANSWERS[0][0]
found["sht3x"] = damaged(*i2c("sht3x", lambda clock: kit.Sht3xDevice(clock, answer)))
found["sht4x"] = damaged(*i2c("sht4x", lambda clock: kit.Sht4xDevice(clock, answer)))
found["scd4x"] = damaged(*i2c("scd4x", lambda clock: kit.Scd4xDevice(clock, kit.SCD4X_ANSWER, True)))
found["sps30"] = damaged(*i2c("sps30", lambda clock: kit.Sps30Device(clock, kit.SPS30_ANSWER)))

clock = kit.FakeClock()
wire = kit.FakeOneWire(clock, kit.DS18B20_ROM, kit.DS18B20_SCRATCHPADS[0][0])
found["ds18b20"] = damaged(load("ds18b20")(wire, clock, rom="280102030405069e"), wire)
uart = kit.FakeUart(clock, kit.PMS5003_FRAME)
found["pms5003"] = damaged(load("pms5003")(uart, clock), uart)
found["adc"] = reading(load("adc")(kit.FakeAdc(17000), clock, points=((1000, 0), (65000, 3200))))
found["battery"] = reading(load("battery")(kit.FakeAdc(36737), clock))
pin = kit.FakePin(clock)
digital = load("digital")(pin, clock, counts=True)
clock.passes(100)
pin.drive(1, 50)
found["digital"] = reading(digital, lambda: pin.drive(0, 50))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def run() -> Callable[[str], str]:
    try:
        micropython.module()
    except micropython.MicroPythonMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
    kit = Path(sensor_kit.__file__).read_bytes()
    files = {**micropython.library(FIRMWARE), "/lib/sensor_kit.py": kit}
    return lambda script: micropython.run(script, files=files)


def on_cpython(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    exec(compile(READS, "reads", "exec"), {})
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_driver_reads_on_micropython_as_on_cpython(
    run: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    here = on_cpython(capsys)
    assert set(here) == set(DRIVERS)
    assert json.loads(run(READS)) == here
    assert here["bme280"][0] == sensor_kit.BME280_VALUES
    assert here["pms5003"] == [sensor_kit.PMS5003_VALUES, [None] * 3, "pms5003: no answer", 1]
    assert here["sht4x"][1:] == [[None, None], "sht4x: wrong CRC in word 0", 1]
    assert here["digital"][:2] == [[1, 1], [0, 1]]
