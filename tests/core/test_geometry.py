"""Where a point is, seen from a geometry: against exact arithmetic on a small grid."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney.geometry import BBox, MultiPolygon, Place, Point, Polygon, Position, Ring

OUTSIDE, BORDER, INSIDE = Place.OUTSIDE, Place.BORDER, Place.INSIDE
SQUARE = ((0.0, 0.0), (6.0, 0.0), (6.0, 6.0), (0.0, 6.0), (0.0, 0.0))
HOLE = ((2.0, 2.0), (4.0, 2.0), (4.0, 4.0), (2.0, 4.0), (2.0, 2.0))

coordinates = st.integers(-4, 4).map(float)
positions = st.tuples(coordinates, coordinates)
halves = st.integers(-9, 9).map(lambda twice: twice / 2)


def ring(corners: list[Position]) -> Ring:
    return (*corners, corners[0])


rings = st.lists(positions, min_size=3, max_size=7).map(ring)


def exact_place(polygon: Polygon, x: float, y: float) -> Place:
    """By rational arithmetic: on a segment, or an odd number of crossings of the ray to the west."""
    crossings = 0
    for a, b in (edge for line in polygon.rings for edge in pairwise(line)):
        (x1, y1), (x2, y2) = (tuple(map(Fraction, corner)) for corner in (a, b))
        in_line = (x2 - x1) * (Fraction(y) - y1) == (y2 - y1) * (Fraction(x) - x1)
        if in_line and min(y1, y2) <= y <= max(y1, y2) and min(x1, x2) <= x <= max(x1, x2):
            return BORDER
        if (y1 <= y) != (y2 <= y):
            crossings += x1 + (Fraction(y) - y1) * (x2 - x1) / (y2 - y1) < x
    return INSIDE if crossings % 2 else OUTSIDE


@given(rings, halves, halves)
def test_one_ring_by_exact_arithmetic(line: Ring, x: float, y: float) -> None:
    _same(Polygon((line,)), x, y)


@given(st.lists(rings, min_size=2, max_size=3), halves, halves)
def test_rings_within_the_bounds_of_the_first_by_exact_arithmetic(lines: list[Ring], x: float, y: float) -> None:
    outer = ring([(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)])
    _same(Polygon((outer, *lines)), x, y)


def _same(polygon: Polygon, x: float, y: float) -> None:
    west, south, east, north = polygon.bounds()
    inside_bounds = west <= x <= east and south <= y <= north
    assert polygon.place(x, y) is (exact_place(polygon, x, y) if inside_bounds else OUTSIDE)


@given(rings, halves, halves)
def test_neither_direction_nor_start_of_a_ring_matters(line: Ring, x: float, y: float) -> None:
    place = Polygon((line,)).place(x, y)
    assert Polygon((line[::-1],)).place(x, y) is place
    assert Polygon((ring([*line[1:-1], line[0]]),)).place(x, y) is place


@pytest.mark.parametrize(
    ("x", "y", "place"),
    [
        *((1, 1, INSIDE), (3, 1, INSIDE), (3, 3, OUTSIDE), (2, 3, BORDER), (2, 2, BORDER), (4, 4, BORDER)),
        *((0, 3, BORDER), (0, 0, BORDER), (6, 6, BORDER), (6, 0, BORDER), (7, 3, OUTSIDE), (-1, 0, OUTSIDE)),
        *((3, 6, BORDER), (3, 6.5, OUTSIDE), (1, 2, INSIDE), (5, 2, INSIDE), (5, 4, INSIDE), (1, 4, INSIDE)),
    ],
)
def test_a_hole_is_outside_and_its_line_is_border(x: float, y: float, place: Place) -> None:
    assert Polygon((SQUARE, HOLE)).place(x, y) is place


def test_the_best_of_several_polygons_counts() -> None:
    both = MultiPolygon((Polygon((SQUARE, HOLE)), Polygon((HOLE,))))
    assert [both.place(x, 3) for x in (3, 2, 1, 0, 7)] == [INSIDE, BORDER, INSIDE, BORDER, OUTSIDE]


def test_a_point_is_inside_itself() -> None:
    assert Point((1.5, 2.5)).place(1.5, 2.5) is INSIDE
    assert Point((1.5, 2.5)).place(2.5, 1.5) is OUTSIDE
    assert Point((0.0, 0.0)).place(-0.0, 0.0) is INSIDE


@pytest.mark.parametrize(
    ("box", "inside", "border", "outside"),
    [
        (BBox(-1, -2, 3, 4), [(0, 0), (2.9, 3.9)], [(-1, 0), (3, 4), (0, -2)], [(-1.1, 0), (0, 4.1), (180, 0)]),
        (
            BBox(170, -10, -170, 10),
            [(175, 0), (-175, 0), (180, 0), (-180, 9)],
            [(170, 0), (-170, 0), (180, 10)],
            [(0, 0)],
        ),
        (BBox(1, 1, 1, 1), [], [(1, 1)], [(1, 1.5)]),
        (BBox(0, 1, 5, 1), [], [(0, 1), (2, 1), (5, 1)], [(2, 1.1), (6, 1)]),
        (BBox(-180, -90, 180, 90), [(0, 0)], [(180, 0), (-180, 0), (0, 90)], []),
    ],
)
def test_boxes(box: BBox, inside: list[Position], border: list[Position], outside: list[Position]) -> None:
    assert [box.place(*place) for place in inside + border + outside] == (
        [INSIDE] * len(inside) + [BORDER] * len(border) + [OUTSIDE] * len(outside)
    )


@given(halves, halves)
def test_a_box_is_the_polygon_of_its_corners(x: float, y: float) -> None:
    corners = ring([(-2.0, -1.0), (3.0, -1.0), (3.0, 2.5), (-2.0, 2.5)])
    assert BBox(-2.0, -1.0, 3.0, 2.5).place(x, y) is Polygon((corners,)).place(x, y)
