"""The subscription forest and the plain list: is there any filter that wants this reading?"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import filters, publications

from spinney import MatcherError, covers, parse_filter
from spinney.expression import And, Between, Compare, Filter, Literal, Property
from spinney.forest import FilterList, Forest

BOTH = pytest.mark.parametrize("make", [FilterList, Forest])
TYPES = ("temp", "hum", "CO", "NO2", "SO2", "O3", "PM10", "noise")


def _check_shape(forest: Forest, kept: dict[str, Filter]) -> None:
    """Every filter hangs once, below one that covers it; no chain of parents is a circle."""
    assert set(forest) == set(kept)
    roots = set(forest.roots)
    assert len(roots) == len(forest.roots)
    for id, condition in kept.items():
        above = forest.parent(id)
        assert (above is None) == (id in roots)
        if above is not None:
            assert covers(kept[above], condition)
            assert id in forest.children(above)
        steps = 0
        while above is not None:
            above, steps = forest.parent(above), steps + 1
            assert steps <= len(kept)


@BOTH
@given(st.lists(filters(1), min_size=1, max_size=5), st.lists(publications(), min_size=1, max_size=3), st.randoms())
def test_finds_a_filter_exactly_when_one_matches_under_any_changes(
    make: Callable[[], FilterList], pool: list[Filter], readings: list[dict[str, object]], rng: random.Random
) -> None:
    found = make()
    kept: dict[str, Filter] = {}
    for number in range(12):
        action = rng.choice((found.add, found.add, found.replace, found.remove)) if kept else found.add
        id = str(number) if action == found.add else rng.choice(list(kept))
        if action == found.remove:
            del kept[id]
            found.remove(id)
        else:
            kept[id] = rng.choice(pool)
            action(id, kept[id])
        for reading in readings:
            first = found.first_match(reading)
            matching = [id for id, condition in kept.items() if condition.evaluate(reading)]
            assert first in matching if matching else first is None
    assert len(found) == len(kept)
    if isinstance(found, Forest):
        _check_shape(found, kept)


def _box(rng: random.Random, kind: str) -> Filter:
    """An alert on one type, a threshold and a place."""
    x, y, size = rng.random(), rng.random(), rng.uniform(0.005, 0.05)
    return And(
        (
            Compare("=", Property("type"), Literal(kind)),
            Compare(">", Property("value"), Literal(round(rng.uniform(0, 100), 1))),
            Between(Property("lat"), Literal(45.75 + x / 10), Literal(45.75 + (x + size) / 10)),
            Between(Property("long"), Literal(15.9 + y / 5), Literal(15.9 + (y + size) / 5)),
        )
    )


def test_the_forest_agrees_with_a_scan_on_thousands_of_filters_as_they_come_and_go() -> None:
    rng = random.Random(7)
    forest = Forest()
    kept: dict[str, Filter] = {}
    for number in range(900):
        kept[str(number)] = _box(rng, rng.choice(TYPES))
        forest.add(str(number), kept[str(number)])
        if number % 3 == 2:
            gone = rng.choice(list(kept))
            del kept[gone]
            forest.remove(gone)
    _check_shape(forest, kept)
    hits = 0
    for _ in range(300):
        near = rng.choice(list(kept.values()))
        assert isinstance(near, And)
        publication = {
            "type": near.operands[0].right.value,  # type: ignore[attr-defined]  # a comparison, as made above
            "value": rng.uniform(0, 120),
            "lat": rng.uniform(45.75, 45.85),
            "long": rng.uniform(15.9, 16.1),
        }
        if rng.random() < 0.7:
            publication["lat"] = near.operands[2].low.value  # type: ignore[attr-defined]  # a range, as made above
            publication["long"] = near.operands[3].low.value  # type: ignore[attr-defined]  # a range, as made above
        first = forest.first_match(publication)
        hits += first is not None
        assert (first is not None) == any(condition.evaluate(publication) for condition in kept.values())
    assert 50 < hits < 300


def test_thresholds_form_one_tree_with_the_weakest_at_its_root() -> None:
    forest = Forest()
    for number in (40, 10, 30, 20):
        forest.add(str(number), parse_filter(f"NO2 > {number}"))
    assert forest.roots == ["10"]
    assert forest.first_match({"NO2": 35}) == "10"
    forest.remove("10")
    assert forest.roots == ["20"]


def test_a_range_covers_a_range_within_it_and_not_the_same_range_elsewhere() -> None:
    forest = Forest()
    forest.add("wide", parse_filter("lat BETWEEN 45 AND 46"))
    forest.add("narrow", parse_filter("lat BETWEEN 45.2 AND 45.8"))
    forest.add("elsewhere", parse_filter("long BETWEEN 45.2 AND 45.8"))
    assert sorted(forest.roots) == ["elsewhere", "wide"]
    assert forest.children("wide") == ["narrow"]


def test_equal_filters_hang_below_one_of_them_and_each_can_go() -> None:
    forest = Forest()
    for number in range(5):
        forest.add(str(number), parse_filter("NO2 > 40"))
    for gone in ("0", "3", "1", "4"):
        assert len(forest.roots) == 1
        forest.remove(gone)
    assert forest.roots == ["2"]
    forest.remove("2")
    assert forest.roots == []
    assert forest.first_match({"NO2": 41}) is None


def test_a_filter_that_matches_everything_takes_all_others_below_it_and_gives_them_back() -> None:
    forest = Forest()
    forest.add("no2", parse_filter("NO2 > 40"))
    forest.add("room", parse_filter("room = 'hall'"))
    forest.add("all", parse_filter("TRUE"))
    assert forest.roots == ["all"]
    assert sorted(forest.children("all")) == ["no2", "room"]
    forest.remove("all")
    assert sorted(forest.roots) == ["no2", "room"]


def test_a_chain_of_thousands_needs_no_recursion() -> None:
    forest, rng = Forest(), random.Random(3)
    thresholds = list(range(3000))
    rng.shuffle(thresholds)
    for number in thresholds:
        forest.add(str(number), parse_filter(f"a > {number}"))
    assert forest.roots == ["0"]
    for number in range(2999):
        forest.remove(str(number))
    assert forest.roots == ["2999"]


def test_covering_really_happens_on_a_realistic_set() -> None:
    """CUPUS' air quality, one comparison each: a handful of roots decide for ten thousand."""
    rng, forest = random.Random(11), Forest()
    for number in range(2000):
        name, operator = rng.choice(("temp", "hum", "CO", "NO2", "SO2")), rng.choice(("<", "<=", ">", ">="))
        forest.add(str(number), parse_filter(f"{name} {operator} {round(rng.gauss(20, 5), 1)}"))
    assert len(forest.roots) == 10


@BOTH
def test_an_id_twice_or_not_there_is_refused(make: Callable[[], FilterList]) -> None:
    found = make()
    found.add("a", parse_filter("x > 1"))
    with pytest.raises(MatcherError, match="'a' has been added already"):
        found.add("a", parse_filter("x > 2"))
    with pytest.raises(MatcherError, match="'b' is not there"):
        found.remove("b")
    assert "a" in found
    assert list(found) == ["a"]
