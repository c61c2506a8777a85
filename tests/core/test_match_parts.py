"""The parts of `spinney match` that can be asked without a process."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import parse
from spinney_tools.match.matching import Matching, Place
from spinney_tools.match.progress import Progress

# ---- many lines at once and one by one


VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-3, 3),
    st.booleans(),
    st.none(),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z", '"time": "x"', "", "\\u00e9", "é"]),
)
NAMES = st.sampled_from(["id", "source", "type", "time", "lat", "long", "valid_for", "NO2", 'a"time', "\u0001time"])
SUBSCRIPTIONS = {
    "time": parse("time >= TIMESTAMP('2026-01-01T00:00:00Z') OR time < 2"),
    "NO2": parse("NO2 > 0"),
    "missing": parse("lat IS NULL AND type <> 'x'"),
}


READING = st.dictionaries(NAMES, VALUES, max_size=4)
SEPARATORS = st.sampled_from([(", ", ": "), (",", ":"), (" ,", " :\t")])


@given(st.lists(READING, min_size=1, max_size=3), st.booleans(), SEPARATORS)
def test_lines_match_together_what_they_match_one_by_one(
    readings: list[dict[str, Any]], ascii_only: bool, separators: tuple[str, str]
) -> None:
    lines = [json.dumps(item, ensure_ascii=ascii_only, separators=separators).encode() for item in readings]
    matching = Matching(SUBSCRIPTIONS, ["-"])
    together = matching.take_block(0, list(enumerate(lines)))
    if together is not None:  # else one by one is how they are taken
        one_by_one = [found for number, line in enumerate(lines) for found in matching.take(Place(0, number), line)]
        assert [(f.place, f.ids, f.json) for f in together] == [(f.place, f.ids, f.json) for f in one_by_one]


PLAIN = {"time": "2026-01-01T00:00:00Z", "source": "mote", "lat": 1.5, "NO2": 3, "unit": "\u00b5g"}


@pytest.mark.parametrize(
    ("lines", "at_once"),
    [
        ([json.dumps(PLAIN), json.dumps({"time": 7, "valid_for": 60})], True),
        ([json.dumps({"NO2": 1, "note": 'a "quote"'})], False),
        (['{"NO2": 1}, {"NO2": 2', '"NO2": 3}'], False),
        (['{"NO2": 1}, {"NO2": 2}', "{}"], False),
        (['{"NO2": 1}', '{"NO2": "\n"}'.replace("\\n", "\n")], False),
        (['{"lat": "1"}'], False),
        (['{"time": "noon"}'], False),
        (["[]"], False),
    ],
)
def test_plain_lines_are_taken_at_once_and_others_one_by_one(lines: list[str], at_once: bool) -> None:
    found = Matching(SUBSCRIPTIONS, ["-"]).take_block(0, [(n, line.encode()) for n, line in enumerate(lines)])
    assert (found is not None) == at_once


# ---- progress


class Terminal(io.StringIO):
    """What a terminal of one line shows in the end."""

    def shows(self) -> str:
        return re.split(r"\r\x1b\[K", self.getvalue())[-1]


@pytest.mark.parametrize(("total", "bar"), [(1000, "[###############               ]  50%  "), (None, "")])
def test_progress_shows_bar_and_rate_after_a_second_and_is_cleared(total: int | None, bar: str) -> None:
    now = [10.0]
    terminal = Terminal()
    progress = Progress(terminal, total, lambda: now[0])
    progress.show(100, 10)
    assert terminal.getvalue() == ""
    now[0] += 2.0
    progress.show(500, 4000)
    assert terminal.shows() == f"{bar}4,000 readings, 2,000 a second"
    progress.clear()
    assert terminal.shows() == ""
