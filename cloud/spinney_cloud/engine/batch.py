"""A record of publications as the engine looks at it: whole, and row by row where it must."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import orjson

from spinney import Label, PublicationId
from spinney.reader import Rows

from ..records import Publications, RecordError


class Reading(NamedTuple):
    """One row."""

    id: PublicationId
    publication: Mapping[str, Any]
    epoch: int | None
    """Of the lease under which its source is owned."""
    late: bool


class Batch:
    """Parses what is asked for: mostly the few rows that something matches."""

    def __init__(self, record: Publications, found: Rows[str]) -> None:
        self.runs = record.runs
        self._record = record
        self._rows: list[dict[str, Any]] | None = None
        self._texts = {row: text for (row, _), text in zip(found.matches, found.texts, strict=True)}
        self._starts = list(accumulate((run.length for run in record.runs), initial=0))
        if self._starts[-1] != found.objects:
            raise RecordError(f"a damaged record: {found.objects} rows, and runs of {self._starts[-1]}")

    def rows(self) -> list[dict[str, Any]]:
        """All rows."""
        rows = self._rows
        if rows is None:
            rows = self._rows = orjson.loads(self._record.rows)
        return rows

    def reading(self, row: int, late: bool) -> Reading:
        """A row with what its run says of it."""
        place = bisect_right(self._starts, row) - 1
        run = self.runs[place]
        id = PublicationId(run.source, run.boot, run.first + row - self._starts[place])
        text = self._texts.get(row) if self._rows is None else None
        return Reading(id, self.rows()[row] if text is None else orjson.loads(text), run.epoch, late)

    def labels(self) -> tuple[dict[int, dict[str, Label]], list[tuple[str, Label]]]:
        """By row and filter; and the silent ones, which come after all rows (design: a source is given up last)."""
        by_row: dict[int, dict[str, Label]] = {}
        silent: list[tuple[str, Label]] = []
        for row, name, label in self._record.labels:
            if row is None:
                silent.append((name, label))
            elif 0 <= row < self._starts[-1]:
                by_row.setdefault(row, {})[name] = label
        return by_row, silent
