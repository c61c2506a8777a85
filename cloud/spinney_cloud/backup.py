"""A backup of a cloud in one file, taken while it runs, and a data directory made of it.

The file is a tar: a manifest first, then users, secrets, the gateway's boot, the matcher's snapshots, and the streams
as JetStream copies them. What is read later may say more than what was read before, never less, so the order matters:

1. snapshots, before the log that continues them; a matcher that runs takes one for the purpose;
2. buckets, before the log: what it says of subscriptions and they do not, the coordinator puts into them at its start;
3. the notifications, before the log that brought them about;
4. requests, after the log: it knows records by their requests' numbers, and no number may come again.

Without the log, it begins anew after its last sequence, so that no number is ever used twice.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import orjson

from .bucket import stream_of
from .data_dir import write_whole
from .log_errors import AskError, NobodyThere
from .names import BUCKETS, LOG, NOTES, REQUESTS
from .nats_log import NatsLog
from .numbering import BOOT_FILE
from .settings import Settings
from .stream_copy import restore_stream, save_stream
from .users import FILE as USERS

VERSION = 1
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MANIFEST = "manifest.json"
SECRETS = "secrets.json"
SNAPSHOTS = "snapshots"
FILES = (USERS, SECRETS, BOOT_FILE)
MAX_MANIFEST_BYTES = 4 * 1024**2
SNAPSHOT_SECONDS = 70.0
"""For the matcher to take one."""

Say = Callable[[str], None]
"""Told what is being done, a line at a time."""


class BackupError(Exception):
    """A backup that cannot be made or used, and why."""


@dataclass
class Manifest:
    """What is in a backup."""

    made: float
    with_log: bool
    log_last: int
    """The last sequence of the log when its buckets had been read."""
    notes_last: int
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Configuration and state of each."""
    digests: dict[str, str] = field(default_factory=dict)
    """Of each file, SHA-256."""

    def encode(self) -> bytes:
        """As the first file of a backup."""
        return orjson.dumps({"v": VERSION, **asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """What gave this; BackupError for anything else."""
        try:
            item = orjson.loads(data)
            version = item.pop("v")
            if version > VERSION:
                raise BackupError(f"a backup of version {version}; this Spinney reads up to {VERSION}")
            return cls(**item)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BackupError(f"its manifest is damaged: {error}") from error


# ---- Making one -------------------------------------------------------------------------------------------------


async def make(target: Path, data: Path, log: NatsLog, *, with_log: bool, say: Say) -> Manifest:
    """Write a backup of a data directory and its log. The target appears when it is whole."""
    await _fresh_snapshot(log, say)
    with tempfile.TemporaryDirectory(prefix=".spinney-backup-", dir=target.absolute().parent) as folder:
        manifest = await _gather(Path(folder), data, log, with_log=with_log, say=say)
        part = target.with_name(f".{target.name}.part")
        try:
            part.touch(mode=0o600)
            await asyncio.to_thread(_write, part, Path(folder), manifest)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return manifest


async def _fresh_snapshot(log: NatsLog, say: Say) -> None:
    """Without the log, states and windows are no newer than the newest snapshot."""
    try:
        await log.ask("matcher", "snapshot", timeout_seconds=SNAPSHOT_SECONDS)
    except NobodyThere:
        pass  # one that has stopped has left one
    except AskError as error:
        say(f"the matcher takes no snapshot now ({error}): the last one is taken")


async def _gather(folder: Path, data: Path, log: NatsLog, *, with_log: bool, say: Say) -> Manifest:
    manifest = Manifest(made=time.time(), with_log=with_log, log_last=0, notes_last=0)
    await asyncio.to_thread(_copy_files, data, folder)
    for stream in map(stream_of, BUCKETS):
        await _save(folder, manifest, log, stream, say)
    manifest.log_last = (await log.state(LOG)).last
    manifest.notes_last = (await log.state(NOTES)).last
    for stream in (NOTES, LOG, REQUESTS) if with_log else ():
        await _save(folder, manifest, log, stream, say)
    return manifest


async def _save(folder: Path, manifest: Manifest, log: NatsLog, stream: str, say: Say) -> None:
    with (folder / f"{stream}.stream").open("wb") as out:
        manifest.streams[stream] = await save_stream(log, stream, out, lambda _copied: None)
    size = (folder / f"{stream}.stream").stat().st_size
    say(f"{stream}: {manifest.streams[stream]['state']['messages']:,} messages, {size:,} bytes")


def _copy_files(data: Path, folder: Path) -> None:
    """What processes write whole, by another name first; a snapshot may go while we look."""
    for name in FILES:
        if (data / name).exists():
            write_whole(folder / name, (data / name).read_bytes())
    (folder / SNAPSHOTS).mkdir()
    for path in sorted((data / SNAPSHOTS).glob("*")):
        if path.is_file() and not path.name.endswith(".part"):
            try:
                write_whole(folder / SNAPSHOTS / path.name, path.read_bytes())
            except FileNotFoundError:
                continue


def _write(part: Path, folder: Path, manifest: Manifest) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        with path.open("rb") as opened:
            manifest.digests[str(path.relative_to(folder))] = hashlib.file_digest(opened, "sha256").hexdigest()
    with tarfile.open(part, "w:gz", compresslevel=1) as tar:
        _add(tar, MANIFEST, BytesIO(manifest.encode()))
        for path in files:
            with path.open("rb") as opened:
                _add(tar, str(path.relative_to(folder)), opened)


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    """Without whose file it was, or when."""
    entry = tarfile.TarInfo(name)
    entry.size = content.seek(0, 2)
    entry.mode = 0o600
    content.seek(0)
    tar.addfile(entry, content)


# ---- Using one --------------------------------------------------------------------------------------------------


@contextmanager
def opened(source: Path, where: Path) -> Iterator[tuple[Manifest, Path]]:
    """A backup's manifest, and a folder with its files, all checked; BackupError for what is no whole backup.

    The folder is made in another, on whose disk there must be room: a log is larger than many a /tmp.
    """
    with tempfile.TemporaryDirectory(prefix=".spinney-restore-", dir=where) as folder:
        try:
            with tarfile.open(source, "r:gz") as tar:
                manifest = _unpack(tar, Path(folder))
        except OSError as error:
            if error.errno in NO_ROOM:
                raise BackupError(f"no room to unpack {source} in {where}: {error.strerror}") from error
            raise BackupError(f"{source} is no whole backup: {error}") from error
        except (tarfile.TarError, EOFError) as error:
            raise BackupError(f"{source} is no whole backup: {error}") from error
        yield manifest, Path(folder)


def _unpack(tar: tarfile.TarFile, folder: Path) -> Manifest:
    first = tar.next()
    if first is None or first.name != MANIFEST or first.size > MAX_MANIFEST_BYTES:
        raise BackupError("it does not begin with a manifest")
    manifest = Manifest.decode(_read(tar, first).read())
    missing = dict(manifest.digests)
    for entry in tar:
        # only what the manifest names is written, so that no path leads out of the folder
        if missing.pop(entry.name, None) is not None:
            path = folder / entry.name
            path.parent.mkdir(exist_ok=True)
            with _read(tar, entry) as content, path.open("wb") as out:
                while chunk := content.read(1 << 20):
                    out.write(chunk)
            with path.open("rb") as written:
                if hashlib.file_digest(written, "sha256").hexdigest() != manifest.digests[entry.name]:
                    raise BackupError(f"{entry.name} in it is damaged")
    if missing:
        raise BackupError(f"{next(iter(missing))} is missing from it")
    return manifest


def _read(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(entry)
    if content is None or ".." in Path(entry.name).parts or Path(entry.name).is_absolute():
        raise BackupError(f"{entry.name!r} in it is no plain file")
    return content


def restore_files(folder: Path, data: Path) -> None:
    """Put all but the streams into a data directory."""
    for name in FILES:
        if (folder / name).exists():
            write_whole(data / name, (folder / name).read_bytes())
    (data / SNAPSHOTS).mkdir(mode=0o700, exist_ok=True)
    for path in (folder / SNAPSHOTS).glob("*"):
        write_whole(data / SNAPSHOTS / path.name, path.read_bytes())


async def restore_streams(manifest: Manifest, folder: Path, log: NatsLog, settings: Settings, *, say: Say) -> None:
    """Put the streams into a log that has none, and make those that the backup does not have."""
    for stream, info in manifest.streams.items():
        with (folder / f"{stream}.stream").open("rb") as source:
            await restore_stream(log, stream, info, source)
        say(f"{stream}: {info['state']['messages']:,} messages")
    await log.ensure(settings, first={LOG: manifest.log_last + 1, NOTES: manifest.notes_last + 1})
