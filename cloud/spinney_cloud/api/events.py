"""Server-sent events: notifications as they come, for as long as the client reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.types import Message, Receive, Scope, Send

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
SEND_SECONDS = 30.0
"""A client that takes nothing for so long is cut; it can resume."""
CHECK_SECONDS = 5.0
"""How often it is asked whether the client may still listen."""


class EventStream:
    """An ASGI response. It ends with the stream, the client, the process, or the client's leave to listen."""

    def __init__(
        self, events: AsyncIterator[bytes], stopping: asyncio.Event, still_allowed: Callable[[], Awaitable[bool]]
    ) -> None:
        self._events = events
        self._stopping = stopping
        self._still_allowed = still_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One client's stream."""
        del scope
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        tasks = [
            asyncio.ensure_future(each)
            for each in (self._stream(send), _gone(receive), self._stopping.wait(), self._forbidden())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, TimeoutError):
                raise outcome
        await _send(send, b"", more=False)

    async def _stream(self, send: Send) -> None:
        async for chunk in self._events:
            await _send(send, chunk, more=True)

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
