"""The reference meaning, rule by rule (P1), against what the standard and IEEE 754 say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import PublicationError, parse_filter
from spinney.evaluate import all_of, any_of, arithmetic, compare, negate
from spinney.geodesy import RADIUS, distance

TRUTH = (True, False, None)
WRITTEN = {True: "TRUE", False: "FALSE", None: "missing = 1"}


def verdict(text: str, publication: Mapping[str, Any] | None = None) -> bool | None:
    return parse_filter(text).evaluate(publication or {})


# ---- three-valued logic


def _and(left: bool | None, right: bool | None) -> bool | None:
    table = {(True, True): True, (True, None): None, (None, True): None, (None, None): None}
    return table.get((left, right), False)


@pytest.mark.parametrize(("left", "right"), list(product(TRUTH, TRUTH)))
def test_and_or_follow_the_truth_table_of_the_standard(left: bool | None, right: bool | None) -> None:
    a, b = WRITTEN[left], WRITTEN[right]
    assert verdict(f"{a} AND {b}") is _and(left, right)
    assert verdict(f"{a} OR {b}") is negate(_and(negate(left), negate(right)))
    assert all_of([left, right]) is _and(left, right)
    assert any_of([left, right]) is negate(_and(negate(left), negate(right)))


def test_not_leaves_unknown_unknown() -> None:
    assert [verdict(f"NOT ({WRITTEN[value]})") for value in TRUTH] == [False, True, None]


@given(st.lists(st.sampled_from(TRUTH), min_size=2, max_size=6))
def test_longer_chains_are_the_same_two_by_two(values: list[bool | None]) -> None:
    folded_and, folded_or = values[0], values[0]
    for value in values[1:]:
        folded_and, folded_or = all_of([folded_and, value]), any_of([folded_or, value])
    assert verdict(" AND ".join(WRITTEN[value] for value in values)) is folded_and
    assert verdict(" OR ".join(WRITTEN[value] for value in values)) is folded_or


# ---- comparisons

OPERATORS = ("=", "<>", "<", ">", "<=", ">=")
EXPECTED = {-1: (False, True, True, False, True, False), 0: (True, False, False, False, True, True)}
EXPECTED[1] = (False, True, False, True, False, True)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        *((1.0, 2.0), (-1.0, 0.0), (0.1 + 0.2, 0.3 + 1e-15), (5e-324, 1e-323), (-1e308, 1e308)),
        *(("", "a"), ("a", "b"), ("Z", "a"), ("a", "aa"), ("a\0", "aa"), ("10", "9"), ("é", "ê"), (False, True)),
    ],
)
def test_every_comparison_of_numbers_strings_and_booleans(low: Any, high: Any) -> None:
    for order, left, right in ((-1, low, high), (0, low, low), (1, high, low)):
        assert tuple(compare(operator, left, right) for operator in OPERATORS) == EXPECTED[order]
        got = tuple(verdict(f"a {operator} b", {"a": left, "b": right}) for operator in OPERATORS)
        assert got == EXPECTED[order]


def test_strings_compare_by_code_point_not_by_utf16() -> None:
    assert verdict("a < b", {"a": "\uffff", "b": "\U00010000"}) is True
    assert verdict("a < b", {"a": "\ue000", "b": "😀"}) is True


def test_strings_are_not_normalised() -> None:
    assert verdict("a = 'é'", {"a": "e\u0301"}) is False


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_comparison_with_a_missing_attribute_is_unknown(operator: str) -> None:
    for publication in ({}, {"a": None}, {"b": 1}):
        assert verdict(f"a {operator} 1", publication) is None
        assert verdict(f"1 {operator} a", publication) is None
        assert verdict(f"a {operator} a", publication) is None


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_comparison_of_different_types_is_unknown(operator: str) -> None:
    for left, right in ((1, "1"), (1, True), (0, False), ("TRUE", True), ("", 0), ("", False)):
        assert verdict(f"a {operator} b", {"a": left, "b": right}) is None
        assert verdict(f"b {operator} a", {"a": left, "b": right}) is None


def test_minus_zero_equals_zero() -> None:
    assert verdict("a = 0", {"a": -0.0}) is True
    assert verdict("a < 0", {"a": -0.0}) is False


def test_integers_are_compared_as_the_nearest_double() -> None:
    assert verdict("a = 9007199254740992", {"a": 2**53 + 1}) is True
    assert verdict("a = 9007199254740993", {"a": 2**53}) is True
    assert verdict("a < 9007199254740994", {"a": 2**53 + 1}) is True
    assert verdict("a = 0.1", {"a": 0.1}) is True
    assert verdict("a = 0.3", {"a": 0.1 + 0.2}) is False


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)])
def test_what_is_not_finite_is_refused_with_its_attribute(value: float) -> None:
    with pytest.raises(PublicationError, match=r"^a: .* is not a finite number$") as caught:
        verdict("a > 1 OR TRUE", {"a": value})
    assert caught.value.attribute == "a"


@pytest.mark.parametrize("value", [[1], {"x": 1}, (1,), b"x", 1j, Fraction(1, 2), object()])
def test_what_is_no_value_is_refused_with_its_attribute(value: Any) -> None:
    with pytest.raises(PublicationError, match=r"^a: a value is a number, a string or a boolean, not ") as caught:
        verdict("a = 1", {"a": value})
    assert caught.value.attribute == "a"


def test_is_null_is_never_unknown() -> None:
    assert [verdict("a IS NULL", p) for p in ({}, {"a": None}, {"a": 0}, {"a": ""}, {"a": False})] == [
        *(True, True, False, False, False)
    ]
    assert verdict("a IS NOT NULL", {"a": 0}) is True
    assert verdict("a + 1 IS NULL", {"a": "x"}) is True
    assert verdict("1 / a IS NULL", {"a": 0}) is True
    assert verdict("CASEI(a) IS NULL", {"a": 5}) is True
    assert verdict("'x' IS NULL") is False


def test_location_is_null_unless_both_coordinates_are_numbers() -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"lat": 1}, True),
        ({"long": 1}, True),
        ({"lat": 1, "long": "2"}, True),
        ({"lat": True, "long": 2}, True),
        ({"lat": 0, "long": 0}, False),
        ({"location": 1}, True),
    ]
    for publication, null in cases:
        assert verdict("location IS NULL", publication) is null
        assert verdict("S_INTERSECTS(location, BBOX(-180, -90, 180, 90))", publication) is (None if null else True)


# ---- BETWEEN, IN, CASEI


@given(*[st.sampled_from([None, -1.0, 0.0, 1.0, 2.0, "x", True])] * 3)
def test_between_is_two_comparisons(a: Any, b: Any, c: Any) -> None:
    publication = {"a": a, "b": b, "c": c}
    assert verdict("a BETWEEN b AND c", publication) is verdict("a >= b AND a <= c", publication)
    assert verdict("a NOT BETWEEN b AND c", publication) is verdict("NOT (a >= b AND a <= c)", publication)


def test_between_includes_both_ends_and_may_be_empty() -> None:
    assert [verdict("a BETWEEN 1 AND 2", {"a": a}) for a in (0.999, 1, 1.5, 2, 2.001)] == [
        *(False, True, True, True, False)
    ]
    assert verdict("a BETWEEN 2 AND 1", {"a": 1.5}) is False
    assert verdict("a BETWEEN 1 AND b", {"a": 0}) is False, "below the lower bound, whatever the missing upper one"
    assert verdict("a BETWEEN 1 AND b", {"a": 2}) is None


@given(*[st.sampled_from([None, 0.0, 1.0, "x", True, False])] * 4)
def test_in_is_a_disjunction_of_equalities(a: Any, b: Any, c: Any, d: Any) -> None:
    publication = {"a": a, "b": b, "c": c, "d": d}
    assert verdict("a IN (b, c, d)", publication) is verdict("a = b OR a = c OR a = d", publication)
    assert verdict("a NOT IN (b, c)", publication) is verdict("NOT (a = b OR a = c)", publication)


def test_in_with_an_unknown_among_its_values() -> None:
    assert verdict("a IN (1, b)", {"a": 1}) is True
    assert verdict("a IN (1, b)", {"a": 2}) is None
    assert verdict("a IN (1, 'x')", {"a": 2}) is None, "2 = 'x' is unknown"
    assert verdict("a NOT IN (1, 'x')", {"a": 2}) is None


def test_casei_folds_case_fully() -> None:
    assert verdict("CASEI(a) = CASEI('STRASSE')", {"a": "Straße"}) is True
    assert verdict("CASEI(a) = CASEI('ΟΔΟΣ')", {"a": "οδος"}) is True
    assert verdict("CASEI(a) IN (CASEI('x'), CASEI('Y'))", {"a": "y"}) is True
    assert verdict("CASEI(a) = 'X'", {"a": "X"}) is False, "only one side is folded"
    assert verdict("CASEI(a) = 'x'", {"a": 5}) is None
    assert verdict("CASEI(a) LIKE CASEI('STRASS_')", {"a": "straße"}) is True
    assert verdict("CASEI(a) LIKE 'STR%'", {"a": "straße"}) is False


# ---- arithmetic


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("7 + 2", 9), ("7 - 2", 5), ("7 * 2", 14), ("7 / 2", 3.5), ("7 % 2", 1), ("7 div 2", 3), ("7 ^ 2", 49)),
        *(("-7 / 2", -3.5), ("-7 % 2", -1), ("7 % -2", 1), ("-7 div 2", -3), ("7 div -2", -3), ("-7 div -2", 3)),
        *(("7.5 % 2", 1.5), ("7.5 div 2", 3), ("-0.5 div 1", 0), ("5.5 % 0.5", 0), ("1 div 0.1", 10)),
        *(("2 ^ 0", 1), ("0 ^ 0", 1), ("2 ^ -1", 0.5), ("2 ^ 0.5", math.sqrt(2)), ("-2 ^ 3", -8), ("2 ^ 3 ^ 2", 512)),
        *(("2 ^ 1023", 2.0**1023), ("0.5 ^ 1074", 5e-324), ("-1 ^ 1025", -1), ("2 ^ 10 - 24", 1000)),
        *(("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("10 - 4 - 3", 3), ("100 / 10 / 5", 2), ("2 * -3", -6)),
        *(("abs(-3)", 3), ("abs(3)", 3), ("abs(2 - 5) + 1", 4), ("- (2 + 1)", -3), ("0.1 + 0.2", 0.1 + 0.2)),
        *(("1e308 - 1e308", 0), ("9007199254740993 - 9007199254740992", 0), ("9007199254740992 + 1", 2.0**53)),
    ],
)
def test_arithmetic_is_that_of_doubles(text: str, value: float) -> None:
    assert verdict(f"{text} = x", {"x": value}) is True


@pytest.mark.parametrize(
    "text",
    [
        *("1 / 0", "0 / 0", "-1 / 0", "1 % 0", "1 div 0", "0 ^ -1", "-1 ^ 0.5", "-8 ^ (1 / 3)"),
        *("1e308 * 10", "1e308 + 1e308", "-1e308 - 1e308", "10 ^ 309", "10 ^ 400.5", "1e308 div 1e-10", "1 / 5e-324"),
        *("a + 1", "1 - a", "abs(a)", "s + 1", "flag * 2", "abs(s)", "-s", "s % 2", "distance(0, 0, a, 0)"),
    ],
)
def test_what_has_no_finite_result_is_null(text: str) -> None:
    publication = {"s": "1", "flag": True}
    assert verdict(f"{text} = 1", publication) is None
    assert verdict(f"({text}) IS NULL", publication) is True


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(finite, finite)
def test_one_operation_rounds_once(a: float, b: float) -> None:
    exact = {"+": Fraction(a) + Fraction(b), "-": Fraction(a) - Fraction(b), "*": Fraction(a) * Fraction(b)}
    if b:
        exact["/"] = Fraction(a) / Fraction(b)
    for operator, value in exact.items():
        try:
            nearest: float | None = float(value)
        except OverflowError:
            nearest = None
        assert arithmetic(operator, a, b) == nearest


@given(finite, finite.filter(bool))
def test_remainder_has_the_sign_of_the_dividend_and_is_exact(a: float, b: float) -> None:
    remainder = arithmetic("%", a, b)
    assert remainder is not None
    quotient = abs(Fraction(a)) // abs(Fraction(b))
    assert abs(Fraction(remainder)) == abs(Fraction(a)) - quotient * abs(Fraction(b))
    assert remainder == 0 or (remainder > 0) == (a > 0)


@given(st.integers(-100, 100), st.integers(-100, 100).filter(bool))
def test_div_and_remainder_of_whole_numbers_agree(a: int, b: int) -> None:
    assert verdict("(a div b) * b + a % b = a", {"a": a, "b": b}) is True


@given(st.sampled_from([-3.0, -2.0, -0.5, 0.5, 1.5, 2.0, 3.0, 10.0]), st.integers(-12, 12))
def test_whole_powers_are_repeated_multiplication(base: float, exponent: int) -> None:
    power = arithmetic("^", base, float(exponent))
    assert power is not None
    assert math.isclose(power, float(Fraction(base) ** exponent), rel_tol=1e-14)


# ---- distance, time, location


def haversine(lat1: float, long1: float, lat2: float, long2: float) -> float:
    """The formula by the library's sines, to compare with."""
    p1, p2, turn = math.radians(lat1), math.radians(lat2), math.radians(long2 - long1)
    h = math.sin((p2 - p1) / 2) ** 2 + math.cos(p1) * math.cos(p2) * math.sin(turn / 2) ** 2
    return RADIUS * 2 * math.atan2(math.sqrt(h), math.sqrt(max(0.0, 1 - h)))


latitudes, longitudes = st.floats(-90, 90), st.floats(-180, 180)


@given(latitudes, longitudes, latitudes, longitudes)
def test_distance_is_the_haversine_formula(lat1: float, long1: float, lat2: float, long2: float) -> None:
    assert math.isclose(
        distance(lat1, long1, lat2, long2), haversine(lat1, long1, lat2, long2), rel_tol=1e-6, abs_tol=1e-3
    )
    assert distance(lat1, long1, lat2, long2) == distance(lat2, long2, lat1, long1)


def test_distance_in_filters_is_in_metres_lat_before_long() -> None:
    zagreb_split = "distance(lat, long, 43.508, 16.44)"
    zagreb = {"lat": 45.815, "long": 15.982}
    assert verdict(f"{zagreb_split} BETWEEN 258e3 AND 260e3", zagreb) is True
    assert verdict("distance(lat, long, 45.815, 15.982) = 0", zagreb) is True
    assert verdict("distance(0, 179.5, 0, -179.5) < 112e3") is True, "across the antimeridian, the short way"
    assert verdict("distance(lat, long, 0, 0) > 1", {"lat": 1}) is None
    assert verdict("distance(lat, long, 0, 0) > 1", {"lat": 1, "long": "1"}) is None


def test_instants_are_numbers() -> None:
    assert verdict("time = TIMESTAMP('1970-01-01T00:00:01.5Z')", {"time": 1.5}) is True
    assert verdict("time >= DATE('1970-01-02')", {"time": 86400}) is True
    assert verdict("time < DATE('1970-01-02')", {"time": 86399.999}) is True
    assert verdict("time - TIMESTAMP('1970-01-01T00:00:00Z') = 5", {"time": 5}) is True
    assert verdict("time > DATE('1970-01-02')", {"time": "1970-01-03"}) is None


T0, T1 = "1970-01-01T00:00:10Z", "1970-01-01T00:00:20Z"


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        (f"T_BEFORE(time, TIMESTAMP('{T0}'))", (True, False, False, False, False)),
        (f"T_AFTER(time, TIMESTAMP('{T0}'))", (False, False, True, True, True)),
        (f"T_BEFORE(TIMESTAMP('{T0}'), time)", (False, False, True, True, True)),
        (f"T_AFTER(TIMESTAMP('{T1}'), time)", (True, True, True, False, False)),
        (f"T_BEFORE(time, INTERVAL('{T0}', '{T1}'))", (True, False, False, False, False)),
        (f"T_AFTER(time, INTERVAL('{T0}', '{T1}'))", (False, False, False, False, True)),
        (f"T_DURING(time, INTERVAL('{T0}', '{T1}'))", (False, False, True, False, False)),
        (f"T_DURING(time, INTERVAL('..', '{T1}'))", (True, True, True, False, False)),
        (f"T_DURING(time, INTERVAL('{T0}', '..'))", (False, False, True, True, True)),
        ("T_DURING(time, INTERVAL('..', '..'))", (True,) * 5),
        (f"T_BEFORE(time, INTERVAL('..', '{T1}'))", (False,) * 5),
        (f"T_AFTER(time, INTERVAL('{T0}', '..'))", (False,) * 5),
        (f"T_DURING(time, INTERVAL('{T0}', '{T0}'))", (False,) * 5),
    ],
)
def test_temporal_functions_exclude_their_ends(text: str, verdicts: tuple[bool, ...]) -> None:
    assert tuple(verdict(text, {"time": time}) for time in (9.5, 10, 15, 20, 20.5)) == verdicts
    assert verdict(text) is None
    assert verdict(text, {"time": "x"}) is None


def test_intervals_among_each_other() -> None:
    inner, outer = "INTERVAL('1970-01-02', '1970-01-03')", "INTERVAL('1970-01-01', '1970-01-04')"
    assert verdict(f"T_DURING({inner}, {outer})") is True
    assert verdict(f"T_DURING({outer}, {inner})") is False
    assert verdict(f"T_DURING({outer}, {outer})") is False
    assert verdict("T_BEFORE(INTERVAL('1970-01-01', '1970-01-02'), INTERVAL('1970-01-03', '1970-01-04'))") is True
    assert verdict("T_BEFORE(INTERVAL('1970-01-01', '1970-01-02'), INTERVAL('1970-01-02', '1970-01-04'))") is False
    assert verdict("T_AFTER(INTERVAL('1970-01-03', '..'), INTERVAL('..', '1970-01-02'))") is True


def test_intersects_takes_the_border_and_within_does_not() -> None:
    box = "BBOX(0, 0, 4, 4)"
    for geometry in (box, "POLYGON((0 0, 4 0, 4 4, 0 4, 0 0))", "MULTIPOLYGON(((0 0, 4 0, 4 4, 0 4, 0 0)))"):
        for place, intersects, within in (((2, 2), True, True), ((0, 2), True, False), ((5, 2), False, False)):
            publication = {"long": place[0], "lat": place[1]}
            assert verdict(f"S_INTERSECTS(location, {geometry})", publication) is intersects
            assert verdict(f"S_INTERSECTS({geometry}, location)", publication) is intersects
            assert verdict(f"S_WITHIN(location, {geometry})", publication) is within
            assert verdict(f"S_WITHIN({geometry}, location)", publication) is False, "an area is not in a point"
    here = {"long": 1.5, "lat": 2.5}
    for text in ("S_INTERSECTS(location, {})", "S_WITHIN(location, {})", "S_WITHIN({}, location)"):
        assert verdict(text.format("POINT(1.5 2.5)"), here) is True
        assert verdict(text.format("POINT(2.5 1.5)"), here) is False


def test_a_plain_string_comes_of_a_subclass() -> None:
    class Room(str):
        __slots__ = ()

    assert verdict("a = 'lab' AND a LIKE 'l%'", {"a": Room("lab")}) is True


def test_unknown_does_not_match() -> None:
    assert parse_filter("a > 1").explain({}).matches is False
