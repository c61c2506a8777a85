"""The matcher in C, as Matcher uses it: marshalling, and who may use which reader."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from .errors import MatcherError, PublicationError
from .expression import Filter
from .filter_bytes import FilterBytes, filter_bytes
from .matcher_stats import Stats
from .native import Core
from .reader import BadColumn, Buffer, Reader, Rows, Tags, raise_error

SIMD = ("scalar", "sse2", "avx2", "avx512", "neon")
"""The values of spinney_simd, in its order."""


class NativeMatcher:
    """Owns a spinney_matcher and its readers. add and remove are called by one thread at a time."""

    def __init__(self, core: Core, simd: str | None = None) -> None:
        self._core = core
        self._ffi, self._lib = core
        self._readers: list[Reader] = []
        self._idle: list[Reader] = []
        """A reader is taken from here and put back; so there are as many as were ever at work together."""
        self._tags = Tags(core)
        self._error = self._ffi.new("spinney_error *")
        made = self._ffi.new("spinney_matcher **")
        self._matcher = self._ffi.NULL
        self._check(self._lib.spinney_matcher_new(self._ffi.NULL, made, self._error))
        self._matcher = made[0]
        if simd is not None:
            self._check(self._lib.spinney_matcher_use(self._matcher, SIMD.index(simd), self._error))

    def __del__(self) -> None:
        for reader in self._readers:
            reader.close()
        self._lib.spinney_matcher_free(self._matcher)

    def _check(self, status: int) -> None:
        if status:
            raise_error(self._ffi, self._lib, self._error)

    # ---- filters

    @staticmethod
    def prepare(condition: Filter) -> FilterBytes:
        """What add takes."""
        return filter_bytes(condition)

    def add(self, number: int, prepared: FilterBytes) -> None:
        """Adds a filter; readers see it at once."""
        data = prepared.data
        self._check(self._lib.spinney_add(self._matcher, number, data, len(data), self._error))
        for name in prepared.names:
            if name not in self._tags.numbers:
                self._tags.add(name, self._attribute(name.encode()))

    def _attribute(self, name: bytes) -> int:
        found = self._ffi.new("uint32_t *")
        self._check(self._lib.spinney_attribute(self._matcher, name, len(name), found, self._error))
        return int(found[0])

    def remove(self, number: int) -> None:
        """Removes a filter."""
        self._check(self._lib.spinney_remove(self._matcher, number, self._error))

    def stats(self) -> Stats:
        """Counts."""
        stats = self._ffi.new("spinney_stats *")
        self._lib.spinney_matcher_stats(self._matcher, stats)
        return Stats(stats.ids, stats.entries, stats.indexed, stats.scanned, stats.attributes, stats.bytes)

    # ---- matching

    def _take(self) -> Reader:
        try:
            return self._idle.pop()
        except IndexError:
            reader = Reader(self._core, self._matcher, self._tags)
            self._readers.append(reader)
            return reader

    def match(self, publication: Mapping[str, Any]) -> list[int]:
        """The numbers of the filters that are true of it."""
        reader = self._take()
        try:
            return reader.match(publication)
        finally:
            self._idle.append(reader)

    def match_json(self, json: Buffer) -> list[list[int]]:
        """The same for each object."""
        reader = self._take()
        try:
            return reader.match_json(json)
        finally:
            self._idle.append(reader)

    def match_rows(self, json: Buffer) -> Rows[int]:
        """The same for each object that matches anything."""
        reader = self._take()
        try:
            return reader.match_rows(json)
        finally:
            self._idle.append(reader)

    def match_batch(self, batch: Any) -> tuple[bytes, bytes]:
        """The same for each row of a batch: where each row's numbers begin, and the numbers (64 and 32 bits each)."""
        schema, array = batch.__arrow_c_array__()
        reader = self._take()
        try:
            return reader.match_arrow(_address(schema, b"arrow_schema"), _address(array, b"arrow_array"))
        except BadColumn as error:
            names = batch.schema.names
            name = names[error.column] if error.column < len(names) else None
            raise PublicationError(str(error), attribute=name) from None
        finally:
            self._idle.append(reader)


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _address(capsule: object, name: bytes) -> int:
    address = _capsule_pointer(capsule, name)
    if address is None:
        raise MatcherError(f"an Arrow array without its {name.decode()}")
    return int(address)
