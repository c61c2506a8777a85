"""Clients' requests: takes each from the queue, has it done, and replies; with its reply out a request is removed."""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol

import orjson
from prometheus_client import CollectorRegistry, Counter, Histogram

from spinney import SyntaxError as SubscriptionError
from spinney import parse

from .log_errors import LogError, TooLarge
from .names import DEAD, dead_subject, is_name
from .nats_log import NatsLog
from .post import Post
from .request_queue import AT_ONCE, Request, RequestQueue
from .subscription_reading import Asked, Reading, Refusal
from .subscription_service import SubscriptionService

log = logging.getLogger(__name__)

KINDS: Final = ("sub", "ann")
READ_AT_ONCE: Final = 64
"""Requests whose texts are read together: more would hold up all else for longer than some milliseconds."""
STEP_BYTES: Final = 16 * 1024
"""Of these requests together; a longer one is alone."""
MAX_KEPT_OF_PAYLOAD: Final = 4096
"""Characters of a refused payload that the dead letter keeps."""
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Announcing(Protocol):
    """What deals with announcements."""

    async def announced(self, tenant: str, client: str, item: Any, received: float) -> dict[str, Any] | None:
        """Take it in; what to reply, if anything. Refusal if it cannot be."""


class _Taken:
    """A request with its reply to come."""

    __slots__ = ("client", "leaf", "outcome", "problem", "received", "refusal", "request", "sid", "tenant", "text")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tenant = self.client = self.leaf = ""
        self.sid: str | None = None
        self.received = 0.0
        self.text = ""
        """The payload."""
        self.problem: Exception | None = None
        """Why it cannot even be opened."""
        self.refusal: Refusal | None = None
        self.outcome: asyncio.Future[Any] | dict[str, Any] | None = None
        try:
            self._open(orjson.loads(request.data))
        except Refusal as refusal:
            self.refusal = refusal
        except (ValueError, KeyError, TypeError) as error:
            self.problem = error

    def _open(self, item: dict[str, Any]) -> None:
        self.client, self.leaf, self.sid = item["client"], item["leaf"], item.get("sid")
        self.received, self.tenant = item["received"], item["tenant"]
        if item["v"] > 1 or not is_name(self.client) or not is_name(self.tenant):
            raise ValueError("a request of a newer version, or of nobody")
        self.text = _text(item)
        if self.leaf not in KINDS or (self.leaf == "sub" and not isinstance(self.sid, str)):
            raise Refusal(400, f"no such request: {self.leaf!r:.40}")

    @property
    def begins(self) -> bool:
        """Whether it asks for a subscription to begin or change; without a text it ends."""
        return (self.problem or self.refusal) is None and self.leaf == "sub" and bool(self.text.strip())


class ClientRequests:
    """The way of a request through the coordinator."""

    def __init__(
        self,
        nats: NatsLog,
        subscriptions: SubscriptionService,
        announcing: Announcing,
        post: Post,
        metrics: CollectorRegistry,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.queue = RequestQueue(nats.connection)
        self._subscriptions = subscriptions
        self._announcing = announcing
        self._post = post
        self._clock = clock
        self._dead = nats.writer(DEAD)
        self._to_reply: asyncio.Queue[_Taken] = asyncio.Queue(AT_ONCE)
        requests = Counter(
            "spinney_coordinator_requests", "Requests of clients, by what they ask", ["request"], registry=metrics
        )
        self._counts = {leaf: requests.labels(leaf) for leaf in (*KINDS, "other")}
        self._refused = Counter(
            "spinney_coordinator_requests_refused", "Requests that were refused", ["request"], registry=metrics
        )
        self._failed = Counter(
            "spinney_coordinator_requests_failed",
            "Requests that were refused because of an internal error, which is in the log",
            ["request"],
            registry=metrics,
        )
        self._latency = Histogram(
            "spinney_coordinator_reply_seconds",
            "From a request's arrival at the gateway to its reply's departure",
            buckets=_BUCKETS,
            registry=metrics,
        )

    async def take(self) -> None:
        """Take requests, for ever."""
        while True:
            for requests in _steps(await self.queue.next()):
                some = [_Taken(request) for request in requests]
                for taken, reading in zip(some, await self._read(some), strict=True):
                    await self._to_reply.put(await self._take(taken, reading))
                await asyncio.sleep(0)

    async def reply(self) -> None:
        """Reply to what has been done, for ever, in the order in which it was asked."""
        while True:
            taken = await self._to_reply.get()
            outcome = taken.outcome
            if isinstance(outcome, asyncio.Future):
                try:
                    outcome = (await outcome).reply()
                except Exception as error:  # noqa: BLE001  # see _refusal
                    outcome = await self._refuse(taken, self._refusal(taken, error))
            if outcome is None:
                self.queue.done(taken.request.number)
                continue
            sent = await self._post.send(taken.client, "reply", orjson.dumps(outcome))
            sent.add_done_callback(partial(self._sent, taken))

    def _sent(self, taken: _Taken, _sent: asyncio.Future[bool]) -> None:
        self._latency.observe(max(0.0, self._clock() - taken.received))
        self.queue.done(taken.request.number)

    async def close(self) -> None:
        """Take no more."""
        await self.queue.close()

    async def _read(self, some: list[_Taken]) -> list[Reading | Exception | None]:
        """What those say that begin a subscription; None for all others."""
        asked = [Asked(taken.client, taken.sid or "", taken.text) for taken in some if taken.begins]
        readings = iter(await self._readings(asked))
        return [next(readings) if taken.begins else None for taken in some]

    async def _take(self, taken: _Taken, reading: Reading | Exception | None) -> _Taken:
        if taken.problem is not None:
            self._counts["other"].inc()
            log.error("a request that cannot be read is put aside: %s", taken.problem)
            await self._bury(taken, f"cannot be read: {taken.problem!r}", taken.request.data.decode(errors="replace"))
            return taken
        self._counts.get(taken.leaf, self._counts["other"]).inc()
        try:
            taken.outcome = await self._begin(taken, taken.refusal or reading)
        except Exception as error:  # noqa: BLE001  # see _refusal
            taken.outcome = await self._refuse(taken, self._refusal(taken, error), taken.text)
        return taken

    async def _readings(self, asked: list[Asked]) -> list[Reading | Exception]:
        """Together; one by one if one of them brings about a failure, so that the others are read."""
        try:
            return [*await self._subscriptions.read(asked)]
        except Exception as error:  # noqa: BLE001  # see _refusal
            if len(asked) == 1:
                return [error]
        return [(await self._readings([one]))[0] for one in asked]

    def _refusal(self, taken: _Taken, error: Exception) -> Refusal:
        """What is told of whatever a request has met: that must neither end the process nor come again at its start.

        Trouble with the log is not the request's: it is raised, and the request is done after the next start.
        """
        if isinstance(error, Refusal):
            return error
        if isinstance(error, TooLarge):
            return Refusal(413, str(error))
        if isinstance(error, LogError):
            raise error
        leaf = taken.leaf if taken.leaf in self._counts else "other"
        self._failed.labels(leaf).inc()
        log.error("internal error: a request of %s (%s) is refused", taken.client, leaf, exc_info=error)
        return Refusal(500, f"internal error; see the cloud's log: {type(error).__name__}")

    async def _begin(self, taken: _Taken, reading: Reading | Exception | None) -> Any:
        if isinstance(reading, Exception):
            raise reading
        if taken.leaf == "ann":
            try:
                said = orjson.loads(taken.text)
            except ValueError as error:
                raise Refusal(400, f"not JSON: {error}") from None
            return await self._announcing.announced(taken.tenant, taken.client, said, taken.received)
        number = taken.request.number
        if reading is not None:
            return await self._subscriptions.put(taken.tenant, reading, request=number)
        assert taken.sid is not None
        return await self._subscriptions.end(taken.tenant, taken.client, taken.sid, request=number)

    async def _refuse(self, taken: _Taken, refusal: Refusal, payload: object = None) -> dict[str, Any]:
        self._refused.labels(taken.leaf if taken.leaf in self._counts else "other").inc()
        await self._bury(taken, str(refusal), str(payload or ""))
        told: dict[str, Any] = {"request": taken.leaf, "ok": False, "error": refusal.error}
        return told if taken.sid is None else {**told, "sid": taken.sid}

    async def _bury(self, taken: _Taken, reason: str, payload: str) -> None:
        client = taken.client if is_name(taken.client) else "unknown"
        letter = {
            "v": 1,
            "reason": reason,
            "client": client,
            "leaf": taken.leaf,
            "sid": taken.sid,
            "received": taken.received,
            "payload": payload[:MAX_KEPT_OF_PAYLOAD],
        }
        await self._dead.put(dead_subject("request", client), orjson.dumps(letter))


def _steps(requests: list[Request]) -> Iterator[list[Request]]:
    """Few enough of them, and short enough together, to be read at once."""
    step: list[Request] = []
    size = 0
    for request in requests:
        size += len(request.data)
        if step and (size > STEP_BYTES or len(step) == READ_AT_ONCE):
            yield step
            step, size = [], len(request.data)
        step.append(request)
    if step:
        yield step


def _text(item: dict[str, Any]) -> str:
    """The payload; what is no text is refused with its place, as the core says it."""
    payload, encoded = item.get("payload"), item.get("payload_b64")
    if encoded is None:
        return payload or ""
    try:
        parse(b64decode(encoded))
    except SubscriptionError as error:
        raise Refusal(400, error.message, line=error.line, column=error.column, expected="UTF-8") from None
    except (ValueError, LogError) as error:
        raise Refusal(400, f"not UTF-8: {error}") from None
    raise Refusal(400, "not UTF-8")
