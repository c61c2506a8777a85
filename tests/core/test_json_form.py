"""CQL2 JSON: read into the same trees as text, and written so that it is read again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spinney import UNKNOWN, SyntaxError, parse_filter
from spinney.expression import Literal
from spinney.json_source import offset_of

LOCATION = {"property": "location"}
SQUARE = [[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]
HOLE = [[1, 1], [2, 1], [2, 2], [1, 1]]


def op(name: str, *arguments: Any) -> dict[str, Any]:
    return {"op": name, "args": list(arguments)}


def prop(name: str) -> dict[str, Any]:
    return {"property": name}


PAIRS = [
    (True, "TRUE"),
    (False, "FALSE"),
    (op("=", prop("a"), 1), "a = 1"),
    (op("<>", 1.5, prop("a")), "1.5 <> a"),
    (op("<", prop("a"), "x"), "a < 'x'"),
    (op(">", prop("a"), True), "a > TRUE"),
    (op("<=", prop("a b"), -2.5e-7), '"a b" <= -2.5e-07'),
    (op(">=", prop("a"), prop("b")), "a >= b"),
    (op("and", op("=", prop("a"), 1), True, op("=", prop("b"), 2)), "a = 1 AND TRUE AND b = 2"),
    (op("or", op("=", prop("a"), 1), op("and", False, True)), "a = 1 OR FALSE AND TRUE"),
    (op("and", op("or", True, False), True), "(TRUE OR FALSE) AND TRUE"),
    (op("not", op("=", prop("a"), 1)), "NOT a = 1"),
    (op("isNull", prop("a")), "a IS NULL"),
    (op("not", op("isNull", prop("a"))), "a IS NOT NULL"),
    (op("isNull", op("location")), "location IS NULL"),
    (op("isNull", prop("location")), '"location" IS NULL'),
    (op("like", prop("a"), "x%"), "a LIKE 'x%'"),
    (op("like", op("casei", prop("a")), op("casei", "X%")), "CASEI(a) LIKE CASEI('X%')"),
    (op("between", prop("a"), 1, op("+", prop("b"), 2)), "a BETWEEN 1 AND b + 2"),
    (op("in", prop("a"), [1, "x", prop("b")]), "a IN (1, 'x', b)"),
    (op("in", op("casei", prop("a")), [op("casei", "X")]), "CASEI(a) IN (CASEI('X'))"),
    (op("=", op("-", op("*", prop("a"), 2), op("/", 1, prop("b"))), 3), "a * 2 - 1 / b = 3"),
    (op("=", op("^", op("%", prop("a"), 2), op("div", 1, prop("b"))), 3), "(a % 2) ^ (1 div b) = 3"),
    (op("<", op("abs", prop("a")), 1), "abs(a) < 1"),
    (op("<", op("distance", prop("lat"), prop("long"), 45.8, 16), 500), "distance(lat, long, 45.8, 16) < 500"),
    (op("=", prop("time"), {"timestamp": "2026-11-18T12:30:00.5Z"}), "time = TIMESTAMP('2026-11-18T12:30:00.5Z')"),
    (op(">", prop("time"), {"date": "2026-11-18"}), "time > DATE('2026-11-18')"),
    (op("t_before", prop("time"), {"date": "2026-11-18"}), "T_BEFORE(time, DATE('2026-11-18'))"),
    (op("t_after", {"interval": ["..", "2026-11-18"]}, prop("time")), "T_AFTER(INTERVAL('..', '2026-11-18'), time)"),
    (
        op("t_during", prop("time"), {"interval": ["2026-11-18", "2026-11-18T12:00:00Z"]}),
        "T_DURING(time, INTERVAL('2026-11-18', '2026-11-18T12:00:00Z'))",
    ),
    (
        op("s_intersects", LOCATION, {"type": "Point", "coordinates": [1, -2.5]}),
        "S_INTERSECTS(location, POINT(1 -2.5))",
    ),
    (op("s_within", {"bbox": [170, -10, -170, 10]}, LOCATION), "S_WITHIN(BBOX(170, -10, -170, 10), location)"),
    (
        op("s_within", LOCATION, {"type": "Polygon", "coordinates": [SQUARE, HOLE]}),
        "S_WITHIN(location, POLYGON((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 2 1, 2 2, 1 1)))",
    ),
    (
        op("s_intersects", LOCATION, {"type": "MultiPolygon", "coordinates": [[SQUARE], [HOLE]]}),
        "S_INTERSECTS(location, MULTIPOLYGON(((0 0, 4 0, 4 4, 0 4, 0 0)), ((1 1, 2 1, 2 2, 1 1))))",
    ),
]


@pytest.mark.parametrize(("item", "text"), PAIRS, ids=[text for _, text in PAIRS])
def test_json_and_text_say_the_same(item: Any, text: str) -> None:
    condition = parse_filter(text)
    assert parse_filter(item) == condition
    assert condition.to_json() == item
    assert condition.to_text() == text
    if isinstance(item, dict):
        assert parse_filter(json.dumps(item)) == parse_filter(json.dumps(item, indent=2).encode()) == condition


def test_op_names_have_no_case() -> None:
    assert parse_filter(op("AND", op("ISNULL", prop("a")), op("Like", prop("a"), op("CaseI", "x")))) == parse_filter(
        "a IS NULL AND a LIKE CASEI('x')"
    )


def test_members_may_come_in_any_order() -> None:
    assert parse_filter('{"args": [{"property": "a"}, 1], "op": "="}') == parse_filter("a = 1")


def test_interval_ends_may_be_instants() -> None:
    ends = [{"date": "2026-11-18"}, {"timestamp": "2026-11-19T00:00:00Z"}]
    plain = ["2026-11-18", "2026-11-19T00:00:00Z"]
    assert parse_filter(op("t_during", prop("time"), {"interval": ends})) == parse_filter(
        op("t_during", prop("time"), {"interval": plain})
    )


def test_text_may_stand_where_a_whole_filter_is_expected() -> None:
    assert parse_filter('  {"op": "not", "args": [true]}') == parse_filter("NOT TRUE")
    with pytest.raises(SyntaxError, match="expected a condition, found a string"):
        parse_filter(op("not", "a = 1"))


def test_unknown_is_written_as_what_is_never_known() -> None:
    first, second = UNKNOWN.to_json(), UNKNOWN.to_json()
    assert first == op("=", op("/", 0, 0), 0)
    assert parse_filter(first).evaluate({}) is None
    first["args"].clear()
    assert UNKNOWN.to_json() == second, "what one caller does to its copy is not seen by another"


def test_whole_numbers_are_written_without_a_point() -> None:
    assert (
        json.dumps(parse_filter("a IN (1.0, 1e3, -5, 0.5, 1e300)").to_json()["args"][1]) == "[1, 1000, -5, 0.5, 1e+300]"
    )


def test_integers_become_the_nearest_double() -> None:
    (condition,) = [parse_filter('{"op": "=", "args": [9007199254740993, 1]}')]
    assert condition == parse_filter(op("=", 2**53 + 1, 1))
    assert condition.left == Literal(9007199254740992.0)


def test_json_escapes_are_unicode_and_halves_of_it_are_refused() -> None:
    assert parse_filter(r'{"op": "=", "args": ["\ud83d\ude00\u0000", 1]}') == parse_filter(op("=", "😀\0", 1))
    for item in (op("=", "\ud83d", 1), op("=", prop("\ud83d"), 1), op("like", prop("a"), "\ud83d")):
        for form in (item, json.dumps(item)):
            with pytest.raises(SyntaxError, match="half of a surrogate pair"):
                parse_filter(form)


def test_places_are_found_in_json_of_any_layout() -> None:
    source = '\n{ "args" :\n  [ {"property":"a"} , 1e2 ],\n "x": [1, {"op": "\\"{"}] }'
    assert source[offset_of(source, ("args", 1)) :].startswith("1e2")
    assert source[offset_of(source, ("x", 1, "op")) :].startswith('"\\"{')
    assert source[offset_of(source, ("args", 7)) :].startswith("[ {")
    assert source[offset_of(source, ("nothing", 0)) :].startswith("{ ")
