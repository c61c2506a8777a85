"""A connection to nats-server over a plain, blocking socket: what is sent, and the messages that come, one by one.

What comes is read into one buffer, over and over, and copied out of it once: of a long log each byte counts.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from ..log_errors import Refused
from ..service import Endpoints

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 10.0
OLDEST_SERVER = (2, 11)
"""It knows batched direct get."""
DEFAULT_PORT = 4222
CHUNK = 256 * 1024
"""Bytes of the buffer, until a message needs more."""


class Lost(OSError):
    """The connection is gone; it is made anew."""


class Arrived(NamedTuple):
    """A message as it came."""

    subject: bytes
    headers: bytes
    data: bytes


class Wire:
    """An open connection. OSError, Lost among them, once it is not."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), CONNECT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = host
        self._buffer = bytearray(CHUNK)
        self._view = memoryview(self._buffer)
        self._at = self._end = 0
        """Where what was not read yet begins and ends."""

    @classmethod
    def open(cls, url: str, endpoints: Endpoints) -> Wire:
        """To the server of this URL, logged in. OSError if it is not there, Refused if it will not have us."""
        parts = urlsplit(url if "//" in url else f"nats://{url}")
        wire = cls(parts.hostname or "127.0.0.1", parts.port or DEFAULT_PORT)
        try:
            wire._greet(endpoints, parts.username, parts.password)
        except BaseException:
            wire.close()
            raise
        return wire

    def close(self) -> None:
        """For good."""
        self._socket.close()

    # ---- opening

    def _greet(self, endpoints: Endpoints, user: str | None, password: str | None) -> None:
        info = orjson.loads(self._line().removeprefix(b"INFO "))
        _check_version(info)
        context = endpoints.nats_context()
        if context is None and info.get("tls_required"):
            context = ssl.create_default_context()
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=self._host)
        self._socket.settimeout(ANSWER_SECONDS)
        hello = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "name": "pipeline"}
        hello |= {"lang": "python", "version": "1", "protocol": 1}
        if name := endpoints.nats_user or user:
            hello |= {"user": name, "pass": endpoints.nats_password or password or ""}
        self.send(b"CONNECT " + orjson.dumps(hello) + b"\r\nPING\r\n")
        while (line := self._line()) != b"PONG":
            if line.startswith(b"-ERR"):
                raise Refused(0, 0, f"the log's server refuses: {line.decode(errors='replace')}")

    # ---- sending

    def send(self, data: bytes) -> None:
        """All of it."""
        self._socket.sendall(data)

    def ask(self, subject: str, reply: str, data: bytes, message_id: str | None = None) -> None:
        """Publish, with the subject that answers go to; `message_id`: for a stream, which stores none twice."""
        if message_id is None:
            self.send(f"PUB {subject} {reply} {len(data)}\r\n".encode() + data + b"\r\n")
            return
        head = f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\n\r\n".encode()
        first = f"HPUB {subject} {reply} {len(head)} {len(head) + len(data)}\r\n".encode()
        self.send(first + head + data + b"\r\n")

    # ---- receiving

    def next(self) -> Arrived:
        """The next message, as soon as it is there."""
        while True:
            line = self._line()
            if line.startswith(b"HMSG "):
                _, subject, *_, head, size = line.split(b" ")
                return self._message(subject, int(head), int(size))
            if line.startswith(b"MSG "):
                _, subject, *_, size = line.split(b" ")
                return self._message(subject, 0, int(size))
            if line == b"PING":
                self.send(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise Lost(line.decode(errors="replace"))

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n", self._at, self._end)) < 0:
            self._fill(self._end - self._at + 1)
        line = bytes(self._view[self._at : end])
        self._at = end + 2
        return line

    def _message(self, subject: bytes, head: int, size: int) -> Arrived:
        if self._end - self._at < size + 2:
            self._fill(size + 2)
        start, end = self._at, self._at + size
        self._at = end + 2
        return Arrived(subject, bytes(self._view[start : start + head]), bytes(self._view[start + head : end]))

    def _fill(self, wanted: int) -> None:
        """At least so many bytes are there to be read."""
        if self._at + wanted > len(self._buffer):
            rest = bytes(self._view[self._at : self._end])
            if wanted > len(self._buffer):
                self._buffer = bytearray(wanted + CHUNK)
                self._view = memoryview(self._buffer)
            self._view[: len(rest)] = rest
            self._at, self._end = 0, len(rest)
        while self._end - self._at < wanted:
            count = self._socket.recv_into(self._view[self._end :])
            if not count:
                raise Lost("the server has closed the connection")
            self._end += count


def _check_version(info: dict[str, Any]) -> None:
    version = str(info.get("version", "0"))
    if tuple(int(part) for part in version.split("-")[0].split(".")[:2]) < OLDEST_SERVER:
        wanted = ".".join(map(str, OLDEST_SERVER))
        raise Refused(0, 0, f"nats-server {version} is too old for the pipeline: it needs {wanted} or later")
