"""Rows of JSON as the buffers of Arrow columns, by the C core: marshalling."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

from .native import Core
from .reader import raise_error

MAPS = ("numbers", "texts", "flags", "units")
"""The columns of maps, in the order of the core's enumeration."""
_FIXED = {"id": "id", "time": "time", "lat": "latitude", "long": "longitude", "type": "type"}
"""Columns, and what the core calls them."""


class ColumnsFull(Exception):
    """More than one batch holds: give what there is, forget it, and take this again."""


IdRun = tuple[bytes, int, int]
"""Rows whose ids are a prefix and a number that goes up by one: the prefix, the first number, how many."""


class Column(NamedTuple):
    """Buffers as Arrow has them; None: the column's type has none, or nothing is null."""

    valid: bytes | None
    offsets: bytes | None
    data: bytes


class MapColumn(NamedTuple):
    """Offsets of rows into the entries."""

    offsets: bytes
    entries: int
    keys: Column
    items: Column


class Columns:
    """Owns a spinney_columns; for one thread."""

    def __init__(self, core: Core, most_bytes: int) -> None:
        self._ffi, self._lib = core
        self._error = self._ffi.new("spinney_error *")
        self._found = self._ffi.new("spinney_rows *")
        made = self._ffi.new("spinney_columns **")
        self._columns = self._ffi.NULL
        self._check(self._lib.spinney_columns_new(self._ffi.NULL, most_bytes, made, self._error))
        self._columns = made[0]

    def __del__(self) -> None:
        self._lib.spinney_columns_free(self._columns)

    def _check(self, status: int) -> None:
        if status:
            if status == self._lib.SPINNEY_FULL:
                raise ColumnsFull(self._ffi.string(self._error.message).decode())
            raise_error(self._ffi, self._lib, self._error)

    def take(self, json: bytes, runs: Iterable[IdRun], left_out: Iterable[int] = ()) -> None:
        """The rows of a record; PublicationError or ColumnsFull, and then nothing of it is taken."""
        from_buffer = self._ffi.from_buffer
        prefixes: list[bytes] = []
        flat: list[int] = []
        for prefix, first, rows in runs:
            prefixes.append(prefix)
            flat += (len(prefix), first, rows)
        places = sorted(left_out)
        self._check(
            self._lib.spinney_columns_take(
                self._columns,
                json,
                len(json),
                b"".join(prefixes),
                from_buffer("spinney_id_run[]", array("Q", flat)),
                len(prefixes),
                from_buffer("uint64_t[]", array("Q", places)),
                len(places),
                self._error,
            )
        )

    def skip(self, rows: int) -> None:
        """So many rows that have nothing."""
        self._check(self._lib.spinney_columns_skip(self._columns, rows, self._error))

    @property
    def rows(self) -> int:
        """How many there are."""
        return int(self._lib.spinney_columns_rows(self._columns))

    def keep(self, rows: int) -> None:
        """Forgets all rows but the first so many."""
        self._lib.spinney_columns_keep(self._columns, rows)

    def give(self) -> tuple[dict[str, Column], dict[str, MapColumn]]:
        """The columns of all rows: plain ones, and maps."""
        found = self._found
        self._lib.spinney_columns_give(self._columns, found)
        fixed = {name: self._column(getattr(found, member)) for name, member in _FIXED.items()}
        maps = {name: self._map(found.maps[place]) for place, name in enumerate(MAPS)}
        return fixed, maps

    def _map(self, found: Any) -> MapColumn:
        keys, items = self._column(found.keys), self._column(found.items)
        return MapColumn(self._bytes(found.offsets), found.entries, keys, items)

    def _column(self, found: Any) -> Column:
        valid, offsets = self._bytes(found.valid), self._bytes(found.offsets)
        return Column(valid or None, offsets or None, self._bytes(found.data))

    def _bytes(self, found: Any) -> bytes:
        return bytes(self._ffi.buffer(found.bytes, found.length)) if found.length else b""
