"""Analogue and digital inputs, and the battery."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import sensor_kit as kit
from hypothesis import given
from hypothesis import strategies as st
from spinney_mote.drivers import load
from spinney_mote.drivers.adc import polynomial
from spinney_mote.drivers.battery import ALKALINE_2, LITHIUM_ION
from spinney_mote.sensor import Sensor

POINTS = ((1000, 0), (33000, 1600), (65000, 3200))


def adc(*reads: int, **options: Any) -> Sensor:
    return load("adc")(kit.FakeAdc(*reads), kit.FakeClock(), **options)


@pytest.mark.parametrize(("u16", "mv"), [(1000, 0), (17000, 800), (33000, 1600), (65000, 3200), (1009, 0), (1010, 1)])
def test_adc_by_points(u16: int, mv: int) -> None:
    assert adc(u16, points=POINTS).read() == [mv]


@pytest.mark.parametrize("u16", [0, 999, 65001, 65535])
def test_adc_beyond_its_points_is_missing(u16: int) -> None:
    it = adc(u16, points=POINTS)
    assert it.read() == [None]
    assert it.error == f"adc: {u16} is outside the calibrated 1000..65000"


def test_adc_by_a_polynomial_in_integers() -> None:
    it = adc(
        1000, coefficients=(-4500, 70, 1), shift=4, unit="C", p=1, q=100, low=-5000, high=70000, kind="temperature"
    )
    assert it.read() == [-4500 + (70 * 1000 + 1000 * 1000) // 16]
    assert (it.attributes[0].unit, it.attributes[0].kind) == ("C", "temperature")


@given(st.lists(st.integers(-(2**31), 2**31), min_size=1, max_size=5), st.integers(0, 48), st.integers(0, 65535))
def test_polynomials_are_rounded_once(coefficients: list[int], shift: int, u: int) -> None:
    exact = coefficients[0] + Fraction(sum(c * u**i for i, c in enumerate(coefficients) if i), 1 << shift)
    assert polynomial(coefficients, shift, u) == (exact + Fraction(1, 2)).__floor__()


@pytest.mark.parametrize("u16", [0, 65535])
def test_adc_at_its_limit_is_a_broken_wire(u16: int) -> None:
    it = adc(u16, coefficients=(0, 1), low=0, high=65535)
    assert it.read() == [None]
    assert it.error == f"adc: input at its limit, {u16}"


def test_adc_takes_the_mean_of_sixteen_reads() -> None:
    assert adc(*range(100, 116), coefficients=(0, 1)).read() == [108]  # 107.5


@pytest.mark.parametrize("wrong", [-1, 65536])
def test_adc_that_reads_no_16_bits_is_missing(wrong: int) -> None:
    assert adc(5000, wrong, coefficients=(0, 1)).read() == [None]


@pytest.mark.parametrize("points", [(), ((1, 1),), ((1, 1), (1, 2)), ((2, 1), (1, 2))])
def test_adc_points_that_make_no_line_are_refused(points: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="two or more pairs"):
        adc(1, points=points)


def test_adc_needs_one_calibration() -> None:
    for options in ({}, {"points": POINTS, "coefficients": (0, 1)}):
        with pytest.raises(ValueError, match="either points or coefficients"):
            adc(1, **options)


def battery(mv: int, **options: Any) -> Sensor:
    """A battery of so many millivolts behind the usual divider by two, at an input of 3.3 V."""
    return load("battery")(kit.FakeAdc(round(mv / 2 * 65535 / 3300)), kit.FakeClock(), **options)


@pytest.mark.parametrize(("mv", "percent"), [(4200, 100), (3700, 40), (3650, 29), (3300, 0), (3000, 0), (4400, 100)])
def test_battery_by_the_curve_of_a_lithium_cell(mv: int, percent: int) -> None:
    assert battery(mv).read() == [percent, mv]


def test_battery_of_two_alkaline_cells_without_a_divider() -> None:
    it = load("battery")(kit.FakeAdc(round(2500 * 65535 / 3300)), kit.FakeClock(), above=0, curve=ALKALINE_2)
    assert it.read() == [60, 2500]


def test_battery_behind_another_divider_and_reference() -> None:
    u16 = round(12600 / 11 * 65535 / 1200)  # 1 M over 100 k, at an input of 1.2 V
    curve = tuple((3 * mv, percent) for mv, percent in LITHIUM_ION)
    it = load("battery")(
        kit.FakeAdc(u16), kit.FakeClock(), above=1000, full_scale_mv=1200, curve=curve, low_mv=6000, high_mv=15000
    )
    assert it.read() == [100, pytest.approx(12600, abs=1)]


@pytest.mark.parametrize("mv", [0, 900, 6100])
def test_without_a_battery_nothing_is_said_of_it(mv: int) -> None:
    it = battery(mv)
    assert it.read() == [None, None]
    assert it.failures == 1


def digital(level: int = 0, **options: Any) -> tuple[Sensor, kit.FakePin, kit.FakeClock]:
    clock = kit.FakeClock()
    pin = kit.FakePin(clock, level)
    return load("digital")(pin, clock, **options), pin, clock


@pytest.mark.parametrize(("level", "active", "value"), [(0, 1, 0), (1, 1, 1), (0, 0, 1), (1, 0, 0)])
def test_digital_level(level: int, active: int, value: int) -> None:
    assert digital(level, active=active)[0].read() == [value]


def test_digital_that_bounces_keeps_its_last_level() -> None:
    it, pin, _ = digital(0)
    it.read()
    it.start()
    pin.drive(1, 20)
    assert it.finish() == [0]
    assert it.read() == [1]


def test_digital_that_bounced_and_came_back_keeps_its_last_level() -> None:
    it, pin, _ = digital(0, counts=True)
    pin.drive(1, 100)
    it.read()
    pin.drive(0, 100)
    it.start()
    pin.drive(1, 1)
    pin.drive(0, 30)
    assert it.finish()[0] == 1


def test_digital_that_has_never_held_still_is_missing() -> None:
    it, pin, _ = digital(0)
    it.start()
    pin.drive(1, 20)
    assert it.finish() == [None]
    assert it.error == "digital: it bounces"


def test_digital_counts_pulses_and_not_their_bounces() -> None:
    it, pin, clock = digital(0, counts=True)
    clock.passes(100)
    for _ in range(7):
        for level in (1, 0, 1, 0):
            pin.drive(level, 1)
        pin.drive(1, 60)
        for level in (0, 1, 0, 1):
            pin.drive(level, 2)
        pin.drive(0, 60)
    assert it.read() == [0, 7]


def test_digital_counts_short_pulses_between_two_samples() -> None:
    it, pin, clock = digital(0, counts=True, debounce_ms=5)
    clock.passes(10)
    for _ in range(1000):
        pin.drive(1, 2)
        pin.drive(0, 20)
    assert it.read() == [0, 1000]


def test_digital_counts_falls_where_low_is_active() -> None:
    it, pin, clock = digital(1, counts=True, active=0)
    clock.passes(100)
    for _ in range(3):
        pin.drive(0, 50)
        pin.drive(1, 50)
    assert it.read() == [0, 3]


def test_digital_counts_after_a_rest_that_ticks_cannot_tell() -> None:
    it, pin, clock = digital(0, counts=True)
    clock.passes(8 * 24 * 3600 * 1000)
    pin.drive(1, 50)
    assert it.read() == [1, 1]


def test_digital_count_wraps_within_a_small_int() -> None:
    it, pin, clock = digital(0, counts=True)
    it.count = it.attributes[1].high
    clock.passes(100)
    pin.drive(1, 50)
    assert it.read() == [1, 0]
