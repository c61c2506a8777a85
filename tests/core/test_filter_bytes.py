"""Boxes and programs: what a filter is for the C core."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from strategies import COORDINATES, LATITUDES, filters, publications

from spinney import parse_filter
from spinney.boxes import Box, Constraint, Equals, Is, Prefix, Range, reach
from spinney.expression import TRUE, Filter, Not, Spatial, Temporal, conjunction, properties
from spinney.filter_bytes import ALL_TYPES, filter_bytes, split, types
from spinney.geodesy import distance
from spinney.lowering import X, Y, is_computed, spatial, temporal


def holds(box: Box, publication: Mapping[str, Any]) -> bool:
    """A box as spinney.h defines it."""
    return all(allows(constraint, publication.get(name)) for name, constraint in box.items())


def allows(constraint: Constraint, value: Any) -> bool:
    match constraint:
        case Range(low, high):
            return isinstance(value, float) and low <= value <= high
        case Equals(text):
            return bool(value == text)
        case Prefix(text):
            return isinstance(value, str) and value.startswith(text)
        case Is(flag):
            return value is flag
    return value is not None


def any_holds(boxes: list[Box], publication: Mapping[str, Any]) -> bool:
    return any(holds(box, publication) for box in boxes)


# ---- what boxes say


@given(filters(), publications(), st.booleans())
def test_boxes_contain_every_publication_that_has_the_verdict(
    condition: Filter, publication: dict[str, Any], wanted: bool
) -> None:
    found = reach(condition, wanted)
    if condition.evaluate(publication) is wanted:
        assert any_holds(found.boxes, publication)
    elif found.exact:
        assert not any_holds(found.boxes, publication)


@given(filters(), publications())
@example(parse_filter("a > 1 AND b IS NOT NULL"), {"a": 2.0, "b": "x"})
@example(parse_filter("a = 'x' OR a > 5"), {"a": "x"})
@example(parse_filter("a LIKE 'x%' AND b = TRUE"), {"a": "xy", "b": True})
def test_a_value_of_a_type_that_a_filter_does_not_tell_apart_is_to_it_as_none(
    condition: Filter, publication: dict[str, Any]
) -> None:
    seen = types(filter_bytes(condition))
    told = {name: value for name, value in publication.items() if type(value) in seen.get(name, ())}
    assert (condition.evaluate(told) is True) == (condition.evaluate(publication) is True)


def test_the_types_that_a_filter_tells_apart() -> None:
    condition = parse_filter("a > 1 AND b = 'x' AND c LIKE 'y%' AND d = TRUE AND e IS NOT NULL AND f IN (1, 'z')")
    assert types(filter_bytes(condition)) == {
        "a": {float},
        "b": {str},
        "c": {str},
        "d": {bool},
        "e": ALL_TYPES,
        "f": {float, str},
    }
    assert types(filter_bytes(parse_filter("a * b > 1"))) == {"a": ALL_TYPES, "b": ALL_TYPES}


@given(filters(), publications())
def test_boxes_and_the_rest_are_the_filter(condition: Filter, publication: dict[str, Any]) -> None:
    boxes, rest = split(condition)
    verdict = any_holds(boxes, publication) and (rest is None or rest.evaluate(publication) is True)
    assert verdict == (condition.evaluate(publication) is True)


@given(filters(1), publications())
def test_places_and_times_are_comparisons(condition: Filter, publication: dict[str, Any]) -> None:
    if isinstance(condition, Temporal):
        assert temporal(condition).evaluate(publication) is condition.evaluate(publication)
    if isinstance(condition, Spatial) and is_computed(condition):
        assert spatial(condition, X, Y).evaluate(publication) is condition.evaluate(publication)


_latitudes = st.one_of(st.sampled_from((*LATITUDES, 89.999, -90.0, 90.0)), st.floats(-90, 90))
_longitudes = st.one_of(st.sampled_from(COORDINATES), st.floats(-180, 180))


@given(_latitudes, _longitudes, st.floats(-1000, 1000), st.floats(-1000, 1000), st.floats(0, 0.001))
@example(89.9999, 10.0, 89.9999, -170.0, 0.0)
@example(0.0, 180.0, 0.0, -179.9999, 0.0)
@example(45.0, 16.0, 45.0, 16.0 + 360.0, 0.0)
def test_the_boxes_of_a_circle_hold_all_that_is_near(
    lat: float, long: float, by_lat: float, by_long: float, scale: float
) -> None:
    """The circle that just reaches a place nearby must have it in a box, also across the antimeridian and the poles."""
    scale = scale if abs(by_lat) < 90 else 1.0
    place = {"lat": lat + by_lat * scale, "long": long + by_long * scale}
    radius = distance(place["lat"], place["long"], lat, long)
    condition = parse_filter(f"distance(lat, long, {lat!r}, {long!r}) <= {radius!r}")
    assert condition.evaluate(place) is True
    assert any_holds(split(condition).boxes, place)


def test_a_circle_is_looked_for_where_it_is() -> None:
    boxes = split(parse_filter("distance(lat, long, 45.815, 15.977) < 1000")).boxes
    assert any_holds(boxes, {"lat": 45.82, "long": 15.98})
    assert not any_holds(boxes, {"lat": 45.83, "long": 15.98})
    assert not any_holds(boxes, {"lat": 45.815, "long": 15.995})


EXACT = """
    a > 5; a >= 5; 5 < a; NOT (a > 5); a = 5; a <> 5; a BETWEEN 1 AND 2; NOT (a BETWEEN 1 AND 2); a IN (1, 2, 3)
    NOT (a IN (1, 2)); s = 'x'; s IN ('x', 'y'); s LIKE 'air/%'; s LIKE 'air'; s LIKE '100\\%'; flag = TRUE
    flag <> TRUE; flag < TRUE; NOT flag = FALSE; a IS NOT NULL; NOT (a IS NULL); NO2 > 40 AND lat BETWEEN 1 AND 2
    a > 1 OR s = 'x'; (a > 1 OR b > 1) AND s = 'x'; NOT (a > 1 AND b > 1); NOT (a > 1 OR b > 1); a > 1 + 2
    S_INTERSECTS(location, BBOX(1, 2, 3, 4)); S_WITHIN(location, BBOX(1, 2, 3, 4)); S_WITHIN(location, POINT(1 2))
    S_WITHIN(location, BBOX(170, -1, -170, 1)); NOT S_INTERSECTS(location, BBOX(1, 2, 3, 4))
    S_INTERSECTS(location, POINT(1 2)); T_AFTER(time, TIMESTAMP('2026-11-18T12:00:00Z')); time > DATE('2026-11-18')
    T_DURING(time, INTERVAL('2026-11-18', '..')); T_BEFORE(time, DATE('2026-11-18'))
"""


@pytest.mark.parametrize("text", [text.strip() for text in EXACT.replace("\n", ";").split(";") if text.strip()])
def test_what_boxes_can_say_needs_no_program(text: str) -> None:
    boxes, rest = split(parse_filter(text))
    assert boxes
    assert rest is None


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("a > 5 AND b + c > 3", "b + c > 3"),
        ("s LIKE 'air/%2' AND (a > 1 OR b > 1)", "s LIKE 'air/%2'"),
        ("NOT (a > 5 OR b + c > 3)", "b + c <= 3"),
    ],
)
def test_only_what_boxes_cannot_say_is_left_to_the_program(text: str, rest: str) -> None:
    found = split(parse_filter(text)).rest
    assert found is not None
    assert properties(found) == properties(parse_filter(rest))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a + b > 5", {"a", "b"}),
        ("s LIKE '%x'", {"s"}),
        ("CASEI(s) = 'x'", {"s"}),
        ("NOT (s LIKE 'x%')", {"s"}),
        ("a > b", {"a", "b"}),
        ("distance(lat, long, a, b) < 5", {"lat", "long", "a", "b"}),
        ("S_WITHIN(location, POLYGON((0 0, 1 0, 0 1, 0 0)))", {"lat", "long"}),
    ],
)
def test_what_is_computed_is_looked_for_only_where_it_can_be_known(text: str, names: set[str]) -> None:
    boxes, rest = split(parse_filter(text))
    assert rest is not None
    assert all(set(box) >= names for box in boxes)


@pytest.mark.parametrize("text", ["a > 5 AND a < 3", "a > 1 AND a = 'x'", "s = 'x' AND s = 'y'", "FALSE", "0 / 0 = 0"])
def test_what_can_never_match_has_no_boxes(text: str) -> None:
    assert split(parse_filter(text)) == ([], None)


def test_what_always_matches_has_a_box_without_predicates() -> None:
    assert split(TRUE) == ([{}], None)


# ---- limits


def test_too_many_alternatives_become_one_box_around_them() -> None:
    names = ", ".join(f"'mote-{number}'" for number in range(1000))
    boxes, rest = split(parse_filter(f"source IN ({names}) AND a > 1"))
    assert boxes == [{"source": Prefix("mote-"), "a": Range(math.nextafter(1.0, 2.0), math.inf)}]
    assert rest is not None


def test_many_alternatives_in_many_parts_stay_bounded() -> None:
    parts = [f"(a{number} > 1 OR b{number} > 1)" for number in range(30)]
    start = time.process_time()
    boxes, rest = split(parse_filter(" AND ".join(parts)))
    assert len(boxes) <= 256
    assert rest is not None
    assert time.process_time() - start < 5


def test_a_filter_on_more_attributes_than_a_box_can_name() -> None:
    condition = parse_filter(" AND ".join(f"a{number} > 1" for number in range(300)))
    boxes, rest = split(condition)
    publication = {f"a{number}": 2.0 for number in range(300)}
    assert any_holds(boxes, publication)
    assert rest is not None
    assert not rest.evaluate(publication | {"a299": 0.0})


# ---- bytes


def test_the_bytes_are_those_of_the_header() -> None:
    assert filter_bytes(parse_filter("t >= 2 AND s = 'é' AND f = TRUE AND p IS NOT NULL AND q LIKE 'x%'")).data == (
        b"SF\x01\x00"
        b"\x05\x00" + b"".join(b"\x01\x00" + name for name in (b"f", b"p", b"q", b"s", b"t")) + b"\x01\x00"
        b"\x05"
        b"\x04\x00\x00\x01"
        b"\x05\x01\x00"
        b"\x03\x02\x00\x01\x00\x00\x00x"
        b"\x02\x03\x00\x02\x00\x00\x00\xc3\xa9"
        b"\x01\x04\x00" + bytes.fromhex("0000000000000040 000000000000f07f")
    )


def test_a_program_follows_the_boxes() -> None:
    assert filter_bytes(parse_filter("a * b = 1")).data.endswith(
        b"\x11\x00\x00\x00" + b"\x05\x00\x00\x05\x01\x00\x12\x01" + bytes.fromhex("000000000000f03f") + b"\x20"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a > 1 AND b > 2", "b > 2 AND 1 < a"),
        ("a BETWEEN 1 AND 2", "a >= 1 AND NOT (a > 2)"),
        ("s IN ('x', 'y', 'x')", "s = 'y' OR s = 'x'"),
        ("a = 0", "a = -0"),
        ("a > 1 AND b + c > 1", "b + c > 1 AND a > 1"),
        ("lat BETWEEN 1 AND 2 AND long BETWEEN 3 AND 4", "S_INTERSECTS(location, BBOX(3, 1, 4, 2))"),
    ],
)
def test_filters_that_mean_the_same_have_the_same_bytes(one: str, other: str) -> None:
    assert filter_bytes(parse_filter(one)) == filter_bytes(parse_filter(other))


@given(filters())
def test_every_filter_has_bytes_within_the_limit(condition: Filter) -> None:
    assert 8 <= len(filter_bytes(condition).data) <= 4 << 20


@given(filters(2), filters(2))
def test_bytes_do_not_depend_on_the_order_of_parts(one: Filter, other: Filter) -> None:
    assume(split(conjunction(one, other)).rest is None)
    assert filter_bytes(conjunction(one, other)) == filter_bytes(conjunction(other, one))


def test_twice_negated_is_not_negated() -> None:
    condition = parse_filter("a > 1 AND (s = 'x' OR b < 3)")
    assert filter_bytes(Not(Not(condition))) == filter_bytes(condition)
