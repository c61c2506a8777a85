"""The data directory: who holds it, which format it has, and the secrets in it."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

FORMAT = 1
"""Of the directory as a whole. A newer one is refused."""
SECRETS_VERSION = 1
RUN_FILE = "run/run.json"
"""Of the cloud that runs on it, or ran last (see service.write_run)."""
LOCK_ATTEMPTS = 5
"""Who only asks for the holder has the lock for a moment."""

_OURS = frozenset(
    [
        "lock",
        "format",
        "secrets.json",
        "users.json",
        "certs",
        "nats",
        "snapshots",
        "run",
        "gateway.boot",
        "delivery.journal",
        "lake",
        "checkpoints",
    ]
)
_ANYBODYS = frozenset(["lost+found", ".gitignore", ".gitkeep"])


class DataDirError(Exception):
    """Why a directory cannot be used, and what to do about it."""


class HeldError(Exception):
    """Another process has the file."""

    def __init__(self, pid: str) -> None:
        super().__init__(f"in use by process {pid}")
        self.pid = pid


@dataclass(frozen=True, slots=True)
class Secrets:
    """What nobody outside may know. Made once, kept for the directory's life."""

    nats_password: str
    """Of our own processes at our own nats-server."""
    mqtt_password: str
    """Of our own processes at its MQTT listener."""
    system_password: str
    """Of its system account."""
    client_prefix: str
    """Server-side MQTT client ids begin so: who knows one can throw its session away."""


class DataDir:
    """A data directory that this process holds, until it is closed or the process ends.

    Opening makes it if need be; DataDirError if another process holds it or if it is somebody else's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        try:
            _make(self.path)
            self._lock = _lock(self.path)
            try:
                _check_format(self.path)
                for folder in (self.nats, self.snapshots, self.run):
                    folder.mkdir(mode=0o700, exist_ok=True)
                self.secrets = read_secrets(self.path)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise DataDirError(f"data directory {self.path}: {error.strerror or error}") from error

    @property
    def nats(self) -> Path:
        """The store of our own nats-server."""
        return self.path / "nats"

    @property
    def snapshots(self) -> Path:
        """The matcher's."""
        return self.path / "snapshots"

    @property
    def run(self) -> Path:
        """What is made at each start."""
        return self.path / "run"

    @property
    def run_file(self) -> Path:
        """What processes are given (see service.write_run)."""
        return self.path / RUN_FILE

    def close(self) -> None:
        """Let others have it."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def holder(path: Path) -> int | None:
    """The process that holds a data directory, if any does."""
    try:
        with (path / "lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or b"0")
    except FileNotFoundError:
        pass
    return None


def read_secrets(path: Path) -> Secrets:
    """The secrets of a data directory, made if there are none yet."""
    file = path / "secrets.json"
    try:
        if file.stat().st_mode & 0o077:
            file.chmod(0o600)
        item = json.loads(file.read_bytes())
        if item.pop("v") > SECRETS_VERSION:
            raise DataDirError(f"{file} is of a newer Spinney; update this one")
        return Secrets(**item)
    except FileNotFoundError:
        return _make_secrets(file)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataDirError(f"{file} is damaged: restore it from a backup, or delete it for new secrets") from error


def write_whole(file: Path, data: bytes) -> None:
    """Replace a file that only its owner may read, so that a reader sees the old or the new and a crash leaves one."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)


def _make(path: Path) -> None:
    """Make the directory, or see that it is ours."""
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise DataDirError(f"{path} is a file; choose a directory with --data") from None
        names = {entry.name for entry in path.iterdir()} - _ANYBODYS
        if "format" not in names and (strange := sorted(names - _OURS)):
            raise DataDirError(f"{path} holds other things ({strange[0]}): choose another with --data") from None
        if path.stat().st_uid == os.geteuid():
            path.chmod(0o700)


def _lock(path: Path) -> IO[bytes]:
    try:
        return hold(path / "lock")
    except HeldError as error:
        raise DataDirError(
            f"{path} is in use by process {error.pid}: stop that one first, or choose another directory with --data"
        ) from error


def hold(file: Path) -> IO[bytes]:
    """Have a file to ourselves, with our process id in it, until it is closed or we end; else HeldError."""
    lock = os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    for attempt in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(attempt / 100)
    else:
        pid = lock.read().decode(errors="replace").strip()
        lock.close()
        raise HeldError(pid)
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n".encode())
    lock.flush()
    return lock


def _check_format(path: Path) -> None:
    file = path / "format"
    try:
        text = file.read_text().strip()
    except FileNotFoundError:
        write_whole(file, f"{FORMAT}\n".encode())
        return
    if not text.isdecimal():
        raise DataDirError(f"{file} is damaged: it should hold one number, the directory's format")
    if int(text) > FORMAT:
        raise DataDirError(
            f"{path} has format {text}, of a newer Spinney; this one reads up to {FORMAT}: update it, or use --data"
        )


def _make_secrets(file: Path) -> Secrets:
    made = Secrets(
        nats_password=secrets.token_hex(32),
        mqtt_password=secrets.token_hex(32),
        system_password=secrets.token_hex(32),
        client_prefix=f"s{secrets.token_hex(16)}",
    )
    write_whole(file, json.dumps({"v": SECRETS_VERSION, **asdict(made)}, indent=1).encode())
    return made
