"""The base of all sensors: two steps, errors in words, back-off, and integers on the way."""

from __future__ import annotations

from fractions import Fraction

import pytest
import sensor_kit as kit
from hypothesis import given
from hypothesis import strategies as st
from spinney_mote import bthome, sensor
from spinney_mote.drivers import DRIVERS, load

BTHOME_RANGES = {
    "battery": (1, 1, 0, 255),
    "boolean": (1, 1, 0, 1),
    "co2": (1, 1, 0, 65535),
    "count": (1, 1, 0, 2**32 - 1),
    "humidity": (1, 100, 0, 65535),
    "pm10": (1, 1, 0, 65535),
    "pm25": (1, 1, 0, 65535),
    "pressure": (1, 100, 0, 2**24 - 1),
    "temperature": (1, 100, -32768, 32767),
    "voltage": (1, 1000, 0, 65535),
}
"""BTHome v2's scale of each kind, and what its bytes hold."""


class Scripted(sensor.Sensor):
    """A sensor whose measurements, and failures, are told in advance."""

    driver = "scripted"
    measures = (
        sensor.Attribute("a", "m", 1, 10, -100, 100),
        sensor.Attribute("b", "s", 1, 1, 0, 9),
    )

    def __init__(self, clock: kit.FakeClock, *script: object, wait_ms: int = 0) -> None:
        super().__init__(None, clock)
        self.script = list(script)
        self.wait_ms = wait_ms
        self.set_ups = self.begins = 0

    def _set_up(self) -> None:
        self.set_ups += 1

    def _begin(self) -> int:
        self.begins += 1
        return self.wait_ms

    def _fetch(self, values: list[int | None]) -> None:
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        values[:] = step  # type: ignore[call-overload]


def test_a_reading_comes_as_raw_integers() -> None:
    scripted = Scripted(kit.FakeClock(), [21, 3])
    assert scripted.read() == [21, 3]
    assert (scripted.error, scripted.failures) == (None, 0)


def test_a_failing_sensor_is_missing_with_its_error_and_keeps_nothing() -> None:
    clock = kit.FakeClock()
    scripted = Scripted(clock, [21, 3], OSError(kit.ENODEV))
    scripted.read()
    assert scripted.read() == [None, None]
    assert scripted.error == "scripted: no answer"
    assert scripted.failures == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(19), "scripted: no answer"),
        (OSError(5), "scripted: no answer"),
        (OSError(110), "scripted: bus timed out"),
        (OSError(116), "scripted: bus timed out"),
        (OSError(1), "scripted: bus error 1"),
        (OSError(), "scripted: bus error 0"),
        (sensor.SensorError("wrong CRC in word 0"), "scripted: wrong CRC in word 0"),
        (sensor.SensorError("x" * 500), "scripted: " + "x" * 70),
    ],
)
def test_errors_are_words(error: Exception, words: str) -> None:
    scripted = Scripted(kit.FakeClock(), error)
    scripted.read()
    assert scripted.error == words


def test_what_is_no_failure_of_the_sensor_is_not_swallowed() -> None:
    with pytest.raises(kit.ProtocolError):
        Scripted(kit.FakeClock(), kit.ProtocolError("a bug")).read()


def test_while_it_rests_it_stays_missing_with_its_error_and_the_bus_is_free() -> None:
    clock = kit.FakeClock()
    scripted = Scripted(clock, OSError(kit.ENODEV), [1, 1])
    scripted.read()
    clock.passes(999)
    assert scripted.read() == [None, None]
    assert (scripted.error, scripted.begins, scripted.failures) == ("scripted: no answer", 1, 1)
    clock.passes(1)
    assert scripted.read() == [1, 1]


def test_rests_double_up_to_five_minutes_and_begin_anew_after_a_reading() -> None:
    clock = kit.FakeClock()
    scripted = Scripted(clock, *[OSError(kit.ENODEV)] * 11, [1, 1], OSError(kit.ENODEV))
    rests = []
    for _ in range(11):
        scripted.read()
        rests.append(scripted.back_off_ms)
        clock.passes(scripted.back_off_ms)
    assert rests == [1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 300000, 300000]
    assert scripted.read() == [1, 1]
    assert scripted.back_off_ms == 0
    scripted.read()
    assert scripted.back_off_ms == 1000


def test_after_a_failure_the_sensor_is_set_up_again() -> None:
    clock = kit.FakeClock()
    scripted = Scripted(clock, [1, 1], [1, 1], OSError(kit.ENODEV), [1, 1])
    for _ in range(3):
        scripted.read()
    assert scripted.set_ups == 1
    clock.passes(1000)
    scripted.read()
    assert scripted.set_ups == 2


def test_a_rest_ends_though_the_ticks_can_no_longer_tell_how_long_it_was() -> None:
    clock = kit.FakeClock()
    scripted = Scripted(clock, OSError(kit.ENODEV), [1, 1])
    scripted.read()
    clock.passes(7 * 24 * 3600 * 1000)
    assert clock.ticks_diff(clock.ticks_ms(), scripted._failed_ms) < 0
    assert scripted.read() == [1, 1]


def test_a_long_measurement_may_be_finished_at_a_later_sample() -> None:
    clock = kit.FakeClock()
    scripted = Scripted(clock, [7, 7], wait_ms=5000)
    assert scripted.start() == 5000
    clock.passes(2000)
    assert scripted.finish() == [None, None]
    assert (scripted.error, scripted.failures) == ("scripted: ready in 3000 ms", 0)
    assert scripted.start() == 3000
    clock.passes(3000)
    assert scripted.finish() == [7, 7]
    assert (scripted.begins, scripted.error) == (1, None)


def test_without_a_start_there_is_nothing() -> None:
    scripted = Scripted(kit.FakeClock(), [7, 7])
    scripted.read()
    assert scripted.finish() == [None, None]


def test_not_ready_is_missing_and_only_a_sensor_that_is_never_ready_has_failed() -> None:
    clock = kit.FakeClock()
    scripted = Scripted(clock, *[sensor.NotReady("nothing yet")] * 4)
    for _ in range(3):
        assert scripted.read() == [None, None]
        assert (scripted.back_off_ms, scripted.error) == (0, "scripted: nothing yet")
    scripted.read()
    assert scripted.back_off_ms == 1000


@pytest.mark.parametrize("wrong", [-101, 101, 2**31])
def test_a_value_outside_its_declared_range_is_missing_and_the_others_stay(wrong: int) -> None:
    scripted = Scripted(kit.FakeClock(), [wrong, 9])
    assert scripted.read() == [None, 9]
    assert scripted.error == f"scripted: a {wrong} is outside -100..100"
    assert (scripted.failures, scripted.back_off_ms) == (1, 0)


def test_a_sensor_of_which_nothing_is_left_has_failed() -> None:
    scripted = Scripted(kit.FakeClock(), [None, 10])
    assert scripted.read() == [None, None]
    assert scripted.back_off_ms == 1000


def test_attributes_can_be_named_by_the_configuration() -> None:
    probe = load("ds18b20")(None, kit.FakeClock(), names=("water",))
    assert [attribute.name for attribute in probe.attributes] == ["water"]
    assert load("ds18b20").measures[0].name == "temperature"
    with pytest.raises(ValueError, match="2 names for 1 attributes"):
        load("ds18b20")(None, kit.FakeClock(), names=("water", "air"))


def test_an_unknown_driver_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no driver dht22; there are adc, battery, bme280"):
        load("dht22")


def _made(driver: str) -> sensor.Sensor:
    options = {"points": ((0, 0), (65535, 3300))} if driver == "adc" else {}
    if driver == "digital":
        options = {"counts": True}
    bus = kit.FakePin(kit.FakeClock()) if driver == "digital" else None
    return load(driver)(bus, kit.FakeClock(), **options)


@pytest.mark.parametrize("driver", sorted(DRIVERS))
def test_every_driver_names_itself_and_fits_bthome(driver: str) -> None:
    made = _made(driver)
    assert made.driver == driver
    assert made.bus_kind in ("i2c", "uart", "onewire", "adc", "pin")
    assert made.attributes
    for attribute in made.attributes:
        assert attribute.name.isidentifier()
        assert -(2**31) <= attribute.low < attribute.high < 2**31
        if attribute.kind:
            p, q, low, high = BTHOME_RANGES[attribute.kind]
            assert (attribute.p, attribute.q) == (p, q)
            assert low <= attribute.low
            assert attribute.high <= high
            of = attribute
            assert bthome.object_for(of.kind, of.unit, of.p, of.q, of.low, of.high)


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**20))
def test_divide_is_to_the_nearest_integer_with_halves_up(numerator: int, denominator: int) -> None:
    exact = Fraction(numerator, denominator)
    assert sensor.divide(numerator, denominator) == (exact + Fraction(1, 2)).__floor__()


POINTS = ((100, 0), (200, 1000), (400, -1000))


@pytest.mark.parametrize(("x", "y"), [(100, 0), (150, 500), (200, 1000), (300, 0), (400, -1000), (201, 990)])
def test_between_points_is_on_the_lines(x: int, y: int) -> None:
    assert sensor.between_points(POINTS, x) == y


def test_beyond_the_points_is_nothing_or_the_end() -> None:
    for x in (99, 401):
        with pytest.raises(sensor.SensorError, match=f"{x} is outside the calibrated 100..400"):
            sensor.between_points(POINTS, x)
    assert sensor.between_points(POINTS, 99, clamp=True) == 0
    assert sensor.between_points(POINTS, 401, clamp=True) == -1000
