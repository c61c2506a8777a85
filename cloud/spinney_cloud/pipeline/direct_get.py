"""Reading the log over a plain socket, by nats-server's batched direct get: no consumer, nothing kept on the server.

What a range of sequences gives is a pure function of the range; so tasks and their repetitions give the same. Python
workers of Spark have no event loop, and live for a batch or for hours: one blocking connection for each of them.
"""

from __future__ import annotations

import atexit
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import orjson

from ..log_errors import LogError, Refused, StreamMissing, Unavailable
from ..log_reader import Message
from ..nats_connection import STREAM_NOT_FOUND, Backoff
from ..service import Endpoints, read_run
from .wire import Wire

BATCH = 250
BATCH_BYTES = 8 * 1024**2
"""Of one request; the server keeps no more than two of them for us at a time."""
RETRY_SECONDS = 30.0
"""How long the server may be away before a reader gives up."""
AT_ONCE = 256
"""Messages that are published before the first answer is waited for."""
_CLOCK_STEP = 1e-5
"""Times as doubles and as texts may differ by so much."""
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class LogServer:
    """Where the log is. It goes to Spark's workers, so it has the names of files with secrets, not the secrets."""

    url: str | None = None
    user: str | None = None
    password_file: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    run: str | None = None
    """The file that `spinney cloud` gives its own processes; it says all the rest."""

    @classmethod
    def from_options(cls, options: Any) -> LogServer:
        """What the options of a Spark source say."""
        self = cls(**{field.name: options.get(field.name) or None for field in fields(cls)})
        if self.url is None and self.run is None:
            raise LogError("the source `spinney` needs the option url, nats://host:port, or run, a cloud's run file")
        return self

    def options(self) -> dict[str, str]:
        """For `from_options`."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def endpoints(self) -> Endpoints:
        """With the secrets."""
        if self.run is not None:
            return read_run(Path(self.run))[1]
        password = None if self.password_file is None else Path(self.password_file).read_text().strip()
        return Endpoints(
            nats_url=self.url or "",
            mqtt_host="",
            mqtt_port=0,
            mqtt_kind="",
            http_port=0,
            nats_user=self.user,
            nats_password=password,
            nats_ca=self.ca,
            nats_certificate=self.certificate,
            nats_key=self.key,
        )


class StreamBounds(NamedTuple):
    """What a stream holds."""

    first: int
    """The sequence of its oldest message; one more than `last` when it is empty."""
    last: int
    messages: int
    bytes: int


class Outgoing(NamedTuple):
    """A message to be stored."""

    subject: str
    data: bytes
    id: str
    """Within the stream's window, a second one of this id is not stored."""


class DirectGet:
    """A connection to the log's server. It connects when it is used, and again when it was lost."""

    def __init__(self, endpoints: Endpoints, retry_seconds: float | None = None) -> None:
        self.reconnected = 0
        self._endpoints = endpoints
        self._retry_seconds = RETRY_SECONDS if retry_seconds is None else retry_seconds
        self._wire: Wire | None = None
        self._inbox = f"_INBOX.{secrets.token_hex(11)}"
        self._number = 0
        self._early: dict[bytes, deque[tuple[bytes, bytes]]] = {}
        """By question, what has come before its turn: where several servers answer, it may."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # ---- what others ask

    def bounds(self, stream: str) -> StreamBounds:
        """What a stream holds now."""
        state = self._api(f"STREAM.INFO.{stream}")["state"]
        first = state["first_seq"] if state["messages"] else state["last_seq"] + 1
        return StreamBounds(first, state["last_seq"], state["messages"], state["bytes"])

    def range(self, stream: str, first: int, last: int, subject: str | None = None) -> Iterator[Message]:
        """The messages with first <= sequence <= last that are there, perhaps of a subject. One range at a time."""
        only = {} if subject is None else {"next_by_subj": subject}
        at, backoff, since = first, Backoff(), None
        while at <= last:
            try:
                for message in self._read_on(stream, at, last, only):
                    at, since = message.sequence + 1, None
                    backoff.reset()
                    yield message
            except (OSError, Unavailable) as error:
                since = self._wait(error, since, backoff)
            else:
                return

    def _read_on(self, stream: str, at: int, last: int, only: dict[str, Any]) -> Iterator[Message]:
        """Until the end. Once batches come whole, the next one is asked for before this one is read: nobody waits."""

        def ask(begin: int) -> bytes:
            wanted = {"seq": begin, "batch": min(BATCH, last - begin + 1), "max_bytes": BATCH_BYTES}
            return self._get(stream, wanted | only)

        reply, ahead = ask(at), b""
        whole = False
        try:
            while at <= last:
                following = at + BATCH
                if whole and following <= last:
                    ahead = ask(following)
                    self._early[ahead] = deque()
                mine = self._number
                for message in self._batch(reply):
                    if message.sequence > last:
                        return
                    at = message.sequence + 1
                    yield message
                    if mine != self._number:
                        raise RuntimeError("one range at a time: another question was asked before this one was read")
                if self._ended:
                    return
                whole = at == following
                self._early.pop(reply, None)
                if whole and ahead:
                    reply, ahead = ahead, b""
                elif at <= last:
                    self._early.pop(ahead, None)
                    reply, ahead = ask(at), b""
        finally:
            for one in (reply, ahead):
                self._early.pop(one, None)

    def last_of_subject(self, stream: str, subject: str, up_to: int) -> int:
        """The sequence of the newest message up to there whose subject matches; 0 if there is none."""
        reply = self._retried_get(stream, {"multi_last": [subject], "up_to_seq": up_to})
        return max((message.sequence for message in reply), default=0)

    def first_from(self, stream: str, sequence: int) -> Message | None:
        """The oldest message that is there from this sequence on."""
        found = self._retried_get(stream, {"seq": sequence, "batch": 1})
        return found[0] if found else None

    def first_at(self, stream: str, time: float) -> Message | None:
        """The oldest message that was stored at this time or later."""
        since = datetime.fromtimestamp(time - _CLOCK_STEP, UTC).isoformat().replace("+00:00", "Z")
        found = self._retried_get(stream, {"start_time": since, "batch": 1})
        while found and found[0].time < time:
            found = self._retried_get(stream, {"seq": found[0].sequence + 1, "batch": 1})
        return found[0] if found else None

    def newest_in_bucket(self, stream: str, subject: str) -> bytes | None:
        """The value of a bucket's key, by its subject."""
        found = self._retried_get(stream, {"last_by_subj": subject}, batch=False)
        return found[0].data if found else None

    def publish(self, subject: str, data: bytes) -> None:
        """Have a stream store a message, as often as it takes; what stores it must not mind that it comes twice."""
        answer = orjson.loads(self._retried(subject, data))
        _check(answer, subject)

    def publish_all(self, messages: Sequence[Outgoing]) -> int:
        """Have a stream store messages in order; the sequence of the last.

        One that comes twice within the stream's window of duplicates is stored once.
        """
        backoff, since, done, sequence = Backoff(), None, 0, 0
        while done < len(messages):
            some = messages[done : done + AT_ONCE]
            try:
                replies = [self._request(one.subject, one.data, one.id) for one in some]
                for reply, one in zip(replies, some, strict=True):
                    answer = _stored(self._answer(reply), one.subject)
                    _check(answer, one.subject)
                    done, since, sequence = done + 1, None, answer["seq"]
                    backoff.reset()
            except (OSError, Unavailable) as error:
                since = self._wait(error, since, backoff)
        return sequence

    # ---- requests

    def _api(self, what: str) -> Any:
        answer = orjson.loads(self._retried(f"$JS.API.{what}", b""))
        _check(answer, what.rpartition(".")[2])
        return answer

    def _retried(self, subject: str, data: bytes) -> bytes:
        backoff, since = Backoff(), None
        while True:
            try:
                headers, answer = self._answer(self._request(subject, data))
                _check_answered(headers, subject)
            except (OSError, Unavailable) as error:
                since = self._wait(error, since, backoff)
            else:
                return answer

    def _retried_get(self, stream: str, what: dict[str, Any], *, batch: bool = True) -> list[Message]:
        backoff, since = Backoff(), None
        while True:
            try:
                reply = self._get(stream, what)
                if batch:
                    return list(self._batch(reply))
                headers, data = self._answer(reply)
                return [] if _status(headers) == b"404" else [_message(headers, data)]
            except (OSError, Unavailable) as error:
                since = self._wait(error, since, backoff)

    def _get(self, stream: str, what: dict[str, Any]) -> bytes:
        return self._request(f"$JS.API.DIRECT.GET.{stream}", orjson.dumps(what))

    def _wait(self, error: Exception, since: float | None, backoff: Backoff) -> float:
        """Before the next attempt; since when there has been trouble. Unavailable once that is too long."""
        self.close()
        now = time.monotonic()
        since = now if since is None else since
        if now - since > self._retry_seconds:
            raise Unavailable(f"the log's server, {self._endpoints.nats_url}: {error}") from error
        time.sleep(backoff.next())
        return since

    def _request(self, subject: str, data: bytes, message_id: str | None = None) -> bytes:
        """Ask; the subject of the answers."""
        wire = self._connected()
        self._number += 1
        reply = f"{self._inbox}.{self._number}"
        wire.ask(subject, reply, data, message_id)
        return reply.encode()

    def _answer(self, reply: bytes) -> tuple[bytes, bytes]:
        """The next one; what is left of an earlier question is passed over."""
        if early := self._early.get(reply):
            return early.popleft()
        assert self._wire is not None
        while True:
            subject, headers, data = self._wire.next()
            if subject == reply:
                return headers, data
            if subject in self._early:
                self._early[subject].append((headers, data))

    def _batch(self, reply: bytes) -> Iterator[Message]:
        self._ended = False
        while True:
            headers, data = self._answer(reply)
            match _status(headers):
                case b"":
                    yield _message(headers, data)
                case b"204":
                    return
                case b"404":
                    self._ended = True
                    return
                case b"503":
                    raise Unavailable("the server has no such stream, or not now")
                case _:
                    text = headers.split(b"\r\n", 1)[0].decode(errors="replace")
                    raise Refused(0, 0, f"direct get: {text}")

    # ---- the connection

    def close(self) -> None:
        """Until it is used again."""
        if self._wire is not None:
            self._wire.close()
        self._wire = None
        self._early.clear()

    def _connected(self) -> Wire:
        if self._wire is None:
            self._wire = self._connect()
            self._wire.send(f"SUB {self._inbox}.* 1\r\n".encode())
            self.reconnected += 1
        return self._wire

    def _connect(self) -> Wire:
        problems: list[str] = []
        for url in self._endpoints.nats_url.split(","):
            try:
                return Wire.open(url.strip(), self._endpoints)
            except OSError as error:
                problems.append(f"{urlsplit(url).netloc.rpartition('@')[2]}: {error}")
        raise Unavailable("; ".join(problems))


def _check(answer: dict[str, Any], stream: str) -> None:
    if error := answer.get("error"):
        if error.get("err_code") == STREAM_NOT_FOUND:
            raise StreamMissing(stream)
        raise Refused(error.get("code", 0), error.get("err_code", 0), error.get("description", ""))


def _check_answered(headers: bytes, subject: str) -> None:
    if headers.startswith(b"NATS/1.0 503"):
        raise Unavailable(f"nobody answers on {subject}: has the server JetStream?")


def _stored(answer: tuple[bytes, bytes], subject: str) -> dict[str, Any]:
    headers, data = answer
    _check_answered(headers, subject)
    found: dict[str, Any] = orjson.loads(data)
    return found


def _status(headers: bytes) -> bytes:
    """The status of an answer; empty for a message."""
    return headers[9:12] if headers[8:9] == b" " else b""


def _message(headers: bytes, data: bytes) -> Message:
    found = _HEADERS.search(headers)
    if found is None:
        raise Refused(0, 0, f"direct get: {headers[:80]!r}")
    subject, sequence, seconds, fraction = found.groups()
    time = (_whole(seconds) * _NANOSECONDS + int(fraction.ljust(9, b"0"))) / _NANOSECONDS
    return Message(int(sequence), time, subject.decode(), data)


_HEADERS = re.compile(rb"\r\nNats-Subject: ([^\r]*)\r\nNats-Sequence: (\d+)\r\nNats-Time-Stamp: ([^.Z]*)\.?(\d*)Z\r\n")
"""As the server writes them, one after the other. The time is RFC 3339 with up to nine digits."""


@lru_cache(1024)
def _whole(text: bytes) -> int:
    return int(datetime.fromisoformat(text.decode()).replace(tzinfo=UTC).timestamp())


_connections: dict[tuple[int, LogServer], DirectGet] = {}


def connection(server: LogServer) -> DirectGet:
    """This process's connection to a server: Spark's workers keep it from task to task."""
    key = (os.getpid(), server)
    if key not in _connections:
        _connections[key] = DirectGet(server.endpoints())
    return _connections[key]


@atexit.register
def close_connections() -> None:
    """Of this process; who asks for one again gets it."""
    for (pid, _server), each in _connections.items():
        if pid == os.getpid():
            each.close()
