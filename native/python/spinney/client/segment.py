"""One file of an outbox on disk: appended to, read back, and cut where it is damaged.

    magic, then records: length (4 bytes, big-endian), CRC-32 of the body (4 bytes), body

A body is one letter and what follows: `P` place, boot, sequence (8 bytes each), length of the source (2 bytes), the
source, the publication; `L` and places that have left, as pairs of first and last (8 bytes each); `S` and keys with
values: length of the key (2 bytes), of the value (8 bytes, -1 for none), both; or `T` and records that come together.
Of what comes together and is too much for one body, all but the last are `C`: nothing of it counts before its `T`.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ..identity import PublicationId
from .errors import OutboxFailed
from .outbox import Entry

MAGIC: Final = b"SPNYOUT1"
MAX_BODY: Final = 16 << 20
"""What comes together is split into bodies of at most this size. A longer one is read all the same, if it is whole."""

_HEAD = struct.Struct(">II")
_PUBLICATION = struct.Struct(">cQQQH")
_PAIR = struct.Struct(">QQ")
_KEY = struct.Struct(">Hq")
_NO_VALUE: Final = -1


class Left(NamedTuple):
    """These have left the outbox: places from first to last, in pairs."""

    places: tuple[tuple[int, int], ...]


class State(NamedTuple):
    """These keys have these values now; None takes one away."""

    values: dict[str, bytes | None]


Record = Entry | Left | State


class Content(NamedTuple):
    """What a file holds."""

    records: list[Record]
    good_bytes: int
    """Up to here it is whole."""
    bad_bytes: int
    """What comes after that."""
    torn: bool = False
    """It is the beginning of a record, as a kill in the middle of a write leaves it."""


def encode_publication(entry: Entry) -> bytes:
    """The record that keeps an entry."""
    source = entry.id.source.encode()
    head = _PUBLICATION.pack(b"P", entry.place, entry.id.boot, entry.id.sequence, len(source))
    return _record(head + source + entry.data)


def encode_left(places: Iterable[int]) -> bytes:
    """The record that says that these have left."""
    return _record(b"L" + b"".join(_PAIR.pack(first, last) for first, last in ranges(places)))


def encode_state(values: Mapping[str, bytes | None]) -> bytes:
    """The record that sets these keys."""
    parts = [b"S"]
    for key, value in values.items():
        name = key.encode()
        parts += (_KEY.pack(len(name), _NO_VALUE if value is None else len(value)), name, value or b"")
    return _record(b"".join(parts))


def encode_transaction(records: Iterable[bytes]) -> bytes:
    """What holds encoded records: all of them are there, or none."""
    parts: list[list[bytes]] = [[]]
    size = 1
    for record in records:
        if size + len(record) > MAX_BODY and parts[-1]:
            parts.append([])
            size = 1
        parts[-1].append(record)
        size += len(record)
    *begun, last = (b"".join(part) for part in parts)
    return b"".join((*(_record(b"C" + part) for part in begun), _record(b"T" + last)))


def ranges(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as pairs of first and last of each run."""
    first = last = -1
    for place in sorted(places):
        if place != last + 1 or first < 0:
            if first >= 0:
                yield first, last
            first = place
        last = place
    if first >= 0:
        yield first, last


def _record(body: bytes) -> bytes:
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def read(data: bytes) -> Content:
    """Everything up to the end, or to the first damage."""
    if data[: len(MAGIC)] != MAGIC:
        return Content([], 0, len(data))
    records, good, at = _records(data, len(MAGIC))
    return Content(records, good, len(data) - good, good < len(data) and _is_torn(data, at))


def _is_torn(data: bytes, at: int) -> bool:
    rest = len(data) - at
    return rest < _HEAD.size or rest - _HEAD.size < _HEAD.unpack_from(data, at)[0] <= MAX_BODY


def _records(data: bytes, at: int) -> tuple[list[Record], int, int]:
    """Those from here on, where they end, and where reading did: behind what has begun and is not finished."""
    records: list[Record] = []
    begun: list[Record] = []
    good = at
    while (body := _body(data, at)) is not None:
        found = _decode(body)
        if found is None:
            break
        begun += found
        at += _HEAD.size + len(body)
        if body[:1] != b"C":
            records += begun
            begun, good = [], at
    return records, good, at


def _body(data: bytes, at: int) -> bytes | None:
    """The body of the record that begins there; None for none, or damage."""
    if at + _HEAD.size > len(data):
        return None
    length, crc = _HEAD.unpack_from(data, at)
    body = data[at + _HEAD.size : at + _HEAD.size + length]
    return body if 0 < length == len(body) and zlib.crc32(body) == crc else None


def _decode(body: bytes) -> Sequence[Record] | None:
    match body[:1]:
        case b"L" if len(body) % _PAIR.size == 1:
            return (Left(tuple(_PAIR.iter_unpack(body[1:]))),)
        case b"P" if len(body) >= _PUBLICATION.size:
            return _publication(body)
        case b"S":
            return _state(body)
        case b"T" | b"C":
            records, end, _ = _records(body, 1)
            return records if end == len(body) else None
    return None


def _publication(body: bytes) -> Sequence[Record] | None:
    _, place, boot, sequence, length = _PUBLICATION.unpack_from(body)
    source_end = _PUBLICATION.size + length
    if source_end > len(body):
        return None
    source = body[_PUBLICATION.size : source_end].decode("utf-8", "replace")
    return (Entry(place, PublicationId(source, boot, sequence), body[source_end:]),)


def _state(body: bytes) -> Sequence[Record] | None:
    values: dict[str, bytes | None] = {}
    at = 1
    while at + _KEY.size <= len(body):
        name_length, length = _KEY.unpack_from(body, at)
        at += _KEY.size
        end = at + name_length + max(length, 0)
        if end > len(body):
            return None
        name = body[at : at + name_length].decode("utf-8", "replace")
        values[name] = None if length == _NO_VALUE else body[at + name_length : end]
        at = end
    return (State(values),) if at == len(body) else None


class Segment:
    """A file that is open for appending."""

    def __init__(self, path: Path, size: int) -> None:
        """Cut it to `size` first; 0 makes it anew."""
        self.path = path
        self.size = size
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(self._file, size)
            os.lseek(self._file, size, os.SEEK_SET)
            if size == 0:
                self.append([MAGIC])
        except (OSError, OutboxFailed):
            os.close(self._file)
            raise

    def append(self, records: Sequence[bytes]) -> None:
        """Hand them to the operating system, all or none: after this only a power cut can lose them."""
        data = b"".join(records)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise OutboxFailed(self.path, error.strerror or str(error)) from error
        self.size += len(data)

    def same_file(self) -> int:
        """A descriptor of its own to fsync, for the caller to close."""
        return os.dup(self._file)

    def sync(self) -> None:
        """Onto the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        """Once."""
        os.close(self._file)
