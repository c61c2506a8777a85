"""Records of the log as Arrow batches. What cannot be decoded becomes a dead letter, with the reason.

A record with a damaged row is dead as a whole, as it is for the engine: no broker has told anybody of it.

For the lake there is a row, too, for each record of another kind, for one whose readings are all duplicates, and for
one with silent labels: its `raw` is what a replay must know of it, beside its time (rule I3):

    {"kind":"announced","sources":["m7"],"over":true}
    {"kind":"history","value":{...}}                               see completeness/entries.py
    {"kind":"publications","labels":[[digest, label], ...]}
    {"kind":"tick"}
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from spinney.columns import ColumnsFull

from ..cells import cell_at
from ..records import Announced, History, Publications, Record, RecordError, kind_of
from ..records import decode as decode_record
from .row_columns import GATHERED, RowColumns, row_columns
from .row_groups import check_header
from .schema import CELL_RESOLUTION, COLUMNS, FORMS, LABELS, LAKE, RECORDS

ROWS = 10_000
"""Of a batch, about."""
MAX_RAW = 16 * 1024
"""Bytes of a dead record that are kept."""
MAX_REASON = 500
MAX_CELLS = 65_536
"""Places whose cell is remembered; most sources do not move."""
_NOWHERE = 999.0
"""Degrees that no place has."""
_MICROSECONDS = 1_000_000


@lru_cache(MAX_CELLS)
def cell_of(lat: float | None, long: float | None) -> str | None:
    """The H3 cell of a place; None where there is none."""
    if lat is None or long is None or not (-90 <= lat <= 90 and -180 <= long <= 180):
        return None
    return cell_at(lat, long, CELL_RESOLUTION)


class Decoder:
    """Gathers records, in order, and gives batches in one of the schema's forms.

    `rows` gathers what rows say; by default in C where the core is there.
    """

    def __init__(self, give: str = "publications", rows: RowColumns | None = None) -> None:
        self.schema = FORMS[give]
        self.readings = 0
        """Rows that were given, without the dead."""
        self.dead = 0
        self._rows = row_columns() if rows is None else rows
        self._columns: dict[str, list[Any]] = {}
        """What neither those columns have nor pieces."""
        self._pieces: list[_Piece] = []
        self._closed: list[pa.RecordBatch] = []
        self._clear()

    # ---- taking

    def take(
        self,
        data: bytes,
        sequence: int,
        arrival: float,
        repeated: Collection[int] = (),
        record: Record | None = None,
    ) -> int:
        """The next record; how many rows it has. `repeated`: the rows that are duplicates, which are left out.
        `record`: what the data say, where that is known.
        """
        if self.schema is RECORDS:
            return self._take_record(data, sequence, arrival)
        try:
            record = decode_record(data) if record is None else record
            if not isinstance(record, Publications):
                self._note(record, sequence, arrival)
                return 0
            check_header(record)
            note = self._note_beside(record, repeated) if self.schema is LAKE else None
            self._gather(record, repeated, 0 if note is None else 1)
        except RecordError as error:
            self._bury(data, sequence, arrival, str(error))
            return 0
        if note is not None:
            self._append(note, sequence, arrival)
        if record.labels and self.schema is LAKE:
            self._take_labels(record, repeated)
        return self._take_runs(record, sequence, arrival, repeated)

    def _gather(self, record: Publications, repeated: Collection[int], before: int) -> None:
        try:
            self._rows.take(record, repeated, before)
        except ColumnsFull:
            self._close()
            self._gather_alone(record, repeated, before)

    def _gather_alone(self, record: Publications, repeated: Collection[int], before: int) -> None:
        try:
            self._rows.take(record, repeated, before)
        except ColumnsFull as error:
            raise RecordError(f"a record that no batch holds: {error}") from error

    def _take_record(self, data: bytes, sequence: int, arrival: float) -> int:
        try:
            header = orjson.loads(data.split(b"\n", 1)[0])
            kind, tenant = str(header["kind"]), str(header["tenant"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            kind, tenant = "damaged", None
        values = (sequence, arrival, _micros(arrival), kind, tenant, data)
        for name, value in zip(RECORDS.names, values, strict=True):
            self._columns[name].append(value)
        self.rows += 1
        return 1

    def _take_runs(self, record: Publications, sequence: int, arrival: float, repeated: Collection[int]) -> int:
        start = 0
        said = (record.tenant, _micros(record.received), _micros(arrival), arrival, sequence)
        for run in record.runs:
            for places in _stretches(range(start, start + run.length), repeated):
                first = run.first + places.start - start
                self._put(_Piece(len(places), first, places.start, run.source, run.boot, run.client, run.epoch, *said))
                self.readings += len(places)
            start += run.length
        return start

    def _put(self, piece: _Piece) -> None:
        self._pieces.append(piece)
        self.rows += piece.rows

    def _note_beside(self, record: Publications, repeated: Collection[int]) -> dict[str, Any] | None:
        """For the lake, what a record says beside its rows; None if that is nothing, and there are rows."""
        silent = [[name, label.to_json()] for row, name, label in record.labels if row is None]
        if not silent and _has_rows(record, repeated):
            return None
        return _noted(record, labels=silent)

    def _take_labels(self, record: Publications, repeated: Collection[int]) -> None:
        """Before the record's rows are counted."""
        by_row: dict[int | None, dict[str, Any]] = {}
        for row, name, label in record.labels:
            by_row.setdefault(row, {})[name] = label.to_json()
        self._fill_up()
        self._columns[LABELS] += [
            orjson.dumps(by_row[row]).decode() if row in by_row else None for row in _left(record, repeated)
        ]

    def _note(self, record: Record, sequence: int, arrival: float) -> None:
        """For the lake, what a record says that is no publication."""
        if self.schema is LAKE:
            self._rows.skip(1)
            self._append(_noted(record, **_said(record)), sequence, arrival)

    def _bury(self, data: bytes, sequence: int, arrival: float, reason: str) -> None:
        self.dead += 1
        if "reason" in self._columns:
            raw = data[:MAX_RAW].decode(errors="replace")
            self._rows.skip(1)
            self._append({"reason": reason[:MAX_REASON], "raw": raw}, sequence, arrival)

    def _append(self, known: dict[str, Any], sequence: int, arrival: float) -> None:
        """What else there is of a row of nothing."""
        self._fill_up()
        for name, column in self._columns.items():
            column.append(known.get(name))
        self._put(_Piece(1, tenant=known.get("tenant"), log_time=_micros(arrival), arrival=arrival, log_seq=sequence))

    def _fill_up(self) -> None:
        """Publications have no reason, and mostly no labels."""
        for name in (LABELS, "reason", "raw"):
            if name in self._columns:
                self._columns[name] += repeat(None, self.rows - len(self._columns[name]))

    # ---- giving

    def give(self) -> Iterator[pa.RecordBatch]:
        """All that was taken since the last time: a batch, or none; several only if one does not hold it."""
        self._close()
        closed, self._closed = self._closed, []
        yield from closed

    def _close(self) -> None:
        """The rows there are become a batch, if there are any."""
        if not self.rows:
            return
        self._fill_up()
        arrays = {name: pa.array(column, self.schema.field(name).type) for name, column in self._columns.items()}
        if self.schema is not RECORDS:
            arrays |= _spread(self._pieces, self.schema) | self._rows.arrays()
            arrays["cell"] = _cells(arrays["lat"], arrays["long"])
        self._clear()
        self._closed.append(
            pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)
        )

    def _clear(self) -> None:
        self.rows = 0
        """How many wait to be given."""
        self._pieces = []
        self._rows.clear()
        elsewhere = {*GATHERED, "cell", *_Piece._fields} if self.schema is not RECORDS else set()
        self._columns = {name: [] for name in self.schema.names if name not in elsewhere}


class _Piece(NamedTuple):
    """Rows that follow one another in a run: what they share, and where they begin."""

    rows: int
    sequence: int | None = None
    log_row: int | None = None
    source: str | None = None
    boot: int | None = None
    client: str | None = None
    epoch: int | None = None
    tenant: str | None = None
    received: int | None = None
    log_time: int | None = None
    arrival: float | None = None
    log_seq: int | None = None


_COUNTED = ("sequence", "log_row")
"""What goes up by one with each row."""


def _stretches(places: range, repeated: Collection[int]) -> Iterator[range]:
    """What is left of them without the duplicates."""
    if not repeated:
        yield places
        return
    start = places.start
    for gap in sorted(place for place in repeated if place in places):
        if gap > start:
            yield range(start, gap)
        start = gap + 1
    if places.stop > start:
        yield range(start, places.stop)


def _left(record: Publications, repeated: Collection[int]) -> list[int]:
    """The places of a record's rows without the duplicates."""
    return [place for place in range(sum(run.length for run in record.runs)) if place not in repeated]


def _has_rows(record: Publications, repeated: Collection[int]) -> bool:
    """Whether any are left without the duplicates; to be asked before anybody has counted the rows."""
    rows = sum(run.length for run in record.runs)
    return rows > sum(place < rows for place in {*repeated})


def _said(record: Record) -> dict[str, Any]:
    """What a replay must know of a record that is no publication."""
    match record:
        case Announced(sources=sources, over=over):
            return {"sources": sources, "over": over}
        case History(value=value):
            return {"value": value}
    return {}


def _noted(record: Record, **more: Any) -> dict[str, Any]:
    """What a row of the lake has of a record that is no publication, or of what is beside one."""
    return {"tenant": record.tenant, "raw": orjson.dumps({"kind": kind_of(record), **more}).decode()}


def _spread(pieces: Sequence[_Piece], schema: pa.Schema) -> dict[str, pa.Array]:
    """A row each of what pieces share."""
    counts, *columns = zip(*pieces, strict=True)
    lengths = np.array(counts)
    piece_of = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(piece_of)) - (lengths.cumsum() - lengths)[piece_of]
    places = pa.array(piece_of)
    found: dict[str, pa.Array] = {}
    for name, column in zip(_Piece._fields[1:], columns, strict=True):
        kind = schema.field(name).type
        values = pc.take(pa.array(column, kind), places, boundscheck=False)
        found[name] = pc.add(values, pa.array(within, kind)) if name in _COUNTED else values
    return found


def _cells(lat: pa.Array, long: pa.Array) -> pa.Array:
    """One for each run of rows in the same place."""
    y, x = (column.fill_null(_NOWHERE).to_numpy() for column in (lat, long))
    starts = np.flatnonzero(np.concatenate(([True], (y[1:] != y[:-1]) | (x[1:] != x[:-1]))))
    cells = [cell_of(*place) for place in zip(y[starts].tolist(), x[starts].tolist(), strict=True)]
    counts = np.diff(np.append(starts, len(y)))
    return pa.array(cells, pa.string()).take(pa.array(np.repeat(np.arange(len(cells)), counts)))


def _micros(seconds: float) -> int:
    """For a timestamp: whole microseconds, rounded down."""
    return math.floor(seconds * _MICROSECONDS)


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The publication that a row of this schema came from, as the language sees it."""
    found = {name: row[name] for name in ("id", "source", *COLUMNS) if row[name] is not None}
    for name in ("numbers", "texts", "flags"):
        found |= dict(row[name] or ())
    return found
