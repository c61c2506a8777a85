"""Records of the log as Arrow batches. What cannot be decoded becomes a dead letter, with the reason.

A record with a damaged row is dead as a whole, as it is for the engine: no broker has told anybody of it.

For the lake there is a row, too, for each record of another kind, for one whose readings are all duplicates, and for
one with silent labels: its `raw` is what a replay must know of it, beside its time (rule I3):

    {"kind":"announced","sources":["m7"],"over":true}
    {"kind":"publications","labels":[[digest, label], ...]}
    {"kind":"tick"}
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

import orjson
import pyarrow as pa

from ..cells import cell_at
from ..names import UNIT_SUFFIX
from ..records import Announced, Publications, Record, RecordError, Run, kind_of
from ..records import decode as decode_record
from .row_groups import Group, groups_of, rows_of
from .schema import CELL_RESOLUTION, COLUMNS, FORMS, LABELS, LAKE, PUBLICATIONS, RECORDS

ROWS = 10_000
"""Of a batch, about."""
MAX_RAW = 16 * 1024
"""Bytes of a dead record that are kept."""
MAX_REASON = 500
MAX_CELLS = 65_536
"""Places whose cell is remembered; most sources do not move."""
_MICROSECONDS = 1_000_000

_MAPS_AT = next(place for place, field in enumerate(PUBLICATIONS) if pa.types.is_map(field.type))
"""Where the maps stand, one after the other."""


@lru_cache(MAX_CELLS)
def _cell(lat: float | None, long: float | None) -> str | None:
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
        return 1

    def _take_runs(self, record: Publications, sequence: int, arrival: float, repeated: Collection[int]) -> None:
        columns = self._columns
        start = 0
        for run in record.runs:
            places: Collection[int] = range(start, start + run.length)
            if repeated:
                places = [place for place in places if place not in repeated]
            numbers = [run.first + place - start for place in places]
            prefix = f"{run.source}:{run.boot}:"
            columns["id"] += [f"{prefix}{number}" for number in numbers]
            columns["sequence"] += numbers
            columns["log_row"] += places
            self._fill(run, len(numbers))
            start += run.length
        count = start - len(repeated)
        for name, value in (
            ("tenant", record.tenant),
            ("received", _micros(record.received)),
            ("log_time", _micros(arrival)),
            ("arrival", arrival),
            ("log_seq", sequence),
        ):
            columns[name] += repeat(value, count)

    def _fill(self, run: Run, count: int) -> None:
        values = (("source", run.source), ("boot", run.boot), ("client", run.client), ("epoch", run.epoch))
        for name, value in values:
            self._columns[name] += repeat(value, count)

    def _take_group(self, group: Group) -> None:
        columns, count = self._columns, group.size
        nothing = (None,) * count
        for name in COLUMNS:
            columns[name] += group.fixed.get(name, nothing)
        columns["cell"] += map(_cell, group.fixed.get("lat", nothing), group.fixed.get("long", nothing))
        numbers, texts, flags, units = self._maps
        numbers.put(group.numbers, count)
        texts.put(group.texts, count)
        flags.put(group.flags, count)
        units.put(
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
        known |= {"log_seq": sequence, "arrival": arrival, "log_time": _micros(arrival)}
        self._fill_up()
        for name, column in self._columns.items():
            column.append(known.get(name))
        for each in self._maps:
            each.put({}, 1)

    def _fill_up(self) -> None:
        """Publications have no reason, and mostly no labels."""
        for name in (LABELS, "reason", "raw"):
            if name in self._columns:
                self._columns[name] += repeat(None, self.rows - len(self._columns[name]))

    # ---- giving

    @property
    def rows(self) -> int:
        """How many wait to be given."""
        return len(self._columns["log_seq"])

    def give(self) -> Iterator[pa.RecordBatch]:
        """All that was taken since the last time: a batch, or none."""
        if not self.rows:
            return
        self._fill_up()
        arrays = [_array(column, self.schema.field(name).type) for name, column in self._columns.items()]
        if self.schema is not RECORDS:
            arrays[_MAPS_AT:_MAPS_AT] = [each.array() for each in self._maps]
        self._clear()
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _clear(self) -> None:
        self._columns = {field.name: [] for field in self.schema if not pa.types.is_map(field.type)}
        self._maps = tuple(_Map(field.type) for field in self.schema if pa.types.is_map(field.type))


class _Map:
    """A column of maps in the making."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._keys: list[str] = []
        self._items: list[Any] = []
        self._offsets = [0]

    def put(self, columns: Mapping[str, Sequence[Any]], count: int) -> None:
        """So many rows, each with an entry of every column."""
        start, width = len(self._keys), len(columns)
        self._keys += tuple(columns) * count
        self._items += chain.from_iterable(zip(*columns.values(), strict=True))
        if width:
            self._offsets += range(start + width, start + width * count + 1, width)
        else:
            self._offsets += repeat(start, count)

    def array(self) -> pa.Array:
        """All rows."""
        keys = pa.array(self._keys, pa.string())
        items = _array(self._items, self._kind.item_type)
        return pa.MapArray.from_arrays(pa.array(self._offsets, pa.int32()), keys, items)


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
