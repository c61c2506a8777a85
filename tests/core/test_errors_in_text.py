"""What a user reads when a text is refused: where, what stands there, and what to write instead (promise 5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import SpinneyError, SyntaxError, parse, parse_filter

FUNCTIONS = "CASEI, DATE, S_INTERSECTS, S_WITHIN, TIMESTAMP, T_AFTER, T_BEFORE, T_DURING, abs, distance"

TEXTS = [
    ("", "1:1: expected a condition or a subscription, found nothing"),
    ("a", "1:1: 'a' alone is not a condition; for a boolean write a = TRUE"),
    ("a >", "1:4: expected a value after '>'"),
    ("> 3", "1:1: expected a value, found '>'"),
    ("a = = 3", "1:5: expected a value after '=', found '='"),
    ("a == 3", "1:3: '==' is written = in CQL2"),
    ("a != 3", "1:3: '!=' is written <> in CQL2"),
    ("a && b", "1:3: '&&' is written AND in CQL2"),
    ("a = 1 b = 2", "1:7: expected AND, OR or the end after '1', found 'b'"),
    ("a = 1 NOT b = 2", "1:7: expected AND, OR or the end after '1', found 'NOT'"),
    ("a = 1 NOT LIKE 'x'", "1:7: expected AND, OR or the end after '1', found 'NOT'"),
    ("a = 1 = 2", "1:7: expected AND, OR or the end after '1', found '='"),
    ("a < b < c", "1:7: expected AND, OR or the end after 'b', found '<'"),
    ("NOT a", "1:5: 'a' alone is not a condition; for a boolean write a = TRUE"),
    ("NOT", "1:4: expected a value after 'NOT'"),
    ("(a = 1", "1:7: expected ')' after '1'"),
    ("a = 1)", "1:6: expected AND, OR or the end after '1', found ')'"),
    ("()", "1:2: expected a value after '(', found ')'"),
    ("a IN ()", "1:7: expected a value after '(', found ')'"),
    ("a IN (1,)", "1:9: expected a value after ',', found ')'"),
    ("a IN 1", "1:6: expected '(' after 'IN', found '1'"),
    ("a IN (1 2)", "1:9: expected ')' after '1', found '2'"),
    ("a BETWEEN 1", "1:12: expected AND after '1'"),
    ("a BETWEEN 1 AND", "1:16: expected a value after 'AND'"),
    ("a BETWEEN 'x' AND 'y'", "1:11: expected a number after 'BETWEEN', found 'x'"),
    ("a BETWEEN 1 OR 2", "1:13: expected AND after '1', found 'OR'"),
    ("a BETWEEN CASEI('x') AND 3", "1:11: expected a number after 'BETWEEN', found 'CASEI'"),
    ("a LIKE", "1:7: expected a pattern in single quotes after 'LIKE'"),
    ("a LIKE 5", "1:8: expected a pattern in single quotes after 'LIKE', found '5'"),
    ("a LIKE b", "1:8: expected a pattern in single quotes after 'LIKE', found 'b'"),
    ("a LIKE CASEI(b)", "1:14: expected a pattern in single quotes after '(', found 'b'"),
    ("a LIKE CASEI('b'", "1:17: expected ')' after 'b'"),
    ("a IS", "1:5: expected NULL after 'IS'"),
    ("a IS 5", "1:6: expected NULL after 'IS', found '5'"),
    ("a IS NOT", "1:9: expected NULL after 'NOT'"),
    ("a NOT NULL", "1:7: expected LIKE, IN or BETWEEN after 'NOT', found 'NULL'"),
    ("a NOT 5", "1:7: expected LIKE, IN or BETWEEN after 'NOT', found '5'"),
    ("a NULL", "1:3: expected a comparison such as = or > after 'a', found 'NULL'"),
    ("a = NULL", "1:5: NULL is not a value; write IS NULL or IS NOT NULL"),
    ("a = 'x", "1:5: a string that does not end; expected a closing '"),
    ('a = "x', '1:5: a quoted name that is empty or does not end; expected a closing "'),
    ('a = ""', '1:5: a quoted name that is empty or does not end; expected a closing "'),
    ('"" = 3', '1:1: a quoted name that is empty or does not end; expected a closing "'),
    ("a = 5x", '1:5: 5x is neither a number nor a duration such as 24h; as a name it is written "5x"'),
    ("5a > 3", '1:1: 5a is neither a number nor a duration such as 24h; as a name it is written "5a"'),
    ("a = 24h", "1:5: the duration 24h can only stand after OVER"),
    ("a = 1e999", "1:5: expected a number that a double can hold after '=', found '1e999'"),
    ("a = 0x10", '1:5: 0x10 is neither a number nor a duration such as 24h; as a name it is written "0x10"'),
    ("a = 1.2.3", '1:5: 1.2.3 is neither a number nor a duration such as 24h; as a name it is written "1.2.3"'),
    ("a = 1.5x", '1:5: 1.5x is neither a number nor a duration such as 24h; as a name it is written "1.5x"'),
    ("a = 1e5e", '1:5: 1e5e is neither a number nor a duration such as 24h; as a name it is written "1e5e"'),
    ("a ~ b", "1:3: unexpected character '~'"),
    ("a = [1]", "1:5: unexpected character '['"),
    ("a = #", "1:5: unexpected character '#'"),
    ("'x'", "1:4: expected a comparison such as = or > after 'x'"),
    ("5", "1:2: expected a comparison such as = or > after '5'"),
    ("a + 1", "1:6: expected a comparison such as = or > after '1'"),
    ("(a + 1)", "1:8: expected a comparison such as = or > after ')'"),
    ("abs(a)", "1:7: expected a comparison such as = or > after ')'"),
    ("abs()", "1:5: expected a value after '(', found ')'"),
    ("abs(a, b) > 1", "1:1: abs() takes 1 argument, not 2"),
    ("abs(a > 1) > 1", "1:7: expected ')' after 'a', found '>'"),
    ("sqrt(a) > 1", f"1:1: there is no function sqrt(); there are {FUNCTIONS}"),
    ("distance(lat, long) < 5", "1:1: distance() takes 4 arguments, not 2"),
    ("ACCENTI(a) = 'x'", f"1:1: there is no function ACCENTI(); there are {FUNCTIONS}"),
    ("S_EQUALS(location, POINT(1 2))", f"1:1: there is no function S_EQUALS(); there are {FUNCTIONS}"),
    ("S_INTERSECTS(location)", "1:22: expected ',' after 'location', found ')'"),
    (
        "S_INTERSECTS(location, location)",
        "1:24: one side must be location and the other a geometry; expected a geometry",
    ),
    (
        "S_INTERSECTS(geom, POINT(1 2))",
        "1:14: expected location or a geometry (POINT, POLYGON, MULTIPOLYGON, BBOX) after '(', found 'geom'",
    ),
    (
        "S_INTERSECTS(POINT(1 2), POINT(1 2))",
        "1:26: one side must be location and the other a geometry; expected location",
    ),
    ("S_INTERSECTS(location, POINT(1, 2))", "1:31: expected a number after '1', found ','"),
    ("S_INTERSECTS(location, POINT(1 2 3))", "1:34: expected ')' after '2', found '3'"),
    ("S_INTERSECTS(location, POINT(1))", "1:31: expected a number after '1', found ')'"),
    (
        "S_INTERSECTS(location, POINT(200 2))",
        "1:30: 200 is not a longitude (-180 to 180); a position is written: long lat",
    ),
    ("S_INTERSECTS(location, POINT(45 91))", "1:30: 91 is not a latitude (-90 to 90); a position is written: long lat"),
    ("S_INTERSECTS(location, POINT(a 91))", "1:30: expected a number after '(', found 'a'"),
    (
        "S_INTERSECTS(location, LINESTRING(1 2, 3 4))",
        "1:24: expected location or a geometry (POINT, POLYGON, MULTIPOLYGON, BBOX) after ',', found 'LINESTRING'",
    ),
    (
        "S_INTERSECTS(location, POLYGON((0 0, 1 1, 0 0)))",
        "1:32: a ring of a polygon has 4 positions or more, the last equal to the first; found 3",
    ),
    ("S_INTERSECTS(location, POLYGON((0 0, 1 1, 1 0, 0 1)))", "1:32: a ring of a polygon must end where it begins"),
    ("S_INTERSECTS(location, POLYGON(0 0, 1 1, 1 0, 0 0))", "1:32: expected '(' after '(', found '0'"),
    ("S_INTERSECTS(location, BBOX(1 2 3 4))", "1:31: expected ')' after '1', found '2'"),
    ("S_INTERSECTS(location, BBOX(1, 2, 3))", "1:24: BBOX takes west, south, east, north: 4 numbers, not 3"),
    ("S_INTERSECTS(location, BBOX(1, 2, 3, 4, 5, 6))", "1:24: BBOX takes west, south, east, north: 4 numbers, not 6"),
    (
        "S_INTERSECTS(location, BBOX(1, 5, 3, 4))",
        "1:24: BBOX takes west, south, east, north: south must not be above north",
    ),
    ("POINT(1 2) = 3", "1:1: POINT can only stand in S_INTERSECTS and S_WITHIN"),
    ("a = POINT(1 2)", "1:5: POINT can only stand in S_INTERSECTS and S_WITHIN"),
    (
        "T_BEFORE(time, '2026-01-01')",
        "1:16: expected DATE('...'), TIMESTAMP('...'), INTERVAL('...', '...') or an attribute after ',', "
        "found '2026-01-01'",
    ),
    ("T_BEFORE(time, DATE('2026-13-01'))", "1:21: 2026-13-01 is not in the calendar"),
    ("T_BEFORE(time, DATE('2026-1-1'))", "1:21: '2026-1-1' is not a date like 2026-11-18"),
    (
        "T_BEFORE(time, TIMESTAMP('2026-01-01T00:00:00'))",
        "1:26: '2026-01-01T00:00:00' is not a UTC timestamp like 2026-11-18T12:30:00Z",
    ),
    ("T_BEFORE(time, TIMESTAMP('2026-01-01T25:00:00Z'))", "1:26: '2026-01-01T25:00:00Z' has no such time of day"),
    ("T_BEFORE(time, TIMESTAMP('2026-01-01'))", "1:26: '2026-01-01' is not a UTC timestamp like 2026-11-18T12:30:00Z"),
    ("T_BEFORE(time, DATE(2026))", "1:21: expected a string after '(', found '2026'"),
    ("T_DURING(time, DATE('2026-01-01'))", "1:16: expected INTERVAL('...', '...') after ',', found 'DATE'"),
    ("T_DURING(time, INTERVAL('2026-01-01'))", "1:16: an INTERVAL has two ends"),
    ("T_DURING(time, INTERVAL('2026-01-02', '2026-01-01'))", "1:16: an INTERVAL that ends before it starts"),
    ("T_DURING(time, INTERVAL('x', '..'))", "1:25: 'x' is not a date like 2026-11-18"),
    (
        "T_DURING(time, INTERVAL(time, '..'))",
        "1:25: expected a date, a timestamp or '..' in single quotes after '(', found 'time'",
    ),
    ("T_EQUALS(time, DATE('2026-01-01'))", f"1:1: there is no function T_EQUALS(); there are {FUNCTIONS}"),
    ("INTERVAL('..','..') = 3", "1:1: INTERVAL can only stand in T_BEFORE, T_AFTER and T_DURING"),
    ("time = INTERVAL('..', '..')", "1:8: INTERVAL can only stand in T_BEFORE, T_AFTER and T_DURING"),
    ("CASEI(5) = 'x'", "1:7: expected a string after '(', found '5'"),
    ("CASEI(a, b) = 'x'", "1:8: expected ')' after 'a', found ','"),
    ("CASEI() = 'x'", "1:7: expected a value after '(', found ')'"),
    ("(a > 1) IS NULL", "1:1: a condition stands where a value is expected"),
    ("(a > 1) = TRUE", "1:1: a condition stands where a value is expected"),
    ("a > (b = 1)", "1:5: a condition stands where a value is expected"),
    ("a AND b", "1:1: 'a' alone is not a condition; for a boolean write a = TRUE"),
    ("a = 1 AND", "1:10: expected a value after 'AND'"),
    ("a = 1 OR", "1:9: expected a value after 'OR'"),
    ("AND a = 1", "1:1: expected a value, found 'AND'"),
    ("a = 1 AND AND b = 1", "1:11: expected a value after 'AND', found 'AND'"),
    ("a = TRUE + 1", "1:5: expected a number after '=', found 'TRUE'"),
    ("- > 3", "1:3: expected a value after '-', found '>'"),
    ("a = - 'x'", "1:7: expected a number after '-', found 'x'"),
    ("-(a = 1) > 2", "1:2: a condition stands where a value is expected"),
    ("a % > 2", "1:5: expected a value after '%', found '>'"),
    ("a DIV > 1", "1:7: expected a value after 'DIV', found '>'"),
    ("1 < 2 AND", "1:10: expected a value after 'AND'"),
    ("a = 'it''s", "1:5: a string that does not end; expected a closing '"),
    ("a = 'x\\'", "1:5: a string that does not end; expected a closing '"),
    ("WHEN", "1:5: expected a value after 'WHEN'"),
    ("WHEN a > 1", "1:11: expected UNTIL after '1'"),
    ("WHEN a > 1 UNTIL", "1:17: expected a value after 'UNTIL'"),
    ("WHEN a > 1 UNTIL b", "1:18: 'b' alone is not a condition; for a boolean write b = TRUE"),
    ("WHEN a > 1 UNTIL a < 1 EACH", "1:28: expected an attribute's name after 'EACH'"),
    ("WHEN a > 1 UNTIL a < 1 EACH room ONCE", "1:34: expected the end after 'room', found 'ONCE'"),
    ("WHEN a > 1 UNTIL a < 1 ONCE EACH room", "1:29: expected the end after 'ONCE', found 'EACH'"),
    ("WHEN a > 1 UNTIL a < 1 EACH 5", "1:29: expected an attribute's name after 'EACH', found '5'"),
    ("WHEN a > 1 UNTIL a < 1 EACH 'room'", "1:29: expected an attribute's name after 'EACH', found 'room'"),
    ("WHEN a > 1 UNTIL a < 1 FOR", "1:27: expected a value after 'FOR'"),
    (
        "WHEN a > 1 UNTIL a < 1 for b = 2 FOR c = 3",
        "1:34: expected AND, OR, EACH, ONCE or the end after '2', found 'FOR'",
    ),
    ("WHEN a > 1 FOR b = 2 UNTIL a < 1", "1:12: expected UNTIL after '1', found 'FOR'"),
    ("UNTIL a > 1", "1:7: expected a comparison such as = or > after 'UNTIL', found 'a'"),
    ("TOP", "1:4: expected a whole number from 1 to 10000 after 'TOP'"),
    ("TOP x OVER 24h BY a", "1:5: expected a whole number from 1 to 10000 after 'TOP', found 'x'"),
    ("TOP 0 OVER 24h BY a", "1:5: expected a whole number from 1 to 10000 after 'TOP', found '0'"),
    ("TOP 10.5 OVER 24h BY a", "1:5: expected a whole number from 1 to 10000 after 'TOP', found '10.5'"),
    ("TOP 20000 OVER 24h BY a", "1:5: expected a whole number from 1 to 10000 after 'TOP', found '20000'"),
    ("TOP 10 BY a", "1:8: expected OVER after '10', found 'BY'"),
    ("TOP 10 OVER BY a", "1:13: expected a duration such as 24h or LAST and a number after 'OVER', found 'BY'"),
    ("TOP 10 OVER 24 BY a", "1:13: expected a duration such as 24h or LAST and a number after 'OVER', found '24'"),
    ("TOP 10 OVER 24H BY a", '1:13: 24H is neither a number nor a duration such as 24h; as a name it is written "24H"'),
    ("TOP 10 OVER 24 h BY a", "1:13: expected a duration such as 24h or LAST and a number after 'OVER', found '24'"),
    (
        "TOP 10 OVER 24hours BY a",
        '1:13: 24hours is neither a number nor a duration such as 24h; as a name it is written "24hours"',
    ),
    ("TOP 10 OVER 0h BY a", "1:13: a duration is more than 0 and at most 3162240000 s"),
    ("TOP 10 OVER 99999w BY a", "1:13: a duration is more than 0 and at most 3162240000 s"),
    ("TOP 10 OVER LAST BY a", "1:18: expected a whole number from 1 to 1000000 after 'LAST', found 'BY'"),
    ("TOP 10 OVER LAST 24h BY a", "1:18: expected a whole number from 1 to 1000000 after 'LAST', found '24h'"),
    ("TOP 10 OVER LAST 0 BY a", "1:18: expected a whole number from 1 to 1000000 after 'LAST', found '0'"),
    ("TOP 10 OVER 24h", "1:16: expected BY after '24h'"),
    ("TOP 10 OVER 24h BY", "1:19: expected a value after 'BY'"),
    ("TOP 10 OVER 24h BY a > 1", "1:22: expected DESC, WHERE, EACH or the end after 'a', found '>'"),
    ("TOP 10 OVER 24h BY a ASC", "1:22: expected DESC, WHERE, EACH or the end after 'a', found 'ASC'"),
    ("TOP 10 OVER 24h BY a DESC DESC", "1:27: expected DESC, WHERE, EACH or the end after 'DESC', found 'DESC'"),
    ("TOP 10 OVER 24h BY a WHERE", "1:27: expected a value after 'WHERE'"),
    ("TOP 10 OVER 24h BY a WHERE b", "1:28: 'b' alone is not a condition; for a boolean write b = TRUE"),
    ("TOP 10 OVER 24h BY a EACH", "1:26: expected an attribute's name after 'EACH'"),
    ("TOP 10 OVER 24h BY a EACH b WHERE c = 1", "1:29: expected the end after 'b', found 'WHERE'"),
    ("TOP 10 OVER 24h BY S_INTERSECTS(location, POINT(1 2))", "1:20: a condition stands where a value is expected"),
    ("SELECT * FROM x", "1:15: expected a comparison such as = or > after 'FROM', found 'x'"),
    ("a = 1;", "1:6: unexpected character ';'"),
    ("a = “x”", "1:5: unexpected character '“'"),
    ("a ≥ 3", "1:3: unexpected character '≥'"),
    ("a > 3,5", "1:6: expected AND, OR or the end after '3', found ','"),
    ("a > 1 000", "1:7: expected AND, OR or the end after '1', found '000'"),
    ("a = 'x' 'y'", "1:9: expected AND, OR or the end after 'x', found 'y'"),
    ("a = 5 %", "1:8: expected a value after '%'"),
    (": = 3", "1:1: unexpected character ':'"),
    ("a like 'x' and b", "1:16: 'b' alone is not a condition; for a boolean write b = TRUE"),
    ("a = 3 /* c */", "1:8: expected a value after '/', found '*'"),
    ("a = 1 XOR b = 1", "1:7: expected AND, OR or the end after '1', found 'XOR'"),
    ("EXISTS a", "1:8: expected a comparison such as = or > after 'EXISTS', found 'a'"),
    ("a EXISTS", "1:3: expected a comparison such as = or > after 'a', found 'EXISTS'"),
    ("NO2 > 40 WHEN a", "1:10: expected AND, OR or the end after '40', found 'WHEN'"),
    ('"a > 3', '1:1: a quoted name that is empty or does not end; expected a closing "'),
    ('room = lab"', '1:11: a quoted name that is empty or does not end; expected a closing "'),
    ("a = 1\nAND b >\n", "3:1: expected a value after '>'"),
    ("a = 1 AND\n  b == 2", "2:5: '==' is written = in CQL2"),
    ("\n\n   a", "3:4: 'a' alone is not a condition; for a boolean write a = TRUE"),
    ("a = 'x\ny' AND\r\n\tb", "3:2: 'b' alone is not a condition; for a boolean write b = TRUE"),
    ("WHEN a > 1\nUNTIL a <\n1 FOR", "3:6: expected a value after 'FOR'"),
    ("TOP 3\nOVER LAST 5\nBY 'x'", "3:4: expected a number after 'BY', found 'x'"),
    (
        "S_INTERSECTS(location,\n POLYGON((0 0, 4 0,\n  4 99, 0 0)))",
        "3:3: 99 is not a latitude (-90 to 90); a position is written: long lat",
    ),
    ("ä = 'ö' ÄND b = 1", "1:9: expected AND, OR or the end after 'ö', found 'ÄND'"),
    ("'😀' = a b", "1:9: expected AND, OR or the end after 'a', found 'b'"),
    ("(a) AND b = 1", "1:1: 'a' alone is not a condition; for a boolean write a = TRUE"),
    ("(((a)", "1:6: expected ')' after ')'"),
    ("a NULL", "1:3: expected a comparison such as = or > after 'a', found 'NULL'"),
    ("TOP 3 OVER 1h BY TRUE", "1:18: expected a number after 'BY', found 'TRUE'"),
    ("abs('x') = 1", "1:5: expected a number after '(', found 'x'"),
    ("distance(lat, long, 'x', 1) < 5", "1:21: expected a number after ',', found 'x'"),
    ("a * CASEI(b) = 1", "1:5: expected a number after '*', found 'CASEI'"),
    ("TOP 5 OVER 1h BY CASEI(a)", "1:18: expected a number after 'BY', found 'CASEI'"),
    ("a = '\ud800'", "1:6: '\\ud800' is half of a surrogate pair, not a character"),
    (
        "T_AFTER(TRUE, time)",
        "1:9: expected DATE('...'), TIMESTAMP('...'), INTERVAL('...', '...') or an attribute after '(', found 'TRUE'",
    ),
    (
        "S_INTERSECTS(location, BBOX(10, 0, 200, 5))",
        "1:24: 200 is not a longitude (-180 to 180); a position is written: long lat",
    ),
    ("T_DURING(INTERVAL('..', '..'), time)", "1:32: expected INTERVAL('...', '...') after ',', found 'time'"),
    (
        "a = xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx 5",
        "1:56: expected AND, OR or the end after 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...', found '5'",
    ),
    ("\ufeffa = 1", "1:1: unexpected character '\\ufeff'"),
]


@pytest.mark.parametrize(("text", "message"), TEXTS)
def test_message(text: str, message: str) -> None:
    with pytest.raises(SyntaxError) as caught:
        parse(text)
    assert str(caught.value) == message
    line, column = map(int, message.split(": ")[0].split(":"))
    assert (caught.value.line, caught.value.column) == (line, column)


def test_an_error_carries_what_a_caller_needs() -> None:
    with pytest.raises(SyntaxError) as caught:
        parse_filter("a = 1 AND\n  b > ?")
    error = caught.value
    assert isinstance(error, SpinneyError)
    assert isinstance(error, ValueError)
    assert (error.line, error.column, error.found, error.path) == (2, 7, "?", "")
    with pytest.raises(SyntaxError) as caught:
        parse_filter("a BETWEEN 1 OR 2")
    error = caught.value
    assert (error.message, error.found, error.expected) == ("expected AND after '1', found 'OR'", "OR", "AND")


def test_messages_do_not_repeat_a_long_text() -> None:
    for text in (
        "a = '" + "x" * 5000 + "' b",
        "f" * 5000 + "(a) = 1",
        "n" * 5000,
        "1" * 5000 + "x > 2",
        "1" + "0" * 5000,
    ):
        with pytest.raises(SyntaxError) as caught:
            parse(text)
        assert len(str(caught.value)) < 250


WORDS = (
    *(
        "a",
        "b",
        "time",
        "location",
        "lat",
        '"x y"',
        "1",
        "2.5",
        "-",
        "+",
        "*",
        "/",
        "%",
        "div",
        "^",
        "(",
        ")",
        ",",
        "24h",
    ),
    *(
        "=",
        "<>",
        "<",
        ">",
        "<=",
        ">=",
        "AND",
        "OR",
        "NOT",
        "LIKE",
        "IN",
        "BETWEEN",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "'x'",
    ),
    *(
        "WHEN",
        "UNTIL",
        "FOR",
        "EACH",
        "ONCE",
        "TOP",
        "OVER",
        "LAST",
        "BY",
        "DESC",
        "WHERE",
        "abs(",
        "CASEI(",
        "distance(",
    ),
    *("S_WITHIN(", "POINT(1 2)", "BBOX(1, 2, 3, 4)", "POLYGON((", "T_BEFORE(", "DATE('2026-11-18')", "INTERVAL("),
    *("'..'", "'", '"', "\\", "é", "\n", "\ufeff", "5x", "{", "[", "0"),
)


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_any_words_are_read_and_written_or_refused_with_a_place(text: str) -> None:
    refusal = None
    try:
        subscription = parse(text)
    except SyntaxError as error:
        refusal = error
    if refusal is None:
        assert parse(subscription.to_text()) == subscription
        assert parse(subscription.to_json()) == subscription
    else:
        assert 1 <= refusal.line <= text.count("\n") + 1
        assert 1 <= refusal.column <= len(text.split("\n")[refusal.line - 1]) + 1
        assert refusal.message
