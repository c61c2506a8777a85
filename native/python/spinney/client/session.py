"""A subscriber's session: under which client id the server keeps what the program has not taken yet.

The id of a program's own session is kept in a file of the user's state folder, which the program holds locked while it
runs: the next run goes on with it, and a second copy of the program gets a session of its own that ends with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import sys
import time
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Final, Self

from .address import Access

VARIABLE: Final = "SPINNEY_STATE"
"""The environment variable that names the state folder where the caller does not."""
FORMAT: Final = 1

_log = logging.getLogger("spinney.client")


def state_folder() -> Path:
    """Where programs of this user keep what they need to go on: SPINNEY_STATE, else as the XDG specification says."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "spinney"


def fingerprint(client_id: str) -> str:
    """Names a session where its id, which is the key to it, must not be told."""
    return blake2b(client_id.encode(), digest_size=8).hexdigest()


@dataclass(slots=True)
class Session:
    """`clean`: the server keeps nothing. `ends`: it keeps what comes while the link is down, until the program ends."""

    client_id: str
    clean: bool = False
    ends: bool = False
    file: SessionFile | None = None
    last_connected: float | None = None
    """UTC seconds; None: never, as far as is known."""

    def opened(self, present: bool) -> float | None:
        """The link is up; `present`: the server knew the session. Since when what came is lost, if it is."""
        last = self.last_connected
        self.touch()
        return None if present or self.clean else last

    def touch(self) -> None:
        """The link is up, or was until now."""
        self.last_connected = time.time()
        if self.file is not None:
            self.file.write(self.last_connected)

    def release(self) -> None:
        """Another run of the program may have it."""
        if self.file is not None:
            self.file.close()

    def __str__(self) -> str:
        if self.clean:
            return "no session: what comes while the link is down is lost"
        if self.ends:
            return "a session until this program ends: what comes while the link is down waits at the server"
        return "a session that stays: what comes while this program is away waits at the server"


def choose(
    access: Access, session: str | bool | None, *, keep: bool, program: str | None, state: Path | None = None
) -> Session:
    """A session by its name, none (False), or (None, True) the program's own.

    One of this run alone where `keep` is False, where there is no program to keep it for, where another copy of the
    program has it, and where the state folder cannot be used.
    """
    if isinstance(session, str):
        return Session(f"{access.name}-{session}", ends=not keep)
    once = f"{access.name}-sub-{secrets.token_hex(6)}"
    if session is False:
        return Session(once, clean=True)
    if not keep or program is None:
        return Session(once, ends=True)
    path = (state or state_folder()) / "sessions" / f"{access.name}-{_key(access, program)}.json"
    try:
        file = SessionFile.open(path, access, program)
    except OSError as error:
        _log.warning("%s: %s; using a session that ends with this program", path, error.strerror or error)
        return Session(once, ends=True)
    if file is None:
        _log.warning(
            "another copy of %s runs as %r; this one uses a session of its own, which ends with it",
            program,
            access.name,
        )
        return Session(once, ends=True)
    return Session(f"{access.name}-{file.name}", file=file, last_connected=file.last_connected)


def running_program() -> str | None:
    """The path of the script that runs; None in an interactive Python."""
    script = sys.argv[0] if sys.argv else ""
    return str(Path(script).resolve()) if script and Path(script).exists() else None


def _key(access: Access, program: str) -> str:
    return blake2b(f"{access.server}\0{program}".encode(), digest_size=6).hexdigest()


class SessionFile:
    """Locked as long as it is open; for its user's eyes only, since the name in it is the key to the session."""

    def __init__(self, file: IO[str], record: dict[str, Any]) -> None:
        self._file = file
        self._record = record

    @classmethod
    def open(cls, path: Path, access: Access, program: str) -> Self | None:
        """The program's, a new one if there is none that can be read; None if another process has it."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError:
            file.close()
            raise
        record = _read(file)
        if record is not None:
            return cls(file, record)
        new = {"format": FORMAT, "session": secrets.token_hex(8), "last_connected": None}
        made = cls(file, {**new, "name": access.name, "server": str(access.server), "program": program})
        made._write()
        return made

    @property
    def name(self) -> str:
        """The session's."""
        return str(self._record["session"])

    @property
    def last_connected(self) -> float | None:
        """UTC seconds; None: never."""
        last = self._record["last_connected"]
        return None if last is None else float(last)

    def write(self, last_connected: float) -> None:
        """Keeps when the link was up last."""
        self._record["last_connected"] = last_connected
        self._write()

    def _write(self) -> None:
        """Logged, not raised, if it cannot be written: the session goes on without."""
        try:
            self._file.seek(0)
            self._file.write(json.dumps(self._record))
            self._file.truncate()
            self._file.flush()
        except (OSError, ValueError) as error:
            _log.warning("%s: %s", self._file.name, error)

    def close(self) -> None:
        """Unlocks it."""
        with contextlib.suppress(OSError):
            self._file.close()


def _read(file: IO[str]) -> dict[str, Any] | None:
    """None for a file that is new, cut off, or of a version that came later."""
    try:
        record = json.loads(file.read())
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("format") != FORMAT or not isinstance(record.get("session"), str):
        return None
    last = record.get("last_connected")
    return {**record, "last_connected": last if isinstance(last, int | float) else None}
