"""What of the lake a replay must read, and how it becomes records for the engine again, in the log's order.

A content subscription needs its matches, and nothing else. For state and top-k over time each record is made again: its
time counts (rule I3), and so do the numbers of readings that the feed does not match (what is late, rule I3). Of those
there is no more in it than their numbers: in place of their attributes stands `{}`, which no feed matches.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spinney import Label, Matcher, StateSubscription, TopKSubscription, feed
from spinney.expression import Filter
from spinney.subscription_json import AnySubscription

from ..fetch.placing import Given
from ..records import Announced, Publications, Record, RowLabel, Run, Tick
from ..subscriptions import Form
from .columns_bounds import STORED, implied
from .decode import flat
from .lake import DEAD_LETTERS, LOG_RECORDS, OBSERVATIONS, Lake
from .schema import LABELS

MAPS = ("numbers", "texts", "flags")
ATTRIBUTES = (*STORED, *MAPS)
NUMBERS = ("tenant", "source", "boot", "sequence", "epoch", "log_seq", "log_row", "arrival")
"""Columns that say which reading it is, and where it stands in the log."""
DAY_SECONDS = 86_400.0
NO_ROW = -1
"""The log_row of a record of which no more than its time is known."""


@dataclass(frozen=True)
class Wanted:
    """What is to be replayed."""

    subscription: AnySubscription
    form: Form
    tenant: str
    since: float
    """Log time, from which on..."""
    until: float
    """...up to before which."""
    before: int | None = None
    """Up to before this record of the log."""

    @property
    def feed(self) -> Filter:
        """What the subscription must hear of (rule R1)."""
        return feed(self.subscription)

    @property
    def digest(self) -> str | None:
        """By which labels name it; None if there can be none."""
        return self.form.digest if self.form.kind == "state" else None

    @property
    def drops_late(self) -> bool:
        """Whether it does not examine what comes late."""
        return isinstance(self.subscription, StateSubscription) and not self.subscription.reorder

    @property
    def all_records(self) -> bool:
        """Whether it needs more than its matches."""
        if isinstance(self.subscription, TopKSubscription):
            return self.subscription.seconds is not None
        return isinstance(self.subscription, StateSubscription)

    def days(self) -> tuple[dt.date, dt.date]:
        """The first and the last of which there may be something."""
        return _date(self.since), _date(self.until)


def _date(seconds: float) -> dt.date:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).date()


Progress = Callable[[dt.date, int], None]
"""Is told of the day that is being read, and of so many readings more of it. What it raises ends the reading."""

MAX_LOOKED_INTO = 256
"""Parts of files in which it is first looked whether there is anything; where there are more, all are read at once."""
SLICE_ROWS = 2_000_000
"""Of a day that are in memory at once, about, where all of them are needed."""


# ---- reading


class DaySize(NamedTuple):
    """A day of the lake that is to be read."""

    date: dt.date
    bytes: int
    rows: int


def days(lake: Lake, wanted: Wanted, name: str = OBSERVATIONS) -> list[DaySize]:
    """Those of the lake within what is wanted, in order."""
    first, last = wanted.days()
    actions = pa.table(lake.table(name).get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    sums = actions.group_by("partition.date").aggregate([("size_bytes", "sum"), ("num_records", "sum")])
    found = [DaySize(*row.values()) for row in sums.to_pylist()]
    return sorted(day for day in found if first <= day.date <= last)


def newest_arrival(lake: Lake) -> float:
    """The log's time up to which the lake has everything."""
    actions = [pa.table(lake.table(name).get_add_actions(flatten=True)) for name in (OBSERVATIONS, LOG_RECORDS)]
    return max((max(found["max.arrival"].to_pylist()) for found in actions if found.num_rows), default=0.0)


def tables(
    lake: Lake, wanted: Wanted, progress: Progress | None = None, slice_rows: int = SLICE_ROWS
) -> Iterator[pa.Table]:
    """Day by day, sorted: matches, and if need be the numbers of all others, which have nothing in column `hit`."""
    data = lake.dataset()
    heard = _silent if progress is None else progress
    for day in days(lake, wanted):
        if wanted.all_records:
            for part in _slices(day, wanted, slice_rows):
                yield _read(data, day.date, part, heard)
        else:
            yield _read_matches(lake, data, day.date, wanted, heard)


def _silent(_date: dt.date, _rows: int) -> None:
    pass


def _slices(day: DaySize, wanted: Wanted, most: int) -> Iterator[Wanted]:
    """A day cut into times of about so many readings."""
    midnight = dt.datetime.combine(day.date, dt.time(), dt.UTC).timestamp()
    since, until = max(wanted.since, midnight), min(wanted.until, midnight + DAY_SECONDS)
    count = max(1, -(-day.rows // most))
    cuts = [since + (until - since) * at / count for at in range(count)]
    for begin, end in zip(cuts, [*cuts[1:], until], strict=True):
        yield replace(wanted, since=begin, until=end)


def _read_matches(lake: Lake, data: Any, date: dt.date, wanted: Wanted, heard: Progress) -> pa.Table:
    """Files and parts of files are passed over; what is in them is counted all the same."""
    counted = 0

    def count(date: dt.date, rows: int) -> None:
        nonlocal counted
        counted += rows
        heard(date, rows)

    found = _read(data, date, wanted, count)
    heard(date, _readings(lake, data, date, wanted) - counted)
    return found


def _readings(lake: Lake, data: Any, date: dt.date, wanted: Wanted) -> int:
    """How many of the tenant's there are on a day; of a file that is asked for as a whole, the table knows."""
    actions = pa.table(lake.table(OBSERVATIONS).get_add_actions(flatten=True))
    of_day = actions.filter(pc.equal(actions["partition.date"], pa.scalar(date)))
    whole = {unquote(file["path"]): file["num_records"] for file in of_day.to_pylist() if _is_whole(file, wanted)}
    mine = times(wanted) & (ds.field("tenant") == wanted.tenant)
    others = (each for each in data.get_fragments(within(wanted, date) & mine) if each.path not in whole)
    return int(sum(whole.values()) + sum(each.count_rows(filter=mine) for each in others))


def _is_whole(file: dict[str, Any], wanted: Wanted) -> bool:
    return bool(
        file["min.tenant"] == file["max.tenant"] == wanted.tenant
        and wanted.since <= file["min.arrival"]
        and file["max.arrival"] < wanted.until
        and (wanted.before is None or file["max.log_seq"] < wanted.before)
    )


def _read(data: Any, date: dt.date, wanted: Wanted, heard: Progress) -> pa.Table:
    where = within(wanted, date)
    if not wanted.all_records:
        where &= ds.field("tenant") == wanted.tenant
        pushed = implied(wanted.feed, ds.field)
        if pushed is not None:
            where &= pushed
            data = _parts_with_any(data, where)
    matcher = Matcher()
    matcher.add("", wanted.feed)
    parts: list[pa.RecordBatch] = []
    for batch in data.to_batches(columns=[*NUMBERS, "id", *_ATTRIBUTES_ONCE, LABELS], filter=where):
        heard(date, batch.num_rows)
        parts += _split(batch, matcher, wanted)
    if not parts:
        return data.schema.empty_table()
    found = pa.concat_tables([pa.Table.from_batches([part]) for part in parts], promote_options="default")
    return found.sort_by([("log_seq", "ascending"), ("log_row", "ascending")])


def _parts_with_any(data: Any, where: Any) -> Any:
    """Without the parts of files that their bounds do not exclude, but the columns of the condition do."""
    parts = [part for file in data.get_fragments(where) for part in file.split_by_row_group(where, data.schema)]
    if len(parts) > MAX_LOOKED_INTO:
        return data
    found = [part for part in parts if _of(data, [part]).head(1, columns=["log_seq"], filter=where).num_rows]
    return _of(data, found)


def _of(data: Any, parts: Sequence[Any]) -> Any:
    return ds.FileSystemDataset(parts, data.schema, data.format, data.filesystem)


_ATTRIBUTES_ONCE = [name for name in ATTRIBUTES if name not in ("id", "source")]


def within(wanted: Wanted, date: dt.date) -> Any:
    """A condition on the lake's columns."""
    return (ds.field("date") == date) & times(wanted)


def times(wanted: Wanted) -> Any:
    """As `within`, whatever the day."""
    found = (ds.field("arrival") >= wanted.since) & (ds.field("arrival") < wanted.until)
    return found if wanted.before is None else found & (ds.field("log_seq") < wanted.before)


def _split(batch: pa.RecordBatch, matcher: Matcher, wanted: Wanted) -> list[pa.RecordBatch]:
    """The matches whole, and of the others their numbers."""
    if not batch.num_rows:
        return []
    rows = matcher.match_batch(batch.select(ATTRIBUTES))["row"].to_numpy()
    hit = np.zeros(batch.num_rows, bool)
    hit[rows] = True
    if wanted.digest is not None:
        hit |= np.asarray(pc.match_substring(batch[LABELS], wanted.digest).fill_null(False))
    if wanted.all_records:
        hit &= np.asarray(pc.equal(batch["tenant"], wanted.tenant))
    chosen = pa.array(hit)
    found = [batch.filter(chosen).append_column("hit", pa.repeat(True, int(hit.sum())))]
    return [*found, batch.select(NUMBERS).filter(pc.invert(chosen))] if wanted.all_records else found


# ---- records again


def given(rows: Iterable[pa.Table], others: Iterator[Given], wanted: Wanted) -> Iterator[Given]:
    """Records as the engine takes them: of these rows, and what else the log says. Both in order."""
    other = next(others, None)
    for table in rows:
        for one in _records(table, wanted):
            while other is not None and other.sequence < one.sequence:
                yield other
                other = next(others, None)
            yield one
    while other is not None:
        yield other
        other = next(others, None)


def _records(table: pa.Table, wanted: Wanted) -> Iterator[Given]:
    """One for each record that has rows in the table."""
    if not table.num_rows:
        return
    sequences, log_rows = table["log_seq"].to_numpy(), table["log_row"].to_numpy()
    starts = _where(np.diff(sequences) != 0)
    arrivals, tenants = table["arrival"].to_numpy()[starts], table["tenant"].take(starts).to_pylist()
    rows = _Rows(table, wanted)
    ends = [*starts[1:].tolist(), len(sequences)]
    for place, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
        start += bool(log_rows[start] == NO_ROW)
        known = start < end and tenants[place] in (wanted.tenant, None)
        record = rows.record(start, end) if known else Tick()
        yield Given(int(sequences[end - 1]), float(arrivals[place]), record)


def _where(changes: Any) -> Any:
    """The first row of each group, from whether each row but the first begins one."""
    return np.flatnonzero(np.concatenate(([True], changes)))


class _Rows:
    """A sorted table, as records are made of it."""

    def __init__(self, table: pa.Table, wanted: Wanted) -> None:
        self._tenant, self._digest = wanted.tenant, wanted.digest
        self._runs = _runs(table)
        self._next = 0
        self._rows = [b"{}"] * table.num_rows
        self._labels: dict[int, str] = {}
        hits = np.flatnonzero(np.asarray(table["hit"].fill_null(False)))
        chosen = table.take(hits).select([*ATTRIBUTES, LABELS]).to_pylist()
        for at, row in zip(hits.tolist(), chosen, strict=True):
            self._rows[at] = orjson.dumps(flat(row))
            if row[LABELS] is not None:
                self._labels[at] = row[LABELS]

    def record(self, start: int, end: int) -> Publications:
        """Of these rows. Records come in order."""
        while self._runs[self._next][0] < start:
            self._next += 1
        runs = []
        while self._next < len(self._runs) and self._runs[self._next][0] < end:
            runs.append(self._runs[self._next][1])
            self._next += 1
        rows = b"[" + b",".join(self._rows[start:end]) + b"]"
        return Publications(self._tenant, 0.0, tuple(runs), rows, tuple(self._row_labels(start, end)))

    def _row_labels(self, start: int, end: int) -> Iterator[RowLabel]:
        for at in range(start, end) if self._labels else ():
            label = orjson.loads(self._labels[at]).get(self._digest) if at in self._labels else None
            if label is not None and self._digest is not None:
                yield RowLabel(at - start, self._digest, Label.from_json(label))


def _runs(table: pa.Table) -> list[tuple[int, Run]]:
    """The runs of all records, each with its first row."""
    names = ("log_seq", "log_row", "boot", "sequence", "epoch")
    sequences, log_rows, boots, numbers, epochs = (table[name].fill_null(-1).to_numpy() for name in names)
    sources = table["source"].combine_chunks().dictionary_encode()
    codes = sources.indices.fill_null(-1).to_numpy()
    breaks = (np.diff(numbers) != 1) | (log_rows[:-1] == NO_ROW)
    for column in (sequences, codes, boots, epochs):
        breaks |= np.diff(column) != 0
    starts = _where(breaks)
    lengths = np.diff(starts, append=len(numbers))
    known = sources.dictionary.to_pylist()
    columns = (column[starts].tolist() for column in (codes, boots, numbers, epochs))
    return [
        (start, Run(known[code], boot, first, length, "", None if epoch < 0 else epoch, 1))
        for start, length, code, boot, first, epoch in zip(starts.tolist(), lengths.tolist(), *columns, strict=True)
        if code >= 0
    ]


def other_records(lake: Lake, wanted: Wanted) -> Iterator[Given]:
    """What the log says besides publications; of records that leave no trace in what is replayed, their time."""
    if not wanted.all_records:
        return
    data, dead = lake.dataset(LOG_RECORDS), lake.dataset(DEAD_LETTERS)
    dates = sorted({day.date for name in (LOG_RECORDS, DEAD_LETTERS) for day in days(lake, wanted, name)})
    for date in dates:
        where = within(wanted, date)
        said = data.to_table(columns=["log_seq", "arrival", "tenant", "record"], filter=where)
        silent = dead.to_table(columns=["log_seq", "arrival"], filter=where)
        both = pa.concat_tables([said, silent], promote_options="default").sort_by("log_seq")
        for row in both.to_pylist():
            yield Given(row["log_seq"], row["arrival"], _other(row, wanted))


def _other(row: dict[str, Any], wanted: Wanted) -> Record:
    item = orjson.loads(row["record"]) if row["record"] is not None and row["tenant"] == wanted.tenant else {}
    match item:
        case {"kind": "announced", "sources": sources, "over": over}:
            return Announced(wanted.tenant, tuple(sources), over)
        case {"kind": "publications", "labels": labels}:
            mine = [RowLabel(None, name, Label.from_json(label)) for name, label in labels if name == wanted.digest]
            return Publications(wanted.tenant, 0.0, (), b"[]", tuple(mine))
    return Tick()
