"""covers and disjoint: true only when proven, and proven wherever people would expect it (rules R2 and S2)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import filters, probes, seeds, simple_filters

from spinney import parse, parse_filter
from spinney.cases import MAX_CASES
from spinney.covers import Prepared, covers, covers_feed, disjoint, prepared
from spinney.expression import Filter, Not, conjunction, disjunction

COVERED = [
    ("a > 3", "a > 5"),
    ("a > 3", "a > 3"),
    ("a >= 3", "a > 3"),
    ("a > 3", "a > 3.0000000000000004"),
    ("a > 3", "a = 4"),
    ("a <> 3", "a > 3"),
    ("a BETWEEN 1 AND 5", "a BETWEEN 2 AND 4"),
    ("a BETWEEN 1 AND 5", "a BETWEEN 1 AND 5"),
    ("a BETWEEN 1 AND 5", "a > 1 AND a < 5"),
    ("a BETWEEN 1 AND 5", "a IN (1, 3, 5)"),
    ("a IN (1, 2, 3)", "a IN (3, 1)"),
    ("a IN (1, 2, 3)", "a = 2"),
    ("a NOT IN (1, 2)", "a NOT IN (1, 2, 3)"),
    ("a > 3", "a > 5 AND b = 1"),
    ("a > 3 OR b = 1", "a > 5"),
    ("a > 3 OR b = 1", "a > 5 OR b = 1 AND c = 2"),
    ("a < 5 OR a >= 5", "a = 7"),
    ("(a < 5 OR a >= 5) AND b = 1", "a = 7 AND b = 1"),
    ("NOT a <= 3", "a > 5"),
    ("NOT (a > 3 OR b > 3)", "a < 3 AND b < 3"),
    ("a IS NOT NULL", "a > 5"),
    ("a IS NOT NULL", "a + b > 5"),
    ("a IS NOT NULL", "s = 'x' AND a < b"),
    ("s IS NOT NULL", "CASEI(s) = 'x'"),
    ("s IS NOT NULL", "s LIKE '%x'"),
    ("location IS NOT NULL", "S_INTERSECTS(location, BBOX(0, 0, 1, 1))"),
    ("lat IS NOT NULL", "S_WITHIN(location, POLYGON((0 0, 2 0, 1 2, 0 0)))"),
    ("s LIKE 'air/%'", "s LIKE 'air/no2%'"),
    ("s LIKE 'air/%'", "s = 'air/no2'"),
    ("s LIKE 'air/%'", "s IN ('air/no2', 'air/o3')"),
    ("s LIKE 'air/%'", "s LIKE 'air/%/x_'"),
    ("s LIKE '%no2'", "s LIKE 'air/%no2'"),
    ("s LIKE '%no%'", "s LIKE 'air/no_'"),
    ("s LIKE '_ir%'", "s LIKE 'air%'"),
    ("s LIKE '%no2'", "s = 'air/no2'"),
    ("s NOT LIKE 'a%'", "s NOT LIKE '%'"),
    ("s NOT LIKE '%xx'", "s NOT LIKE '%x'"),
    ("CASEI(s) LIKE 'a%'", "CASEI(s) = CASEI('AIR')"),
    ("s < 'b'", "s <= 'a'"),
    ("flag <> TRUE", "flag = FALSE"),
    ("a < b", "a < b AND c = 1"),
    ("a <= b", "b > a"),
    ("a < b", "a < 1 AND b > 1"),
    ("a + b > 3", "a + b > 5"),
    ("a + b > 3", "b + a > 5 AND c = 1"),
    ("a + b > 3", "a > 2 AND a < 9 AND b > 2 AND b < 9"),
    ("a ^ 2 < 10", "a BETWEEN -3 AND 3"),
    ("abs(a) < 5", "a BETWEEN -4 AND 4"),
    ("time > DATE('2026-01-01')", "time > DATE('2026-01-02')"),
    ("T_AFTER(time, DATE('2026-01-01'))", "T_DURING(time, INTERVAL('2026-01-01', '2026-02-01'))"),
    ("T_BEFORE(a, b)", "T_BEFORE(a, b) AND c = 1"),
    ("S_INTERSECTS(location, BBOX(0, 0, 4, 4))", "S_INTERSECTS(location, BBOX(1, 1, 4, 4))"),
    ("S_INTERSECTS(location, BBOX(0, 0, 4, 4))", "S_WITHIN(location, BBOX(0, 0, 4, 4))"),
    ("S_INTERSECTS(location, BBOX(0, 0, 4, 4))", "lat BETWEEN 1 AND 2 AND long BETWEEN 1 AND 2"),
    ("lat BETWEEN 0 AND 4 AND long BETWEEN 0 AND 4", "S_INTERSECTS(location, BBOX(0, 0, 4, 4))"),
    ("S_WITHIN(location, BBOX(0, 0, 4, 4))", "S_INTERSECTS(location, POINT(1 1))"),
    ("S_INTERSECTS(location, BBOX(170, 0, -170, 4))", "S_INTERSECTS(location, BBOX(175, 0, 180, 4))"),
    ("S_INTERSECTS(location, BBOX(170, 0, -170, 4))", "S_INTERSECTS(location, BBOX(175, 0, -175, 4))"),
    ("S_INTERSECTS(location, BBOX(0, 0, 4, 4))", "S_INTERSECTS(location, POLYGON((1 1, 3 1, 2 4, 1 1)))"),
    ("S_INTERSECTS(location, POLYGON((0 0, 9 0, 4 9, 0 0)))", "S_INTERSECTS(location, BBOX(3, 1, 5, 4))"),
    ("S_WITHIN(location, POLYGON((0 0, 9 0, 4 9, 0 0)))", "S_INTERSECTS(location, POLYGON((2 1, 6 1, 4 5, 2 1)))"),
    ("S_INTERSECTS(location, POLYGON((0 0, 9 0, 4 9, 0 0)))", "S_WITHIN(location, POLYGON((0 0, 9 0, 4 9, 0 0)))"),
    (
        "S_INTERSECTS(location, MULTIPOLYGON(((0 0, 9 0, 4 9, 0 0)), ((20 0, 29 0, 24 9, 20 0))))",
        "S_INTERSECTS(location, POLYGON((22 1, 26 1, 24 5, 22 1)))",
    ),
    ("NOT S_INTERSECTS(location, BBOX(0, 0, 1, 1))", "S_INTERSECTS(location, BBOX(2, 2, 3, 3))"),
    (
        "NOT S_INTERSECTS(location, POLYGON((0 0, 2 0, 1 2, 0 0)))",
        "S_INTERSECTS(location, POLYGON((0 3, 2 3, 1 5, 0 3)))",
    ),
    ("distance(lat, long, 45, 16) < 2000", "distance(lat, long, 45, 16) < 1000"),
    ("distance(lat, long, 45, 16) < 9000", "distance(lat, long, 45.01, 16) < 1000"),
    ("distance(lat, long, 45, 16) > 9000", "distance(lat, long, 46, 16) < 1000"),
    ("distance(lat, long, 45, 16) < 200000", "lat BETWEEN 44 AND 46 AND long BETWEEN 15 AND 17"),
    ("S_INTERSECTS(location, POLYGON((0 0, 9 0, 9 9, 0 5, 0 0)))", "S_INTERSECTS(location, BBOX(0, 1, 2, 3))"),
    ("location IS NOT NULL", "NOT S_INTERSECTS(location, BBOX(0, 0, 1, 1))"),
    ("TRUE", "a > 1"),
    ("a > 1", "FALSE"),
    ("a > 1", "b > 3 AND b < 2"),
    ("a > 1", "b IS NULL AND b > 2"),
]

NOT_COVERED = [
    ("a > 5", "a > 3"),
    ("a > 3", "a >= 3"),
    ("a BETWEEN 1 AND 5", "b BETWEEN 1 AND 5"),
    ("a BETWEEN 1 AND 5", "a BETWEEN 1 AND 5.000001"),
    ("a > 3 AND b = 1", "a > 5"),
    ("a <> 3", "a <> 4"),
    ("a IS NOT NULL", "b > 5"),
    ("a IS NULL", "a > 5"),
    ("a > 1 OR a <= 1", "a IS NOT NULL"),
    ("a > 1 OR a <= 1", "TRUE"),
    ("s LIKE 'air/no2%'", "s LIKE 'air/%'"),
    ("s LIKE '%no2'", "s LIKE 'air/%'"),
    ("s LIKE '_'", "s LIKE '%'"),
    ("s LIKE '_%'", "s LIKE 'a%' OR s = ''"),
    ("a = 1", "a = TRUE"),
    ("S_WITHIN(location, BBOX(0, 0, 4, 4))", "S_INTERSECTS(location, BBOX(0, 0, 4, 4))"),
    ("S_INTERSECTS(location, BBOX(170, 0, -170, 4))", "S_INTERSECTS(location, BBOX(160, 0, 180, 4))"),
    ("S_INTERSECTS(location, POLYGON((0 0, 9 0, 4 9, 0 0)))", "S_INTERSECTS(location, BBOX(0, 0, 9, 9))"),
    ("S_INTERSECTS(location, POLYGON((0 0, 9 0, 9 9, 0 0)))", "S_INTERSECTS(location, BBOX(4, 1, 8, 6))"),
    ("S_INTERSECTS(location, POLYGON((0 0, 9 9, 9 0, 0 0)))", "S_INTERSECTS(location, BBOX(4, 1, 8, 6))"),
    ("S_WITHIN(location, POLYGON((0 0, 9 0, 4 9, 0 0)))", "S_INTERSECTS(location, POLYGON((0 0, 9 0, 4 9, 0 0)))"),
    ("a = 1 AND b = 1 OR a = 2 AND b = 2", "a = 1 AND b = 2"),
    (
        "S_INTERSECTS(location, POLYGON((0 0, 9 0, 4 9, 0 0), (3 1, 5 1, 4 4, 3 1)))",
        "S_INTERSECTS(location, POINT(4 2))",
    ),
    ("distance(lat, long, 45, 16) < 1000", "distance(lat, long, 45.01, 16) < 1000"),
    ("S_WITHIN(location, POLYGON((0 0, 9 0, 9 9, 0 5, 0 0)))", "S_INTERSECTS(location, BBOX(0, 1, 2, 3))"),
    ("NOT S_INTERSECTS(location, BBOX(0, 0, 1, 1))", "long > 50"),
    ("s LIKE '%x' AND t LIKE '%y'", "s LIKE '%x'"),
    ("a < b", "a <= b"),
    ("T_BEFORE(a, b)", "a < b"),
]

DISJOINT = [
    ("temp > 25", "temp <= 22"),
    ("temp > 25", "NOT temp > 25"),
    ("temp > 25 AND a = 1", "temp <= 22 OR a = 2"),
    ("s = 'x'", "s = 'y'"),
    ("s LIKE 'x%'", "s LIKE 'y%'"),
    ("flag = TRUE", "flag = FALSE"),
    ("a IS NULL", "a > 1"),
    ("a IS NULL", "a + b > 1"),
    ("a = 1", "a = '1'"),
    ("a < b", "a >= b"),
    ("a + b > 3", "a + b < 2"),
    ("a + b > 30", "a < 5 AND b < 5"),
    ("s LIKE '%x'", "NOT s LIKE '%x'"),
    ("s LIKE '%x'", "s = 'y'"),
    ("S_INTERSECTS(location, BBOX(0, 0, 1, 1))", "S_INTERSECTS(location, BBOX(2, 2, 3, 3))"),
    ("S_WITHIN(location, BBOX(0, 0, 1, 1))", "S_INTERSECTS(location, BBOX(1, 0, 3, 1))"),
    ("S_INTERSECTS(location, POLYGON((0 0, 9 0, 4 9, 0 0)))", "S_INTERSECTS(location, POLYGON((6 8, 9 2, 9 8, 6 8)))"),
    ("distance(lat, long, 45, 16) < 1000", "distance(lat, long, 46, 16) < 1000"),
    ("distance(lat, long, 45, 16) < 1000", "distance(lat, long, 45, 16) > 1100"),
]

NOT_DISJOINT = [
    ("temp > 25", "temp <= 26"),
    ("a = 1", "b = 2"),
    ("a > b", "b > c"),
    ("S_INTERSECTS(location, BBOX(0, 0, 1, 1))", "S_INTERSECTS(location, BBOX(1, 1, 3, 3))"),
    ("s LIKE '%x'", "s LIKE 'y%'"),
    ("distance(lat, long, 60, 16) < 60000", "lat BETWEEN 60 AND 60.001 AND long BETWEEN 17 AND 17.001"),
]


def read(pair: tuple[str, str]) -> tuple[Filter, Filter]:
    return parse_filter(pair[0]), parse_filter(pair[1])


@pytest.mark.parametrize("pair", COVERED, ids=" <- ".join)
def test_covering_is_found(pair: tuple[str, str]) -> None:
    assert covers(*read(pair))


def test_the_list_of_what_must_be_found_is_as_long_as_it_was() -> None:
    assert len(COVERED) >= 70
    assert len(DISJOINT) >= 19


@pytest.mark.parametrize("pair", NOT_COVERED, ids=" <- ".join)
def test_covering_is_not_claimed(pair: tuple[str, str]) -> None:
    assert not covers(*read(pair))


@pytest.mark.parametrize("pair", DISJOINT, ids=" | ".join)
def test_disjoint_is_found_either_way(pair: tuple[str, str]) -> None:
    one, other = read(pair)
    assert disjoint(one, other)
    assert disjoint(other, one)


@pytest.mark.parametrize("pair", NOT_DISJOINT, ids=" | ".join)
def test_disjoint_is_not_claimed(pair: tuple[str, str]) -> None:
    assert not disjoint(*read(pair))


def check(one: Filter, other: Filter, random: Random, count: int) -> None:
    if covers(one, other):
        for publication in probes(random, one, other, count=count):
            assert one.evaluate(publication) is True or other.evaluate(publication) is not True, publication
    if disjoint(one, other):
        for publication in probes(random, one, other, count=count):
            assert one.evaluate(publication) is not True or other.evaluate(publication) is not True, publication


@given(simple_filters(), simple_filters(), seeds())
def test_related_filters_are_covered_and_disjoint_only_when_they_are(
    one: Filter, other: Filter, random: Random
) -> None:
    check(one, other, random, 30)


@given(filters(2), filters(1), seeds(), st.integers(0, 4))
def test_any_filters_are_covered_and_disjoint_only_when_they_are(
    one: Filter, other: Filter, random: Random, how: int
) -> None:
    relations = [other, conjunction(one, other), disjunction(one, other), Not(one), conjunction(Not(one), other)]
    check(one, relations[how], random, 20)
    check(relations[how], one, random, 20)


@pytest.mark.soak
@settings(max_examples=10_000)
@given(st.one_of(filters(), simple_filters()), st.one_of(filters(2), simple_filters()), seeds())
def test_no_relation_is_claimed_wrongly_among_very_many(one: Filter, other: Filter, random: Random) -> None:
    for pair in ((one, other), (one, conjunction(one, other)), (disjunction(one, other), other), (one, Not(other))):
        check(*pair, random, 30)


@given(filters())
def test_every_filter_covers_itself_however_it_is_written(condition: Filter) -> None:
    assert covers(condition, parse_filter(condition.to_text()))


@given(filters(2), filters(2))
def test_cases_are_few(one: Filter, other: Filter) -> None:
    assert len(prepared(conjunction(one, other)).cases) <= MAX_CASES


def test_very_wide_filters_are_compared_in_bounded_work() -> None:
    wide = " AND ".join(f"(a{i} > 1 OR b{i} > 1 OR c{i} > 1)" for i in range(50))
    one, other = Prepared(parse_filter(wide)), Prepared(parse_filter(wide + " AND z = 1"))
    assert len(one.cases) <= MAX_CASES
    assert covers(one, other)
    assert not covers(other, one)


@pytest.mark.parametrize(
    ("a", "b", "covered"),
    [
        ("NO2 > 40", "NO2 > 50", True),
        ("NO2 > 40", "TOP 3 OVER 1h BY NO2 WHERE NO2 > 50", True),
        ("NO2 IS NOT NULL", "TOP 3 OVER 1h BY NO2", True),
        ("TRUE", "TOP 3 OVER 1h BY NO2 EACH room", True),
        ("room IS NOT NULL", "TOP 3 OVER 1h BY NO2 EACH room", True),
        ("NO2 > 40", "TOP 3 OVER 1h BY NO2", False),
        ("NO2 > 40", "WHEN NO2 > 60 UNTIL NO2 BETWEEN 41 AND 50", True),
        ("NO2 > 40", "WHEN NO2 > 60 UNTIL NO2 < 50", False),
        ("TOP 3 OVER 1h BY NO2", "NO2 > 3", True),
        ("WHEN a > 2 UNTIL a < 1", "WHEN 2 < a UNTIL NOT a >= 1", True),
        ("WHEN a > 2 UNTIL a < 1", "WHEN a > 3 UNTIL a < 1", False),
        ("WHEN a > 2 UNTIL a < 1", "WHEN a > 2 UNTIL a < 1 EACH room", False),
        ("WHEN a > 2 UNTIL a < 1", "a > 2", False),
        ("WHEN a > 2 UNTIL a > 2", "a > 3", True),
    ],
)
def test_r2_feeds_are_covered_by_whole_feeds_and_state_by_the_same_state(a: str, b: str, covered: bool) -> None:
    assert covers_feed(parse(a), parse(b)) is covered


def test_r2_feed_options_count() -> None:
    plain, slow = '{"when": "a > 2", "until": "a < 1"}', '{"when": "a > 2", "until": "a < 1", "debounce": 5}'
    assert covers_feed(parse(slow), parse(slow))
    assert not covers_feed(parse(plain), parse(slow))
