"""The attributes of rows as Arrow columns: by the C core, or in Python, which is what the core is held against."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, count, repeat
from typing import Any, Protocol

import numpy as np
import orjson
import pyarrow as pa

from spinney import PublicationError, native
from spinney.columns import MAPS, Column, Columns, IdRun, MapColumn

from ..names import UNIT_SUFFIX
from ..records import Publications, RecordError, Run
from .row_groups import Group, groups_of, parsed_rows
from .schema import COLUMNS, PUBLICATIONS

GATHERED = frozenset({"id", *COLUMNS, *MAPS})
"""The columns that are made here."""
MAX_COLUMN_BYTES = 1 << 30
"""Of texts in one column; Arrow's own bound is twice that."""


class RowColumns(Protocol):
    """Gathers the rows of records, in order."""

    def take(self, record: Publications, repeated: Collection[int], before: int) -> None:
        """A record's rows without the duplicates, below so many rows of nothing. Its header has been checked.

        RecordError if a row is no publication, ColumnsFull if there is too much for one batch: then nothing is taken.
        """

    def skip(self, rows: int) -> None:
        """So many rows of nothing."""

    def arrays(self) -> dict[str, pa.Array]:
        """The columns, by name."""
        ...

    def clear(self) -> None:
        """Forgets all rows."""


def row_columns() -> RowColumns:
    """In C where the core is there."""
    core = native.core()
    return PythonRows() if core is None else CoreRows(core)


# ---- in C


class CoreRows:
    """What the core refuses is looked at in Python, which says why, or writes it so that the core takes it."""

    def __init__(self, core: native.Core, most_bytes: int = MAX_COLUMN_BYTES) -> None:
        self._columns = Columns(core, most_bytes)

    def take(self, record: Publications, repeated: Collection[int], before: int) -> None:
        runs = [(f"{run.source}:{run.boot}:".encode(), run.first, run.length) for run in record.runs]
        rows = self._columns.rows
        self.skip(before)
        try:
            self._take(record, runs, repeated)
        except Exception:
            self._columns.keep(rows)
            raise

    def _take(self, record: Publications, runs: Sequence[IdRun], repeated: Collection[int]) -> None:
        try:
            self._columns.take(record.rows, runs, repeated)
        except PublicationError:
            rows = parsed_rows(record)
            groups_of(rows)
            self._take_plain(orjson.dumps(rows), runs, repeated)

    def _take_plain(self, json: bytes, runs: Sequence[IdRun], repeated: Collection[int]) -> None:
        """As Python writes it: a key that was there twice no longer is."""
        try:
            self._columns.take(json, runs, repeated)
        except PublicationError as error:
            raise RecordError(f"damaged rows: {error}") from error

    def skip(self, rows: int) -> None:
        self._columns.skip(rows)

    def arrays(self) -> dict[str, pa.Array]:
        fixed, maps = self._columns.give()
        count = self._columns.rows
        return {name: _plain(PUBLICATIONS.field(name).type, each, count) for name, each in fixed.items()} | {
            name: _map(PUBLICATIONS.field(name).type, each) for name, each in maps.items()
        }

    def clear(self) -> None:
        self._columns.keep(0)


def _plain(kind: pa.DataType, column: Column, count: int) -> pa.Array:
    buffers = [column.valid, column.offsets, column.data] if pa.types.is_string(kind) else [column.valid, column.data]
    return pa.Array.from_buffers(kind, count, [None if each is None else pa.py_buffer(each) for each in buffers])


def _map(kind: pa.MapType, column: MapColumn) -> pa.Array:
    offsets = np.frombuffer(column.offsets, np.int32)
    keys = _plain(kind.key_type, column.keys, column.entries)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, _plain(kind.item_type, column.items, column.entries))


# ---- in Python


class PythonRows:
    """Columns of groups of rows that are alike."""

    def __init__(self) -> None:
        self.clear()

    def take(self, record: Publications, repeated: Collection[int], before: int) -> None:
        rows = parsed_rows(record)
        groups = groups_of(rows)
        if repeated:
            groups = groups_of([row for place, row in enumerate(rows) if place not in repeated])
        self.skip(before)
        self._columns["id"] += _ids(record.runs, repeated)
        for group in groups:
            self._take_group(group)

    def skip(self, rows: int) -> None:
        for column in self._columns.values():
            column += repeat(None, rows)
        for each in self._maps.values():
            each.put({}, rows)

    def arrays(self) -> dict[str, pa.Array]:
        fixed = {name: _array(column, PUBLICATIONS.field(name).type) for name, column in self._columns.items()}
        return fixed | {name: each.array() for name, each in self._maps.items()}

    def clear(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in ("id", *COLUMNS)}
        self._maps = {name: _Map(PUBLICATIONS.field(name).type) for name in MAPS}

    def _take_group(self, group: Group) -> None:
        columns, count = self._columns, group.size
        nothing = (None,) * count
        for name in COLUMNS:
            columns[name] += group.fixed.get(name, nothing)
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


def _ids(runs: Sequence[Run], repeated: Collection[int]) -> Iterator[str]:
    places = count()
    for run in runs:
        prefix = f"{run.source}:{run.boot}:"
        for number in range(run.first, run.first + run.length):
            if next(places) not in repeated:
                yield f"{prefix}{number}"


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
