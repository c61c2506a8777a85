"""Literal geometries and the two tests of them against a point: inside, or on the border.

Plain IEEE arithmetic in a fixed order, so that every tier gives the same answer for the same doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

Position = tuple[float, float]
"""(x, y), that is (long, lat)."""

Ring = tuple[Position, ...]
"""A closed line: the first position is repeated at the end. Four positions or more."""


class Place(IntEnum):
    """Where a point is, seen from a geometry."""

    OUTSIDE = 0
    BORDER = 1
    INSIDE = 2


@dataclass(frozen=True, slots=True)
class Point:
    """POINT(x y). A point has no border: it is inside itself."""

    position: Position

    def place(self, x: float, y: float) -> Place:
        """Where (x, y) is."""
        return Place.INSIDE if (x, y) == self.position else Place.OUTSIDE


@dataclass(frozen=True, slots=True)
class BBox:
    """BBOX(west, south, east, north). With west > east it crosses the antimeridian."""

    west: float
    south: float
    east: float
    north: float

    def place(self, x: float, y: float) -> Place:
        """Where (x, y) is. A box without area has no inside: all of it is border."""
        crossing = self.west > self.east
        closed = x >= self.west or x <= self.east if crossing else self.west <= x <= self.east
        if not (closed and self.south <= y <= self.north):
            return Place.OUTSIDE
        inner = x > self.west or x < self.east if crossing else self.west < x < self.east
        return Place.INSIDE if inner and self.south < y < self.north else Place.BORDER


@dataclass(frozen=True, slots=True)
class Polygon:
    """POLYGON((outer), (hole), ...): inside by the even-odd rule over all rings."""

    rings: tuple[Ring, ...]

    def bounds(self) -> tuple[float, float, float, float]:
        """(west, south, east, north) of the outer ring; nothing beyond is inside."""
        xs, ys = zip(*self.rings[0], strict=True)
        return min(xs), min(ys), max(xs), max(ys)

    def place(self, x: float, y: float) -> Place:
        """Where (x, y) is."""
        west, south, east, north = self.bounds()
        if not (west <= x <= east and south <= y <= north):
            return Place.OUTSIDE
        inside = False
        for ring in self.rings:
            for (x1, y1), (x2, y2) in pairwise(ring):
                side = (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)
                if side == 0 and min(x1, x2) <= x <= max(x1, x2) and min(y1, y2) <= y <= max(y1, y2):
                    return Place.BORDER
                if (y1 > y) != (y2 > y) and (side > 0) == (y2 > y1):
                    inside = not inside
        return Place.INSIDE if inside else Place.OUTSIDE


@dataclass(frozen=True, slots=True)
class MultiPolygon:
    """MULTIPOLYGON: as its best polygon says."""

    polygons: tuple[Polygon, ...]

    def place(self, x: float, y: float) -> Place:
        """Where (x, y) is."""
        return max(polygon.place(x, y) for polygon in self.polygons)


Geometry = Point | BBox | Polygon | MultiPolygon
