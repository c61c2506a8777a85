"""The matcher's own record of the subscriptions as they were at any of its snapshots: a file that only grows.

The bucket has them as they are now. Replay from a snapshot needs them as they were then: one that has ended or changed
since is in the bucket no more, and what it was owed meanwhile would be lost. So each change is one line here, when it
is matched, and a snapshot says how much of which file is its own. Nothing of it is in memory.

    {"at":17,"key":"0703.default.ana.air","value":{...}}
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson

MIN_DEAD = 200_000
"""Lines that no longer count and are not worth a new file."""

_SUFFIX = ".journal"
_PREFIX = "subscriptions-"
"""Sorts after the snapshots: who copies the folder in that order has of each journal at least what they need."""


class JournalDamaged(Exception):
    """A file that is not as it was when the snapshot was taken."""


class Journal:
    """One file, open for appending."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f"{_PREFIX}none{_SUFFIX}"
        self._file: IO[bytes] | None = None
        self._length = self._checksum = 0
        self._live = self._dead = 0
        """Subscriptions when the file was begun or resumed, and at most so many lines that no longer count."""

    def begin(self, entries: Mapping[str, Mapping[str, Any]], at: int) -> None:
        """A new file with these subscriptions."""
        self.close()
        numbers = [int(path.stem.removeprefix(_PREFIX)) for path in self._folder.glob(f"{_PREFIX}*{_SUFFIX}")]
        self._path = self._folder / f"{_PREFIX}{1 + max(numbers, default=0):012d}{_SUFFIX}"
        self._file = self._path.open("wb")
        self._length = self._checksum = 0
        for key, value in entries.items():
            self.append(at, key, value)
        self._live, self._dead = len(entries), 0

    def append(self, at: int, key: str, value: Mapping[str, Any] | None) -> None:
        """A change that the record at this sequence brought."""
        assert self._file is not None
        line = orjson.dumps({"at": at, "key": key, "value": None if value is None else dict(value)}) + b"\n"
        self._file.write(line)
        self._length += len(line)
        self._checksum = zlib.crc32(line, self._checksum)
        self._dead += 1

    @property
    def is_long(self) -> bool:
        """Whether a new file may be much shorter."""
        return self._dead > max(self._live, MIN_DEAD)

    def rewrite(self, at: int) -> None:
        """Go on in a new file that has only what counts."""
        place = self.place()
        self.begin(read(self._folder, place), at)

    def place(self) -> dict[str, Any]:
        """What a snapshot must know, now that all so far is with the operating system."""
        assert self._file is not None
        self._file.flush()
        return {"file": self._path.name, "length": self._length, "checksum": self._checksum}

    def sync(self) -> None:
        """See to it that a power cut does not take what `place` has promised."""
        assert self._file is not None
        os.fsync(self._file.fileno())

    def resume(self, place: Mapping[str, Any]) -> Live:
        """Go on from a snapshot's place: what comes after it is cut off, since it is read from the log again."""
        self.close()
        live = read(self._folder, place)
        self._path = self._folder / place["file"]
        os.truncate(self._path, place["length"])
        self._file = self._path.open("ab")
        self._length, self._checksum = place["length"], place["checksum"]
        self._live, self._dead = len(live), live.lines - len(live)
        return live

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give it up."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove_others(self, needed: set[str]) -> None:
        """Remove the files that no snapshot needs."""
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path != self._path and path.name not in needed:
                path.unlink(missing_ok=True)


class Live(Mapping[str, dict[str, Any]]):
    """The subscriptions that a journal's bytes say there are. Each is read when it is asked for: all would be much."""

    def __init__(self, data: bytes) -> None:
        self.lines = 0
        self._data = data
        self._starts: dict[str, int] = {}
        """Of the line that says what a key is now."""
        start = 0
        while start < len(data):
            end = data.index(b"\n", start)
            item = orjson.loads(data[start:end])
            if item["value"] is None:
                self._starts.pop(item["key"], None)
            else:
                self._starts[item["key"]] = start
            start = end + 1
            self.lines += 1

    def __getitem__(self, key: str) -> dict[str, Any]:
        start = self._starts[key]
        value: dict[str, Any] = orjson.loads(self._data[start : self._data.index(b"\n", start)])["value"]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._starts)

    def __len__(self) -> int:
        return len(self._starts)


def read(folder: Path, place: Mapping[str, Any]) -> Live:
    """The subscriptions that there were at a snapshot's place, by key."""
    path = folder / Path(place["file"]).name
    try:
        with path.open("rb") as file:
            data = file.read(place["length"])
    except OSError as error:
        raise JournalDamaged(f"{path}: {error.strerror}") from error
    if (len(data), zlib.crc32(data)) != (place["length"], place["checksum"]):
        raise JournalDamaged(f"{path}: {len(data)} bytes that are not those of the snapshot")
    return Live(data)
