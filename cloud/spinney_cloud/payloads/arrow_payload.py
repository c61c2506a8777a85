"""Arrow IPC streams: columns are attributes, and so are the entries of maps. Needs pyarrow.

Dictionaries are looked up, nulls are missing, timestamps become epoch seconds. Compressed streams and anything nested
are refused as a whole; a row with a value that no publication may have, such as NaN, is refused alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from . import arrow_frame
from .batch import Batch, PayloadError, Refusal

MAX_CELLS = 500_000
"""Rows by columns of one payload."""
MAX_TEXT = 16 * 1024 * 1024
"""Characters of all its texts, a dictionary's counted each time that they are used."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def preload() -> bool:
    """Import pyarrow now, which takes a while, rather than at the first payload; whether it is there."""
    try:
        importlib.import_module("pyarrow.ipc")
    except ImportError:
        return False
    return True


def read_arrow(payload: bytes) -> Batch:
    """The rows of a stream; PayloadError if nothing of it can be used."""
    if not preload():
        raise PayloadError("an Arrow stream, and pyarrow is not there: install spinney[arrow]")
    _check_frame(payload)
    import pyarrow as pa

    try:
        table = pa.ipc.open_stream(payload).read_all()
        table.validate(full=True)
        return _rows(table)
    except PayloadError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise PayloadError(f"Arrow: {str(error)[:200]}") from None


def _check_frame(payload: bytes) -> None:
    rows = 0
    try:
        for claimed, compressed in arrow_frame.batches(payload):
            if compressed:
                raise PayloadError("Arrow: send it without compression")
            if claimed < 0:
                raise PayloadError("Arrow: a batch of fewer than no rows")
            rows += claimed
            if rows > MAX_CELLS:
                raise PayloadError(f"Arrow: more than {MAX_CELLS} rows")
    except arrow_frame.FrameError as error:
        raise PayloadError(f"Arrow: {error}") from None


def _rows(table: Any) -> Batch:
    if table.num_rows * max(1, table.num_columns) > MAX_CELLS:
        raise PayloadError(f"Arrow: {table.num_rows} rows of {table.num_columns} columns; {MAX_CELLS} cells are most")
    names = [name for name, column in zip(table.column_names, table.columns, strict=True) if not _is_map(column)]
    if len(set(names)) < len(names):
        raise PayloadError("Arrow: two columns of one name")
    budget = _Budget()
    columns = [(name, _values(name, column, budget)) for name, column in zip(names, _plain(table), strict=True)]
    rows: list[dict[str, Any]] = [{} for _ in range(table.num_rows)]
    for name, values in columns:
        for row, value in zip(rows, values, strict=True):
            if value is not None:
                row[name] = value
    return _with_maps(table, rows, budget)


class _Budget:
    """What is left of MAX_TEXT."""

    def __init__(self) -> None:
        self.left = MAX_TEXT

    def spend(self, value: Any) -> Any:
        """The value, if its text still fits."""
        if isinstance(value, str):
            self.left -= len(value)
            if self.left < 0:
                raise PayloadError(f"Arrow: texts of more than {MAX_TEXT} characters")
        return value


def _is_map(column: Any) -> bool:
    from pyarrow import types

    return bool(types.is_map(column.type))


def _plain(table: Any) -> list[Any]:
    return [column for column in table.columns if not _is_map(column)]


def _values(name: str, column: Any, budget: _Budget) -> list[Any]:
    return [value for chunk in column.chunks for value in _chunk(name, chunk, budget)]


def _chunk(name: str, array: Any, budget: _Budget) -> Iterator[Any]:
    """Python's values of an array of one of the types that are understood."""
    import pyarrow as pa
    from pyarrow import types

    kind = array.type
    if types.is_dictionary(kind):
        known = list(_chunk(name, array.dictionary, _Budget()))
        return (None if at is None else budget.spend(known[at]) for at in array.indices.to_pylist())
    if types.is_timestamp(kind):
        scale = _PER_SECOND[kind.unit]
        return (None if ticks is None else ticks / scale for ticks in array.cast(pa.int64()).to_pylist())
    if types.is_float16(kind):
        return iter(array.cast(pa.float32()).to_pylist())
    if types.is_string(kind) or types.is_large_string(kind):
        return map(budget.spend, array.to_pylist())
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind):
        return iter(array.to_pylist())
    raise PayloadError(f'Arrow: column "{name[:60]}": {kind} is no number, text, boolean, timestamp, dictionary or map')


def _with_maps(table: Any, rows: list[dict[str, Any]], budget: _Budget) -> Batch:
    refused: dict[int, str] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if _is_map(column):
            for place, entries in enumerate(_entries(name, column, budget)):
                for key, value in entries:
                    if key in rows[place]:
                        refused.setdefault(place, f"{key[:60]!r} is there twice")
                    if value is not None:
                        rows[place][key] = value
    places = [place for place in range(len(rows)) if place not in refused]
    refusals = [Refusal(place, None, reason, "row") for place, reason in sorted(refused.items())]
    return Batch([rows[place] for place in places], places, refusals=refusals)


def _entries(name: str, column: Any, budget: _Budget) -> Iterator[list[tuple[str, Any]]]:
    """Of each row, what its map holds."""
    for chunk in column.chunks:
        if len(chunk.keys) > MAX_CELLS:
            raise PayloadError(f"Arrow: maps of more than {MAX_CELLS} entries")
        keys = list(_chunk(name, chunk.keys, budget))
        if not all(isinstance(key, str) for key in keys):
            raise PayloadError(f'Arrow: column "{name[:60]}": the keys of a map must be texts')
        items = list(_chunk(name, chunk.items, budget))
        pairs = list(zip(keys, items, strict=True))
        offsets = chunk.offsets.to_pylist()
        for place in range(len(chunk)):
            yield pairs[offsets[place] : offsets[place + 1]] if chunk[place].is_valid else []
