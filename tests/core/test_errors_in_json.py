"""What a user reads when JSON is refused: line, column, path, what stands there, what was expected (promise 5)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import SyntaxError, parse, parse_filter

CONDITIONS = (
    "and, or, not, =, <>, <, >, <=, >=, between, in, like, isNull, s_intersects, s_within, t_before, t_after, t_during"
)
VALUES = "+, -, *, /, %, div, ^, casei, abs, distance"

JSONS = [
    ("{}", '1:1: expected "filter", "when" and "until", "top", or "text"'),
    ('{"filter": 5}', "1:12 (filter): expected a condition, found a number"),
    ('{"filter": null}', "1:12 (filter): expected a condition, found null"),
    ('{"filter": "a >"}', "1:12 (filter): 1:4 of this text: expected a value after '>'"),
    ('{"filter": "a > 1", "foo": 1}', '1:28 (foo): unknown member "foo"; expected filter, id, owner, valid_until'),
    (
        '{"filter": {"op": "foo", "args": []}}',
        f"1:19 (filter.op): 'foo' is unknown; expected a condition, one of {CONDITIONS}",
    ),
    ('{"filter": {"op": "=", "args": [1]}}', "1:32 (filter.args): expected 2 arguments, found 1"),
    ('{"filter": {"op": "=", "args": {}}}', '1:32 (filter.args): expected "args", an array'),
    ('{"filter": {"op": "="}}', '1:12 (filter.args): expected "args", an array'),
    ('{"filter": {"args": []}}', '1:12 (filter): expected an object with "op" and "args"'),
    ('{"filter": {"op": 5, "args": []}}', '1:12 (filter): expected an object with "op" and "args"'),
    ('{"filter": {"op": "=", "args": [1, 2], "x": 3}}', '1:45 (filter.x): unknown member "x"; expected op, args'),
    (
        '{"filter": {"op": "=", "args": [1, null]}}',
        "1:36 (filter.args[1]): expected a value, found null; a test for a missing attribute is isNull",
    ),
    ('{"filter": {"op": "=", "args": [1, [2]]}}', "1:36 (filter.args[1]): expected a value, found an array"),
    (
        '{"filter": {"op": "=", "args": [1, {"op": "=", "args": [1,2]}]}}',
        f"1:43 (filter.args[1].op): '=' is a condition; expected a value, one of {VALUES}",
    ),
    (
        '{"filter": {"op": "+", "args": [1, 2]}}',
        f"1:19 (filter.op): '+' is a value; expected a condition, one of {CONDITIONS}",
    ),
    ('{"filter": {"op": "and", "args": [true]}}', "1:34 (filter.args): 'and' takes 2 conditions or more"),
    (
        '{"filter": {"op": "and", "args": [true, "a > 1"]}}',
        "1:41 (filter.args[1]): expected a condition, found a string",
    ),
    ('{"filter": {"op": "not", "args": [true, true]}}', "1:34 (filter.args): expected 1 argument, found 2"),
    (
        '{"filter": {"op": "in", "args": [{"property": "a"}, []]}}',
        "1:53 (filter.args[1]): expected an array of values that is not empty",
    ),
    (
        '{"filter": {"op": "in", "args": [{"property": "a"}, 1, 2]}}',
        "1:33 (filter.args): expected 2 arguments, found 3",
    ),
    (
        '{"filter": {"op": "in", "args": [{"property": "a"}, [1, null]]}}',
        "1:57 (filter.args[1][1]): expected a value, found null; a test for a missing attribute is isNull",
    ),
    (
        '{"filter": {"op": "between", "args": [{"property": "a"}, 1]}}',
        "1:38 (filter.args): expected 3 arguments, found 2",
    ),
    (
        '{"filter": {"op": "between", "args": [{"property": "a"}, [1, 2]]}}',
        "1:38 (filter.args): expected 3 arguments, found 2",
    ),
    (
        '{"filter": {"op": "between", "args": [{"property": "a"}, "x", 2]}}',
        "1:58 (filter.args[1]): expected a number, found a string",
    ),
    (
        '{"filter": {"op": "like", "args": [{"property": "a"}, 5]}}',
        "1:55 (filter.args[1]): expected a pattern, a string, found a number",
    ),
    (
        '{"filter": {"op": "like", "args": [{"property": "a"}, {"op":"casei","args":[5]}]}}',
        "1:77 (filter.args[1].args[0]): expected a pattern, a string, found a number",
    ),
    (
        '{"filter": {"op": "like", "args": [{"property": "a"}, {"property":"b"}]}}',
        "1:55 (filter.args[1]): expected a pattern, a string, found an object",
    ),
    (
        '{"filter": {"op": "like", "args": [{"property": "a"}, {"op":"accenti","args":["x"]}]}}',
        "1:55 (filter.args[1]): expected a pattern, a string, found an object",
    ),
    ('{"filter": {"op": "isNull", "args": []}}', "1:37 (filter.args): expected 1 argument, found 0"),
    ('{"filter": {"op": "isNull", "args": {"property":"a"}}}', '1:37 (filter.args): expected "args", an array'),
    (
        '{"filter": {"op": "=", "args": [{"property": ""}, 1]}}',
        "1:46 (filter.args[0].property): expected a string that is not empty, found an empty string",
    ),
    (
        '{"filter": {"op": "=", "args": [{"property": 5}, 1]}}',
        "1:46 (filter.args[0].property): expected a string that is not empty, found a number",
    ),
    (
        '{"filter": {"op": "=", "args": [{"prop": "a"}, 1]}}',
        '1:42 (filter.args[0].prop): unknown member "prop"; expected property, date, timestamp',
    ),
    (
        '{"filter": {"op": "=", "args": [{"property": "a", "date": "x"}, 1]}}',
        '1:33 (filter.args[0]): expected one of "op", "property", "date" and "timestamp"',
    ),
    (
        '{"filter": {"op": "=", "args": [{"date": "2026-13-01"}, 1]}}',
        "1:42 (filter.args[0].date): 2026-13-01 is not in the calendar",
    ),
    (
        '{"filter": {"op": "=", "args": [{"timestamp": "x"}, 1]}}',
        "1:47 (filter.args[0].timestamp): 'x' is not a UTC timestamp like 2026-11-18T12:30:00Z",
    ),
    (
        '{"filter": {"op": "=", "args": [{}, 1]}}',
        '1:33 (filter.args[0]): expected one of "op", "property", "date" and "timestamp"',
    ),
    (
        '{"filter": {"op": "=", "args": [1, 1e999]}}',
        "1:36 (filter.args[1]): expected a number, found one that no double can hold",
    ),
    (
        '{"filter": {"op": "=", "args": [1, NaN]}}',
        "1:36 (filter.args[1]): expected a number, found one that no double can hold",
    ),
    (
        '{"filter": {"op": "=", "args": [1, -Infinity]}}',
        "1:36 (filter.args[1]): expected a number, found one that no double can hold",
    ),
    ('{"filter": {"op": "=", "args": [1, 1], "op": "<"}}', '1:46 (filter.op): "op" stands twice'),
    (
        '{"filter": {"op": "abs", "args": [1]}}',
        f"1:19 (filter.op): 'abs' is a value; expected a condition, one of {CONDITIONS}",
    ),
    (
        '{"filter": {"op": "=", "args": [{"op":"abs","args":[1,2]}, 1]}}',
        "1:52 (filter.args[0].args): expected 1 argument, found 2",
    ),
    (
        '{"filter": {"op": "=", "args": [{"op":"sqrt","args":[1,2]}, 1]}}',
        f"1:39 (filter.args[0].op): 'sqrt' is unknown; expected a value, one of {VALUES}",
    ),
    (
        '{"filter": {"op": "=", "args": [{"op":"distance","args":[1,2]}, 1]}}',
        "1:57 (filter.args[0].args): expected 4 arguments, found 2",
    ),
    (
        '{"filter": {"op": "=", "args": [{"op":"casei","args":[1]}, 1]}}',
        "1:55 (filter.args[0].args[0]): expected a string",
    ),
    (
        '{"filter": {"op": "s_intersects", "args": [{"property":"geom"}, {"type":"Point","coordinates":[1,2]}]}}',
        '1:43 (filter.args): one side must be {"property": "location"}, the other a geometry',
    ),
    (
        '{"filter": {"op": "s_intersects", "args": [{"property":"location"}, {"type":"Point","coordinates":[1,2,3]}]}}',
        "1:99 (filter.args[1].coordinates): a position has 2 numbers, not 3",
    ),
    (
        '{"filter": {"op": "s_intersects", "args": [{"property":"location"}, {"type":"Point","coordinates":["1",2]}]}}',
        "1:100 (filter.args[1].coordinates[0]): expected a number, found a string",
    ),
    (
        '{"filter": {"op": "s_intersects", "args": [{"property":"location"}, {"type":"Point"}]}}',
        "1:69 (filter.args[1].coordinates): expected an array that is not empty, found null",
    ),
    (
        '{"filter": {"op": "s_within", "args": [{"property":"location"}, {"type":"LineString","coordinates":[]}]}}',
        "1:73 (filter.args[1].type): expected a geometry: Point, Polygon, MultiPolygon or bbox",
    ),
    (
        '{"filter": {"op": "s_within", "args": [{"property":"location"}, '
        '{"type":"Polygon","coordinates":[[[0,0],[1,1],[0,0]]]}]}}',
        "1:98 (filter.args[1].coordinates[0]): a ring of a polygon has 4 positions or more, "
        "the last equal to the first; found 3",
    ),
    (
        '{"filter": {"op": "s_intersects", "args": [{"property":"location"}, {"type":"Polygon","coordinates":[]}]}}',
        "1:101 (filter.args[1].coordinates): expected an array that is not empty, found an empty array",
    ),
    (
        '{"filter": {"op": "s_intersects", "args": [{"property":"location"}, {"bbox":[1,2,3]}]}}',
        "1:77 (filter.args[1].bbox): a bbox has 4 numbers, not 3",
    ),
    (
        '{"filter": {"op": "s_intersects", "args": [{"property":"location"}, {"bbox":[1,2,3,1]}]}}',
        "1:77 (filter.args[1].bbox): BBOX takes west, south, east, north: south must not be above north",
    ),
    (
        '{"filter": {"op": "s_intersects", "args": [{"property":"location"}, {"bbox":[1,2,300,3]}]}}',
        "1:77 (filter.args[1].bbox): 300 is not a longitude (-180 to 180); a position is written: long lat",
    ),
    (
        '{"filter": {"op": "s_intersects", "args": [{"property":"location"}, {"coordinates":[1,2]}]}}',
        "1:69 (filter.args[1].type): expected a geometry: Point, Polygon, MultiPolygon or bbox",
    ),
    (
        '{"filter": {"op": "s_touches", "args": [{"property":"location"}, {"bbox":[1,2,3]}]}}',
        f"1:19 (filter.op): 's_touches' is unknown; expected a condition, one of {CONDITIONS}",
    ),
    (
        '{"filter": {"op": "s_intersects", "args": [{"property":"location"}]}}',
        "1:43 (filter.args): expected 2 arguments, found 1",
    ),
    (
        '{"filter": {"op": "t_during", "args": [{"property":"time"}, {"date":"2026-01-01"}]}}',
        "1:61 (filter.args[1]): expected an interval",
    ),
    (
        '{"filter": {"op": "t_during", "args": [{"property":"time"}, {"interval":["2026-01-01"]}]}}',
        "1:73 (filter.args[1].interval): an interval has two ends",
    ),
    (
        '{"filter": {"op": "t_during", "args": [{"property":"time"}, {"interval":["2026-01-02","2026-01-01"]}]}}',
        "1:73 (filter.args[1].interval): an interval that ends before it starts",
    ),
    (
        '{"filter": {"op": "t_during", "args": [{"property":"time"}, {"interval":["x",".."]}]}}',
        "1:74 (filter.args[1].interval[0]): 'x' is not a date like 2026-11-18",
    ),
    (
        '{"filter": {"op": "t_during", "args": [{"property":"time"}, {"interval":[5,".."]}]}}',
        "1:74 (filter.args[1].interval[0]): expected a date, a timestamp or '..'",
    ),
    (
        '{"filter": {"op": "t_during", "args": [{"property":"time"}, {"interval":[{"property":"a"},".."]}]}}',
        "1:74 (filter.args[1].interval[0]): expected a date, a timestamp or '..'",
    ),
    (
        '{"filter": {"op": "t_before", "args": [{"property":"time"}, "2026-01-01"]}}',
        "1:61 (filter.args[1]): expected a number, found a string",
    ),
    ('{"when": "a > 1"}', '1:1: expected "until"'),
    ('{"when": "a > 1", "until": "a <"}', "1:28 (until): 1:4 of this text: expected a value after '<'"),
    ('{"when": "a > 1", "until": "a < 1", "each": 5}', "1:45 (each): expected a string of 1 to 256 characters"),
    (
        '{"when": "a > 1", "until": "a < 1", "each": "r", "once": true}',
        '1:58 (once): expected true or false, and not both "each" and "once"',
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "once": 1}',
        '1:45 (once): expected true or false, and not both "each" and "once"',
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "debounce": "x"}',
        "1:49 (debounce): 'x' is not a duration such as 30s, 15m, 24h or 7d",
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "debounce": -1}',
        "1:49 (debounce): a duration is more than 0 and at most 3162240000 s",
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "debounce": 0}',
        "1:49 (debounce): a duration is more than 0 and at most 3162240000 s",
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "debounce": true}',
        '1:49 (debounce): expected a duration: seconds, or a string such as "24h"',
    ),
    ('{"when": "a > 1", "until": "a < 1", "dead_band": 5}', "1:50 (dead_band): expected an object, found a number"),
    (
        '{"when": "a > 1", "until": "a < 1", "dead_band": {"by": 1}}',
        "1:50 (dead_band.attribute): expected a string of 1 to 256 characters",
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "dead_band": {"attribute": "a", "by": 0}}',
        "1:75 (dead_band.by): expected a number above 0",
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "dead_band": {"attribute": "a", "by": 1, "c": 2}}',
        '1:83 (dead_band.c): unknown member "c"; expected attribute, by',
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "lost": "0s"}',
        "1:45 (lost): a duration is more than 0 and at most 3162240000 s",
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "filter": "a > 1"}',
        '1:10 (when): unknown member "when"; expected filter, id, owner, valid_until',
    ),
    ('{"top": 5}', '1:1: expected "by", a value'),
    ('{"top": "5", "over": "24h", "by": "a"}', "1:9 (top): expected a whole number from 1 to 10000"),
    ('{"top": 0, "over": "24h", "by": "a"}', "1:9 (top): expected a whole number from 1 to 10000"),
    ('{"top": true, "over": "24h", "by": "a"}', "1:9 (top): expected a whole number from 1 to 10000"),
    ('{"top": 5, "over": "24x", "by": "a"}', "1:20 (over): '24x' is not a duration such as 30s, 15m, 24h or 7d"),
    ('{"top": 5, "over": {"last": 0}, "by": "a"}', "1:29 (over.last): expected a whole number from 1 to 1000000"),
    ('{"top": 5, "over": {"first": 3}, "by": "a"}', '1:30 (over.first): unknown member "first"; expected last'),
    ('{"top": 5, "over": [1], "by": "a"}', '1:20 (over): expected a duration: seconds, or a string such as "24h"'),
    ('{"top": 5, "over": "24h", "by": "a > 1"}', "1:33 (by): 1:3 of this text: expected the end after 'a', found '>'"),
    ('{"top": 5, "over": "24h"}', '1:1: expected "by", a value'),
    ('{"top": 5, "over": "24h", "by": "a", "desc": "yes"}', "1:46 (desc): expected true or false"),
    ('{"top": 5, "over": "24h", "by": "a", "where": 5}', "1:47 (where): expected a condition, found a number"),
    ('{"top": 5, "over": "24h", "by": "a", "each": ""}', "1:46 (each): expected a string of 1 to 256 characters"),
    ('{"text": 5}', "1:10 (text): expected a subscription in a string"),
    ('{"text": ""}', "1:10 (text): 1:1 of this text: expected a condition or a subscription, found nothing"),
    ('{"text": "WHEN a > 1"}', "1:10 (text): 1:11 of this text: expected UNTIL after '1'"),
    (
        '{"text": "a > 1", "debounce": 5}',
        '1:31 (debounce): unknown member "debounce"; expected text, id, owner, valid_until',
    ),
    (
        '{"text": "a > 1", "filter": "a > 1"}',
        '1:29 (filter): unknown member "filter"; expected text, id, owner, valid_until',
    ),
    ('{"filter": true, "id": 5}', "1:24 (id): expected a string of 1 to 256 characters"),
    ('{"filter": true, "id": ""}', "1:24 (id): expected a string of 1 to 256 characters"),
    ('{"filter": true, "valid_until": "x"}', "1:33 (valid_until): expected epoch seconds, a number"),
    ('{"filter": true, "valid_until": NaN}', "1:33 (valid_until): expected epoch seconds, a number"),
    ('{"filter": true, "owner": null}', "1:27 (owner): expected a string of 1 to 256 characters"),
    ('{"op": "=", "args": [1, 1], "id": "x"}', '1:35 (id): unknown member "id"; expected op, args'),
    (
        '{"filter": "a = \'\\ud800\'"}',
        "1:12 (filter): 1:6 of this text: '\\ud800' is half of a surrogate pair, not a character",
    ),
    ('{"filter": true, "id": "a", "id": "b"}', '1:35 (id): "id" stands twice'),
    ('[{"filter": true}]', "1:1: unexpected character '['"),
    (
        '{"filter":\n  {"op": "and",\n   "args": [true,\n    {"op": "<", "args": [{"property": "a"}]}]}}',
        "4:25 (filter.args[1].args): expected 2 arguments, found 1",
    ),
    (
        '{"when": "a > 1",\n "until":\n   "b = 1 AND\\n  c"}',
        "3:4 (until): 2:3 of this text: 'c' alone is not a condition; for a boolean write c = TRUE",
    ),
    ('{"top": 5, "over": "24h", "by": true}', "1:33 (by): expected a number, found a boolean"),
    (
        '{"top": 5, "over": "24h", "by": {"op": "+", "args": [1, "x"]}}',
        "1:57 (by.args[1]): expected a number, found a string",
    ),
    (
        '{"filter": {"op": "=", "args": [{"op":"abs","args":["x"]}, 1]}}',
        "1:53 (filter.args[0].args[0]): expected a number, found a string",
    ),
    ('{"filter": true, "id": "\\ud800"}', "1:24 (id): '\\ud800' is half of a surrogate pair, not a character"),
    (
        '{"filter": {"op": "in", "args": [{"property": "a"}, [1, 1e999]]}}',
        "1:57 (filter.args[1][1]): expected a number, found one that no double can hold",
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "debounce": "5 s"}',
        "1:49 (debounce): '5 s' is not a duration such as 30s, 15m, 24h or 7d",
    ),
    (
        '{"when": "a > 1", "until": "a < 1", "reorder": 1e12}',
        "1:48 (reorder): a duration is more than 0 and at most 3162240000 s",
    ),
    (
        '{"filter": {"op": "t_after", "args": [true, {"property":"time"}]}}',
        "1:39 (filter.args[0]): expected a number, found a boolean",
    ),
    ('{"filter": "a = 1", "valid_until": true}', "1:36 (valid_until): expected epoch seconds, a number"),
    (
        '{"filter": {"op": "s_within", "args": [{"property":"location"}, 5]}}',
        "1:65 (filter.args[1]): expected an object, found a number",
    ),
    (
        '{"filter": {"op": "s_within", "args": [{"property":"location"}, {"type":"Point","coordinates":[95,100]}]}}',
        "1:95 (filter.args[1].coordinates): 100 is not a latitude (-90 to 90); a position is written: long lat",
    ),
    (
        '{"filter": {"op": "like", "args": [{"property":"a"}, {"op":"casei","args":["x", "y"]}]}}',
        "1:75 (filter.args[1].args): expected 1 argument, found 2",
    ),
    (
        '{"text": "TOP 5 OVER 1h BY a", "lost": 5}',
        '1:40 (lost): unknown member "lost"; expected text, id, owner, valid_until',
    ),
    (
        '{"filter": {"op": "=", "args": [{"op":"casei","args":[]}, 1]}}',
        "1:54 (filter.args[0].args): expected 1 argument, found 0",
    ),
]


@pytest.mark.parametrize(("source", "message"), JSONS)
def test_message(source: str, message: str) -> None:
    with pytest.raises(SyntaxError) as caught:
        parse(source)
    assert str(caught.value) == message
    error = caught.value
    place = f"{error.line}:{error.column}" + (f" ({error.path})" if error.path else "")
    assert str(error) == f"{place}: {error.message}"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("{'filter': true}", "1:2"),
        ('{"filter": true', "1:16"),
        ('{"filter": true} x', "1:18"),
        ('{"filter":\n tru}', "2:2"),
        ('{"filter": "a\nb"}', "1:14"),
    ],
)
def test_what_is_no_json_is_placed(source: str, place: str) -> None:
    with pytest.raises(SyntaxError, match=f"^{place}: not JSON: "):
        parse(source)


def test_objects_without_a_text_are_placed_by_their_path() -> None:
    with pytest.raises(SyntaxError) as caught:
        parse({"filter": {"op": "=", "args": [{"property": "a"}]}})
    assert str(caught.value) == "1:1 (filter.args): expected 2 arguments, found 1"
    for item in ([], 5, None, True, {1: 2}, {"filter": {1: 2}}, {"filter": {"op": "=", "args": [1, {1, 2}]}}):
        with pytest.raises(SyntaxError):
            parse(item)


def test_a_repeated_key_is_refused_wherever_it_stands() -> None:
    for source in (
        '{"op": "=", "args": [{"property": "a", "property": "b"}, 1]}',
        '{"op": "s_within", "args": [{"property": "location"}, {"bbox": [1,2,3,4], "bbox": [1,2,3,5]}]}',
        '{"op": "t_during", "args": [{"property": "a"}, {"interval": ["..",".."], "interval": ["..",".."]}]}',
        '{"op": "not", "args": [true], "args": [false]}',
    ):
        assert json.loads(source)
        with pytest.raises(SyntaxError, match="stands twice"):
            parse_filter(source)


NAMES = (
    *(
        "op",
        "args",
        "property",
        "date",
        "timestamp",
        "interval",
        "type",
        "coordinates",
        "bbox",
        "filter",
        "when",
        "until",
    ),
    *("top", "over", "by", "last", "text", "id", "each", "once", "dead_band", "attribute", "debounce", "x"),
)
WORDS = (
    *("=", "and", "not", "in", "between", "like", "casei", "isNull", "+", "abs", "distance", "s_within", "t_during"),
    *("a", "location", "Point", "Polygon", "2026-11-18", "..", "a > 1", "24h", ""),
)
leaves = st.one_of(st.sampled_from(WORDS), st.sampled_from([0, 1, -1.5, 1e400, True, False, None, 10**400]))


def larger(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
        st.builds(lambda op, args: {"op": op, "args": args}, st.sampled_from(WORDS), st.lists(inner, max_size=4)),
    )


@given(st.recursive(leaves, larger, max_leaves=12))
def test_any_json_is_read_and_written_or_refused_with_a_place(item: object) -> None:
    for source in (item, json.dumps({"filter": item}), json.dumps({"when": "TRUE", "until": "FALSE", "x": item})):
        refusal = None
        try:
            subscription = parse(source)  # type: ignore[arg-type]  # that is what is tested
        except SyntaxError as error:
            refusal = error
        if refusal is None:
            assert parse(subscription.to_json()) == subscription
        else:
            assert refusal.line == 1
            assert 1 <= refusal.column <= (len(source) if isinstance(source, str) else 1) + 1
            assert refusal.message
