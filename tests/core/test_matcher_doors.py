"""Mapping, JSON and Arrow: the same answers through every door and in every engine, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matchers import DOORS, ENGINES, MODES, NATIVE, expected, filled
from strategies import filters, publications

from spinney import Matcher, PublicationError
from spinney.expression import Filter

both = pytest.mark.parametrize("native", MODES)


def check_every_engine_and_door(conditions: list[Filter], readings: list[dict[str, Any]]) -> None:
    named = {f"f{i}": condition for i, condition in enumerate(conditions)}
    wanted = expected(named, readings)
    for engine in ENGINES:
        matcher = filled(named, **engine)
        for door in DOORS:
            assert door(matcher, readings) == wanted, (engine, door)


@given(st.lists(filters(), min_size=1, max_size=10), st.lists(publications(), min_size=1, max_size=4))
def test_every_engine_and_door_says_what_the_reference_says(
    conditions: list[Filter], readings: list[dict[str, Any]]
) -> None:
    check_every_engine_and_door(conditions, readings)


@pytest.mark.soak
@settings(max_examples=20_000)
@given(st.lists(filters(), min_size=1, max_size=30), st.lists(publications(), min_size=1, max_size=6))
def test_every_engine_and_door_says_what_the_reference_says_at_length(
    conditions: list[Filter], readings: list[dict[str, Any]]
) -> None:
    check_every_engine_and_door(conditions, readings)


CORNERS = [
    ("NOT S_INTERSECTS(location, BBOX(0, 0, 1, 1))", {"lat": "north", "long": 5.0}),
    ("NOT S_INTERSECTS(location, BBOX(0, 0, 1, 1))", {"lat": 5.0, "long": "east"}),
    ("NOT S_INTERSECTS(location, BBOX(170, 0, -170, 1))", {"lat": True, "long": 5.0}),
    ("NOT S_WITHIN(location, POINT(0 0))", {"lat": "0", "long": 5.0}),
    ("NOT S_WITHIN(POINT(0 0), location)", {"long": 5.0}),
    ("NOT S_INTERSECTS(location, POLYGON((0 0, 1 0, 0 1, 0 0)))", {"lat": "0", "long": 5.0}),
    ("T_BEFORE(s, t)", {"s": "a", "t": "b"}),
    ("NOT T_AFTER(s, t)", {"s": "a", "t": "b"}),
    ("NOT T_DURING(s, INTERVAL('..', '2026-11-18'))", {"s": "a"}),
    ("NOT (s IN ('x', 1))", {"s": "a"}),
    ("NOT (s BETWEEN 1 AND 2)", {"s": "a"}),
    ("NOT (s LIKE 'x%')", {"s": 1.0}),
    ("NOT (CASEI(s) = 'x')", {"s": 1.0}),
    ("NOT (s + 1 > 1)", {"s": "a"}),
]


@pytest.mark.parametrize(("text", "reading"), CORNERS)
@both
def test_what_is_unknown_does_not_match_when_a_program_decides(
    text: str, reading: dict[str, Any], native: bool
) -> None:
    """The second part, false here, takes the index there and leaves the whole to the program."""
    matcher = Matcher(native=native)
    matcher.add("it", f"{text} OR a + b > 1")
    assert matcher.match(reading | {"a": 0.0, "b": 0.0}) == []
    assert matcher.match(reading | {"a": 1.0, "b": 1.0}) == ["it"]


# ---- JSON


@pytest.fixture(params=MODES, ids=["python", "native"][: len(MODES)])
def matcher(request: pytest.FixtureRequest) -> Matcher:
    matcher = Matcher(native=request.param)
    for id, text in {"a": "a > 5", "s": "s = 'é\"😀'", "flag": "flag = TRUE", "all": "TRUE"}.items():
        matcher.add(id, text)
    return matcher


@pytest.mark.parametrize(
    "form", [str, str.encode, lambda text: bytearray(text.encode()), lambda text: memoryview(text.encode())]
)
def test_json_comes_as_text_or_bytes(matcher: Matcher, form: Any) -> None:
    assert set(matcher.match_json(form('{"a": 6, "flag": true}'))) == {"a", "flag", "all"}


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("{}", {"all"}),
        (' \n{ "a" : 5.000000000000001 }\t', {"a", "all"}),
        ('{"s": "\\u00e9\\"\\ud83d\\ude00"}', {"s", "all"}),
        ('{"\\u0061": 6}', {"a", "all"}),
        ('{"a": null, "other": "\\/\\b\\f\\n\\r\\t"}', {"all"}),
        ('{"a": 1e1, "": 0, "b": -0.0E+10}', {"a", "all"}),
        ('{"a": 9' + "0" * 300 + "}", {"a", "all"}),
        ('{"a": 1e-999}', {"all"}),
    ],
)
def test_an_object_gives_a_list_of_ids(matcher: Matcher, text: str, ids: set[str]) -> None:
    assert set(matcher.match_json(text)) == ids


def test_an_array_gives_a_list_for_each_object(matcher: Matcher) -> None:
    assert matcher.match_json(" []") == []
    assert [set(ids) for ids in matcher.match_json('[{"a": 6}]')] == [{"a", "all"}]
    assert [set(ids) for ids in matcher.match_json('[{"a": 6}, {}, {"flag": true}]')] == [
        {"a", "all"},
        {"all"},
        {"flag", "all"},
    ]


REFUSED: list[tuple[bytes, int]] = [
    (b"", 0),
    (b"5", 0),
    (b"\xef\xbb\xbf{}", 0),
    (b'{"a": 1, "a": 2}', 9),
    (b'{"a": 1, "\\u0061": null}', 9),
    (b'{"x": 1, "y": 2, "x": 2}', 17),
    (b'{"a": {}}', 6),
    (b'{"a": [1]}', 6),
    (b"[[{}]]", 1),
    (b'{"a": ' + b"[" * 100_000, 6),
    (b'{"a": 1e999}', 6),
    (b'{"a": NaN}', 6),
    (b'{"a": -Infinity}', 7),
    (b'{"a": 01}', 7),
    (b'{"a": 1.}', 8),
    (b'{"a": 1e}', 8),
    (b'{"a": -}', 7),
    (b'{"a": +1}', 6),
    (b'{"a": .5}', 6),
    (b'{"a": "\xff"}', 7),
    (b'{"\xc3": 1}', 2),
    (b'{"a": "\xed\xa0\x80"}', 7),
    (b'{"a": "\\ud800"}', 7),
    (b'{"a": "\\ud800\\u0041"}', 7),
    (b'{"a": "x\\udc00"}', 8),
    (b'{"a": "\\x"}', 7),
    (b'{"a": "\\u12g4"}', 7),
    (b'{"a": "\n"}', 7),
    (b'{"a": "x', 8),
    (b'{"a": "x\\', 8),
    (b'{"a": tru}', 6),
    (b'{"a": 1,}', 8),
    (b"{,}", 1),
    (b'{"a" 1}', 5),
    (b"{a: 1}", 1),
    (b'{"a": 1', 7),
    (b'{"a": 1} x', 9),
    (b"{}\xff", 2),
    (b"[{},]", 4),
    (b"[{} {}]", 4),
    (b"[{}", 3),
    (b"[5]", 1),
    (b'{"a":\x0b1}', 5),
]


@pytest.mark.parametrize(("text", "position"), REFUSED, ids=[str(text[:24]) for text, _ in REFUSED])
def test_json_that_is_refused_and_where(matcher: Matcher, text: bytes, position: int) -> None:
    with pytest.raises(PublicationError) as found:
        matcher.match_json(text)
    assert found.value.position == position
    assert matcher.match_json("{}") == ["all"]


def test_half_a_surrogate_pair_in_a_text_is_refused(matcher: Matcher) -> None:
    with pytest.raises(PublicationError) as found:
        matcher.match_json('{"é": "\ud800"}')
    assert found.value.position == 8


def test_nothing_is_matched_if_any_of_it_is_refused(matcher: Matcher) -> None:
    with pytest.raises(PublicationError):
        matcher.match_json('[{"a": 6}, {"a": 6}, {"a": }]')


_PIECES = st.sampled_from(
    [
        *(
            b"{",
            b"}",
            b"[",
            b"]",
            b":",
            b",",
            b" ",
            b'"a"',
            b'"s"',
            b'"',
            b"1",
            b"-",
            b"0",
            b".5",
            b"e3",
            b"e",
            b"true",
        ),
        *(
            b"null",
            b"\\",
            b"\\u00e9",
            b"\\ud800",
            b"\\udc00",
            b"\xc3\xa9",
            b"\xff",
            b"\n",
            b"\x00",
            b"\xf0\x9f\x98\x80",
        ),
        *(b'{"a":', b'","', b'":"', b'"}', b"1}", b"{}", b'{"b":2}'),
    ]
)


@pytest.mark.skipif(not NATIVE, reason="no C core")
@settings(max_examples=500)
@given(st.lists(_PIECES, max_size=12).map(b"".join))
def test_python_refuses_the_json_that_c_refuses_at_the_same_place(text: bytes) -> None:
    outcomes: list[Any] = []
    for native in MODES:
        matcher = Matcher(native=native)
        matcher.add("a", "a > 0")
        matcher.add("s", "s IS NOT NULL")
        try:
            found = matcher.match_json(text)
            outcomes.append(sorted(map(sorted, found)))
        except PublicationError as error:
            outcomes.append(("refused", error.position))
    assert outcomes[0] == outcomes[1]


@settings(max_examples=200)
@given(
    st.dictionaries(st.text(), st.one_of(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.booleans()))
)
def test_any_flat_object_is_read_as_the_mapping_that_it_is(publication: dict[str, Any]) -> None:
    for native in MODES:
        matcher = Matcher(native=native)
        for i, (name, value) in enumerate(publication.items()):
            matcher.add(f"{i}", {"op": "=", "args": [{"property": name}, value]} if name else "TRUE")
        for text in (json.dumps(publication), json.dumps(publication, ensure_ascii=False)):
            assert len(matcher.match_json(text)) == len(publication)


# ---- Arrow


def numbers(kind: pa.DataType) -> pa.Array:
    return pa.array([6, None, 5, 0], kind)


@pytest.mark.parametrize(
    "column",
    [
        *map(
            numbers, [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
        ),
        *map(numbers, [pa.float32(), pa.float64()]),
        pa.array([6.0, None, 5.0, 0.0], pa.float64()).dictionary_encode(),
        pa.array([1, 6, None, 5, 0, 7], pa.int64())[1:5],
    ],
    ids=str,
)
@both
def test_numbers_of_every_width(column: pa.Array, native: bool) -> None:
    matcher = filled({}, native=native)
    matcher.add("more", "a > 5")
    matcher.add("there", "a IS NOT NULL")
    pairs = matcher.match_batch(pa.record_batch({"a": column}))
    assert pairs.schema.names == ["row", "id"]
    assert sorted(map(tuple, zip(*pairs.to_pydict().values(), strict=True))) == [
        (0, "more"),
        (0, "there"),
        (2, "there"),
        (3, "there"),
    ]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["é", None, ""], pa.string()),
        pa.array(["é", None, ""], pa.large_string()),
        pa.array(["é", None, ""]).dictionary_encode(),
        pa.array([[("s", "é")], None, [("s", ""), ("t", None)]], pa.map_(pa.string(), pa.string())),
    ],
    ids=["string", "large", "dictionary", "map"],
)
@both
def test_strings_of_every_kind(column: pa.Array, native: bool) -> None:
    matcher = filled({}, native=native)
    matcher.add("e", "s = 'é'")
    matcher.add("empty", "s = ''")
    assert matcher.match_batch(pa.record_batch({"s": column})).to_pydict() == {"row": [0, 2], "id": ["e", "empty"]}


@both
def test_an_integer_beyond_two_to_the_53_is_the_nearest_double(native: bool) -> None:
    matcher = filled({}, native=native)
    matcher.add("it", f"a = {2**53}")
    batch = pa.record_batch({"a": pa.array([2**53 + 1, 2**53 + 2], pa.int64())})
    assert matcher.match_batch(batch).column("row").to_pylist() == [0]


@both
def test_batches_without_rows_or_columns_or_matches(native: bool) -> None:
    matcher = filled({}, native=native)
    matcher.add("a", "a > 5")
    for batch in (
        pa.record_batch({"a": pa.array([], pa.float64())}),
        pa.record_batch({"a": [1.0]}),
        pa.record_batch({"b": pa.nulls(3)}),
        pa.RecordBatch.from_arrays([], names=[]),
    ):
        assert matcher.match_batch(batch).num_rows == 0


@both
def test_a_large_batch_with_many_matches(native: bool) -> None:
    matcher = filled({}, native=native)
    for i in range(20):
        matcher.add(f"id{i}", f"a >= {i}")
    pairs = matcher.match_batch(pa.record_batch({"a": [float(i % 20) for i in range(3000)]}))
    assert pairs.num_rows == 3000 * 21 // 2
    assert pairs.column("row").to_pylist()[-1] == 2999


@both
@pytest.mark.parametrize(
    ("columns", "attribute"),
    [
        ({"b": [1.0], "a": [float("nan")]}, "a"),
        ({"a": [1.0, float("inf")]}, "a"),
        ({"t": pa.array([0], pa.timestamp("s"))}, "t"),
        ({"x": pa.array([[1]], pa.list_(pa.int64()))}, "x"),
        ({"x": pa.array([b"x"], pa.binary())}, "x"),
        ({"x": pa.array([{"a": 1}])}, "x"),
        ({"x": pa.array([[(1, 1.0)]], pa.map_(pa.int64(), pa.float64()))}, "x"),
        ({"x": pa.array([[("k", [1])]], pa.map_(pa.string(), pa.list_(pa.int64())))}, "x"),
        ({"x": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))}, "x"),
        ({"x": pa.array([[("k", None), ("k", 2)]], pa.map_(pa.string(), pa.int64()))}, "x"),
        ({"a": [1.0], "x": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}, "x"),
    ],
)
def test_batches_that_are_refused_and_which_column(columns: dict[str, Any], attribute: str, native: bool) -> None:
    matcher = filled({}, native=native)
    matcher.add("it", "a > 5 OR k > 5")
    with pytest.raises(PublicationError) as found:
        matcher.match_batch(pa.record_batch(columns))
    assert found.value.attribute == attribute


@both
def test_a_refused_value_is_shown_with_its_row(native: bool) -> None:
    matcher = filled({}, native=native)
    with pytest.raises(PublicationError, match=r'row 2.*column.*"a".*not a finite number'):
        matcher.match_batch(pa.record_batch({"b": [1.0] * 3, "a": [1.0, None, float("nan")]}))


@both
def test_two_columns_of_one_name_are_refused(native: bool) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    with pytest.raises(PublicationError, match='"a" is there twice'):
        filled({}, native=native).match_batch(batch)
