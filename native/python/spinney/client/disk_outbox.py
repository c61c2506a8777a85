"""An outbox on disk: it survives kill -9 at any byte, and by its policy a power cut.

    <folder>/lock, boot, 0000000000000001.seg, ...

Every publication is handed to the operating system before `publish` returns. `sync="interval"` (the default) has it
on the disk within a second; `"always"` before `publish` returns; `"never"` leaves that to the operating system.

Beside publications it keeps a state, values by key, which changes together with them. Each segment begins with all of
it, so that older ones can go. A segment that is damaged is copied to <name>.damaged, and what is good of it is used.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from ..identity import PublicationId
from . import segment
from .errors import OutboxFailed, OutboxFull, OutboxInUse
from .outbox import MAX_BYTES, MAX_COUNT, Entry, Outbox, next_boot
from .segment import Left, Record, Segment, State

Sync = Literal["always", "interval", "never"]

SYNC_SECONDS: Final = 1.0
SEGMENT_BYTES: Final = 4 << 20
"""A segment that has become so large is followed by another one."""
_FILES_TO_ENTRIES: Final = 2
"""The files may hold so much more than the entries in them: what has left stays until its segment goes."""
_STATES_TO_SEGMENT: Final = 4
"""A segment is at least so many times as large as the state that it begins with."""
_STATE_PART_BYTES: Final = 1 << 20
"""The state is written in records of about this size."""
MAX_SET_ASIDE: Final = 4
"""Copies of damaged segments that are kept; the oldest go."""


class DiskOutbox(Outbox):
    """The folder is made if need be, and belongs to one publisher at a time."""

    durable = True

    def __init__(
        self, folder: Path, *, max_count: int = MAX_COUNT, max_bytes: int = MAX_BYTES, sync: Sync = "interval"
    ) -> None:
        super().__init__(max_count=max_count, max_bytes=max_bytes)
        self.folder = folder
        self.sync_policy: Sync = sync
        self.cut_bytes = 0
        """Damaged bytes that were left out when it was opened."""
        self.cut_segments = 0
        """Segments that they were in."""
        self.set_aside: list[Path] = []
        """Copies of segments that were damaged otherwise than a kill in the middle of a write does."""
        self.unsaved = 0
        """Publications that have left without the disk having room to say so: they may be sent again."""
        self.state: dict[str, bytes] = {}
        """To be read only; `append_all` changes it."""
        self._state_bytes = 0
        self._volatile: dict[int, Entry] = {}  # not on disk, for want of room there
        self._volatile_state: dict[str, bytes | None] = {}
        self._lock: int | None = None
        self._serial = 0
        self._segments: dict[Path, int] = {}  # each but the last: the place after its last; oldest first
        self._last: Segment | None = None
        self._old_bytes = 0
        self._unsynced = False

    # ---- opening

    def open(self) -> None:
        """Read what is there; OutboxInUse, or OutboxFailed with the file and the reason."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._read()
            self.boot = self._take_boot()
        except OSError as error:
            self.close()
            raise OutboxFailed(Path(error.filename or self.folder), error.strerror or str(error)) from error

    def _take_lock(self) -> None:
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise OutboxInUse(self.folder) from None
        self._lock = lock

    def _take_boot(self) -> int:
        """The next one, on disk before any publication has it."""
        file = self.folder / "boot"
        before = file.read_bytes() if file.exists() else b""
        boot = next_boot(int(before) if before.isdigit() else 0)
        part = file.with_suffix(".part")
        with part.open("wb") as out:
            out.write(b"%d" % boot)
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)
        self._sync_folder()
        return boot

    def _sync_folder(self) -> None:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)
        os.close(folder)

    def _read(self) -> None:
        self._segments, self._old_bytes, self._serial = {}, 0, 0
        self.cut_bytes = self.cut_segments = 0
        self.set_aside, self.state, self._state_bytes = [], {}, 0
        found: dict[int, Entry] = {}
        end, good_bytes = 0, 0
        paths = sorted(self.folder.glob("[0-9]" * 16 + ".seg"))
        for path in paths:
            content = segment.read(path.read_bytes())
            if content.bad_bytes:
                self._cut(path, content, is_last=path == paths[-1])
            for record in content.records:
                end = self._apply(found, record, end)
            self._segments[path] = end
            good_bytes = content.good_bytes
            self._old_bytes += good_bytes
            self._serial = int(path.stem)
        self._restore(found, end)
        if paths:
            del self._segments[paths[-1]]
            self._old_bytes -= good_bytes
            self._last = Segment(paths[-1], good_bytes)
        self._delete_segments()

    def _cut(self, path: Path, content: segment.Content, *, is_last: bool) -> None:
        """Go on without what is damaged, and keep a copy for whoever wants to look."""
        self.cut_bytes += content.bad_bytes
        self.cut_segments += 1
        if not (is_last and content.torn):
            copy = path.with_suffix(".damaged")
            for old in sorted(self.folder.glob("*.damaged"))[: -MAX_SET_ASIDE + 1]:
                old.unlink()
            shutil.copyfile(path, copy)
            self.set_aside.append(copy)
        if not is_last:
            os.truncate(path, content.good_bytes)

    def _apply(self, found: dict[int, Entry], record: Record, end: int) -> int:
        """Take a record into account; the place after all that were seen."""
        match record:
            case Entry():
                found[record.place] = record
                return max(end, record.place + 1)
            case Left(places=places):
                for first, last in places:
                    for place in range(first, min(last + 1, end)):
                        found.pop(place, None)
            case State(values=values):
                self._set_state(values)
        return end

    def _set_state(self, values: Mapping[str, bytes | None]) -> None:
        for key, value in values.items():
            old = self.state.pop(key, None)
            self._state_bytes -= 0 if old is None else len(key) + len(old)
            if value is not None:
                self.state[key] = value
                self._state_bytes += len(key) + len(value)

    def _restore(self, found: dict[int, Entry], end: int) -> None:
        self._base, self._gone = min(found, default=end), 0
        self._entries = [found.get(place) for place in range(self._base, end)]
        self.count = len(found)
        self.bytes = sum(len(entry.data) for entry in found.values())

    def close(self) -> None:
        """On the disk, if the policy is not `never`; another publisher may have it then."""
        if self._last is not None:
            if self.sync_policy != "never":
                self._last.sync()
            self._last.close()
            self._last = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---- use

    @property
    def file_bytes(self) -> int:
        """Of all segments."""
        return self._old_bytes + (self._last.size if self._last else 0)

    def has_room(self, size: int) -> bool:
        """Also the files are bounded, to about twice the bytes that they keep, beside the state."""
        limit = _FILES_TO_ENTRIES * self.max_bytes + 2 * self._segment_bytes
        return super().has_room(size) and (self.count == 0 or self.file_bytes + size <= limit)

    def append(self, id: PublicationId, data: bytes) -> Entry:
        """Keep it; OutboxFull if there is no room here, OutboxFailed if there is none on the disk."""
        if not self.has_room(len(data)):
            raise OutboxFull(self.count, self.bytes)
        entry = Entry(self.end, id, data)
        self._write(segment.encode_publication(entry))
        self._keep(entry)
        return entry

    def append_all(
        self,
        items: Sequence[tuple[PublicationId, bytes]],
        state: Mapping[str, bytes | None],
        leave: Iterable[Entry] = (),
    ) -> list[Entry]:
        """Keep these, set these keys (None takes one away), and let these leave: all of it or nothing.

        However full it is: who asks has made room. OutboxFailed if the disk has none, or fails otherwise; then
        `keep_in_memory` may do.
        """
        self._write_volatile()
        entries = [Entry(self.end + n, id, data) for n, (id, data) in enumerate(items)]
        left = [entry for entry in leave if self.holds(entry)]
        records = [segment.encode_publication(entry) for entry in entries]
        records += map(segment.encode_state, _state_parts({**self._volatile_state, **state}))
        if left:
            records.append(segment.encode_left(entry.place for entry in left))
        self._write(segment.encode_transaction(records))
        self._volatile_state.clear()
        self._take_over(entries, state, left)
        return entries

    def _write_volatile(self) -> None:
        """What had been kept in memory, in order."""
        for place, entry in list(self._volatile.items()):
            self._write(segment.encode_publication(entry))
            del self._volatile[place]

    def keep_in_memory(
        self,
        items: Sequence[tuple[PublicationId, bytes]],
        state: Mapping[str, bytes | None],
        leave: Iterable[Entry] = (),
    ) -> list[Entry]:
        """As `append_all`, and not on disk before the next `append_all` that succeeds."""
        entries = [Entry(self.end + n, id, data) for n, (id, data) in enumerate(items)]
        left = [entry for entry in leave if self.holds(entry)]
        self.unsaved += len(left)
        self._volatile |= {entry.place: entry for entry in entries}
        self._volatile_state |= state
        self._take_over(entries, state, left)
        return entries

    @property
    def in_memory(self) -> int:
        """Publications that are not on disk."""
        return len(self._volatile)

    def _take_over(self, entries: Iterable[Entry], state: Mapping[str, bytes | None], left: Iterable[Entry]) -> None:
        for entry in entries:
            self._keep(entry)
        self._set_state(state)
        if super().leave(left):
            self._delete_segments()

    def _take(self, entry: Entry) -> bool:
        self._volatile.pop(entry.place, None)
        return super()._take(entry)

    def _write(self, record: bytes) -> None:
        last = self._segment()
        last.append([record])
        self._unsynced = True
        if self.sync_policy == "always":
            try:
                last.sync()
            except OSError as error:
                raise OutboxFailed(last.path, error.strerror or str(error)) from error

    def leave(self, entries: Iterable[Entry]) -> list[Entry]:
        """Keep these no longer. A crash before this is on the disk has them sent again: duplicates, by their ids."""
        left = super().leave(entries)
        if left:
            self._delete_segments()
            try:
                self._segment().append([segment.encode_left(entry.place for entry in left)])
            except OutboxFailed:
                self.unsaved += len(left)
        return left

    @property
    def _segment_bytes(self) -> int:
        return max(SEGMENT_BYTES, _STATES_TO_SEGMENT * self._state_bytes)

    def _segment(self) -> Segment:
        """The last one; a new one after it when it is large."""
        if self._last is not None and self._last.size < self._segment_bytes:
            return self._last
        path = self.folder / f"{self._serial + 1:016d}.seg"
        try:
            new = Segment(path, 0)
            self._begin(new)
            self._finish_last()
        except OSError as error:
            raise OutboxFailed(path, error.strerror or str(error)) from error
        self._serial += 1
        self._last = new
        self._delete_segments()
        return new

    def _begin(self, new: Segment) -> None:
        """All of the state first; OutboxFailed, and the file is gone, if there is no room for it."""
        try:
            for part in _state_parts(self.state):
                new.append([segment.encode_state(part)])
            if self.state and self.sync_policy != "never":
                new.sync()
        except OutboxFailed:
            new.close()
            new.path.unlink(missing_ok=True)
            raise

    def _finish_last(self) -> None:
        full, self._last = self._last, None
        if full is not None:
            self._segments[full.path] = self.end
            self._old_bytes += full.size
            try:
                if self.sync_policy != "never":
                    full.sync()
            finally:
                full.close()

    def _delete_segments(self) -> None:
        """Those that hold nothing any more, oldest first: a segment says of older ones what has left them."""
        first = next((entry.place for entry in self.entries(self._base)), self.end)
        while self._segments:
            path, end = next(iter(self._segments.items()))
            if end > first:
                return
            self._old_bytes -= path.stat().st_size if path.exists() else 0
            path.unlink(missing_ok=True)
            del self._segments[path]

    def to_sync(self) -> int | None:
        """A file descriptor to fsync and close, if something was appended and the policy is `interval`."""
        if self.sync_policy != "interval" or not self._unsynced or self._last is None:
            return None
        self._unsynced = False
        return self._last.same_file()


def _state_parts(state: Mapping[str, bytes | None]) -> Iterator[dict[str, bytes | None]]:
    part: dict[str, bytes | None] = {}
    size = 0
    for key, value in state.items():
        part[key] = value
        size += len(key) + len(value or b"")
        if size >= _STATE_PART_BYTES:
            yield part
            part, size = {}, 0
    if part:
        yield part
