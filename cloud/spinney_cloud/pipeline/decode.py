"""Records of the log as Arrow batches. What cannot be decoded becomes a dead letter, with the reason.

A record with a damaged row is dead as a whole, as it is for the engine: no broker has told anybody of it.

For the lake there is a row, too, for each record of another kind, for one whose readings are all duplicates, and for
one with silent labels: its `raw` is what a replay must know of it, beside its time (rule I3):

    {"kind":"announced","sources":["m7"],"over":true}
    {"kind":"publications","labels":[[digest, label], ...]}
    {"kind":"tick"}
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ..cells import cell_at
from ..names import UNIT_SUFFIX
from ..records import Announced, Publications, Record, RecordError, kind_of
from ..records import decode as decode_record
from .row_groups import Group, groups_of, rows_of
from .schema import CELL_RESOLUTION, COLUMNS, FORMS, LABELS, LAKE, RECORDS

ROWS = 10_000
"""Of a batch, about."""
MAX_RAW = 16 * 1024
"""Bytes of a dead record that are kept."""
MAX_REASON = 500
MAX_CELLS = 65_536
"""Places whose cell is remembered; most sources do not move."""
_MICROSECONDS = 1_000_000


@lru_cache(MAX_CELLS)
def cell_of(lat: float | None, long: float | None) -> str | None:
    """The H3 cell of a place; None where there is none."""
    if lat is None or long is None or not (-90 <= lat <= 90 and -180 <= long <= 180):
        return None
    return cell_at(lat, long, CELL_RESOLUTION)


class Decoder:
    """Gathers records, in order, and gives batches in one of the schema's forms."""

    def __init__(self, give: str = "publications") -> None:
        self.schema = FORMS[give]
        self.readings = 0
        """Rows that were given, without the dead."""
        self.dead = 0
        self._columns: dict[str, list[Any]] = {}
        self._pieces: list[_Piece] = []
        self._clear()

    # ---- taking

    def take(self, data: bytes, sequence: int, arrival: float, repeated: Collection[int] = ()) -> int:
        """The next record; how many rows it has. `repeated`: the rows that are duplicates, which are left out."""
        if self.schema is RECORDS:
            return self._take_record(data, sequence, arrival)
        try:
            record = decode_record(data)
            if not isinstance(record, Publications):
                self._note(record, sequence, arrival)
                return 0
            rows = rows_of(record)
            groups = groups_of(rows)
        except RecordError as error:
            self._bury(data, sequence, arrival, str(error))
            return 0
        if repeated:
            groups = groups_of([row for place, row in enumerate(rows) if place not in repeated])
        if self.schema is LAKE:
            self._take_labels(record, sequence, arrival, repeated)
        self._take_runs(record, sequence, arrival, repeated)
        for group in groups:
            self._take_group(group)
            self.readings += group.size
        return len(rows)

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

    def _take_runs(self, record: Publications, sequence: int, arrival: float, repeated: Collection[int]) -> None:
        ids, start = self._columns["id"], 0
        said = (record.tenant, _micros(record.received), _micros(arrival), arrival, sequence)
        for run in record.runs:
            prefix = f"{run.source}:{run.boot}:"
            for places in _stretches(range(start, start + run.length), repeated):
                first = run.first + places.start - start
                ids += [f"{prefix}{number}" for number in range(first, first + len(places))]
                self._put(_Piece(len(places), first, places.start, run.source, run.boot, run.client, run.epoch, *said))
            start += run.length

    def _put(self, piece: _Piece) -> None:
        self._pieces.append(piece)
        self.rows += piece.rows

    def _take_group(self, group: Group) -> None:
        columns, count = self._columns, group.size
        nothing = (None,) * count
        for name in COLUMNS:
            columns[name] += group.fixed.get(name, nothing)
        columns["cell"] += map(cell_of, group.fixed.get("lat", nothing), group.fixed.get("long", nothing))
        maps = self._maps
        maps["numbers"].put(group.numbers, count)
        maps["texts"].put(group.texts, count)
        maps["flags"].put(group.flags, count)
        maps["units"].put(
            {
                name.removesuffix(UNIT_SUFFIX): column
                for name, column in group.texts.items()
                if name.endswith(UNIT_SUFFIX) and name.removesuffix(UNIT_SUFFIX) in group.numbers
            },
            count,
        )

    def _take_labels(self, record: Publications, sequence: int, arrival: float, repeated: Collection[int]) -> None:
        """Before the record's rows."""
        rows = [place for place in range(sum(run.length for run in record.runs)) if place not in repeated]
        silent = [[name, label.to_json()] for row, name, label in record.labels if row is None]
        if silent or not rows:
            self._note(record, sequence, arrival, labels=silent)
        if record.labels:
            by_row: dict[int | None, dict[str, Any]] = {}
            for row, name, label in record.labels:
                by_row.setdefault(row, {})[name] = label.to_json()
            self._fill_up()
            self._columns[LABELS] += [orjson.dumps(by_row[row]).decode() if row in by_row else None for row in rows]

    def _note(self, record: Record, sequence: int, arrival: float, **more: Any) -> None:
        """For the lake, what a record says that is no publication."""
        if self.schema is LAKE:
            if isinstance(record, Announced):
                more = {"sources": record.sources, "over": record.over}
            self._append(
                {"tenant": record.tenant, "raw": orjson.dumps({"kind": kind_of(record), **more}).decode()},
                sequence,
                arrival,
            )

    def _bury(self, data: bytes, sequence: int, arrival: float, reason: str) -> None:
        self.dead += 1
        if "reason" in self._columns:
            raw = data[:MAX_RAW].decode(errors="replace")
            self._append({"reason": reason[:MAX_REASON], "raw": raw}, sequence, arrival)

    def _append(self, known: dict[str, Any], sequence: int, arrival: float) -> None:
        """A row that is no publication."""
        self._fill_up()
        for name, column in self._columns.items():
            column.append(known.get(name))
        self._put(_Piece(1, tenant=known.get("tenant"), log_time=_micros(arrival), arrival=arrival, log_seq=sequence))
        for each in self._maps.values():
            each.put({}, 1)

    def _fill_up(self) -> None:
        """Publications have no reason, and mostly no labels."""
        for name in (LABELS, "reason", "raw"):
            if name in self._columns:
                self._columns[name] += repeat(None, self.rows - len(self._columns[name]))

    # ---- giving

    def give(self) -> Iterator[pa.RecordBatch]:
        """All that was taken since the last time: a batch, or none."""
        if not self.rows:
            return
        self._fill_up()
        arrays = {name: _array(column, self.schema.field(name).type) for name, column in self._columns.items()}
        if self.schema is not RECORDS:
            arrays |= _spread(self._pieces, self.schema) | {name: each.array() for name, each in self._maps.items()}
        self._clear()
        yield pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)

    def _clear(self) -> None:
        self.rows = 0
        """How many wait to be given."""
        self._pieces = []
        self._maps = {field.name: _Map(field.type) for field in self.schema if pa.types.is_map(field.type)}
        elsewhere = {*self._maps, *(_Piece._fields if self._maps else ())}
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
    start = places.start
    for gap in sorted(place for place in repeated if place in places):
        if gap > start:
            yield range(start, gap)
        start = gap + 1
    if places.stop > start:
        yield range(start, places.stop)


def _spread(pieces: Sequence[_Piece], schema: pa.Schema) -> dict[str, pa.Array]:
    """A row each of what pieces share."""
    counts, *columns = zip(*pieces, strict=True)
    lengths = np.array(counts)
    piece = pa.array(np.repeat(np.arange(len(lengths)), lengths))
    within = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
    found: dict[str, pa.Array] = {}
    for name, column in zip(_Piece._fields[1:], columns, strict=True):
        kind = schema.field(name).type
        values = pa.array(column, kind).take(piece)
        found[name] = pc.add(values, pa.array(within, kind)) if name in _COUNTED else values
    return found


class _Map:
    """A column of maps in the making."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._names: dict[str, int] = {}
        self._alike: list[tuple[tuple[int, ...], int]] = []
        """Of rows that follow one another and have the same entries: which, and how many rows."""
        self._items: list[Any] = []

    def put(self, columns: Mapping[str, Sequence[Any]], count: int) -> None:
        """So many rows, each with an entry of every column."""
        names = tuple([self._names.setdefault(name, len(self._names)) for name in columns])
        if self._alike and self._alike[-1][0] == names:
            count += self._alike.pop()[1]
        self._alike.append((names, count))
        self._items += chain.from_iterable(zip(*columns.values(), strict=True))

    def array(self) -> pa.Array:
        """All rows."""
        widths = np.repeat([len(names) for names, _ in self._alike], [count for _, count in self._alike])
        offsets = np.concatenate(([0], widths.cumsum()))
        places = np.concatenate([np.tile(np.array(names, int), count) for names, count in self._alike])
        keys = pa.array(list(self._names), pa.string()).take(pa.array(places))
        items = _array(self._items, self._kind.item_type)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except pa.ArrowInvalid:  # an integer that no double is equal to becomes the nearest, as everywhere
        return pa.array([float(value) if value.__class__ is int else value for value in values], kind)


def _micros(seconds: float) -> int:
    """For a timestamp: whole microseconds, rounded down."""
    return math.floor(seconds * _MICROSECONDS)


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The publication that a row of this schema came from, as the language sees it."""
    found = {name: row[name] for name in ("id", "source", *COLUMNS) if row[name] is not None}
    for name in ("numbers", "texts", "flags"):
        found |= dict(row[name] or ())
    return found
