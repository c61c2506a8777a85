"""The log: streams and buckets on nats-server, and questions between processes. What the other modules import.

async with await NatsLog.connect(endpoints, name="gateway") as log:
    writer = log.writer(names.LOG)
    stored = await (await writer.put(names.log_subject("tick", "all"), data))
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple, Self

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from . import streams
from .bucket import Bucket, Change, Entry
from .log_errors import AskError, LogError, NobodyThere, Refused, StreamMissing, TooLarge, Truncated, Unavailable
from .log_reader import Message, Reader
from .log_reader import read_range as _read_range
from .log_writer import MAX_PENDING, Stored, Writer
from .names import ask_subject, out_subject
from .nats_connection import Backoff, Connection
from .service import Endpoints
from .settings import Settings

__all__ = [
    "AskError",
    "Bucket",
    "Change",
    "Entry",
    "LogError",
    "Message",
    "NatsLog",
    "NobodyThere",
    "Reader",
    "Refused",
    "Stored",
    "StreamMissing",
    "StreamState",
    "TooLarge",
    "Truncated",
    "Unavailable",
    "Writer",
    "read_range",
]

log = logging.getLogger(__name__)

ASK_SECONDS = 5.0
OUT_SECONDS = 10.0
MAX_ANSWERING = 1000
"""Questions that one process works on at a time; more of them wait."""
FAILED = "Spinney-Error"
"""The header of an answer that says why there is none."""

Answerer = Callable[[str, bytes], Awaitable[bytes]]
"""Gets the subject and the payload of a question."""


class StreamState(NamedTuple):
    """What a stream holds."""

    first: int
    """The sequence of its oldest message; one more than `last` when it is empty."""
    last: int
    """Of the newest message ever stored."""
    messages: int
    bytes: int
    first_time: float | None
    last_time: float | None
    """UTC epoch seconds; None where there never was a message."""
    now: float
    """On the server."""


class NatsLog:
    """A connection to the log's server. It reconnects for ever."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.js: JetStreamContext = connection.jetstream()
        self._writers: list[Writer] = []
        self._readers: list[Reader] = []
        self._buckets: dict[str, Bucket] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MAX_ANSWERING)

    @classmethod
    async def connect(cls, endpoints: Endpoints, *, name: str) -> NatsLog:
        """Connect; waits for the server as long as it takes."""
        connection = Connection()
        await connection.open(endpoints, name)
        return cls(connection)

    @property
    def nc(self) -> Connection:
        """The client of nats-py, for what is not here."""
        return self.connection

    @property
    def connected(self) -> bool:
        """Whether the server is there now."""
        return self.connection.ready.is_set()

    async def close(self) -> None:
        """Give up everything that was made here, and the connection."""
        owned: tuple[Reader | Writer | Bucket, ...] = (*self._readers, *self._writers, *self._buckets.values())
        for each in owned:
            await each.close()
        for task in tuple(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await self.connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    # ---- Streams and buckets -----------------------------------------------------------------------------------

    async def ensure(self, settings: Settings, *, first: Mapping[str, int] | None = None) -> None:
        """Make streams and buckets with our limits, where they are not so already; `first`: see streams.ensure."""
        await streams.ensure(self.connection, settings, first)

    def writer(self, stream: str, *, max_pending: int = MAX_PENDING) -> Writer:
        """A pen for a stream."""
        writer = Writer(self.connection, stream, max_pending=max_pending)
        self._writers.append(writer)
        return writer

    def reader(self, stream: str, *, after: int, filter_subject: str | None = None) -> Reader:
        """A place in a stream; the first message has a sequence > after."""
        reader = Reader(self.connection, stream, after=after, filter_subject=filter_subject)
        self._readers = [each for each in self._readers if not each.closed]
        self._readers.append(reader)
        return reader

    def bucket(self, name: str) -> Bucket:
        """A bucket, always the same one for a name."""
        if name not in self._buckets:
            self._buckets[name] = Bucket(self.connection, name)
        return self._buckets[name]

    async def state(self, stream: str) -> StreamState:
        """What a stream holds now."""
        info = await self.connection.api(f"STREAM.INFO.{stream}")
        state = info["state"]
        times = _seconds(state["first_ts"]), _seconds(state["last_ts"])
        first = state["first_seq"] if state["messages"] else state["last_seq"] + 1
        return StreamState(first, state["last_seq"], state["messages"], state["bytes"], *times, server_time(info))

    async def purge(self, stream: str, up_to: int) -> int:
        """Remove all messages with sequence <= up_to; how many that were."""
        result = await self.connection.api(f"STREAM.PURGE.{stream}", {"seq": up_to + 1})
        return int(result["purged"])

    # ---- Questions between processes ---------------------------------------------------------------------------

    async def ask(
        self, process: str, what: str, payload: bytes = b"", *, timeout_seconds: float = ASK_SECONDS
    ) -> bytes:
        """Ask a process; NobodyThere if it does not run, AskError if it fails or says nothing in time, TooLarge."""
        return await self.ask_on(ask_subject(process, what), payload, timeout_seconds=timeout_seconds)

    async def ask_on(self, subject: str, payload: bytes, *, timeout_seconds: float = ASK_SECONDS) -> bytes:
        """As `ask`, with the subject as it is."""
        try:
            answer = await self.connection.ask_subject(subject, payload, timeout_seconds)
        except Unavailable as error:
            raise AskError(str(error)) from error
        if answer.headers is not None:
            raise AskError(answer.data.decode(errors="replace"))
        return answer.data

    async def answer(self, process: str, what: str, handler: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Answer a kind of question from now on; what the handler raises is what the asker is told."""

        async def without_subject(_subject: str, payload: bytes) -> bytes:
            return await handler(payload)

        await self.answer_on(ask_subject(process, what), without_subject)

    async def answer_on(self, subject: str, handler: Answerer) -> None:
        """As `answer`, for a subject as it is, with wildcards or without. Questions are worked on side by side."""

        async def take(question: Msg) -> None:
            await self._room.acquire()
            task = asyncio.create_task(self._work(question, handler))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

        await self.connection.subscribe(subject, cb=take)

    async def _work(self, question: Msg, handler: Answerer) -> None:
        headers = None
        try:
            data = await handler(question.subject, question.data)
        except Exception as error:  # noqa: BLE001  # the asker is told, whatever it is
            log.warning("a question on %s failed: %s: %s", question.subject, type(error).__name__, error)
            data, headers = f"{type(error).__name__}: {error}".encode(), {FAILED: "1"}
        finally:
            self._room.release()
        if len(data) > self.connection.max_payload:
            data, headers = str(TooLarge(len(data), self.connection.max_payload)).encode(), {FAILED: "1"}
        try:
            await self.connection.publish(question.reply, data, headers=headers)
        except (nats.errors.Error, OSError) as error:
            log.warning("an answer on %s is lost: %s", question.subject, error)

    async def out(self, client: str, leaf: str, payload: bytes, *, timeout_seconds: float = OUT_SECONDS) -> None:
        """Have the gateway publish to a client's topic; tries again until it has, then AskError."""
        loop, backoff = asyncio.get_running_loop(), Backoff()
        deadline = loop.time() + timeout_seconds
        while True:
            left = deadline - loop.time()
            try:
                await self.ask_on(out_subject(client, leaf), payload, timeout_seconds=max(left, 0.001))
            except (NobodyThere, AskError) as error:
                if left <= 0:
                    raise AskError(f"no way out to {client}/{leaf}: {error}") from error
                await asyncio.sleep(backoff.next())
            else:
                return


async def read_range(
    log: NatsLog, stream: str, first: int, last: int, *, filter_subject: str | None = None
) -> AsyncGenerator[list[Message], None]:
    """The messages with first <= sequence <= last, in batches; what was purged is left out."""
    found = _read_range(log.connection, stream, first, last, filter_subject=filter_subject)
    async with aclosing(found):
        async for messages in found:
            yield messages


def server_time(info: Mapping[str, Any]) -> float:
    """The time on the server, as its description of a stream says it; ours where it is too old to say it."""
    return datetime.fromisoformat(info["ts"]).timestamp() if "ts" in info else time.time()


def _seconds(text: str) -> float | None:
    """Of the server's RFC 3339, where the year 1 means never."""
    return None if text.startswith("0001-") else datetime.fromisoformat(text).timestamp()
