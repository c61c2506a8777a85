"""Which filters may match publications of which only the range is known: never one too few, rarely too many."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from strategies import filters, publications

from spinney import Filter, parse_filter
from spinney.bounds import bounds
from spinney.boxes import Range
from spinney.mask_index import MaskIndex, Possible, slots


def possible_around(publication: dict[str, Any], by: float, anything: bool) -> dict[str, Possible]:
    found = {}
    for name, value in publication.items():
        if isinstance(value, str | bool):
            found[name] = Possible(None, None if anything else frozenset([value, "other"]))
        elif value is not None:
            found[name] = Possible(Range(float(value) - by, float(value) + by), None if anything else frozenset())
    return found


@given(
    st.lists(filters(), min_size=1, max_size=30),
    publications(),
    st.sampled_from([0.0, 0.5, 10.0]),
    st.booleans(),
    st.sets(st.integers(0, 29)),
)
def test_no_filter_is_missed_that_matches_something_possible(
    conditions: list[Filter], publication: dict[str, Any], by: float, anything: bool, removed: set[int]
) -> None:
    index = MaskIndex()
    placed = {index.add(bounds(condition)): condition for condition in conditions}
    for slot in [slot for slot in placed if slot in removed]:
        index.remove(slot)
        del placed[slot]
    found = set(slots(index.meeting(possible_around(publication, by, anything))))
    assert found <= set(placed)
    assert {slot for slot, condition in placed.items() if condition.evaluate(publication) is True} <= found


def test_few_are_found_where_few_can_match() -> None:
    random = Random(3)
    index = MaskIndex()
    for _ in range(2_000):
        lat = random.uniform(45, 46)
        index.add(bounds(parse_filter(f"NO2 > 40 AND lat BETWEEN {lat} AND {lat + 0.01}")))
    here = {"NO2": Possible(Range(0.0, 400.0), frozenset()), "lat": Possible(Range(45.5, 45.51), frozenset())}
    assert 10 < index.meeting(here).bit_count() < 150
    assert index.meeting({**here, "NO2": Possible(Range(0.0, 40.0), frozenset())}) == 0
    assert index.meeting({"lat": here["lat"]}) == 0


def test_strings_are_found_by_value() -> None:
    index = MaskIndex()
    kitchen = index.add(bounds(parse_filter("room IN ('kitchen', 'hall')")))
    flag = index.add(bounds(parse_filter("flag = TRUE")))
    prefix = index.add(bounds(parse_filter("room LIKE 'k%'")))

    def found(**possible: Possible) -> set[int]:
        return set(slots(index.meeting(possible)))

    assert found(room=Possible(None, frozenset(["hall"]))) == {kitchen, prefix}
    assert found(room=Possible(None, frozenset(["bath"]))) == {prefix}
    assert found(room=Possible(None, None), flag=Possible(None, frozenset([False]))) == {kitchen, prefix}
    assert found(flag=Possible(None, frozenset([True]))) == {flag}
    assert found(flag=Possible(Range(0.0, 1.0), frozenset())) == set()
