"""Density: just enough sources in each cell, the same ones for as long as they serve."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud.density import Candidate, Density, DensityError, choose, read_density

shares = st.floats(0, 1)
candidates = st.builds(
    Candidate,
    st.text("abcdefgh", min_size=1, max_size=2),
    st.sampled_from(["c1", "c2", None]),
    shares,
    shares,
    st.booleans(),
)
many = st.lists(candidates, max_size=25, unique_by=lambda one: one.source)
some = st.sets(st.text("abcdefgh", min_size=1, max_size=2), max_size=10)


@given(many, some, st.integers(1, 4))
def test_each_cell_has_just_enough_or_all_there_are(found: list[Candidate], current: set[str], per_cell: int) -> None:
    chosen = choose(found, current, per_cell)
    there = Counter(one.cell for one in found)
    assert Counter(choice.cell for choice in chosen.values()) == Counter(
        {cell: min(per_cell, count) for cell, count in there.items()}
    )


@given(many, some, st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_in_which_they_come_makes_no_difference(
    found: list[Candidate], current: set[str], per_cell: int, random: Random
) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)
    assert choose(shuffled, current, per_cell) == choose(found, current, per_cell)


@given(many, some, st.integers(1, 4))
def test_a_choice_that_is_made_again_stays(found: list[Candidate], current: set[str], per_cell: int) -> None:
    first = choose(found, current, per_cell)
    second = choose(found, first, per_cell)
    assert set(choose(found, second, per_cell)) == set(second)
    if all(one.battery > 0.15 for one in found):
        assert set(second) == set(first)


@given(many, st.integers(1, 4))
def test_who_is_passed_over_serves_only_for_want_of_others(found: list[Candidate], per_cell: int) -> None:
    chosen = choose(found, (), per_cell)
    for cell in {one.cell for one in found}:
        fit = [one for one in found if one.cell == cell and not one.passed_over]
        taken = [one for one in fit if one.source in chosen]
        assert len(taken) == min(per_cell, len(fit))


def test_the_better_battery_and_record_serve_first() -> None:
    found = [Candidate("a", "c", 0.9, 0.5), Candidate("b", "c", 0.8, 1.0), Candidate("c", "c", 1.0, 0.1)]
    assert list(choose(found, (), 1)) == ["b"]
    assert choose(found, ["a"], 2)["a"].reason == "kept"
    assert choose(found, ["a"], 2)["b"].reason == "chosen"


def test_one_with_a_low_battery_gives_way_once_and_nothing_goes_back_and_forth() -> None:
    tired = [Candidate("a", "c", 0.1), Candidate("b", "c", 0.5)]
    assert list(choose(tired, ["a"], 1)) == ["b"]
    assert list(choose([Candidate("a", "c", 0.1), Candidate("b", "c", 0.2)], ["a"], 1)) in (["a"], ["b"])
    assert list(choose([Candidate("a", "c", 0.2), Candidate("b", "c", 1.0)], ["a"], 1)) == ["a"]


def test_a_density_is_read() -> None:
    assert read_density({"per_cell": 3, "cell": 8, "every": "5m"}) == Density(3, 8, 300.0)
    assert read_density({"per_cell": 1, "cell": 0, "every": 60}) == Density(1, 0, 60.0)


@pytest.mark.parametrize(
    "item",
    [
        None,
        {},
        {"per_cell": 3, "cell": 8},
        {"per_cell": 0, "cell": 8, "every": "5m"},
        {"per_cell": True, "cell": 8, "every": "5m"},
        {"per_cell": 1, "cell": 16, "every": "5m"},
        {"per_cell": 1, "cell": 8, "every": "soon"},
        {"per_cell": 1, "cell": 8, "every": 0.001},
        {"per_cell": 1, "cell": 8, "every": None},
        {"per_cell": 1, "cell": 8, "every": "5m", "more": 1},
    ],
)
def test_a_bad_density_is_refused(item: Any) -> None:
    with pytest.raises(DensityError):
        read_density(item)
