"""What waits on disk until the cloud has stored it, and what must survive together with it.

    <folder>/lock, boot, running, 0000000000000001.seg, ...       (see spinney.client.segment)

One `append` is one transaction: a kill leaves all of it or nothing. It is a log, not a database: a reading of 150 bytes
costs an SD card 250, where SQLite's WAL writes 8,900, at half the rate. The bounds are bytes and age; beyond them the
oldest records are dropped (or the newest, where that is set), and counted. A dropped record leaves the labels behind
that no later record repeats, as silent labels, so that the cloud's bits stay right (rules S2, S3). Without room on the
disk it goes on in memory, within the same bounds, and says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final

from spinney import Label, PublicationId
from spinney.client import DiskOutbox, OutboxFailed
from spinney.client.outbox import Entry

from .samples import Digest
from .settings import Outbox as Settings
from .status import OutboxStatus

MAX_COUNT: Final = 1_000_000
"""Records, whatever their bytes."""
SYNC_SECONDS: Final = 10.0
"""What a power cut may lose with `sync="interval"`."""
AGE_SECONDS: Final = 5.0
"""Between looks for what has become too old."""
DROP_AT_ONCE: Final = 1_000
"""Records that one look drops for their age; the next one goes on."""
DROP_BYTES: Final = 256 * 1024
"""A full outbox makes room for so much more than it must, or a quarter of itself, so that it is not always full."""
DISK_RETRY_SECONDS: Final = 10.0
"""Between attempts to write to a disk that takes nothing."""
_SILENT_SOURCE: Final = ""
"""Silent labels go under an id that no reading can have."""

_HEAD = struct.Struct(">dQI")
_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A publication that goes up with its labels, or labels alone."""

    publication: Mapping[str, Any] | None
    """With its `id`; None: the labels are silent."""
    epoch: int
    """Of the lease under which it was made; 0 without one."""
    labels: Mapping[Digest, Label] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """An entry of the outbox, read."""

    time: float
    """When it was appended."""
    epoch: int
    labels: Mapping[Digest, Label]
    publication: bytes
    """A JSON object; empty for silent labels."""


@dataclass(slots=True)
class Counts:
    """What has happened to the outbox since it was opened."""

    appended: int = 0
    dropped_full: int = 0
    dropped_old: int = 0
    labels_left_behind: int = 0
    """Labels of dropped records that stayed, as silent ones."""
    labels_lost: int = 0
    """Those that there was no room for even so: the cloud's bit may be wrong until the next label."""
    disk_failures: int = 0


def encode(record: OutRecord, time: float) -> bytes:
    """The bytes of an entry."""
    labels = _json([[digest, label.to_json()] for digest, label in record.labels.items()]) if record.labels else b""
    publication = b"" if record.publication is None else _json(record.publication)
    return b"".join((_HEAD.pack(time, record.epoch, len(labels)), labels, publication))


def decode(data: bytes) -> Waiting:
    """What gave these bytes."""
    time, epoch, length = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    labels = json.loads(data[_HEAD.size : end]) if length else ()
    return Waiting(time, epoch, {digest: Label.from_json(label) for digest, label in labels}, data[end:])


def _json(item: Any) -> bytes:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


class Outbox:
    """Of one broker. All methods belong to the event loop's thread; `run` keeps its bounds and its promise of sync."""

    def __init__(
        self, folder: Path, settings: Settings | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        """The clock is to be steady; what it says is kept with each record."""
        settings = settings or Settings()
        self.log = DiskOutbox(folder, max_count=MAX_COUNT, max_bytes=settings.max_bytes, sync=settings.sync)
        self.counts = Counts()
        self.on_append: Callable[[Sequence[Entry]], None] = lambda _: None
        """Told what has come in."""
        self.intact = False
        """Whether what is kept is the newest there was: not after a power cut that took the last seconds, nor after
        damage. If not, bits are unknown (rule S2)."""
        self.error: str | None = None
        """Why the disk takes nothing at the moment."""
        self._settings = settings
        self._clock = clock
        self._newest: dict[tuple[Digest, str], int] = {}  # the place of the newest label of each filter and source
        self._running = folder / "running"
        self._disk_due = 0.0

    # ---- From the start ----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Read what is there; OutboxInUse, or OutboxFailed with the file and the reason."""
        self.log.open()
        for copy in self.log.set_aside:
            _log.error("%s was damaged: what is good of it is used; a copy is kept", copy.with_suffix(".seg"))
        self.intact = not self.log.set_aside and not self._lost_power()
        try:
            self._mark_running()
        except OSError as error:
            _log.error("%s: %s", self._running, error.strerror)
        newest = max((_time_of(entry) for entry in self.log.entries()), default=0.0)
        self._clock = self._clock or _steady_clock(newest)
        for entry in self.log.entries():
            self._note_labels(entry)

    def _lost_power(self) -> bool:
        """Whether the machine went down before what had been written was synced."""
        if self._settings.sync == "always" or not self._running.exists():
            return False
        return self._running.read_text() != _machine_boot() or _machine_boot() == ""

    def _mark_running(self) -> None:
        with self._running.open("w") as file:
            file.write(_machine_boot())
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """With all of it on the disk, unless the policy is `never`."""
        self.log.close()
        if self._settings.sync != "never" and not self.log.in_memory:
            self._running.unlink(missing_ok=True)

    @property
    def max_age(self) -> float:
        """Seconds after which what waits is dropped."""
        return self._settings.max_age

    @property
    def boot(self) -> int:
        """Larger each time the outbox is opened: for numbering what has no numbers, so that none comes twice."""
        return self.log.boot

    # ---- Use ---------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[OutRecord], state: Mapping[str, bytes | None] | None = None) -> None:
        """Keep records and whatever must survive with them; None takes a key away.

        Keys are to be fine-grained, one for each source for instance: what is given is what is written.
        """
        now = self._now()
        items = [(_id_of(record), encode(record, now)) for record in records]
        size = sum(len(data) for _, data in items)
        leave: list[Entry] = []
        if not self.log.has_room(size):
            if self._settings.drop == "newest":
                items, leave = self._labels_alone(records, now)
            else:
                leave = self._oldest(size + min(DROP_BYTES, self.log.max_bytes // 4))
                items = [*self._drop(leave, "dropped_full"), *items]
        kept = self._write(items, state or {}, leave)
        self.counts.appended += len(records)
        if kept:
            self.on_append(kept)

    def keep(self, state: Mapping[str, bytes | None]) -> None:
        """`append` without records."""
        self.append((), state)

    def state(self) -> dict[str, bytes]:
        """What has been kept by key."""
        return dict(self.log.state)

    def leave(self, entries: Iterable[Entry]) -> list[Entry]:
        """Keep these no longer; those of them that had not left before."""
        left = self.log.leave(entries)
        for entry in left:
            self._forget_labels(entry)
        return left

    def status(self) -> OutboxStatus:
        """For pages."""
        oldest = next(self.log.entries(), None)
        return OutboxStatus(
            records=self.log.count,
            bytes=self.log.bytes,
            oldest=None if oldest is None else _time_of(oldest),
            dropped=self.counts.dropped_full + self.counts.dropped_old,
            max_bytes=self.log.max_bytes,
        )

    def _now(self) -> float:
        assert self._clock is not None, "the outbox is not open"
        return self._clock()

    def _write(
        self, items: Sequence[tuple[PublicationId, bytes]], state: Mapping[str, bytes | None], leave: Sequence[Entry]
    ) -> list[Entry]:
        kept = None if time.monotonic() < self._disk_due else self._onto_disk(items, state, leave)
        if kept is None:
            kept = self.log.keep_in_memory(items, state, leave)
        for entry in leave:
            self._forget_labels(entry)
        for entry in kept:
            self._note_labels(entry)
        return kept

    def _onto_disk(
        self, items: Sequence[tuple[PublicationId, bytes]], state: Mapping[str, bytes | None], leave: Iterable[Entry]
    ) -> list[Entry] | None:
        try:
            kept = self.log.append_all(items, state, leave)
        except OutboxFailed as error:
            self.counts.disk_failures += 1
            if self.error is None:
                _log.error("%s: readings are kept in memory until there is room; free some", error)
            self.error, self._disk_due = str(error), time.monotonic() + DISK_RETRY_SECONDS
            return None
        if self.error is not None:
            _log.warning("%s can be written again", self.log.folder)
            self.error, self._disk_due = None, 0.0
        return kept

    # ---- What gives way ----------------------------------------------------------------------------------------

    def _oldest(self, size: int) -> list[Entry]:
        """So many bytes from the oldest on; silent labels that nothing newer repeats only where that does not do."""
        leave: list[Entry] = []
        for needed in (False, True):
            for entry in self.log.entries():
                if size <= 0:
                    return leave
                if (is_silent(entry) and bool(self._last_labels(entry))) == needed:
                    leave.append(entry)
                    size -= len(entry.data)
        return leave

    def drop_old(self) -> None:
        """Drop what is older than it may be. Silent labels stay."""
        before = self._now() - self._settings.max_age
        expired = takewhile(lambda entry: _time_of(entry) < before, self.log.entries())
        old = list(islice((entry for entry in expired if not is_silent(entry)), DROP_AT_ONCE))
        if old:
            self.on_append(self._write(self._drop(old, "dropped_old"), {}, old))

    def _drop(self, leave: Sequence[Entry], count: str) -> list[tuple[PublicationId, bytes]]:
        """What stays behind of records that are dropped: the labels that nothing newer repeats."""
        behind: list[tuple[PublicationId, bytes]] = []
        for entry in leave:
            last = self._last_labels(entry)
            if is_silent(entry):
                self.counts.labels_lost += len(last)
                continue
            setattr(self.counts, count, getattr(self.counts, count) + 1)
            if last:
                self.counts.labels_left_behind += len(last)
                waiting = decode(entry.data)
                behind.append((_silent_id(), encode(OutRecord(None, waiting.epoch, last), waiting.time)))
        return behind

    def _last_labels(self, entry: Entry) -> dict[Digest, Label]:
        """Those of its labels that nothing newer repeats, as silent ones."""
        if not label_bytes(entry):
            return {}
        labels = decode(entry.data).labels.items()
        return {
            digest: _silent(one) for digest, one in labels if self._newest.get((digest, one.mark.source)) == entry.place
        }

    def _labels_alone(
        self, records: Sequence[OutRecord], now: float
    ) -> tuple[list[tuple[PublicationId, bytes]], list[Entry]]:
        """What stays of new records that are dropped, and the silent labels that it makes needless."""
        self.counts.dropped_full += len(records)
        behind: list[tuple[PublicationId, bytes]] = []
        keys: set[tuple[Digest, str]] = set()
        for record in records:
            if record.labels:
                labels = {digest: _silent(label) for digest, label in record.labels.items()}
                keys.update((digest, label.mark.source) for digest, label in labels.items())
                behind.append((_silent_id(), encode(OutRecord(None, record.epoch, labels), now)))
                self.counts.labels_left_behind += len(labels)
        places = {place for key in keys if (place := self._newest.get(key)) is not None}
        before = [next(self.log.entries(place)) for place in places]
        return behind, [entry for entry in before if is_silent(entry) and self._is_repeated(entry, keys)]

    def _is_repeated(self, entry: Entry, keys: Collection[tuple[Digest, str]]) -> bool:
        """Whether all its labels have newer ones, or will have them with these."""
        return all(key in keys or self._newest.get(key) != entry.place for key in _label_keys(entry))

    def _note_labels(self, entry: Entry) -> None:
        for key in _label_keys(entry):
            self._newest[key] = entry.place

    def _forget_labels(self, entry: Entry) -> None:
        for key in _label_keys(entry):
            if self._newest.get(key) == entry.place:
                del self._newest[key]

    # ---- Time --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the bounds of age, and sync; until cancelled."""
        sync_due = time.monotonic() + SYNC_SECONDS
        while True:
            await asyncio.sleep(AGE_SECONDS)
            self.drop_old()
            if time.monotonic() >= sync_due:
                sync_due = time.monotonic() + SYNC_SECONDS
                await self.sync()

    async def sync(self) -> None:
        """Onto the disk, if the policy is `interval`, without holding up the loop."""
        file = self.log.to_sync()
        if file is None:
            return
        try:
            await asyncio.to_thread(os.fsync, file)
        except OSError as error:
            _log.error("%s may not outlive a power cut: %s", self.log.folder, error.strerror)
        finally:
            os.close(file)


def _id_of(record: OutRecord) -> PublicationId:
    return _silent_id() if record.publication is None else PublicationId.parse(record.publication["id"])


def _silent_id() -> PublicationId:
    return PublicationId(_SILENT_SOURCE, 0, 0)


def _silent(label: Label) -> Label:
    return Label(label.mark, label.membership, silent=True)


def _time_of(entry: Entry) -> float:
    time: float = _HEAD.unpack_from(entry.data)[0]
    return time


def is_silent(entry: Entry) -> bool:
    """Whether it holds labels and no publication."""
    return len(entry.data) == _HEAD.size + label_bytes(entry)


def label_bytes(entry: Entry) -> int:
    """How many of its bytes are labels."""
    return int(_HEAD.unpack_from(entry.data)[2])


def _label_keys(entry: Entry) -> list[tuple[Digest, str]]:
    if not label_bytes(entry):
        return []
    return [(digest, label.mark.source) for digest, label in decode(entry.data).labels.items()]


def _machine_boot() -> str:
    """Which start of the machine this is; empty where nobody says."""
    return _LINUX_BOOT_ID.read_text().strip() if _LINUX_BOOT_ID.exists() else ""


def _steady_clock(newest: float) -> Callable[[], float]:
    """Seconds since 1970, never before what is kept, that do not jump when the machine's clock is set."""
    start = max(time.time(), newest) - time.monotonic()
    return lambda: start + time.monotonic()
