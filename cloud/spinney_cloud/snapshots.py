"""Snapshots of the matcher: files in the data directory that survive being killed at any instant.

A file is a line and the rest. The line has its own checksum, and then in JSON format and version, what it is a snapshot
of, and length and checksum of the rest, which is JSON, too. A file is written beside its place and renamed into it when
it is whole; the ones before are kept, for when it is damaged.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

FORMAT = "spinney snapshot"
VERSION = 1

_SUFFIX = ".snapshot"
_PART = ".part"
_DAMAGED = ".damaged"


class SnapshotDamaged(Exception):
    """A file that cannot be used: cut short, altered, or of a newer version."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a snapshot is of."""

    sequence: int
    """Of the last record of the log that is in it."""
    record_time: float
    """That record's time in the log: another record may have its sequence after a power cut. 0 before the first."""
    taken: float
    """By the clock, for people to read."""
    journal: str = ""
    """The file of the journal that it needs."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that has been read."""

    path: Path
    moment: Moment
    state: dict[str, Any]


class Snapshots:
    """The files of one folder."""

    def __init__(self, folder: Path, kept: int) -> None:
        self.folder = folder
        self._kept = kept
        self._writer = os.getpid()
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(f"*{_PART}"):
            part.unlink(missing_ok=True)

    def newest_first(self) -> list[Path]:
        """All that are whole by their names."""
        return sorted(self.folder.glob(f"*{_SUFFIX}"), reverse=True)

    def write(self, moment: Moment, state: Mapping[str, Any]) -> Path:
        """A file that is whole and on the disk, but not yet among the others: see `publish`."""
        body = orjson.dumps(state, default=tuple)
        header = {
            "format": FORMAT,
            "version": VERSION,
            **asdict(moment),
            "length": len(body),
            "checksum": zlib.crc32(body),
        }
        part = self.part_of(moment.sequence)
        with part.open("wb") as file:
            file.write(_line(orjson.dumps(header)))
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        return part

    def publish(self, part: Path) -> Path:
        """Put a written file among the others; the oldest go."""
        path = part.with_name(part.name.partition(_SUFFIX)[0] + _SUFFIX)
        part.replace(path)
        _sync_folder(self.folder)
        for old in self.newest_first()[self._kept :]:
            old.unlink(missing_ok=True)
        return path

    def part_of(self, sequence: int) -> Path:
        """Where `write` puts a snapshot. A copy that outlives its process writes to a place of its own."""
        return self.folder / f"{sequence:020d}{_SUFFIX}.{self._writer}{_PART}"

    def read(self, path: Path) -> Snapshot:
        """A file's content; SnapshotDamaged if it is not what was written."""
        moment, body = _split(path)
        try:
            return Snapshot(path, moment, orjson.loads(body))
        except ValueError as error:
            raise SnapshotDamaged(f"{path}: {error}") from error

    def moments(self) -> list[Moment]:
        """Of those whose first line can be read, the newest first."""
        found = []
        for path in self.newest_first():
            try:
                with path.open("rb") as file:
                    found.append(_moment(_header(path, file.readline())))
            except (SnapshotDamaged, OSError):
                continue
        return found

    def set_aside(self, path: Path) -> None:
        """Keep a damaged file for people to look at, out of the way; only the last one."""
        for old in self.folder.glob(f"*{_DAMAGED}"):
            old.unlink(missing_ok=True)
        path.replace(path.with_name(path.name + _DAMAGED))

    def remove(self, path: Path) -> None:
        """Of a log that is no more."""
        path.unlink(missing_ok=True)


def _split(path: Path) -> tuple[Moment, bytes]:
    data = path.read_bytes()
    line, _, body = data.partition(b"\n")
    header = _header(path, line + b"\n")
    if (header["length"], header["checksum"]) != (len(body), zlib.crc32(body)):
        raise SnapshotDamaged(f"{path}: {len(body)} bytes with a checksum that is not theirs")
    return _moment(header), body


def _line(header: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(header), header)


def _header(path: Path, line: bytes) -> dict[str, Any]:
    text = line[9:-1]
    if line != _line(text):
        raise SnapshotDamaged(f"{path}: its first line is not what was written")
    header: dict[str, Any] = orjson.loads(text)
    if header["format"] != FORMAT:
        raise SnapshotDamaged(f"{path}: not a snapshot but {header['format']!r:.80}")
    if header["version"] > VERSION:
        raise SnapshotDamaged(f"{path}: of version {header['version']}; this Spinney reads up to {VERSION}")
    return header


def _moment(header: Mapping[str, Any]) -> Moment:
    return Moment(*(header[name] for name in Moment.__slots__))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
