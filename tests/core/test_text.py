"""CQL2 Text: what is read, and as which tree."""

from __future__ import annotations

import pytest

from spinney import FALSE, TRUE, Filter, SyntaxError, parse_filter
from spinney.expression import (
    And,
    Arithmetic,
    Between,
    Call,
    CaseFold,
    Compare,
    Expression,
    In,
    Instant,
    Interval,
    IsNull,
    Like,
    Literal,
    Location,
    Not,
    Or,
    Property,
    Spatial,
    Temporal,
)
from spinney.geometry import BBox, MultiPolygon, Point, Polygon

A, B, C = Property("a"), Property("b"), Property("c")
ONE, TWO, THREE = Literal(1.0), Literal(2.0), Literal(3.0)
A1, B2, C3 = Compare("=", A, ONE), Compare("=", B, TWO), Compare("=", C, THREE)
TIME = Property("time")
SQUARE = ((0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0), (0.0, 0.0))
HOLE = ((1.0, 1.0), (2.0, 1.0), (2.0, 2.0), (1.0, 1.0))


def value_of(text: str) -> Expression:
    condition = parse_filter(f"x = {text}")
    assert isinstance(condition, Compare)
    return condition.right


# ---- Basic CQL2


@pytest.mark.parametrize("operator", ["=", "<>", "<", ">", "<=", ">="])
def test_every_comparison_is_read_with_and_without_spaces(operator: str) -> None:
    assert parse_filter(f"a {operator} 1") == parse_filter(f"a{operator}1") == Compare(operator, A, ONE)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1 AND b = 2 AND c = 3", And((A1, B2, C3))),
        ("a = 1 OR b = 2 OR c = 3", Or((A1, B2, C3))),
        ("a = 1 OR b = 2 AND c = 3", Or((A1, And((B2, C3))))),
        ("a = 1 AND b = 2 OR c = 3", Or((And((A1, B2)), C3))),
        ("(a = 1 OR b = 2) AND c = 3", And((Or((A1, B2)), C3))),
        ("NOT a = 1 AND b = 2", And((Not(A1), B2))),
        ("NOT (a = 1 AND b = 2)", Not(And((A1, B2)))),
        ("NOT NOT a = 1", Not(Not(A1))),
        ("((((a = 1))))", A1),
        ("(a = 1 AND b = 2) AND c = 3", And((A1, B2, C3))),
        ("TRUE", TRUE),
        ("FALSE", FALSE),
        ("TRUE AND a = 1", And((TRUE, A1))),
        ("a = TRUE", Compare("=", A, Literal(True))),
        ("FALSE <> a", Compare("<>", Literal(False), A)),
        ("1 = a", Compare("=", ONE, A)),
        ("a = b", Compare("=", A, B)),
        ("1 = 1", Compare("=", ONE, ONE)),
        ("a IS NULL", IsNull(A)),
        ("a IS NOT NULL", Not(IsNull(A))),
        ("a + 1 IS NULL", IsNull(Arithmetic("+", A, ONE))),
    ],
)
def test_and_or_not_and_comparisons(text: str, tree: Filter) -> None:
    assert parse_filter(text) == tree


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(("0", 0.0), ("007", 7.0), ("-5", -5.0), ("+5", 5.0), ("- 5", -5.0), ("1.5", 1.5), (".5", 0.5), ("5.", 5.0)),
        *(("1e3", 1000.0), ("1E3", 1000.0), ("1e+3", 1000.0), ("1e-3", 0.001), ("-2.5E-1", -0.25), (".5e1", 5.0)),
        *(("9007199254740993", 9007199254740992.0), ("1e-400", 0.0), ("5e-324", 5e-324)),
        ("1.7976931348623157e308", 1.7976931348623157e308),
    ],
)
def test_numbers_are_the_nearest_doubles(written: str, value: float) -> None:
    assert value_of(written) == Literal(value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("''", ""),
        ("'a'", "a"),
        ("'Via dell''Avvento'", "Via dell'Avvento"),
        ("''''", "'"),
        ("''''''", "''"),
        (r"'it\'s'", "it's"),
        (r"'\''", "'"),
        (r"'a\b'", r"a\b"),
        (r"'a\\b'", r"a\\b"),
        (r"'C:\\'", "C:\\"),
        (r"'\\'", "\\"),
        (r"'\\\\'", "\\\\"),
        (r"'\\\''", "\\'"),
        (r"'\\''x'", "\\'x"),
        ("'\"'", '"'),
        ("'AND'", "AND"),
        ("'a\nb\tc'", "a\nb\tc"),
        ("'Straße 😀 \u200d e\u0301'", "Straße 😀 \u200d e\u0301"),
    ],
)
def test_strings_and_their_escapes(written: str, value: str) -> None:
    assert value_of(written) == Literal(value)
    assert parse_filter(f"x = {written} AND y = 'z'").operands[1] == parse_filter("y = 'z'")


@pytest.mark.parametrize(
    "name",
    [
        *("a", "_", "_a1", "a.b.c", "a:b", ":a", "NO2", "PM2.5", "Lufttemperatur_außen", "温度", "température", "µg"),
        *("e\u0301", "हिन्दी", "ตัวอักษร", "\u1820\u180bx", "a\u200db", "😀", "a\u203fb", "x\u0300"),
        *("date", "timestamp", "point", "casei", "interval", "s_within", "div2", "when", "top", "last"),
    ],
)
def test_names_need_no_quotes(name: str) -> None:
    assert parse_filter(f"{name} = 1") == Compare("=", Property(name), ONE)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        *(('"a"', "a"), ('"a b"', "a b"), ('"AND"', "AND"), ('"not"', "not"), ('"a""b"', 'a"b'), ('""""', '"')),
        *(('"5a"', "5a"), ('"it\'s"', "it's"), ('"a-b"', "a-b"), ('"\\"', "\\"), ('" "', " "), ('"TRUE"', "TRUE")),
    ],
)
def test_names_in_double_quotes_hold_anything(written: str, name: str) -> None:
    assert parse_filter(f"{written} = 1") == Compare("=", Property(name), ONE)


def test_names_keep_their_case_and_keywords_have_none() -> None:
    assert parse_filter("A = 1") != parse_filter("a = 1")
    text = "a like 'x' and not (b In (1, 2) oR c between 1 AND 3) and d is Not nuLL or tRUE"
    assert parse_filter(text) == parse_filter(
        "a LIKE 'x' AND NOT (b IN (1, 2) OR c BETWEEN 1 AND 3) AND d IS NOT NULL OR TRUE"
    )
    assert parse_filter("s_InTersects(location, point(1 2))") == parse_filter("S_INTERSECTS(location, POINT(1 2))")
    assert parse_filter("t_after(time, Date('2026-01-01'))") == parse_filter("T_AFTER(time, DATE('2026-01-01'))")
    assert parse_filter("Abs(a) = caseI('X')") == Compare("=", Call("abs", (A,)), CaseFold(Literal("X")))


def test_any_white_space_separates() -> None:
    assert parse_filter("\n a\t=\r\n1\u00a0AND\u2003b\n=2 ") == And((A1, B2))


# ---- Advanced Comparison Operators, Case-insensitive Comparison


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a LIKE 'x%'", Like(A, "x%")),
        ("a NOT LIKE 'x%'", Not(Like(A, "x%"))),
        (r"a LIKE '50\%'", Like(A, r"50\%")),
        ("'x' LIKE 'x'", Like(Literal("x"), "x")),
        ("CASEI(a) LIKE CASEI('X%')", Like(CaseFold(A), "X%", fold_pattern=True)),
        ("CASEI(a) LIKE CASEI(CASEI('X%'))", Like(CaseFold(A), "X%", fold_pattern=True)),
        ("CASEI(a) LIKE 'x%'", Like(CaseFold(A), "x%")),
        ("a BETWEEN 1 AND 2", Between(A, ONE, TWO)),
        ("a NOT BETWEEN 1 AND 2", Not(Between(A, ONE, TWO))),
        ("a BETWEEN -1 AND b + 1", Between(A, Literal(-1.0), Arithmetic("+", B, ONE))),
        ("a BETWEEN 1 AND 2 AND b = 2", And((Between(A, ONE, TWO), B2))),
        ("NOT a BETWEEN 1 AND 2 OR b = 2", Or((Not(Between(A, ONE, TWO)), B2))),
        ("1 BETWEEN a AND b", Between(ONE, A, B)),
        (
            "time BETWEEN DATE('1970-01-01') AND DATE('1970-01-02')",
            Between(TIME, Instant(0, True), Instant(86400, True)),
        ),
        ("a IN (1)", In(A, (ONE,))),
        ("a IN (1, 'x', TRUE, b)", In(A, (ONE, Literal("x"), Literal(True), B))),
        ("a NOT IN (1, 2)", Not(In(A, (ONE, TWO)))),
        ("a + 1 IN (b * 2)", In(Arithmetic("+", A, ONE), (Arithmetic("*", B, TWO),))),
        ("CASEI(a) IN (CASEI('X'), CASEI(b))", In(CaseFold(A), (CaseFold(Literal("X")), CaseFold(B)))),
        ("CASEI(CASEI(a)) = 'x'", Compare("=", CaseFold(A), Literal("x"))),
    ],
)
def test_like_between_in_and_casei(text: str, tree: Filter) -> None:
    assert parse_filter(text) == tree


# ---- Arithmetic Expressions


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("a + b - c", "(a + b) - c"),
        ("a - b - c", "(a - b) - c"),
        ("a - b + c", "(a - b) + c"),
        ("a / b * c", "(a / b) * c"),
        ("a * b / c % 2 div 3", "(((a * b) / c) % 2) div 3"),
        ("a + b * c", "a + (b * c)"),
        ("a * b ^ c", "a * (b ^ c)"),
        ("a ^ b ^ c", "a ^ (b ^ c)"),
        ("a ^ b * c", "(a ^ b) * c"),
        ("-2 ^ 2", "(-2) ^ 2"),
        ("-a ^ 2", "(-a) ^ 2"),
        ("2 ^ -a", "2 ^ (-a)"),
        ("a-1", "a - 1"),
        ("a--1", "a - (-1)"),
        ("a - -b", "a - (-1 * b)"),
        ("a*-b", "a * (-1 * b)"),
        ("--a", "-1 * (-1 * a)"),
        ("+a", "a"),
        ("+-+a", "-a"),
        ("-(a + b)", "-1 * (a + b)"),
        ("a DIV 2", "a div 2"),
        ("abs(a - b) * 2", "(abs((a - b))) * 2"),
    ],
)
def test_arithmetic_binds_as_the_grammar_says(written: str, same: str) -> None:
    assert value_of(written) == value_of(same)


def test_arithmetic_stands_on_both_sides_and_in_calls() -> None:
    assert parse_filter("a + 1 < b * 2") == Compare("<", Arithmetic("+", A, ONE), Arithmetic("*", B, TWO))
    assert value_of("distance(lat, long, 45.5, -16)") == Call(
        "distance", (Property("lat"), Property("long"), Literal(45.5), Literal(-16.0))
    )
    assert value_of("abs(-a)") == Call("abs", (Arithmetic("*", Literal(-1.0), A),))


# ---- Basic Spatial Functions, with more literals


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("S_INTERSECTS(location, POINT(15.9 45.8))", Spatial("intersects", Point((15.9, 45.8)))),
        ("S_INTERSECTS(location, POINT (-15.9 +45.8))", Spatial("intersects", Point((-15.9, 45.8)))),
        ("S_INTERSECTS(POINT(1 2), location)", Spatial("intersects", Point((1.0, 2.0)), location_first=False)),
        ('S_INTERSECTS("location", POINT(1 2))', Spatial("intersects", Point((1.0, 2.0)))),
        ("S_WITHIN(location, BBOX(-1, -2.5, 1e1, 2))", Spatial("within", BBox(-1.0, -2.5, 10.0, 2.0))),
        ("S_WITHIN(location, BBOX(170, -10, -170, 10))", Spatial("within", BBox(170.0, -10.0, -170.0, 10.0))),
        ("S_INTERSECTS(location, POLYGON((0 0, 4 0, 4 4, 0 4, 0 0)))", Spatial("intersects", Polygon((SQUARE,)))),
        (
            "S_WITHIN(location, POLYGON((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 2 1, 2 2, 1 1)))",
            Spatial("within", Polygon((SQUARE, HOLE))),
        ),
        (
            "S_INTERSECTS(location, MULTIPOLYGON(((0 0, 4 0, 4 4, 0 4, 0 0)), ((1 1, 2 1, 2 2, 1 1))))",
            Spatial("intersects", MultiPolygon((Polygon((SQUARE,)), Polygon((HOLE,))))),
        ),
    ],
)
def test_spatial_functions_and_geometries(text: str, tree: Filter) -> None:
    assert parse_filter(text) == tree


def test_location_is_the_point_in_is_null_and_an_attribute_elsewhere() -> None:
    assert parse_filter("location IS NULL") == IsNull(Location())
    assert parse_filter('"location" IS NULL') == IsNull(Property("location"))
    assert parse_filter("location = 1") == Compare("=", Property("location"), ONE)
    assert parse_filter("Location IS NULL") == IsNull(Property("Location"))


# ---- Temporal comparisons


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("time > DATE('1970-01-02')", Compare(">", TIME, Instant(86400.0, is_date=True))),
        ("time = TIMESTAMP('1970-01-01T00:00:01.5Z')", Compare("=", TIME, Instant(1.5))),
        ("T_BEFORE(time, DATE('1970-01-02'))", Temporal("before", TIME, Instant(86400.0, is_date=True))),
        ("T_AFTER(DATE('1970-01-02'), time)", Temporal("after", Instant(86400.0, is_date=True), TIME)),
        (
            "T_DURING(time, INTERVAL('1970-01-01', '1970-01-01T00:00:09Z'))",
            Temporal("during", TIME, Interval(Instant(0.0, is_date=True), Instant(9.0))),
        ),
        ("T_DURING(time, INTERVAL('..', '..'))", Temporal("during", TIME, Interval(None, None))),
        ("T_BEFORE(INTERVAL('..', '1970-01-01'), time)", Temporal("before", Interval(None, Instant(0.0, True)), TIME)),
        ("T_AFTER(time + 60, a)", Temporal("after", Arithmetic("+", TIME, Literal(60.0)), A)),
    ],
)
def test_temporal_functions_and_literals(text: str, tree: Filter) -> None:
    assert parse_filter(text) == tree


# ---- the doors


def test_bytes_are_utf8() -> None:
    assert parse_filter("a = 'ß'".encode()) == parse_filter("a = 'ß'")
    with pytest.raises(SyntaxError, match="2:6: not UTF-8"):
        parse_filter(b"a = 1 OR\nb = '\xff'")


def test_half_of_a_surrogate_pair_is_not_text() -> None:
    with pytest.raises(SyntaxError, match=r"1:6: '\\ud83d' is half of a surrogate pair"):
        parse_filter("a = '\ud83d'")
