"""What the log has no more, from the lake: for the HTTP dry run, which goes on with the log itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from spinney import parse

from ..subscriptions import Form
from .lake import OBSERVATIONS, TABLES, Lake
from .replay import records
from .replay_rows import Given, Wanted, tables

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
        return state.first <= begun or self._first_record() == 1

    def _first_record(self) -> int:
        """Of all that it holds."""
        actions = [pa.table(self._lake.table(name).get_add_actions(flatten=True)) for name in TABLES]
        firsts = [min(found["min.log_seq"].to_pylist()) for found in actions if found.num_rows]
        return int(min(firsts, default=0))

    def records(self, heard: Callable[[int], None]) -> Iterator[Given]:
        """For an engine with the one subscription. `heard`: called with numbers of readings; what it raises ends it."""
        rows = tables(self._lake, self._wanted, lambda _date, count: heard(count), SLICE_ROWS)
        return records(self._lake, self._wanted, rows)
