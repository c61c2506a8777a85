"""Boxes around a circle: where lat and long must be for distance(lat, long, ...) to be below a number.

They err outward, by far more than the formula of geodesy.py can: an index may look too far, never too near. Places
beyond the poles or the antimeridian mean others (geodesy.py folds them); for those there are boxes of their own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .evaluate import value
from .expression import Call, Expression, Property, Value, properties
from .geodesy import RADIUS

_MARGIN_METRES = 0.001
_MARGIN_RATIO = 1e-9
_MARGIN_DEGREES = 1e-6
_NEAR_POLE = 1 - 1e-6

Stretch = tuple[float, float]
_BEYOND_EAST = (math.nextafter(180.0, math.inf), math.inf)
_BEYOND_WEST = (-math.inf, math.nextafter(-180.0, -math.inf))
_BEYOND_NORTH = (math.nextafter(90.0, math.inf), math.inf)
_BEYOND_SOUTH = (-math.inf, math.nextafter(-90.0, -math.inf))


class Circle(NamedTuple):
    """Around a constant place, for the attributes that hold the other."""

    lat_name: str
    long_name: str
    lat: float
    long: float
    radius: float


def circle(left: Expression, operator: str, right: Expression) -> Circle | None:
    """The circle that a comparison asks for; None if it asks for none."""
    if operator in (">", ">=") and isinstance(right, Call):
        left, right = right, left
    elif operator not in ("<", "<=", "=") or not isinstance(left, Call):
        return None
    if not isinstance(left, Call) or left.name != "distance" or properties(right):
        return None
    return _around(left.arguments[:2], left.arguments[2:], right) or _around(
        left.arguments[2:], left.arguments[:2], right
    )


def _around(place: tuple[Expression, ...], centre: tuple[Expression, ...], radius: Expression) -> Circle | None:
    lat, long = place
    if not isinstance(lat, Property) or not isinstance(long, Property) or any(map(properties, centre)):
        return None
    numbers = [_constant(item) for item in (*centre, radius)]
    if not all(isinstance(number, float) for number in numbers):
        return None
    found = Circle(lat.name, long.name, *numbers)  # type: ignore[arg-type]  # floats, as just seen
    return found if abs(found.lat) <= 90 and abs(found.long) <= 180 else None


def _constant(expression: Expression) -> Value | None:
    return value(expression, {})


def stretches(around: Circle) -> list[tuple[Stretch | None, Stretch | None]]:
    """Pairs of a stretch of latitudes and one of longitudes, None for any; a place in the circle is in one of them."""
    angle = (around.radius * (1 + _MARGIN_RATIO) + _MARGIN_METRES) / RADIUS
    if angle >= math.pi / 2:
        return [(None, None)]
    if angle < 0:
        return []
    reach = math.degrees(angle) + _MARGIN_DEGREES
    band = (around.lat - reach, around.lat + reach)
    beyond = [(_BEYOND_NORTH, None), (_BEYOND_SOUTH, None), (band, _BEYOND_EAST), (band, _BEYOND_WEST)]
    return [*((band, stretch) for stretch in _longitudes(around, angle)), *beyond]


def _longitudes(around: Circle, angle: float) -> list[Stretch | None]:
    across = math.sin(angle) / max(math.cos(math.radians(around.lat)), 1e-300) * (1 + _MARGIN_RATIO)
    if across >= _NEAR_POLE or abs(around.lat) + math.degrees(angle) >= 90 * _NEAR_POLE:
        return [None]
    reach = math.degrees(math.asin(across)) + _MARGIN_DEGREES
    west, east = around.long - reach, around.long + reach
    if west < -180:
        return [(-180.0, east), (west + 360 - _MARGIN_DEGREES, 180.0)]
    if east > 180:
        return [(west, 180.0), (-180.0, east - 360 + _MARGIN_DEGREES)]
    return [(west, east)]
