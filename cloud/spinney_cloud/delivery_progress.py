"""How far delivery has come in the notification log, to the single notification.

`Progress` is the pure part: which messages are open, and what of them is done. `Journal` keeps it in a file of the data
directory, written as soon as something is done, so that a killed process that starts again sends only what was not
acknowledged when it was killed. The file survives the process, not a power cut: then the position in the bucket of
readers, a tenth of a second old, says where to go on.

The file: a line of JSON that says where it begins, and entries of 16 bytes: sequence, index (or WHOLE), tag. The tag is
the message's time; if the log was cut and its numbers were given again, it differs and the entry counts for nothing.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

VERSION: Final = 1
WHOLE: Final = 0xFFFFFFFF
"""In place of an index: the whole message is done."""
MAX_JOURNAL_BYTES: Final = 256 * 1024
"""A longer file is written anew. What a restart reads again at most are the messages of one file."""

_ENTRY: Final = struct.Struct("<QII")


def tag_of(time: float) -> int:
    """What tells messages of one number apart: their time, in microseconds."""
    return round(time * 1e6) & 0xFFFFFFFF


@dataclass(eq=False, slots=True)
class _Open:
    left: int
    done: set[int]
    tag: int
    time: float
    """Of the message, in the log."""


@dataclass(slots=True)
class Resumed:
    """What a journal says: where to go on."""

    last: int = 0
    """Up to here everything is done but what is open."""
    tag: int = 0
    """Of that message; 0: unknown."""
    time: float = 0.0
    """Of that message."""
    open: dict[int, tuple[int, set[int]]] = field(default_factory=dict)
    """Sequence -> tag, and the indexes that are done."""
    later: dict[int, tuple[int, set[int]]] = field(default_factory=dict)
    """The same of messages beyond `last`, of which some or (WHOLE) all is done."""

    @property
    def newest(self) -> int:
        """The newest message that it knows of."""
        return max(self.later, default=self.last)

    def cut(self, end: int) -> None:
        """The log ends here: what is said of later messages was of a log that is no more."""
        for gone in [sequence for sequence in self.later if sequence > end]:
            del self.later[gone]

    def add(self, sequence: int, index: int, tag: int) -> None:
        """An entry of the file."""
        if sequence <= self.last:
            known = self.open.get(sequence)
            if known is None:
                return
            if index == WHOLE:
                del self.open[sequence]
            else:
                known[1].add(index)
        else:
            self.later.setdefault(sequence, (tag, set()))[1].add(index)

    def done_of(self, sequence: int, tag: int) -> set[int]:
        """Which indexes of this message are done already; WHOLE stands for all."""
        found = self.open.get(sequence) if sequence <= self.last else self.later.get(sequence)
        if sequence <= self.last and found is None:
            return {WHOLE}
        return found[1] if found is not None and found[0] == tag else set()


class Progress:
    """What is open and what is done. Messages are opened in order of their sequences."""

    def __init__(self, resumed: Resumed | None = None) -> None:
        self._resumed = resumed or Resumed()
        self._newest = self._resumed.newest
        self.last = self._resumed.last
        """The newest message that was opened."""
        self.time = self._resumed.time
        """Of that message, in the log."""
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._entries = bytearray()

    @property
    def floor(self) -> int:
        """Everything up to here is done."""
        return next(iter(self._open)) - 1 if self._open else self.last

    @property
    def oldest(self) -> float | None:
        """When the oldest message came that is not wholly done; None if all are that were read."""
        return next(iter(self._open.values())).time if self._open else None

    @property
    def open(self) -> int:
        """How many messages are not wholly done."""
        return len(self._open)

    def begin(self, sequence: int, count: int, time: float) -> set[int]:
        """A message of so many notifications is read, for the first time in this run: which are done already."""
        tag = tag_of(time)
        done = self._resumed.done_of(sequence, tag)
        self._resumed.open.pop(sequence, None)
        if sequence > self.last:
            self.last, self.time = sequence, time
        if WHOLE in done or len(done) >= count:
            return set(range(count))
        self._open[sequence] = _Open(count - len(done), done, tag, time)
        return set(done)

    def done(self, places: Iterable[tuple[int, int]]) -> None:
        """These are acknowledged or dropped. Twice the same is once."""
        for sequence, index in places:
            message = self._open.get(sequence)
            if message is None or index in message.done:
                continue
            message.left -= 1
            if message.left:
                message.done.add(index)
                self._entries += _ENTRY.pack(sequence, index, message.tag)
            else:
                del self._open[sequence]
                self._entries += _ENTRY.pack(sequence, WHOLE, message.tag)

    def gone(self, sequences: Iterable[int]) -> None:
        """These were open and are no longer in the log."""
        for sequence in sequences:
            self._resumed.open.pop(sequence, None)

    def take_entries(self) -> bytes:
        """What has been done since the last call, as the journal writes it."""
        entries = bytes(self._entries)
        self._entries.clear()
        return entries

    def header(self) -> bytes:
        """All of it, as a journal begins. What was resumed and not read again yet is not in it."""
        return orjson.dumps(
            {
                "v": VERSION,
                "last": self.last,
                "tag": tag_of(self.time),
                "time": self.time,
                "open": [[sequence, one.tag, sorted(one.done)] for sequence, one in self._open.items()],
            }
        )

    def settled(self) -> bool:
        """Whether all that was resumed has been read again, so that a journal may begin anew."""
        return not self._resumed.open and self.last >= self._newest


class Journal:
    """The file. Entries are handed to the system at once; nothing is synced (see above)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._size = 0

    def go_on(self) -> None:
        """Append to the file that `read` has read."""
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        size = self.path.stat().st_size
        head = self.path.read_bytes().index(b"\n") + 1
        self._size = size - (size - head) % _ENTRY.size
        os.ftruncate(self._file, self._size)

    def read(self) -> Resumed | None:
        """What it says; None if there is none, or none that can be read."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        head, _, entries = data.partition(b"\n")
        try:
            item = orjson.loads(head)
            if item["v"] > VERSION:
                return None
            resumed = Resumed(item["last"], item["tag"], item["time"])
            resumed.open = {sequence: (tag, set(done)) for sequence, tag, done in item["open"]}
        except (ValueError, KeyError, TypeError):
            return None
        for entry in _entries(entries):
            resumed.add(*entry)
        return resumed

    def begin(self, header: bytes) -> None:
        """Write it anew: the header, and no entries."""
        part = self.path.with_suffix(".part")
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._size = write_all(file, header + b"\n")
        part.replace(self.path)
        self.close()
        self._file = file

    def add(self, entries: bytes) -> None:
        """Append."""
        assert self._file is not None
        self._size += write_all(self._file, entries)

    @property
    def is_long(self) -> bool:
        """Whether it should be written anew."""
        return self._size > MAX_JOURNAL_BYTES

    def close(self) -> None:
        """Nothing is lost by not calling it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def write_all(file: int, data: bytes) -> int:
    """All of it, or OSError and nothing: after a part of an entry all later ones would be read wrongly."""
    before, left = os.fstat(file).st_size, memoryview(data)
    try:
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        os.ftruncate(file, before)
        raise
    return len(data)


def _entries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The whole entries; what a power cut left as zeros ends them."""
    for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
        sequence, index, tag = _ENTRY.unpack_from(data, at)
        if not sequence:
            return
        yield sequence, index, tag
