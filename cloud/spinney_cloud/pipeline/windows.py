"""What has been measured, in windows: by tenant, type, H3 cell and attribute, for minutes, quarters of an hour, hours
and days. They are in the lake's table `windows`.

- A reading belongs to the window of its sample time; of its log time, if it has none or one that is more than
  AHEAD_SECONDS ahead of the log. Windows begin at whole multiples of their length (UTC).
- The watermark is the log's time. A window is over when the watermark is `delay` past its end. Then it is written.
- A reading that comes when its window is over is late. The window is summed up anew, from all of its readings, and says
  how many of them came late: it is the same in the end as if they had come in time, but for that number. A reading that
  comes more than KEPT_SECONDS after its time is in no window, nor is one whose window's readings were removed from the
  lake meanwhile; `Windows.too_late` counts those.
- A window without readings is a gap, count 0 and `gap` true, if an earlier one of its series (tenant, type, cell,
  attribute) has readings and lies at most GAPS windows before. A late reading ends a gap, and may begin others.
- Coverage is the part of what was asked for (`density` of subscriptions) that there is: the mean over the window's
  slots of `every`, or the window itself if that is shorter, of how many of the wanted sources were heard, at most 1.
  What was asked for is what is asked for when the window is written. It is 0 in a gap, and null where nobody asked.

So the table is otherwise a pure function of the observations up to a record of the log, which it names as its
transaction version (one for each length): a step that is killed has done nothing, and one that is done again does
nothing. What is removed from the observations stays in the windows; `needed_from` says what these still need. Means are
sums of doubles in no fixed order: their last digits may differ.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import datetime as dt
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import h3  # type: ignore[import-untyped]  # ships without types
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from ..density import Density
from .lake import OBSERVATIONS, Lake, TableSpec
from .windows_gaps import GAPS, Series, gaps
from .windows_rows import AHEAD_SECONDS, DATA, KEPT_SECONDS, SERIES, Place, Task, is_wanted, summed, whole_from

logger = logging.getLogger(__name__)

WINDOWS = "windows"
LENGTHS = (60, 900, 3_600, 86_400)
DELAY_SECONDS = 120.0
"""For what is under way from a mobile broker."""
RESOLUTION = 8
"""Of the cells: hexagons of three quarters of a square kilometre."""
MAX_CELLS = 65_536
"""Cells whose parent is remembered."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
SPEC = TableSpec(
    pa.schema(
        [
            ("length", pa.int32()),
            ("date", pa.date32()),
            ("begin", _TIMESTAMP),
            ("end", _TIMESTAMP),
            *DATA,
            ("gap", pa.bool_()),
        ]
    ),
    ("length", "date"),
)


KEY = ("length", *SERIES, "start")
"""Of a row."""


@dataclass(frozen=True)
class WindowPlan:
    """What is to be summed up."""

    lengths: Sequence[int] = LENGTHS
    """Seconds; each divides a day."""
    delay: float = DELAY_SECONDS
    resolution: int = RESOLUTION
    wanted: Mapping[str | None, Density] = field(default_factory=dict)
    """What subscriptions ask for, by type; None: for all others."""


class Written(NamedTuple):
    """What a step did."""

    length: int
    until: float
    """Windows that end by then are there."""
    windows: int
    gaps: int
    changed: int
    """Windows that late readings have changed."""


class _News(NamedTuple):
    """What came on one day, since the last time."""

    date: dt.date
    upto: int
    watermark: float
    late: frozenset[Place]
    too_late: int


class Windows:
    """Keeps the table up with the lake. One process does it; `step` may be killed at any time."""

    def __init__(self, spark: SparkSession, lake: Lake, plan: WindowPlan | None = None) -> None:
        self.plan = plan or WindowPlan()
        self.too_late = 0
        """Readings that this process has found to be in no window."""
        self._spark = spark
        self._lake = lake
        self._seen: dict[int, int] = {}
        """By length, up to which record nothing is to be done."""

    def step(self) -> list[Written]:
        """Up to the end of the lake, a day of it at a time."""
        return [written for length in self.plan.lengths for written in self._step(length)]

    def _step(self, length: int) -> list[Written]:
        found = []
        for date in self._dates(length):
            news = self._news(length, date)
            if news is not None and (written := self._write(length, news)) is not None:
                found.append(written)
        return found

    # ---- where it is

    def done(self, length: int) -> int:
        """Up to which record of the log its windows are there."""
        return _version(self._lake, _app(length))

    def closed(self, length: int) -> int:
        """Windows that end by then are there."""
        return _version(self._lake, f"{_app(length)}-closed")

    # ---- what there is to do

    def _dates(self, length: int) -> list[dt.date]:
        """Days of the lake that may have something new."""
        actions = pa.table(self._lake.table(OBSERVATIONS).get_add_actions(flatten=True))
        if not actions.num_rows:
            return []
        new = actions.filter(pc.greater(actions["max.log_seq"], self._after(length)))
        return sorted(set(new["partition.date"].to_pylist()))

    def _after(self, length: int) -> int:
        return max(self.done(length), self._seen.get(length, 0))

    def _news(self, length: int, date: dt.date) -> _News | None:
        """Goes once through what is new: mostly nothing of it is late."""
        after, closed = self._after(length), self.closed(length)
        new = (ds.field("date") == date) & (ds.field("log_seq") > after)
        upto, watermark, late, too_late = after, 0.0, set[Place](), 0
        whole = whole_from(self._lake)
        columns = ["tenant", "type", "cell", "time", "arrival", "log_seq"]
        for batch in self._lake.dataset().to_batches(columns=columns, filter=new):
            if batch.num_rows:
                arrival = batch["arrival"].to_numpy()
                event = _event_times(batch)
                kept = (event >= arrival - KEPT_SECONDS) & (_starts(event, length) >= whole)
                upto = max(upto, int(batch["log_seq"].to_numpy().max()))
                watermark = max(watermark, float(arrival.max()))
                too_late += int((~kept).sum())
                late |= self._places(batch, event, kept & (event < closed), length)
        return None if upto == after else _News(date, upto, watermark, frozenset(late), too_late)

    def _places(self, batch: pa.RecordBatch, event: Any, chosen: Any, length: int) -> set[Place]:
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return set()
        few = batch.take(pa.array(rows)).to_pylist()
        starts = _starts(event[rows], length).astype(np.int64).tolist()
        resolution = self.plan.resolution
        return {
            Place(row["tenant"], row["type"] or "", _parent(row["cell"], resolution), start)
            for row, start in zip(few, starts, strict=True)
        }

    # ---- doing it

    def _write(self, length: int, news: _News) -> Written | None:
        since = self.closed(length)
        until = max(since, math.floor((news.watermark - self.plan.delay) / length) * length)
        self.too_late += news.too_late if length == self.plan.lengths[0] else 0
        if until == since and not news.late:
            self._seen[length] = news.upto
            return None
        plan = self.plan
        task = Task(length, since, until, news.late, news.upto, plan.delay, plan.resolution, plan.wanted)
        data = summed(self._spark, self._lake, task)
        empty = self._gaps(data, task)
        rows = pa.concat_tables([_finished(data, length, gap=False), _finished(empty, length, gap=True)])
        versions = {_app(length): news.upto, f"{_app(length)}-closed": until}
        changed = int(pc.sum(pc.less(data["start"], since)).as_py() or 0)
        self._lake.put(WINDOWS, rows, versions, KEY if changed else ())
        return Written(length, until, data.num_rows - changed, empty.num_rows, changed)

    def _gaps(self, data: pa.Table, task: Task) -> pa.Table:
        """Rows of the gaps that are not in the table yet, given what has readings now."""
        first = min([task.since, *(place.start for place in task.late)])
        known = self._known(task.length, first - GAPS * task.length) if task.since else DATA.empty_table()
        starts: dict[Series, set[int]] = {}
        there: set[tuple[Series, int]] = set()
        for table in (known, data):
            columns = [table[name].to_pylist() for name in (*SERIES, "start", "count")]
            for *series, start, count in zip(*columns, strict=True):
                if count:
                    starts.setdefault(tuple(series), set()).add(start)
                else:
                    there.add((tuple(series), start))
        new = [found for found in gaps(starts, task.length, first, task.until) if found not in there]
        columns_of: dict[str, list[Any]] = {name: [series[at] for series, _ in new] for at, name in enumerate(SERIES)}
        columns_of["start"] = [start for _, start in new]
        zeros = [0] * len(new)
        covered = [0.0 if is_wanted(task, kind) else None for kind in columns_of["type"]]
        made = pa.table({**columns_of, "count": zeros, "sources": zeros, "late": zeros, "coverage": covered})
        return pa.concat_tables([DATA.empty_table(), made], promote_options="default").select(DATA.names).cast(DATA)

    def _known(self, length: int, since: int) -> pa.Table:
        where = (ds.field("length") == length) & (ds.field("date") >= _moment(since).date())
        where &= ds.field("start") >= since
        return self._lake.dataset(WINDOWS).to_table(columns=[*SERIES, "start", "count"], filter=where)


def needed_from(lake: Lake, lengths: Sequence[int]) -> dt.date:
    """The first day of which windows of these lengths may still need any reading, but for late ones."""
    if WINDOWS not in lake.names():
        return dt.date.min
    closed = min(_version(lake, f"{_app(length)}-closed") for length in lengths)
    return _moment(closed - AHEAD_SECONDS).date()


def _version(lake: Lake, app: str) -> int:
    return lake.table(WINDOWS, SPEC).transaction_version(app) or 0


def _app(length: int) -> str:
    return f"spinney-windows-{length}"


def _starts(event: Any, length: int) -> Any:
    return np.floor(event / length) * length


def _event_times(batch: pa.RecordBatch) -> Any:
    """As windows_rows.event_time."""
    arrival = batch["arrival"].to_numpy()
    time = batch["time"].to_numpy(zero_copy_only=False)
    return np.where(np.isnan(time) | (time > arrival + AHEAD_SECONDS), arrival, time)


@lru_cache(MAX_CELLS)
def _parent(cell: str | None, resolution: int) -> str:
    return "" if cell is None else str(h3.cell_to_parent(cell, resolution))


def _moment(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(max(seconds, 0), dt.UTC)


def _finished(data: pa.Table, length: int, *, gap: bool) -> pa.Table:
    """The columns of the table."""
    micros = pc.multiply(data["start"], 1_000_000)
    begin = micros.cast(_TIMESTAMP)
    columns = {
        "length": pa.array([length] * data.num_rows, pa.int32()),
        "date": begin.cast(pa.timestamp("us")).cast(pa.date32()),
        "begin": begin,
        "end": pc.add(micros, length * 1_000_000).cast(_TIMESTAMP),
        **{name: data[name] for name in DATA.names},
        "gap": pa.array([gap] * data.num_rows, pa.bool_()),
    }
    return pa.table(columns).select(SPEC.schema.names).cast(SPEC.schema)
