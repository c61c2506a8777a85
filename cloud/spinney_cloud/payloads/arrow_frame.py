"""The frame of an Arrow IPC stream, looked at before pyarrow does: how many rows, and whether it is compressed.

A few bytes of a compressed stream can stand for gigabytes, and so can a column without buffers. The messages are
flatbuffers; only the few fields that tell are read. Whatever else is wrong with a stream is pyarrow's to say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_DICTIONARY_BATCH = 2
_RECORD_BATCH = 3
_CONTINUATION = 0xFFFFFFFF
_MAX_MESSAGES = 10_000


class FrameError(ValueError):
    """A stream that is cut, or whose frame makes no sense."""


def batches(stream: bytes) -> Iterator[tuple[int, bool]]:
    """Of each batch of rows, and each dictionary: how many rows it claims (a dictionary none), and if compressed."""
    try:
        yield from _batches(stream)
    except struct.error:
        raise FrameError("the stream is cut, or damaged") from None


def _batches(stream: bytes) -> Iterator[tuple[int, bool]]:
    at = 0
    for _ in range(_MAX_MESSAGES):
        if at == len(stream):
            return
        mark, size = struct.unpack_from("<Ii", stream, at)
        if mark != _CONTINUATION or size < 0:
            raise FrameError("no Arrow IPC stream of version 1.0 or later")
        if size == 0:
            return
        message = _Table(stream, at + 8 + _unsigned(stream, at + 8))
        body = message.number(3, "<q")
        if body < 0:
            raise FrameError("a message of negative length")
        kind = message.number(1, "<B")
        if kind == _RECORD_BATCH:
            batch = message.table(2)
            yield batch.number(0, "<q"), batch.has(3)
        elif kind == _DICTIONARY_BATCH:
            yield 0, message.table(2).table(1).has(3)
        at += 8 + size + body
    raise FrameError(f"more than {_MAX_MESSAGES} messages")


def _unsigned(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


class _Table:
    """A flatbuffers table."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - int(struct.unpack_from("<i", data, at)[0])
        if not 0 <= self._fields < len(data):
            raise FrameError("a table that points outside of the stream")
        self._size = int(struct.unpack_from("<H", data, self._fields)[0])

    def _where(self, field: int) -> int | None:
        place = 4 + 2 * field
        if place + 2 > self._size:
            return None
        offset = int(struct.unpack_from("<H", self._data, self._fields + place)[0])
        return self._at + offset if offset else None

    def has(self, field: int) -> bool:
        """Whether the field is there."""
        return self._where(field) is not None

    def number(self, field: int, form: str) -> int:
        """The field's value, 0 if it is not there."""
        where = self._where(field)
        return 0 if where is None else int(struct.unpack_from(form, self._data, where)[0])

    def table(self, field: int) -> _Table:
        """The table that the field points to."""
        where = self._where(field)
        if where is None:
            raise FrameError("a message without its table")
        return _Table(self._data, where + _unsigned(self._data, where))
