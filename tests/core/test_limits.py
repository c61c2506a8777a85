"""Hostile sizes: a clear error or the right answer, soon, without the stack or the memory running out."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spinney import SyntaxError, parse, parse_filter
from spinney.limits import MAX_DEPTH
from spinney.tokens import MAX_TEXT

MANY = 100_000
SECONDS, MEGABYTES = 20.0, 300
"""Of this process's own time, with several times what is needed to spare, and of memory that Python allots."""

A = {"property": "a"}


@contextmanager
def bounded(seconds: float = SECONDS) -> Iterator[None]:
    started = time.process_time()
    yield
    assert time.process_time() - started < seconds


def refused(source: Any, message: str, seconds: float = SECONDS) -> None:
    with bounded(seconds), pytest.raises(SyntaxError) as caught:
        parse_filter(source)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text",
    [
        "(" * MANY + "a = 1" + ")" * MANY,
        "NOT " * MANY + "a = 1",
        "NOT (" * MANY + "a = 1" + ")" * MANY,
        "a = " + "- " * MANY + "b",
        "a = " + "abs(" * MANY + "b" + ")" * MANY,
        "CASEI(" * MANY + "a" + ")" * MANY + " = 'x'",
        "a = " + "b ^ " * MANY + "b",
        "T_BEFORE(" * MANY,
        "1 = 1 OR 1 = 1 AND a = 1 + 2 * 3 ^ (" * 20_000,
        "x = abs(" + "1 + 2 * abs(" * 50_000,
        "a = " + " + ".join(["b"] * MANY),
        "a = " + "*".join(["b"] * MANY),
        "a = " + " - 1 * ".join(["b"] * MANY),
    ],
    ids=lambda text: text[:24],
)
def test_deep_texts_are_refused(text: str) -> None:
    refused(text, f"nested deeper than {MAX_DEPTH} levels")


@pytest.mark.parametrize(
    "opening", ['{"op":"not","args":[', '{"op":"and","args":[true,', "[", '{"op":"=","args":[{"op":"abs","args":[']
)
def test_deep_json_texts_are_refused(opening: str) -> None:
    refused((opening * 40_000)[: MAX_TEXT - 1], "", seconds=SECONDS)
    refused('{"op":"in","args":' + "[" * MANY + "]" * MANY + "}", "nested deeper than 250 levels of JSON")


def nested(levels: int, name: str, *before: Any) -> Any:
    item: Any = A if name in ("+", "abs", "casei") else True
    for _ in range(levels):
        item = {"op": name, "args": [*before, item]}
    return item


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (nested(MANY, "not"), "nested deeper"),
        (nested(MANY, "and", True), "nested deeper"),
        ({"op": "=", "args": [nested(MANY, "+", 1), 1]}, "nested deeper"),
        ({"op": "=", "args": [nested(MANY, "abs"), 1]}, "nested deeper"),
        ({"op": "=", "args": [nested(MANY, "casei"), 1]}, "nested deeper"),
        ({"op": "s_within", "args": [nested(MANY, "not"), nested(MANY, "not")]}, "one side must be"),
        ({"op": "in", "args": [A, [nested(MANY, "+", 1)]]}, "nested deeper"),
    ],
    ids=["not", "and", "+", "abs", "casei", "s_within", "in"],
)
def test_deep_objects_are_refused(item: Any, message: str) -> None:
    refused(item, message, seconds=2)


@pytest.mark.parametrize("levels", range(400, 1100, 7))
def test_json_as_deep_as_the_stack_is_refused_like_any_other(levels: int) -> None:
    refused('{"op":"in","args":' + "[" * levels + "]" * levels + "}", "nested deeper than 250 levels of JSON")


DEEPEST = [
    nested(MAX_DEPTH - 1, "not"),
    nested(MAX_DEPTH - 2, "and", {"op": "or", "args": [False, True]}),
    {"op": "=", "args": [nested(MAX_DEPTH - 2, "+", 1), 1]},
    {"op": "=", "args": [nested(MAX_DEPTH - 2, "abs"), 1]},
]


@pytest.mark.parametrize("item", DEEPEST, ids=["not", "and", "+", "abs"])
def test_the_deepest_that_is_taken_works_in_every_way(item: Any) -> None:
    condition = parse_filter(item)
    assert parse_filter(condition.to_text()) == parse_filter(condition.to_json()) == condition
    explanation = condition.explain({"a": 1})
    assert explanation.verdict is condition.evaluate({"a": 1})
    assert str(explanation)
    assert explanation.reasons()
    assert explanation.to_json()["verdict"] is explanation.verdict
    assert hash(condition) == hash(parse_filter(item))


def test_the_limit_is_one_for_text_and_json() -> None:
    item = nested(MAX_DEPTH, "not")
    refused(item, "nested deeper")
    refused("NOT " * MAX_DEPTH + "TRUE", "nested deeper")
    assert parse_filter("NOT " * (MAX_DEPTH - 1) + "TRUE") == parse_filter(DEEPEST[0])
    alternating: Any = True
    for level in range(MAX_DEPTH - 2):
        alternating = {"op": ("and", "or")[level % 2], "args": [True, alternating]}
    condition = parse_filter(alternating)
    assert parse_filter(condition.to_text()) == condition, "its text has two parentheses for each level and more"


def test_a_long_conjunction_is_answered() -> None:
    with bounded():
        condition = parse_filter(" AND ".join(["a = 1"] * MANY))
        assert condition.evaluate({"a": 1}) is True
        assert condition.evaluate({"a": 2}) is False
        assert len(condition.to_text()) == 10 * MANY - 5
        assert len(condition.to_json()["args"]) == MANY


def test_a_long_list_is_answered() -> None:
    with bounded():
        condition = parse_filter(f"a IN ({','.join(map(str, range(MANY)))})")
        assert [condition.evaluate({"a": a}) for a in (0, MANY - 1, MANY, 0.5)] == [True, True, False, False]


def test_a_polygon_of_ten_thousand_vertices_is_answered() -> None:
    corners = [(50 * math.cos(i * math.pi / 5000), 50 * math.sin(i * math.pi / 5000)) for i in range(10_000)]
    line = ", ".join(f"{x!r} {y!r}" for x, y in (*corners, corners[0]))
    with bounded():
        condition = parse_filter(f"S_INTERSECTS(location, POLYGON(({line})))")
        for radius, inside in ((0, True), (49.9, True), (50.1, False)):
            for i in range(8):
                long, lat = radius * math.cos(i), radius * math.sin(i)
                assert condition.evaluate({"long": long, "lat": lat}) is inside
        assert parse_filter(condition.to_text()) == parse_filter(condition.to_json()) == condition


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a = '" + "x" * 1_000_000, "1:5"),
        ("a = '" + "''" * 500_000, "1:5"),
        ("a = '" + "\\" * 999_999 + "'", "1:5"),
        ("a = '" + "\\'" * 500_000, "1:5"),
        ('"' + '""' * 500_000, "1:1"),
        ("1" * 1_000_000 + "x = 1", "1:1"),
        ("a = " + "1" * 1_000_000, "1:5"),
        ("a = 1." + "1" * 1_000_000 + "e", "1:5"),
        ("n" * 1_000_000, "1:1"),
        (" " * 1_000_000, "1:1"),
        ("a = 1\n" * 150_000, "2:1"),
        ("x" * (MAX_TEXT + 1), "1:1"),
        ('{"op": "=", "args": [1, ' + "1" * 1_000_000 + "]}", "1:25"),
        ('{"filter": "' + "a" * (MAX_TEXT + 1), "1:1"),
    ],
    ids=lambda text: text[:16],
)
def test_a_megabyte_is_refused_soon(text: str, place: str) -> None:
    with bounded(5), pytest.raises(SyntaxError) as caught:
        parse_filter(text)
    assert str(caught.value).startswith(place)
    assert len(str(caught.value)) < 300


def test_a_megabyte_of_string_is_taken() -> None:
    long = "x'\\" * 200_000
    with bounded(5):
        condition = parse_filter({"op": "=", "args": [A, long]})
        assert parse_filter(condition.to_text()) == condition
        assert condition.evaluate({"a": long}) is True


def test_memory_stays_within_some_hundred_bytes_for_a_character() -> None:
    size = MAX_TEXT // 64  # tracing memory is slow; what is traced grows with the text
    tracemalloc.start()
    try:
        refused("(" * size, "nested deeper")
        assert parse("a=1 OR " * (size // 7) + "a=1")
        assert tracemalloc.get_traced_memory()[1] < (MEGABYTES << 20) // 64
    finally:
        tracemalloc.stop()
