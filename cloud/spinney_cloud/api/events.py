"""Server-sent events: notifications as they come, for as long as the client reads and may."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ..note_feed import NoteFeed
from .auth import Caller
from .errors import Problem

SEND_SECONDS = 30.0
"""A client that takes nothing for so long is cut; it can resume."""
CHECK_SECONDS = 1.0
"""How often it is asked whether the client may still listen."""
MAX_STREAMS = 500
"""Of one caller."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Streams:
    """Who listens how often, for limit and metrics."""

    def __init__(self, feed: NoteFeed) -> None:
        self.feed = feed
        self.open: Counter[Caller] = Counter()
        self.slow = 0

    def begin(self, caller: Caller) -> None:
        """One more; a Problem beyond the limit."""
        if self.open[caller] >= MAX_STREAMS:
            raise Problem(429, f"{MAX_STREAMS} streams are open already", headers={"Retry-After": "10"})
        self.open[caller] += 1

    def end(self, caller: Caller) -> None:
        """One less."""
        self.open[caller] -= 1
        if not self.open[caller]:
            del self.open[caller]

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        yield GaugeMetricFamily("spinney_http_streams", "Open event streams.", value=self.open.total())
        yield CounterMetricFamily("spinney_http_events", "Events sent.", value=self.feed.sent)
        yield CounterMetricFamily("spinney_http_streams_cut", "Streams cut: too slow.", value=self.feed.cuts)
        yield CounterMetricFamily("spinney_http_streams_stuck", "Streams that took nothing for long.", value=self.slow)


class EventStream(Response):
    """It ends with the stream, the client, the process, or the client's leave to listen."""

    def __init__(
        self,
        streams: Streams,
        caller: Caller,
        events: AsyncGenerator[bytes, None],
        stopping: asyncio.Event,
        still_allowed: Callable[[], Awaitable[bool]],
    ) -> None:
        super().__init__()
        self._streams = streams
        self._caller = caller
        self._events = events
        self._stopping = stopping
        self._still_allowed = still_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One client's stream."""
        del scope
        self._streams.begin(self._caller)
        try:
            await self._run(receive, send)
        finally:
            self._streams.end(self._caller)
            await self._events.aclose()

    async def _run(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        streaming = asyncio.create_task(self._stream(send))
        others = [asyncio.create_task(each) for each in (_gone(receive), _happens(self._stopping), self._forbidden())]
        try:
            await asyncio.wait([streaming, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (streaming, *others):
                task.cancel()
            await asyncio.gather(streaming, *others, return_exceptions=True)
        if not streaming.cancelled():
            streaming.result()
        await _send(send, b"", more=False)

    async def _stream(self, send: Send) -> None:
        try:
            async for chunk in self._events:
                await _send(send, chunk, more=True)
        except TimeoutError:
            self._streams.slow += 1

    async def _forbidden(self) -> None:
        while await self._still_allowed():
            await asyncio.sleep(CHECK_SECONDS)


async def _send(send: Send, chunk: bytes, *, more: bool) -> None:
    message: Message = {"type": "http.response.body", "body": chunk, "more_body": more}
    async with asyncio.timeout(SEND_SECONDS):
        await send(message)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _happens(event: asyncio.Event) -> None:
    await event.wait()
