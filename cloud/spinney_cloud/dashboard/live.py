"""The page's socket: the newest of everything to the browser, and a few questions back.

The browser may say, each a JSON object: `{"resolution": 8}` which cells it shows; `{"at": 1731900000}` how the map was
then; `{"series": ["m7"]}` the last hour of these sources. Of each only the newest is worked out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import orjson
from prometheus_client import Counter, Gauge
from starlette.websockets import WebSocket, WebSocketDisconnect

from ..api.auth import Caller, Right
from ..api.context import Api
from .channels import Channel
from .operations import Operations
from .watching import Watched, Watchers
from .world import RESOLUTION

MAX_BROWSERS: Final = 200
"""Of one caller."""
MAX_QUESTION: Final = 16 * 1024
MAX_SERIES: Final = 60
"""Sources in one question."""
SEND_SECONDS: Final = 20.0
"""A browser that takes nothing for so long is let go; it comes back by itself."""
CHECK_SECONDS: Final = 1.0
"""How often it is asked whether the caller may still look."""

FORBIDDEN, TOO_MANY, NONSENSE = 4403, 4429, 1003
"""Why we close."""


class Live:
    """All browsers of this process."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.watchers = Watchers(api)
        self.operations = Operations(api)
        self._browsers: dict[Caller, int] = {}
        registry = api.service.metrics
        self._open = Gauge("spinney_dashboard_browsers", "Browsers that show the page.", registry=registry)
        self._sent = Counter("spinney_dashboard_messages", "Messages to browsers.", registry=registry)
        self._bytes = Counter("spinney_dashboard_bytes", "Bytes to browsers.", registry=registry)

    async def serve(self, socket: WebSocket, caller: Caller) -> None:
        """One browser, until it goes, or may not look any more, or the process stops."""
        await socket.accept()
        if self._browsers.get(caller, 0) >= MAX_BROWSERS:
            await socket.close(TOO_MANY, "too many pages are open")
            return
        self._browsers[caller] = self._browsers.get(caller, 0) + 1
        self._open.inc()
        try:
            async with AsyncExitStack() as stack:
                watched = await stack.enter_async_context(self.watchers.of(caller.tenant))
                channels: dict[str, Channel] = {
                    "points": watched.points,
                    "present": watched.presence.flow,
                    "overview": watched.overview,
                    "brokers": watched.brokers,
                }
                if caller.may(Right.SUBSCRIBE):
                    owner = None if caller.may(Right.OPERATE) else caller.name
                    channels["notes"] = await stack.enter_async_context(watched.notes(owner))
                if caller.may(Right.OPERATE):
                    channels["operations"] = await stack.enter_async_context(self.operations.shown())
                await Browser(socket, watched, channels, self._count).run(
                    self._api.door.watch(socket, caller), self._api.service.stopping
                )
        finally:
            self._open.dec()
            self._browsers[caller] -= 1
            if not self._browsers[caller]:
                del self._browsers[caller]

    def _count(self, size: int) -> None:
        self._sent.inc()
        self._bytes.inc(size)

    async def close(self) -> None:
        """No more."""
        await self.watchers.close()
        await self.operations.close()


class Browser:
    """One page that is open."""

    def __init__(
        self, socket: WebSocket, watched: Watched, channels: dict[str, Channel], count: Callable[[int], None]
    ) -> None:
        self._socket = socket
        self._watched = watched
        self._channels = channels
        self._count = count
        self._had = dict.fromkeys(channels, 0)
        self._questions: dict[str, Callable[[], Awaitable[bytes]]] = {}
        """What it has asked, until it is worked out: the newest of each kind..."""
        self._is_asked = asyncio.Event()
        self._answers: dict[str, bytes] = {}
        """...and until it is sent."""
        self._is_answered = asyncio.Event()
        self._resolution: int | None = None

    async def run(self, still_allowed: Callable[[], Awaitable[bool]], stopping: asyncio.Event) -> None:
        """Until any of it ends."""
        works: tuple[Coroutine[Any, Any, Any], ...] = (
            self._tell(),
            self._answer(),
            self._listen(),
            _forbidden(still_allowed),
            stopping.wait(),
        )
        telling, answering, listening, forbidden, stop = tasks = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._show_cells(None)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(RuntimeError, WebSocketDisconnect):  # it may be gone already
            if _ended(forbidden):
                await self._socket.close(FORBIDDEN, "log in again")
            elif _ended(stop):
                await self._socket.close(1012, "the server stops")
            elif _ended(listening) and listening.result():
                await self._socket.close(NONSENSE, "no such question")
            elif _ended(telling) or _ended(answering):
                await self._socket.close()

    # ---- Telling

    async def _tell(self) -> None:
        with suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
            while True:
                news, self._is_answered = self._watched.news, asyncio.Event()
                if not await self._send_all():
                    await _either(news, self._is_answered)

    async def _send_all(self) -> bool:
        """What it has not had; whether there was any."""
        answers, self._answers = self._answers, {}
        for data in answers.values():
            await self._send(data)
        is_news = bool(answers)
        for name, channel in list(self._channels.items()):
            news = channel.since(self._had.get(name, 0))
            if news is not None:
                self._had[name] = news.version
                await self._send(news.data)
                is_news = True
        return is_news

    async def _send(self, data: bytes) -> None:
        self._count(len(data))
        async with asyncio.timeout(SEND_SECONDS):
            await self._socket.send({"type": "websocket.send", "text": data.decode()})

    # ---- Listening

    async def _listen(self) -> bool:
        """Until it goes; True if it asked nonsense."""
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return False
            if not self._ask(message.get("text") or ""):
                return True

    def _ask(self, text: str) -> bool:
        try:
            question = orjson.loads(text) if len(text) <= MAX_QUESTION else None
        except orjson.JSONDecodeError:
            return False
        match question:
            case {"at": int() | float() as at, **more}:
                shown = _resolution(more.get("resolution"))
                self._questions["past"] = lambda: self._watched.answers.past(float(at), shown)
            case {"resolution": int(resolution)} if 0 <= resolution <= RESOLUTION:
                self._show_cells(resolution)
            case {"series": list(names)} if len(names) <= MAX_SERIES and all(isinstance(one, str) for one in names):
                self._questions["series"] = lambda: self._watched.answers.series(names)
            case _:
                return False
        self._is_asked.set()
        return True

    async def _answer(self) -> None:
        """One question after the other; what is asked meanwhile takes the place of what waits."""
        while True:
            await self._is_asked.wait()
            self._is_asked.clear()
            while self._questions:
                kind = next(iter(self._questions))
                self._answers[kind] = await self._questions.pop(kind)()
                self._is_answered.set()

    def _show_cells(self, resolution: int | None) -> None:
        if self._resolution is not None:
            self._watched.resolutions[self._resolution] -= 1
            self._channels.pop("cells", None)
        self._resolution = resolution
        if resolution is not None:
            self._watched.resolutions[resolution] += 1
            self._channels["cells"] = self._watched.show_cells(resolution)
            self._had["cells"] = 0


def _resolution(asked: object) -> int:
    return asked if type(asked) is int and 0 <= asked <= RESOLUTION else RESOLUTION


def _ended(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _forbidden(still_allowed: Callable[[], Awaitable[bool]]) -> None:
    while await still_allowed():
        await asyncio.sleep(CHECK_SECONDS)


async def _either(one: asyncio.Event, other: asyncio.Event) -> None:
    tasks = [asyncio.create_task(one.wait()), asyncio.create_task(other.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
