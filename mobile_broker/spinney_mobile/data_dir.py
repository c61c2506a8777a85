"""The data directory: one broker holds it, and is spoken to through a socket in it."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

SOCKET: Final = "control"
ANSWER_SECONDS: Final = 10.0
_MAX_SOCKET_PATH: Final = 100
"""Bytes that every system allows."""


class DataDirError(Exception):
    """Why a directory cannot be used, and what to do about it."""


class NotRunning(Exception):
    """No broker holds this data directory."""


class DataDir:
    """A data directory that this process holds, until it is closed or the process ends.

    Opening makes it if need be; DataDirError if another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _lock(self.path)
        except OSError as error:
            raise DataDirError(
                f"data directory {self.path}: {error.strerror or error}; choose one with --data"
            ) from None

    def listen(self) -> socket.socket:
        """Where `spinney mobile status` and the like find this process; only its user may."""
        with _short(self.path) as path:
            path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            path.chmod(0o600)
        listener.listen()
        listener.setblocking(False)
        return listener

    def token(self) -> str:
        """What the web page asks for beyond loopback; made once."""
        file = self.path / "token"
        try:
            if token := file.read_text().strip():
                return token
        except FileNotFoundError:
            pass
        token = secrets.token_urlsafe(24)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(f"{token}\n")
        return token

    def close(self) -> None:
        """Let others have it."""
        (self.path / SOCKET).unlink(missing_ok=True)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _lock(path: Path) -> IO[bytes]:
    lock = os.fdopen(os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = lock.read().decode(errors="replace").strip()
        lock.close()
        raise DataDirError(
            f"{path} is in use by process {pid}: stop that one first, or choose another directory with --data"
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n".encode())
    lock.flush()
    return lock


@contextmanager
def _short(folder: Path) -> Iterator[Path]:
    """The socket's path, by way of a file descriptor where it would be too long for a socket's address."""
    path = folder / SOCKET
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        yield path
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{handle}/{SOCKET}")
    finally:
        os.close(handle)


# ---- The other side ---------------------------------------------------------------------------------------------


class _Connection(http.client.HTTPConnection):
    """HTTP through the socket."""

    def __init__(self, folder: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_SECONDS)
        self._folder = folder

    def connect(self) -> None:
        """Reach the broker."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_SECONDS)
        with _short(self._folder) as path:
            self.sock.connect(str(path))


def ask(data: Path, path: str, body: Any = None) -> Any:
    """What the broker that holds this directory answers. NotRunning if there is none; DataDirError says what else."""
    connection = _Connection(data.absolute())
    try:
        method, content = ("GET", None) if body is None else ("POST", json.dumps(body))
        connection.request(method, path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        raise NotRunning(
            f"no broker runs on {data.absolute()}: start one with spinney mobile run, or name another with --data"
        ) from None
    except PermissionError:
        raise DataDirError(
            f"{data.absolute()} is another user's: ask as that user, with sudo -u for instance"
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataDirError(
            f"the broker on {data.absolute()} does not answer: {error or type(error).__name__}"
        ) from None
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise DataDirError(str(answer.get("detail", answer)))
    return answer
