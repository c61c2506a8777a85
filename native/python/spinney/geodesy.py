"""distance(): the one published formula for metres between two places (rule P1).

The haversine formula on a sphere with the mean radius of the Earth, 6371008.8 m (IUGG). With all angles halved as
shown, and folded first so that latitudes lie in [-90, 90] and longitudes in [-180, 180]:

    h = sin((lat2 - lat1) / 2)**2 + cos(lat1) * cos(lat2) * sin((long2 - long1) / 2)**2
    g = sin((lat2 + lat1) / 2)**2 + cos(lat1) * cos(lat2) * cos((long2 - long1) / 2)**2
    distance = radius * (2 * asin(sqrt(h)) if h <= 0.5 else pi - 2 * asin(sqrt(g)))

h and g sum to 1: g is h for the antipode, and taking the smaller of the two keeps full precision at both ends. A
latitude beyond a pole goes on down the other side, and any finite input gives a finite result.

Mathematical libraries differ in the last bits of sin and asin. This module uses only + - * / and square roots, which
IEEE 754 defines to the bit, with fmod, which is exact, in a fixed order: every tier that does the same steps gets the
same bits. native/src/distance.c is this file in C, function by function. Degrees are folded to [-45, 45] exactly,
while they are degrees; the polynomials there are Taylor's, each long enough that what it leaves out is below
half a unit in the last place.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, factorial, fmod, pi, sqrt

RADIUS = 6371008.8
"""Metres."""

_RADIANS_PER_DEGREE = pi / 180.0

# Coefficients of even powers, highest first, as Horner's rule takes them. Integer quotients are rounded once.
_SINE = tuple((-1) ** k / factorial(2 * k + 1) for k in reversed(range(9)))  # times x
_COSINE = tuple((-1) ** k / factorial(2 * k) for k in reversed(range(10)))
_ARCSINE = tuple(comb(2 * k, k) / (4**k * (2 * k + 1)) for k in reversed(range(25)))  # times x


def distance(lat1: float, long1: float, lat2: float, long2: float) -> float:
    """Metres along the sphere between two places in degrees, all four finite."""
    lat1, long1 = _folded(lat1, long1)
    lat2, long2 = _folded(lat2, long2)
    half_long = _turn(long1, long2) / 2.0
    cosines = _cos(lat1) * _cos(lat2)
    near = _sum_of_squares(_sin((lat2 - lat1) / 2.0), cosines, _sin(half_long))
    if near <= 0.5:
        return RADIUS * (2.0 * _arcsine(sqrt(near)))
    far = _sum_of_squares(_sin((lat2 + lat1) / 2.0), cosines, _cos(half_long))
    return RADIUS * (pi - 2.0 * _arcsine(sqrt(far)))


def _folded(lat: float, long: float) -> tuple[float, float]:
    """The same place with the latitude in [-90, 90] and the longitude in [-180, 180]."""
    lat = _half_circle(lat)
    long = _half_circle(long)
    if -90.0 <= lat <= 90.0:
        return lat, long
    return (180.0 if lat > 0.0 else -180.0) - lat, long - 180.0 if long > 0.0 else long + 180.0


def _half_circle(degrees: float) -> float:
    """The same angle in [-180, 180], without rounding."""
    degrees = fmod(degrees, 360.0)
    if degrees > 180.0:
        return degrees - 360.0
    if degrees < -180.0:
        return degrees + 360.0
    return degrees


def _turn(long1: float, long2: float) -> float:
    """long2 - long1 the short way round; across the antimeridian each is first measured from there."""
    difference = long2 - long1
    if difference > 180.0:
        return (long2 - 180.0) - (long1 + 180.0)
    if difference < -180.0:
        return (long2 + 180.0) - (long1 - 180.0)
    return difference


def _sum_of_squares(across: float, cosines: float, along: float) -> float:
    return across * across + cosines * (along * along)


def _sin(degrees: float) -> float:
    """The sine of an angle in [-90, 90]."""
    if degrees > 45.0:
        return _short_cos(90.0 - degrees)
    if degrees < -45.0:
        return -_short_cos(90.0 + degrees)
    return _short_sin(degrees)


def _cos(degrees: float) -> float:
    """The cosine of an angle in [-90, 90]."""
    size = -degrees if degrees < 0.0 else degrees
    return _short_sin(90.0 - size) if size > 45.0 else _short_cos(size)


def _short_sin(degrees: float) -> float:
    x = degrees * _RADIANS_PER_DEGREE
    return x * _polynomial(_SINE, x * x)


def _short_cos(degrees: float) -> float:
    x = degrees * _RADIANS_PER_DEGREE
    return _polynomial(_COSINE, x * x)


def _arcsine(x: float) -> float:
    """The arc sine of a number in [0, 1], in radians."""
    if x <= 0.5:
        return x * _polynomial(_ARCSINE, x * x)
    half = sqrt((1.0 - x) / 2.0)
    return pi / 2.0 - 2.0 * (half * _polynomial(_ARCSINE, half * half))


def _polynomial(coefficients: Sequence[float], x: float) -> float:
    total = 0.0
    for coefficient in coefficients:
        total = total * x + coefficient
    return total
