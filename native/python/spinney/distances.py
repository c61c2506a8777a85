"""Bounds of distance() where its places are known only roughly, rounded outward.

geodesy.py errs by less than 1e-12 of its result; the margins here are far wider, so the bounds hold for its doubles.
"""

from __future__ import annotations

import math

from .geodesy import RADIUS, distance

Range = tuple[float, float]

FARTHEST = math.pi * RADIUS + 1.0
_RELATIVE = 1e-9
_METRES_NEAR = 1e-3
_METRES_FAR = 1.0
"""Beyond a quarter of the sphere the bound below loses digits, though distance() does not."""


def bounds(lat1: Range, long1: Range, lat2: Range, long2: Range) -> Range:
    """The least and the greatest distance between a place in one box and a place in another."""
    if not (_within(lat1, 90.0) and _within(lat2, 90.0)):
        return 0.0, FARTHEST
    near_lat, far_lat = _differences(lat1, lat2)
    near_long, far_long = 0.0, 180.0
    if _within(long1, 180.0) and _within(long2, 180.0):
        near_long, far_long = _turns(*_differences(long1, long2))
    (low1, high1), (low2, high2) = _cosines(lat1), _cosines(lat2)
    return (
        _outward(_metres(near_lat, low1 * low2, near_long), -1.0),
        _outward(_metres(far_lat, high1 * high2, far_long), 1.0),
    )


def around(place: Range, known: Range, other: Range) -> Range:
    """The distances to another place, from the known distances to a first: the triangle's rule."""
    apart = distance(*place, *other)
    low = max(0.0, known[0] - apart, apart - known[1])
    return _outward(low, -1.0), _outward(known[1] + apart, 1.0)


def _within(hull: Range, limit: float) -> bool:
    return -limit <= hull[0] and hull[1] <= limit


def _differences(first: Range, second: Range) -> Range:
    gap = max(0.0, second[0] - first[1], first[0] - second[1])
    return gap, max(second[1] - first[0], first[1] - second[0])


def _turns(low: float, high: float) -> Range:
    """The same differences of longitudes, the short way round."""
    ends = min(low, 360.0 - low), min(high, 360.0 - high)
    return min(ends), 180.0 if low <= 180.0 <= high else max(ends)


def _cosines(lat: Range) -> Range:
    ends = [max(0.0, math.cos(math.radians(degrees))) for degrees in lat]
    return min(ends), 1.0 if lat[0] <= 0.0 <= lat[1] else max(ends)


def _metres(lat: float, cosines: float, long: float) -> float:
    """The haversine formula, which grows with each of the three."""
    across, along = math.sin(math.radians(lat) / 2), math.sin(math.radians(long) / 2)
    return 2 * RADIUS * math.asin(math.sqrt(min(1.0, across * across + cosines * (along * along))))


def _outward(metres: float, sign: float) -> float:
    margin = metres * _RELATIVE + (_METRES_NEAR if metres < FARTHEST / 2 else _METRES_FAR)
    return min(FARTHEST, max(0.0, metres + sign * margin))
