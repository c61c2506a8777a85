"""Matcher: what it promises to those who use it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matchers import ENGINES, MODES, NATIVE, by_mapping, expected, filled
from strategies import filters, publications, subscriptions

from spinney import Matcher, MatcherError, PublicationError, SyntaxError, parse, parse_filter
from spinney.expression import FALSE, TRUE, Arithmetic, Compare, Filter, Literal, Not, Property
from spinney.feed import feed
from spinney.filter_bytes import FilterBytes, filter_bytes
from spinney.subscription import Subscription

both = pytest.mark.parametrize("native", MODES)
everywhere = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.get("simd", "python"))


# ---- the same as the reference


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from("abcdef"), filters(2)),
            st.tuples(st.just("add"), st.sampled_from("abcdef"), filters(2)),
            st.tuples(st.just("remove"), st.sampled_from("abcdef"), st.none()),
            st.tuples(st.just("match"), st.none(), publications()),
        ),
        max_size=25,
    )
)
def test_any_order_of_add_remove_and_match(steps: list[tuple[str, str, Any]]) -> None:
    matchers = [Matcher(**engine) for engine in ENGINES]
    model: dict[str, Filter] = {}
    for step, id, what in steps:
        if step == "match":
            assert [by_mapping(matcher, [what]) for matcher in matchers] == [expected(model, [what])] * len(matchers)
        elif (step == "add") is (id in model):
            for matcher in matchers:
                with pytest.raises(MatcherError):
                    matcher.add(id, what) if step == "add" else matcher.remove(id)
        elif step == "add":
            model[id] = what
            for matcher in matchers:
                matcher.add(id, what)
        else:
            del model[id]
            for matcher in matchers:
                matcher.remove(id)
    assert [set(matcher) for matcher in matchers] == [set(model)] * len(matchers)


@settings(max_examples=30)
@given(subscriptions(), publications())
def test_a_subscription_is_matched_by_its_feed(subscription: Subscription, publication: Mapping[str, Any]) -> None:
    for native in MODES:
        matcher = Matcher(native=native)
        matcher.add("it", subscription)
        assert (matcher.match(publication) == ["it"]) is (feed(subscription).evaluate(publication) is True)


def many_filters(count: int) -> dict[str, Filter]:
    """What people subscribe to, in all the shapes that the index has places for."""
    shapes = (
        "NO2 > {0}",
        "NO2 BETWEEN {0} AND {1}",
        "type = 't{2}' AND value > {0} AND lat BETWEEN {0} AND {1} AND long BETWEEN {2} AND {1}",
        "hum < {0} AND temp > {2}",
        "source IN ('m{0}', 'm{1}')",
        "topic LIKE 'air/{2}%'",
        "NO2 + temp > {1}",
        "temp <> {0} AND flag = TRUE",
        "distance(lat, long, {0} / 2, {1} / 2) < {0} * 100000",
        "S_INTERSECTS(location, BBOX({2}, -{0}, {1}, 80))",
    )
    return {
        f"id{i}": parse_filter(shapes[i % len(shapes)].format(i * 7 % 90, 90 + i * 11 % 70, i % 8))
        for i in range(count)
    }


def many_publications(count: int) -> list[dict[str, Any]]:
    """Each has some of the attributes."""
    return [
        {
            name: value
            for place, (name, value) in enumerate(
                {
                    "NO2": float(i * 13 % 170),
                    "value": float(i * 17 % 100),
                    "type": f"t{i % 8}",
                    "lat": float(i * 29 % 90),
                    "long": float(i * 31 % 150),
                    "hum": float(i * 7 % 100),
                    "temp": float(i * 19 % 40),
                    "source": f"m{i % 160}",
                    "topic": f"air/{i % 9}/x",
                    "flag": i % 3 == 0,
                }.items()
            )
            if (i >> place) % 4
        }
        for i in range(count)
    ]


@everywhere
def test_thousands_of_subscriptions_of_all_shapes(engine: dict[str, Any]) -> None:
    conditions = many_filters(2000)
    matcher = filled(conditions, **engine)
    for id in list(conditions)[::3]:
        matcher.remove(id)
        del conditions[id]
    readings = many_publications(40)
    assert by_mapping(matcher, readings) == expected(conditions, readings)
    for id in list(conditions):
        matcher.remove(id)
    assert by_mapping(matcher, readings) == [set() for _ in readings]
    assert matcher.stats().entries == matcher.stats().ids == len(matcher) == 0


@everywhere
def test_a_reading_has_few_of_the_attributes_there_are(engine: dict[str, Any]) -> None:
    conditions = {f"{kind}{i}": parse_filter(f"a{i} {kind} {i % 7}") for i in range(60) for kind in ("<", ">", "=")}
    conditions |= {f"near{i}": parse_filter(f"a{i} > 1 AND a{(i + 1) % 60} > 1") for i in range(60)}
    readings = [{f"a{(start + i) % 60}": float(i) for i in range(5)} for start in range(60)]
    matcher = filled(conditions, **engine)
    assert by_mapping(matcher, readings) == expected(conditions, readings)
    assert by_mapping(matcher, [{}]) == [set()]


# ---- what can be added


@both
def test_what_can_be_added(native: bool) -> None:
    matcher = Matcher(native=native)
    matcher.add("text", "NO2 > 40")
    matcher.add("bytes", b"NO2 > 40")
    matcher.add("json", '{"filter": "NO2 > 40", "id": "x"}')
    matcher.add("object", {"op": ">", "args": [{"property": "NO2"}, 40]})
    matcher.add("filter", parse_filter("NO2 > 40"))
    matcher.add("subscription", parse("NO2 > 40"))
    matcher.add("state", "WHEN NO2 > 40 UNTIL NO2 < 30")
    matcher.add("top", "TOP 3 OVER 24h BY NO2 DESC")
    assert set(matcher.match({"NO2": 41})) == set(matcher)
    assert matcher.match({"NO2": 35}) == ["top"]
    assert len(matcher) == 8
    assert "text" in matcher
    assert "other" not in matcher
    assert 5 not in matcher


@both
@pytest.mark.parametrize("id", ["", "é", "a b\n", "\0", "\ud800", "x" * 1000])
def test_an_id_is_any_text(id: str, native: bool) -> None:
    matcher = Matcher(native=native)
    matcher.add(id, TRUE)
    assert matcher.match({}) == [id]


@both
def test_equal_filters_share_one_entry(native: bool) -> None:
    matcher = Matcher(native=native)
    for i in range(100):
        matcher.add(f"a{i}", "NO2 > 40 AND type = 'x'" if i % 2 else "type = 'x' AND 40 < NO2")
    assert (matcher.stats().ids, matcher.stats().entries) == (100, 1)
    assert len(matcher.match({"NO2": 41, "type": "x"})) == 100
    for i in range(99):
        matcher.remove(f"a{i}")
    assert matcher.match({"NO2": 41, "type": "x"}) == ["a99"]
    assert (matcher.stats().ids, matcher.stats().entries) == (1, 1)


@both
def test_what_can_never_match_costs_nothing_and_never_matches(native: bool) -> None:
    matcher = filled({"never": FALSE, "empty": parse_filter("a > 5 AND a < 3"), "always": TRUE}, native=native)
    assert matcher.match({"a": 4.0}) == ["always"]
    assert matcher.stats().scanned <= 1


@both
def test_what_an_index_cannot_find_is_asked_every_time(native: bool) -> None:
    matcher = filled({"missing": parse_filter("a IS NULL"), "indexed": parse_filter("b > 1")}, native=native)
    assert (matcher.stats().scanned, matcher.stats().indexed, matcher.stats().attributes) == (1, 1, 2)
    assert matcher.match({"b": 2}) in (["missing", "indexed"], ["indexed", "missing"])


# ---- what is refused


@both
def test_an_id_is_added_once(native: bool) -> None:
    matcher = Matcher(native=native)
    matcher.add("a", "NO2 > 40")
    with pytest.raises(MatcherError, match="'a' has been added already"):
        matcher.add("a", "NO2 > 50")
    assert matcher.match({"NO2": 45}) == ["a"]


@both
def test_only_what_is_there_is_removed(native: bool) -> None:
    matcher = Matcher(native=native)
    with pytest.raises(MatcherError, match="'a' is not there"):
        matcher.remove("a")
    matcher.add("a", TRUE)
    matcher.remove("a")
    with pytest.raises(MatcherError, match="'a' is not there"):
        matcher.remove("a")


def deep_filter() -> Filter:
    condition: Filter = Compare("=", Arithmetic("+", Property("a"), Property("b")), Literal(1.0))
    for _ in range(5000):
        condition = Not(condition)
    return condition


@both
@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("NO2 >", SyntaxError),
        ('{"filter": 5}', SyntaxError),
        (Compare("=", Property("s"), Literal("\ud800")), MatcherError),
        (Compare("=", Property("\ud800"), Literal(1.0)), MatcherError),
        (deep_filter(), MatcherError),
    ],
    ids=["text", "json", "value", "name", "depth"],
)
def test_what_cannot_be_added_leaves_nothing_behind(what: Any, error: type[Exception], native: bool) -> None:
    matcher = Matcher(native=native)
    matcher.add("b", "NO2 > 40")
    before = matcher.stats()
    with pytest.raises(error):
        matcher.add("a", what)
    assert "a" not in matcher
    assert matcher.stats().entries == before.entries
    matcher.add("a", "NO2 > 40")
    assert set(matcher.match({"NO2": 41})) == {"a", "b"}


@both
def test_an_id_must_be_a_string(native: bool) -> None:
    with pytest.raises(MatcherError, match="an id is a string, not 5"):
        Matcher(native=native).add(5, TRUE)


@both
@pytest.mark.parametrize(
    ("publication", "attribute"),
    [
        ({"a": float("nan")}, "a"),
        ({"other": float("inf")}, "other"),
        ({"a": 10**400}, "a"),
        ({"a": [1]}, "a"),
        ({"other": {"b": 1}}, "other"),
        ({"a": "\ud800"}, "a"),
        ({"other": "\udfff"}, "other"),
        ({"a": b"bytes"}, "a"),
    ],
)
def test_what_is_no_value_is_refused_whether_a_filter_names_it_or_not(
    publication: dict[str, Any], attribute: str, native: bool
) -> None:
    matcher = Matcher(native=native)
    matcher.add("x", "a > 5 OR a = 'x'")
    with pytest.raises(PublicationError) as found:
        matcher.match(publication)
    assert found.value.attribute == attribute
    assert matcher.match({"a": 6}) == ["x"]


@both
@pytest.mark.parametrize("publication", [5, "a", [("a", 1)], None, {5: 1.0}, {None: 1.0}])
def test_what_is_no_publication_is_refused(publication: Any, native: bool) -> None:
    with pytest.raises(PublicationError):
        Matcher(native=native).match(publication)


# ---- what a publication can be


class Name(str):
    """A kind of string."""

    __slots__ = ()


@both
def test_values_of_other_types_that_are_numbers_and_strings(native: bool) -> None:
    numpy = pytest.importorskip("numpy")
    matcher = Matcher(native=native)
    matcher.add("number", "a = 2")
    matcher.add("string", "a = 'x'")
    matcher.add("flag", "a = TRUE")
    for value, found in ((2, "number"), (numpy.float64(2), "number"), (Name("x"), "string"), (True, "flag")):
        assert matcher.match({"a": value}) == [found]
    assert matcher.match({"a": None}) == []
    assert matcher.match(MappingProxyType({Name("a"): 2.0})) == ["number"]


@both
def test_long_strings_and_many_attributes(native: bool) -> None:
    matcher = Matcher(native=native)
    matcher.add("long", f"s = '{'x' * 5000}' AND t = '{'é' * 3000}' AND u LIKE 'y%' AND v = ''")
    reading = {"s": "x" * 5000, "t": "é" * 3000, "u": "yes", "v": ""}
    assert matcher.match(reading) == ["long"]
    many = {f"a{i}": float(i) for i in range(1000)}
    assert matcher.match(many | reading | many) == ["long"]
    assert matcher.match(many) == []


# ---- many objects of which few match


@both
def test_rows_that_match_are_those_with_an_answer(native: bool) -> None:
    matcher = Matcher(native=native)
    matcher.add("high", "NO2 > 40")
    matcher.add("kit", "source = 'kit'")
    rows = '[{"NO2":1},{"NO2":50}, {},{"source":"kit", "NO2":60,"room":"ä\\"}","x":null} ]'.encode()
    found = matcher.match_rows(rows)
    assert found.objects == 4
    assert [(row, sorted(ids)) for row, ids in found.matches] == [(1, ["high"]), (3, ["high", "kit"])]
    assert list(map(json.loads, found.texts)) == [{"NO2": 50}, {"source": "kit", "NO2": 60, "room": 'ä"}', "x": None}]
    assert not native or b",".join((b'[{"NO2":1}', found.texts[0], b" {}", found.texts[1] + b" ]")) == rows
    assert matcher.match_rows(b"[]") == (0, [], [])
    with pytest.raises(PublicationError):
        matcher.match_rows(b'[{"NO2":50},{"NO2":[]}]')


@pytest.mark.skipif(not NATIVE, reason="no C core")
def test_a_compiled_filter_is_added_without_its_text() -> None:
    matcher = Matcher()
    compiled = filter_bytes(parse_filter("NO2 > 40 AND room = 'lab'"))
    matcher.add_compiled("a", compiled)
    assert matcher.match({"NO2": 41, "room": "lab"}) == ["a"]
    with pytest.raises(MatcherError, match="added already"):
        matcher.add_compiled("a", compiled)
    with pytest.raises(MatcherError):
        matcher.add_compiled("b", FilterBytes(b"SF\xff", ()))
    assert list(matcher) == ["a"]


def test_pure_python_takes_no_compiled_filter() -> None:
    with pytest.raises(MatcherError, match="needs the C core"):
        Matcher(native=False).add_compiled("a", filter_bytes(parse_filter("NO2 > 40")))


# ---- C or not


@pytest.mark.skipif(not NATIVE, reason="no C core")
def test_it_says_whether_it_matches_in_c() -> None:
    assert Matcher().native
    assert Matcher(native=True).native
    assert not Matcher(native=False).native


def test_another_instruction_set_than_there_is_is_refused() -> None:
    with pytest.raises(MatcherError):
        Matcher(simd="neon" if {"simd": "neon"} not in ENGINES else "avx512")


def test_without_a_core_there_is_no_native_matcher() -> None:
    code = "import spinney; assert not spinney.Matcher().native; spinney.Matcher(native=True)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"SPINNEY_PURE": "1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "spinney.errors.MatcherError: the C core is not there"


def test_importing_spinney_imports_neither_pyarrow_nor_numpy() -> None:
    code = "import sys, spinney; spinney.Matcher(); assert not {'pyarrow', 'numpy'} & set(sys.modules)"
    subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path), "SPINNEY_PURE": "1"}, check=True
    )
