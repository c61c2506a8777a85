"""One connection to nats-server: nats-py's client, with short ways past its queues and its parsing of headers.

All that depends on the inside of nats-py is in this file. Its client reconnects and replays subscriptions, and sends
again by itself what was in its queue. What goes through `send` is never in that queue: only a Writer knows what may be
sent again, and in which order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

import nats.errors
import orjson
from nats.aio.client import Client

from .log_errors import NobodyThere, Refused, StreamMissing, TooLarge, Unavailable
from .service import Endpoints

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 0.2
CONNECT_TIMEOUT_SECONDS = 3
PING_SECONDS = 5
"""Two pings without an answer: the link is taken for dead."""
PENDING_BYTES = 8 * 1024**2
"""Of what goes through nats-py's own queue; what is written with `send` is bounded by who sends."""
API_TIMEOUT_SECONDS = 5.0
CLOSE_SECONDS = 2.0
MAX_ASKED = 2000
"""Requests under way at once; more of them wait."""
REPEATED_ERROR_EVERY = 50
"""While the server is away, one in so many attempts is said."""

STREAM_NOT_FOUND = 10059
NOT_NOW = 503
"""Of JetStream's errors: it starts, or lacks something for a while."""
_SUBJECT = re.compile(r"[^\s\x00.]+(?:\.[^\s\x00.]+)*")

Handler = Callable[[bytes, bytes, bytes, bytes | None], None]
"""Called with subject, reply, data and raw headers as each message comes; it must not block or raise."""


def subject_bytes(subject: str) -> bytes:
    """A subject as it goes over the wire; ValueError for what would end there early."""
    if _SUBJECT.fullmatch(subject) is None:
        raise ValueError(f"not a subject: {subject!r}")
    return subject.encode()


class Answer(NamedTuple):
    """What came back for a request."""

    headers: bytes | None
    data: bytes


class Connection(Client):
    """A client of nats-server with handlers that are called as the bytes are parsed."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = asyncio.Event()
        """Connected, with all subscriptions in place."""
        self.epoch = 0
        """Counts connections: what was sent in an earlier one may be lost."""
        self.on_change: set[Callable[[], None]] = set()
        """Called after each loss of the connection and after each new one."""
        self._handlers: dict[int, Handler] = {}
        self._out: list[bytes] = []
        self._asked: dict[bytes, asyncio.Future[Answer]] = {}
        self._counter = 0
        self._failures = 0
        self._room = asyncio.Semaphore(MAX_ASKED)
        self.inbox = f"_INBOX.{secrets.token_hex(11)}"

    # ---- Connecting --------------------------------------------------------------------------------------------

    async def open(self, endpoints: Endpoints, name: str) -> None:
        """Connect; tries until it succeeds."""
        await self.connect(
            [url.strip() for url in endpoints.nats_url.split(",")],
            name=name,
            user=endpoints.nats_user,
            password=endpoints.nats_password,
            tls=endpoints.nats_context(),
            error_cb=self._note_error,
            disconnected_cb=self._lost,
            reconnected_cb=self._found,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type]  # it sleeps so long: a float will do
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            ping_interval=PING_SECONDS,
            pending_size=PENDING_BYTES,
        )
        await self.listen(f"{self.inbox}.a.*", self._on_answer)
        await self._found()

    async def _found(self) -> None:
        self.epoch += 1
        self._failures = 0
        self.ready.set()
        self._tell()

    async def _lost(self) -> None:
        self.ready.clear()
        asked, self._asked = self._asked, {}
        for future in asked.values():
            if not future.done():
                future.set_exception(Unavailable("the connection to the log's server is lost"))
        self._tell()

    def _tell(self) -> None:
        for each in tuple(self.on_change):
            each()

    async def _note_error(self, error: Exception) -> None:
        if self._failures % REPEATED_ERROR_EVERY == 0:
            log.warning("nats-server: %s", str(error) or type(error).__name__)
        self._failures += 1

    async def _process_err(self, err_msg: str) -> None:
        """Reconnect after whatever the server says before it closes; nats-py would give up for ever."""
        error = nats.errors.Error(f"nats-server says {err_msg}")
        if "permissions violation" in err_msg:
            await self._note_error(error)
        else:
            await self._process_op_err(error)

    # ---- Messages ----------------------------------------------------------------------------------------------

    async def listen(self, subject: str, handler: Handler) -> int:
        """Have a handler called for each message of a subject: of what is answered to a later `send`, all."""
        with _as_ours():
            subscription = await self.subscribe(subject)
        self._handlers[subscription._id] = handler
        return subscription._id

    async def unlisten(self, number: int) -> None:
        """End what `listen` began."""
        self._handlers.pop(number, None)
        if (subscription := self._subs.get(number)) is not None:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def _attempt_reconnect(self) -> None:
        """Without waiting until what the dead link still holds is written: that may be never."""
        self._abort()
        await super()._attempt_reconnect()

    async def close(self) -> None:
        """End for good; within CLOSE_SECONDS even if the server takes nothing more."""
        if not self.ready.is_set():
            self._abort()
        timer = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._abort)
        try:
            await super().close()
        except (OSError, nats.errors.Error) as error:
            log.warning("closing the connection to nats-server: %s", error)
        finally:
            timer.cancel()

    def _abort(self) -> None:
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        handler = self._handlers.get(sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            handler(subject, reply, data, headers)

    def send(self, subject: bytes, data: bytes, reply: bytes = b"", headers: bytes = b"") -> None:
        """Publish with the next turn of the loop; lost when not connected.

        The subject comes from `subject_bytes`; `headers` are lines that each end in CRLF.
        """
        if not self._out:
            asyncio.get_running_loop().call_soon(self._write)
        if headers:
            length = len(headers) + 12
            self._out.append(
                b"HPUB %b %b %d %d\r\nNATS/1.0\r\n%b\r\n%b\r\n"
                % (subject, reply, length, length + len(data), headers, data)
            )
        else:
            self._out.append(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(data), data))

    def _write(self) -> None:
        """What is ours goes after what nats-py has gathered: a subscription comes before the request it is for."""
        if self._out and self.ready.is_set() and self._transport is not None:
            before, self._pending, self._pending_data_size = self._pending, [], 0
            self._transport.write(b"".join((*before, *self._out)))
        self._out.clear()

    # ---- Requests ----------------------------------------------------------------------------------------------

    async def ask_subject(self, subject: str, data: bytes, timeout_seconds: float) -> Answer:
        """Send a request, and wait for its one answer; NobodyThere, Unavailable, or TooLarge: for a larger one the
        server would end the connection."""
        if len(data) > self.max_payload:
            raise TooLarge(len(data), self.max_payload)
        async with self._room:
            return await self._ask(subject, data, timeout_seconds)

    async def _ask(self, subject: str, data: bytes, timeout_seconds: float) -> Answer:
        if not self.ready.is_set():
            raise Unavailable("not connected to the log's server")
        self._counter += 1
        token = b"%d" % self._counter
        future = asyncio.get_running_loop().create_future()
        self._asked[token] = future
        try:
            self.send(subject_bytes(subject), data, b"%b.a.%b" % (self.inbox.encode(), token))
            async with asyncio.timeout(timeout_seconds):
                answer: Answer = await future
        except TimeoutError:
            raise Unavailable(f"no answer on {subject} within {timeout_seconds:g} s") from None
        finally:
            self._asked.pop(token, None)
        if answer.headers is not None and answer.headers.startswith(b"NATS/1.0 503"):
            raise NobodyThere(subject)
        return answer

    def _on_answer(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> None:
        future = self._asked.get(subject.rpartition(b".")[2])
        if future is not None and not future.done():
            future.set_result(Answer(headers, data))

    async def api(self, what: str, payload: object = None, *, timeout_seconds: float = API_TIMEOUT_SECONDS) -> Any:
        """A call of JetStream's API; Refused, StreamMissing or Unavailable."""
        data = b"" if payload is None else orjson.dumps(payload)
        try:
            answer = await self.ask_subject(f"$JS.API.{what}", data, timeout_seconds)
        except NobodyThere:
            raise Unavailable("the server has no JetStream, or has disabled it: see its log") from None
        result = orjson.loads(answer.data)
        if error := result.get("error"):
            if error.get("err_code") == STREAM_NOT_FOUND:
                raise StreamMissing(what.split(".")[2])
            if error.get("code") == NOT_NOW:
                raise Unavailable(f"JetStream says: {error.get('description')}")
            raise Refused(error.get("code", 0), error.get("err_code", 0), error.get("description", ""))
        return result


class Backoff:
    """Waits that double from 50 ms to a second, with jitter, until `reset`."""

    FIRST_SECONDS = 0.05
    LAST_SECONDS = 1.0

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """It works again."""
        self._seconds = self.FIRST_SECONDS

    def next(self) -> float:
        """How long to wait now."""
        now, self._seconds = self._seconds, min(2 * self._seconds, self.LAST_SECONDS)
        return now * random.uniform(0.75, 1.25)  # noqa: S311  # no secret


@contextlib.contextmanager
def _as_ours() -> Any:
    try:
        yield
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise Unavailable(f"nats-server: {str(error) or type(error).__name__}") from error
