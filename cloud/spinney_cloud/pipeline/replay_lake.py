"""What the log has no more, from the lake: for the HTTP dry run, which goes on with the log itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

from spinney import parse

from ..completeness import Judge
from ..completeness.reading import Saying
from ..fetch.placing import Given, Placing
from ..subscriptions import Form
from .lake import OBSERVATIONS, Lake
from .replay import records
from .replay_fetch import look
from .replay_history import begins, numbers, sayings
from .replay_rows import Wanted, tables

SLICE_ROWS = 200_000
"""In memory at once: a process that answers requests has better uses for it."""


class Earlier:
    """The lake's part of a time, up to before a record of the log. LakeError for a lake that cannot be read."""

    def __init__(self, place: str, form: Form, tenant: str, since: float, until: float, before: int) -> None:
        self._lake = Lake(place)
        self._wanted = Wanted(parse(form.normal), form, tenant, since, until, before)

    @classmethod
    def there_is(cls, place: str) -> bool:
        """Whether there is a lake in a folder; of a URL that is not known before it is read."""
        return "://" in place or (Path(place) / OBSERVATIONS / "_delta_log").is_dir()

    def is_whole(self) -> bool:
        """Whether nothing is missing at its beginning, nor between it and the log."""
        if OBSERVATIONS not in self._lake.names():
            return False
        state, before = self._lake.state(OBSERVATIONS), self._wanted.before
        if state.first is None or before is None or state.sequence < before - 1:
            return False
        begun = dt.datetime.fromtimestamp(self._wanted.since, dt.UTC).date()
        return state.first <= begun or self.begins() is not None

    def begins(self) -> float | None:
        """The log's time of its first record, if the lake has that."""
        return begins(self._lake)

    def sayings(self, lookback_seconds: float) -> list[Saying]:
        """The history of the time, and of so long before it."""
        return list(sayings(self._lake, self._wanted, lookback_seconds))

    def numbers(self, judge: Judge) -> None:
        """Tell the judge who sent what, and of which sources numbers are missing."""
        numbers(self._lake, self._wanted, judge)

    def look(self, placing: Placing) -> None:
        """Tell what was fetched of the numbers that are here."""
        look(self._lake, self._wanted, placing)

    def records(self, heard: Callable[[int], None]) -> Iterator[Given]:
        """For an engine with the one subscription. `heard`: called with numbers of readings; what it raises ends it."""
        rows = tables(self._lake, self._wanted, lambda _date, count: heard(count), SLICE_ROWS)
        return records(self._lake, self._wanted, rows)
