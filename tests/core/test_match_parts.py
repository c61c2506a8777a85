"""The parts of `spinney match` that can be asked without a process."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import PublicationError, parse
from spinney_tools.match.matching import Matching, Place
from spinney_tools.match.progress import Progress

# ---- matching the raw line and matching the publication are one


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


def taken(matching: Matching, line: bytes) -> list[str] | str:
    """The ids, or the refusal."""
    try:
        return [name for found in matching.take(Place(0, 1), line) for name in found.ids]
    except PublicationError as error:
        return str(error)


@given(
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.booleans(),
    st.sampled_from([(", ", ": "), (",", ":"), (" ,", " :\t")]),
)
def test_a_line_matches_what_its_publication_matches(
    reading: dict[str, Any], ascii_only: bool, separators: tuple[str, str]
) -> None:
    line = json.dumps(reading, ensure_ascii=ascii_only, separators=separators).encode()
    raw = Matching(SUBSCRIPTIONS, ["-"])
    read = Matching(SUBSCRIPTIONS, ["-"], read_all=True)
    assert taken(raw, line) == taken(read, line)


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
