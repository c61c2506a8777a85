"""Filters as Python functions: the reference's verdict, fast."""

from __future__ import annotations

import timeit
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import filters, publications

from spinney import PublicationError, parse_filter
from spinney.compiled import _factory, compile_filter
from spinney.expression import Arithmetic, Compare, Expression, Filter, Literal, Property

both_ways = pytest.mark.parametrize("clean", [False, True])


@given(filters(), publications(), st.booleans())
def test_a_compiled_filter_is_true_where_the_reference_is(
    condition: Filter, publication: dict[str, Any], clean: bool
) -> None:
    assert compile_filter(condition, clean=clean)(publication) is (condition.evaluate(publication) is True)


@both_ways
@pytest.mark.parametrize(
    ("text", "publication", "expected"),
    [
        ("a > 5", {"a": 6.0}, True),
        ("a > 5", {"a": "6"}, False),
        ("NOT (a > 5)", {}, False),
        ("flag > FALSE", {"flag": True}, True),
        ("flag = TRUE", {"flag": 1.0}, False),
        ("a IN (1, 2)", {"a": True}, False),
        ("NOT (a IN (1, 2))", {"a": True}, False),
        ("NOT (a IN (1, 2))", {"a": 3.0}, True),
        ("a IN (1, 'x', TRUE)", {"a": True}, True),
        ("s < 'b' AND s > 'a'", {"s": "aa"}, True),
        ("CASEI(s) = 'strasse'", {"s": "STRAßE"}, True),
        ("NOT (s LIKE 'a%')", {"s": "b"}, True),
        ("NOT (s LIKE 'a%')", {"s": 1.0}, False),
        ("a + b = 3", {"a": 1.0, "b": 2.0}, True),
        ("a + b = 3", {"a": 1.0}, False),
        ("location IS NULL", {"lat": 1.0}, True),
    ],
)
def test_verdicts(text: str, publication: dict[str, Any], expected: bool, clean: bool) -> None:
    assert compile_filter(parse_filter(text), clean=clean)(publication) is expected


def test_whole_numbers_are_doubles() -> None:
    test = compile_filter(parse_filter("a > 9007199254740992"))
    assert not test({"a": 2**53 + 1})
    assert test({"a": 2**53 + 2})


class NotANumber:
    """What no publication holds."""


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 10**400, [1], NotANumber()], ids=["nan", "inf", "huge", "list", "object"]
)
@pytest.mark.parametrize("text", ["a > 5", "s = 'x' AND a > 5", "a IS NULL", "a + 1 > 5", "NOT (a IN ('x'))"])
def test_what_the_reference_refuses_is_refused(text: str, value: object) -> None:
    condition = parse_filter(text)
    with pytest.raises(PublicationError) as expected:
        condition.evaluate({"a": value})
    with pytest.raises(PublicationError) as found:
        compile_filter(condition)({"a": value})
    assert (str(found.value), found.value.attribute) == (str(expected.value), "a")


def test_filters_of_one_shape_are_compiled_once() -> None:
    _factory.cache_clear()
    tests = [compile_filter(parse_filter(f"a{i} > {i} AND s = 'x{i}'")) for i in range(1, 101)]
    assert _factory.cache_info().misses == 1
    assert [test({"a7": 8.0, "s": "x7"}) for test in tests].count(True) == 1


def test_what_comes_from_outside_is_no_part_of_the_source() -> None:
    name = "a'); raise SystemExit(1) #"
    condition = Compare("=", Property(name), Literal(name))
    assert compile_filter(condition)({name: name})


@both_ways
def test_a_computation_as_deep_as_can_be(clean: bool) -> None:
    sum_of_many: Expression = Property("a")
    for _ in range(97):
        sum_of_many = Arithmetic("+", Literal(1.0), sum_of_many)
    assert compile_filter(Compare("=", sum_of_many, Literal(98.0)), clean=clean)({"a": 1.0})


@both_ways
def test_a_nest_of_ands_and_ors(clean: bool) -> None:
    condition = parse_filter("a > 0 AND (b > 0 OR " * 45 + "a > 0" + ")" * 45)
    assert compile_filter(condition, clean=clean)({"a": 1.0, "b": -1.0})
    assert not compile_filter(condition, clean=clean)({"a": -1.0, "b": -1.0})


@both_ways
def test_a_filter_too_large_for_a_function_is_interpreted(clean: bool) -> None:
    condition = parse_filter(" OR ".join(f"a{i} = {i}" for i in range(5000)))
    test = compile_filter(condition, clean=clean)
    assert test({"a4999": 4999.0})
    assert not test({"a4999": 4998.0})


def test_a_compiled_filter_is_several_times_faster_than_the_reference() -> None:
    condition = parse_filter("type = 'NO2' AND value > 40 AND lat BETWEEN 45 AND 46 AND long BETWEEN 15 AND 16")
    publication = {"type": "NO2", "value": 41.0, "lat": 45.5, "long": 15.5}
    test = compile_filter(condition)

    def best(run: Any, publication: Mapping[str, Any]) -> float:
        return min(timeit.repeat(lambda: run(publication), number=200, repeat=5))

    assert best(test, publication) * 3 < best(condition.evaluate, publication)
