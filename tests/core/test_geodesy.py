"""distance(): the published formula, its accuracy, and its edges."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spinney.geodesy import RADIUS, distance

HALF_WAY_ROUND = RADIUS * math.pi

latitudes = st.floats(-90, 90)
longitudes = st.floats(-180, 180)
anything = st.floats(allow_nan=False, allow_infinity=False)
nearby = st.floats(-1e-3, 1e-3)


def library_distance(lat1: float, long1: float, lat2: float, long2: float) -> float:
    """The haversine formula with the mathematical library, in the form that is accurate at both ends."""
    half_lat, half_sum = math.radians(lat2 - lat1) / 2, math.radians(lat2 + lat1) / 2
    half_long = math.radians(math.remainder(long2 - long1, 360)) / 2
    cosines = math.cos(math.radians(lat1)) * math.cos(math.radians(lat2))
    near = math.sin(half_lat) ** 2 + cosines * math.sin(half_long) ** 2
    far = math.sin(half_sum) ** 2 + cosines * math.cos(half_long) ** 2
    return 2 * RADIUS * math.atan2(math.sqrt(near), math.sqrt(far))


@given(latitudes, longitudes, latitudes, longitudes)
@example(45.815, 15.977, 45.816, 15.978)
@example(0.0, 0.0, 0.0, 180.0)
@example(90.0, 0.0, -90.0, 0.0)
def test_agrees_with_the_mathematical_library(lat1: float, long1: float, lat2: float, long2: float) -> None:
    # Positions are doubles: 1e-7 m is far below what they can tell apart.
    expected = library_distance(lat1, long1, lat2, long2)
    assert distance(lat1, long1, lat2, long2) == pytest.approx(expected, rel=1e-12, abs=1e-7)


@given(st.floats(-80, 80), st.floats(-170, 170), nearby, nearby)
def test_is_as_accurate_between_neighbours(lat: float, long: float, north: float, east: float) -> None:
    expected = library_distance(lat, long, lat + north, long + east)
    assert distance(lat, long, lat + north, long + east) == pytest.approx(expected, rel=1e-12, abs=1e-150)


@given(st.floats(-80, 80), st.floats(-170, 0), nearby, nearby)
def test_is_as_accurate_between_antipodes(lat: float, long: float, north: float, east: float) -> None:
    expected = library_distance(lat, long, -lat + north, long + 180 + east)
    assert distance(lat, long, -lat + north, long + 180 + east) == pytest.approx(expected, rel=1e-12)


@given(anything, anything, anything, anything)
@example(1e308, 1e308, -1e308, 5e-324)
@example(90.0, 180.0, 450.0, -540.0)
def test_any_finite_numbers_give_a_place_on_the_sphere(lat1: float, long1: float, lat2: float, long2: float) -> None:
    assert 0 <= distance(lat1, long1, lat2, long2) <= HALF_WAY_ROUND * (1 + sys.float_info.epsilon)


@given(st.integers(-90, 90), st.integers(-180, 180), st.integers(-90, 90), st.integers(-180, 180), st.integers(-9, 9))
def test_whole_turns_change_nothing(lat1: int, long1: int, lat2: int, long2: int, turns: int) -> None:
    straight = distance(float(lat1), float(long1), float(lat2), float(long2))
    turned = distance(float(lat1 + 360 * turns), float(long1 - 360 * turns), float(lat2), float(long2 + 360 * turns))
    assert turned == pytest.approx(straight, rel=1e-15)


def test_beyond_a_pole_is_down_the_other_side() -> None:
    assert distance(100.0, 10.0, 80.0, -170.0) == 0.0
    assert distance(-100.0, 10.0, -80.0, -170.0) == 0.0


def test_across_the_antimeridian_is_short_and_exact() -> None:
    assert distance(10.0, 179.9999, 10.0, -179.9999) == distance(10.0, -179.9999, 10.0, 179.9999)
    metre = RADIUS * math.radians(0.0002) * math.cos(math.radians(10.0))
    assert distance(10.0, 179.9999, 10.0, -179.9999) == pytest.approx(metre, rel=1e-9)


@given(latitudes, longitudes, latitudes, longitudes)
def test_is_the_same_both_ways(lat1: float, long1: float, lat2: float, long2: float) -> None:
    assert distance(lat1, long1, lat2, long2) == distance(lat2, long2, lat1, long1)


@given(anything, anything)
def test_is_zero_from_a_place_to_itself(lat: float, long: float) -> None:
    assert distance(lat, long, lat, long) == 0.0


def test_known_values_keep_their_bits() -> None:
    assert distance(45.815, 15.977, 45.8, 15.97).hex() == "0x1.b67d4732a7e81p+10"
    assert distance(0.0, 0.0, 0.0, 180.0) == HALF_WAY_ROUND
    assert distance(60.1699, 24.9384, -33.8688, 151.2093).hex() == "0x1.cfe2e3520cfa8p+23"
