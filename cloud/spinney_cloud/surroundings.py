"""The ranges of latitude and longitude around a point, rounded outward."""

from __future__ import annotations

import math
from typing import Final

from spinney import Knowledge

OUTWARD: Final = 1.01
"""Distances are rounded so: h3's sphere and ours are not quite the same."""
_METERS_PER_DEGREE: Final = 110_500.0
"""Of latitude, less than anywhere on our sphere."""
_MARGIN_DEGREES: Final = 1e-6


def around(lat: float, long: float, radius_meters: float) -> dict[str, Knowledge]:
    """What is known of `lat` and `long` within the radius; all longitudes near a pole."""
    reach = radius_meters / _METERS_PER_DEGREE + _MARGIN_DEGREES
    south, north = max(-90.0, lat - reach), min(90.0, lat + reach)
    widest = math.cos(math.radians(max(abs(south), abs(north))))
    across = 180.0 if widest * 180.0 <= reach * OUTWARD else reach / widest * OUTWARD
    west, east = long - across, long + across
    if west < -180.0 or east > 180.0:
        west, east = -180.0, 180.0
    return {"lat": Knowledge.between(south, north), "long": Knowledge.between(west, east)}
