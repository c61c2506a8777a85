"""Duplicates and lateness of whole runs are those of the core, row by row."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from spinney import Duplicates, Lateness, PublicationId
from spinney.identity import content_digest
from spinney_cloud.engine import repeats as module
from spinney_cloud.engine.repeats import Repeats, content
from spinney_cloud.records import Run

WINDOW, CONTENT_WINDOW = 10.0, 4.0

rows = st.lists(st.sampled_from([{"x": 1}, {"x": 1.0}, {"x": True}, {"x": "1"}, {}, {"y": -0.0}, {"y": 0}]), max_size=5)
runs = st.tuples(
    st.sampled_from("abc"), st.integers(1, 3), st.integers(1, 30), st.integers(1, 8), st.sampled_from([1, 1, 1, 0])
)
records = st.tuples(st.sampled_from([0.0, 1.0, 3.0, 5.0, 11.0]), st.lists(runs, min_size=1, max_size=3))


def as_runs(given_runs: list[Any]) -> tuple[list[Run], list[dict[str, Any]]]:
    made = [
        Run(source if numbered else "u" + source, boot, first, length, "client", None, numbered)
        for source, boot, first, length, numbered in given_runs
    ]
    contents = [{"x": (run.first + place) % 5, "id": "ignored"} for run in made for place in range(run.length)]
    return made, contents


@settings(max_examples=300)
@given(st.lists(records, max_size=40), st.integers(0, 40))
def test_runs_are_examined_as_the_core_examines_rows(history: list[Any], crash: int) -> None:
    repeats = Repeats(WINDOW, CONTENT_WINDOW)
    duplicates, lateness = Duplicates(WINDOW, content_seconds=CONTENT_WINDOW), Lateness()
    time = 0.0
    for number, (step, given_runs) in enumerate(history):
        time += step
        made, contents = as_runs(given_runs)
        if number == crash:
            snapshot = orjson.loads(orjson.dumps(repeats.snapshot(), default=tuple))
            repeats = Repeats(WINDOW, CONTENT_WINDOW)
            repeats.restore(snapshot)
        repeated, late, place = set(), set(), 0
        for run in made:
            for offset in range(run.length):
                id = PublicationId(run.source, run.boot, run.first + offset)
                bare = {name: value for name, value in contents[place].items() if name != "id"}
                if duplicates.repeats(id, time) if run.numbered else duplicates.repeats_content(run.source, bare, time):
                    repeated.add(place)
                elif lateness.examine(id):
                    late.add(place)
                place += 1
        found = repeats.examine(made, lambda contents=contents: contents, time)
        assert (found.repeated, found.late) == (repeated, late)
    assert (repeats.duplicates, repeats.late) == (duplicates.duplicates, lateness.late)
    assert repeats.forgotten == 0


@given(rows, rows)
def test_contents_are_equal_as_the_core_says(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    for one in some:
        for other in others:
            same = content_digest("s", one) == content_digest("s", other)
            assert (content("s", one | {"id": "a"}) == content("s", other | {"id": "b"})) is same


def test_what_is_remembered_is_bounded_and_counted(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MAX_RUNS", 3)
    monkeypatch.setattr(module, "MAX_SINGLES", 2)
    monkeypatch.setattr(module, "MAX_SOURCES", 3)
    repeats = Repeats(1e9, 1e9)
    for number in range(5):
        repeats.examine([Run(f"m{number}", 1, 1, 10, "c", None, 1)], list, float(number))
    assert repeats.forgotten == 2 + 2
    again = repeats.examine([Run("m4", 1, 1, 10, "c", None, 1)], list, 9.0)
    assert again.repeated == set(range(10))
    assert repeats.forgotten == 2 + 2 + 8


def test_a_run_of_a_steady_source_takes_few_bytes() -> None:
    repeats = Repeats(1e9, 60.0)
    for number in range(10_000):
        repeats.examine([Run("m", 1, 50 * number, 50, "c", None, 1)], list, float(number))
    (boot,) = repeats.snapshot()["boots"]
    assert sum(map(len, boot[2:])) < 10_000 * 24 * 1.4  # in base64
    assert not repeats.examine([Run("m", 1, 500_000, 50, "c", None, 1)], list, 10_001.0).repeated
    assert repeats.examine([Run("m", 1, 77, 3, "c", None, 1)], list, 10_002.0).repeated == {0, 1, 2}


def test_gaps_are_counted() -> None:
    repeats = Repeats(10.0, 10.0)
    for first in (1, 11, 25, 35):
        repeats.examine([Run("m", 1, first, 10, "c", None, 1)], list, 0.0)
    assert repeats.gaps == 1
