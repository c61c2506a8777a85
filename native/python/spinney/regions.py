"""What can be proven about geometries: where a whole box lies, and whether polygons contain or avoid each other.

Proofs are about the doubles that geometry.py computes with, not about ideal lines. Two means: rounding is monotone, so
that the ends of a range bound it to the bit; and a margin far beyond what rounding can move a border.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise, product

from . import intervals
from .geometry import BBox, Geometry, Place, Point, Polygon, Position
from .intervals import Points

Range = tuple[float, float]
Places = frozenset[Place]
Edge = tuple[Position, Position]

MAX_STEPS = 10_000
"""Edges looked at in one proof; beyond, nothing is proven."""
MARGIN = 1e-9
"""Degrees. place() errs only within 1e-12 degrees of an edge, as its error is relative to the edge's length."""
_SHORTEST = 1e-100
"""Shorter differences, but for none at all, could underflow."""

ALL_PLACES = frozenset(Place)
OUTSIDE, BORDER = frozenset((Place.OUTSIDE,)), frozenset((Place.BORDER,))
_CACHED = 4096


# ---- boxes


def box_points(geometry: Geometry, operator: str) -> tuple[Points, Points] | None:
    """The sets of x and y whose product is where the test holds; None if that is not a box."""
    if isinstance(geometry, Point):
        x, y = geometry.position
        return intervals.single(x), intervals.single(y)
    box = geometry if isinstance(geometry, BBox) else rectangle(geometry) if isinstance(geometry, Polygon) else None
    if box is None:
        return None
    low, high = (">=", "<=") if operator == "intersects" else (">", "<")
    from_west, to_east = intervals.compared(low, box.west), intervals.compared(high, box.east)
    combine = intervals.union if box.west > box.east else intervals.intersection
    ys = intervals.intersection(intervals.compared(low, box.south), intervals.compared(high, box.north))
    return combine(from_west, to_east), ys


@lru_cache(_CACHED)
def rectangle(polygon: Polygon) -> BBox | None:
    """The box that the polygon is, if it is one for all doubles."""
    ring = polygon.rings[0]
    if len(polygon.rings) != 1 or len(ring) != 5:
        return None
    west, south, east, north = polygon.bounds()
    corners = {(west, south), (east, south), (east, north), (west, north)}
    turns = all((x1 == x2) != (y1 == y2) for (x1, y1), (x2, y2) in pairwise(ring))
    if not turns or set(ring) != corners or len(corners) != 4:
        return None
    x, y = (
        (math.nextafter(west, east), math.nextafter(east, west)),
        (math.nextafter(south, north), math.nextafter(north, south)),
    )
    if x[0] > x[1] or y[0] > y[1] or places(polygon, x, y) != frozenset((Place.INSIDE,)):
        return None
    return BBox(west, south, east, north)


# ---- a polygon and a box


def places(polygon: Polygon, x: Range, y: Range) -> Places:
    """All places, seen from the polygon, that a point of the box can have, and perhaps some more."""
    west, south, east, north = polygon.bounds()
    clipped_x, clipped_y = (max(x[0], west), min(x[1], east)), (max(y[0], south), min(y[1], north))
    if clipped_x[0] > clipped_x[1] or clipped_y[0] > clipped_y[1]:
        return OUTSIDE
    found = frozenset() if (clipped_x, clipped_y) == (x, y) else OUTSIDE
    edges = _edges(polygon)
    slabs = _slabs(edges, clipped_y)
    if len(slabs) * len(edges) > MAX_STEPS:
        return ALL_PLACES
    for slab in slabs:
        found |= _places_in_slab(edges, clipped_x, slab)
        if len(found) == len(ALL_PLACES):
            break
    return found


def _edges(polygon: Polygon) -> list[Edge]:
    return [edge for ring in polygon.rings for edge in pairwise(ring)]


def _slabs(edges: list[Edge], y: Range) -> list[Range]:
    """The range cut at the corners, so that within each part the same edges are crossed."""
    starts = sorted({y[0], *(corner[1] for edge in edges for corner in edge if y[0] < corner[1] <= y[1])})
    ends = [math.nextafter(start, -math.inf) for start in starts[1:]]
    return list(zip(starts, [*ends, y[1]], strict=True))


def _places_in_slab(edges: list[Edge], x: Range, y: Range) -> Places:
    inside, border = False, False
    for edge in edges:
        (_, y1), (_, y2) = edge
        touched = _touches(edge, x, y)
        if touched and _is_all_border(edge, x, y):
            return BORDER
        border = border or touched
        if (y1 > y[0]) != (y2 > y[0]):
            low, high = _sides(edge, _beside(edge, x), y)
            if low <= 0.0 < high:
                return ALL_PLACES
            if (low > 0.0) == (y2 > y1):
                inside = not inside
    return frozenset((Place.INSIDE if inside else Place.OUTSIDE, *((Place.BORDER,) if border else ())))


def _touches(edge: Edge, x: Range, y: Range) -> bool:
    (x1, y1), (x2, y2) = edge
    x, y = (max(x[0], min(x1, x2)), min(x[1], max(x1, x2))), (max(y[0], min(y1, y2)), min(y[1], max(y1, y2)))
    if x[0] > x[1] or y[0] > y[1]:
        return False
    low, high = _sides(edge, x, y)
    return low <= 0.0 <= high


def _is_all_border(edge: Edge, x: Range, y: Range) -> bool:
    """Whether the box lies on an edge that is parallel to an axis."""
    (x1, y1), (x2, y2) = edge
    if y1 == y2:
        return y == (y1, y1) and min(x1, x2) <= x[0] and x[1] <= max(x1, x2)
    return x1 == x2 and x == (x1, x1) and min(y1, y2) <= y[0] and y[1] <= max(y1, y2)


def _beside(edge: Edge, x: Range) -> Range:
    """The range without an end that is on an upright edge, where it is border for certain."""
    (x1, _), (x2, _) = edge
    if x1 != x2:
        return x
    return (
        math.nextafter(x[0], math.inf) if x[0] == x1 else x[0],
        math.nextafter(x[1], -math.inf) if x[1] == x1 else x[1],
    )


def _sides(edge: Edge, x: Range, y: Range) -> Range:
    """The least and the greatest that place() computes for `side` in the box."""
    (x1, y1), (x2, y2) = edge
    along = [(x2 - x1) * (end - y1) for end in y]
    across = [(y2 - y1) * (end - x1) for end in x]
    return min(along) - max(across), max(along) - min(across)


# ---- two polygons


@lru_cache(_CACHED)
def contains(outer: Polygon, inner: Polygon) -> bool:
    """Whether every point that is not outside the inner polygon is proven to be inside the outer one."""
    return (
        _apart(outer, inner)
        and all(outer.place(*ring[0]) is Place.INSIDE for ring in inner.rings)
        and all(inner.place(*ring[0]) is Place.OUTSIDE for ring in outer.rings)
    )


@lru_cache(_CACHED)
def disjoint(first: Polygon, second: Polygon) -> bool:
    """Whether no point is proven to be outside neither."""
    return (
        _apart(first, second)
        and all(first.place(*ring[0]) is Place.OUTSIDE for ring in second.rings)
        and all(second.place(*ring[0]) is Place.OUTSIDE for ring in first.rings)
    )


def _apart(first: Polygon, second: Polygon) -> bool:
    """Whether no edge of one comes near an edge of the other: then a ring is on one side of all of the other's."""
    firsts, seconds = _edges(first), _edges(second)
    if len(firsts) * len(seconds) > MAX_STEPS or not all(map(_is_sound, [*firsts, *seconds])):
        return False
    return all(_are_apart(a, b) for a, b in product(firsts, seconds))


def _is_sound(edge: Edge) -> bool:
    (x1, y1), (x2, y2) = edge
    return all(length == 0.0 or length > _SHORTEST for length in (abs(x2 - x1), abs(y2 - y1)))


def _are_apart(first: Edge, second: Edge) -> bool:
    if any(_gap(first, second, axis) > MARGIN for axis in (0, 1)):
        return True
    if min(_to_edge(point, second) for point in first) <= MARGIN:
        return False
    if min(_to_edge(point, first) for point in second) <= MARGIN:
        return False
    return _turn(first, second[0]) == _turn(first, second[1]) or _turn(second, first[0]) == _turn(second, first[1])


def _gap(first: Edge, second: Edge, axis: int) -> float:
    a, b = sorted(point[axis] for point in first), sorted(point[axis] for point in second)
    return max(a[0] - b[1], b[0] - a[1])


def _to_edge(point: Position, edge: Edge) -> float:
    """The distance from a point to an edge."""
    (x, y), (x1, y1), (x2, y2) = point, *edge
    length = (x2 - x1) ** 2 + (y2 - y1) ** 2
    at = 0.0 if length == 0.0 else min(1.0, max(0.0, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length))
    return math.hypot(x - (x1 + at * (x2 - x1)), y - (y1 + at * (y2 - y1)))


def _turn(edge: Edge, point: Position) -> bool:
    (x1, y1), (x2, y2) = edge
    return (x2 - x1) * (point[1] - y1) > (y2 - y1) * (point[0] - x1)
