"""What browsers are told of one tenant, made while at least one looks, for all of them at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final

import orjson

from ..api.asks import ask
from ..api.context import Api
from ..api.errors import Problem
from ..log_errors import LogError
from ..names import NOTES
from .answers import Answers
from .channels import Flow, Newest
from .following import Following
from .presence import Presence
from .world import MAX_SOURCES, World

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.05
"""Browsers are told so often at most: twenty times a second."""
CELLS_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 2.0
"""How often the coordinator is asked who is there."""
LINGER_SECONDS: Final = 60.0
"""For so long all goes on after the last browser has gone: it may only have been reloaded."""
MAX_BROKERS: Final = 1_000
"""Mobile brokers that are shown; and announced sources that are asked for at once."""
NEWEST_NOTES: Final = 200
"""Notifications that are kept for browsers to come, of each listener."""
NOTES_BACK: Final = 500
"""Messages of the notification log that are read back for them."""


class Heard:
    """Notifications of one owner, or (None) of everybody."""

    def __init__(self, api: Api, tenant: str, owner: str | None, told: Callable[[], None]) -> None:
        self.newest: deque[bytes] = deque(maxlen=NEWEST_NOTES)
        self.flow = Flow("notes", lambda: b",".join(self.newest))
        self.watchers = 0
        self._api = api
        self._tenant = tenant
        self._owner = owner
        self._told = told

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._listen()
            except LogError as error:
                log.warning("the page's notifications cannot be read now: %s", error)
            await asyncio.sleep(1.0)

    async def _listen(self) -> None:
        state = await self._api.log.state(NOTES)
        back = max(state.first - 1, state.last - NOTES_BACK, 0)
        self.newest.clear()
        events = self._api.streams.feed.events(self._owner, self._tenant, after=f"{back}.0")
        async with aclosing(events):
            async for chunk in events:
                found = [event.partition(b"\ndata: ")[2] for event in chunk.split(b"\n\n") if event.startswith(b"id: ")]
                self._tell(found)

    def _tell(self, notes: list[bytes]) -> None:
        newest = notes[-NEWEST_NOTES:]
        if newest:
            self.newest.extend(newest)
            self.flow.put(b",".join(newest))
            self._told()


class Watched:
    """One tenant, looked at."""

    def __init__(self, api: Api, tenant: str) -> None:
        self.watchers = 0
        self.world = World()
        self.presence = Presence()
        self.points = Flow("points", self.world.points)
        self.overview = Newest()
        self.brokers = Newest()
        self.cells: dict[int, Newest] = {}
        self.resolutions: Counter[int] = Counter()
        """Of the cells that browsers show now."""
        self.news = asyncio.Event()
        """Set and replaced whenever there is anything new."""
        self._is_news = False
        self._api = api
        self._tenant = tenant
        self._following = Following(api.log, tenant, self.world)
        self.answers = Answers(self.world, self._following.is_read_back)
        self._heard: dict[str | None, tuple[Heard, asyncio.Task[None]]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Look."""
        self._tasks = [_background(work) for work in (self._following.run(), self._tick(), self._look())]

    async def stop(self) -> None:
        """Look no more."""
        tasks = [*self._tasks, *(task for _, task in self._heard.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def notes(self, owner: str | None) -> AsyncIterator[Flow]:
        """Notifications as they come; read once for all who listen to the same."""
        if owner not in self._heard:
            heard = Heard(self._api, self._tenant, owner, self._changed)
            self._heard[owner] = heard, _background(heard.run())
        heard, task = self._heard[owner]
        heard.watchers += 1
        try:
            yield heard.flow
        finally:
            heard.watchers -= 1
            if not heard.watchers:
                del self._heard[owner]
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def _changed(self) -> None:
        self._is_news = True

    def _wake(self) -> None:
        if self._is_news:
            self._is_news = False
            self.news.set()
            self.news = asyncio.Event()

    # ---- Twenty times a second

    async def _tick(self) -> None:
        cells_due = 0.0
        while True:
            began = time.monotonic()
            changed = self.world.changed()
            if changed:
                self.points.put(changed)
                self._changed()
            if began >= cells_due:
                cells_due = began + CELLS_SECONDS
                self._tell_cells()
                self._tell_overview()
            self._wake()
            await asyncio.sleep(max(0.0, began + TICK_SECONDS - time.monotonic()))

    def show_cells(self, resolution: int) -> Newest:
        """The cells of a resolution, from now on."""
        known = self.cells.get(resolution)
        if known is None:
            known = self.cells[resolution] = Newest()
            self._tell(known, resolution)
        return known

    def _tell_cells(self) -> None:
        for resolution in list(self.cells):
            if self.resolutions[resolution]:
                self._tell(self.cells[resolution], resolution)
            else:
                del self.cells[resolution]

    def _tell(self, newest: Newest, resolution: int) -> None:
        cells, more = self.world.cells(resolution, time.time())
        self._put(newest, {"kind": "cells", "resolution": resolution, "cells": cells, "more": more})

    def _put(self, newest: Newest, message: dict[str, Any]) -> None:
        if newest.put(orjson.dumps(message)):
            self._changed()

    def _tell_overview(self) -> None:
        overview = {
            "kind": "overview",
            "now": time.time(),
            "sources": len(self.world.sources),
            "readings": self.world.readings,
            "minute": self.world.in_last_minute(time.time()),
            "unseen": self._following.unseen,
            "forgotten": self.world.dropped.total(),
            "activity": self.world.activity(time.time()),
        }
        self._put(self.overview, overview)

    # ---- Who is there

    async def _look(self) -> None:
        while True:
            try:
                await self._ask()
            except Problem as problem:
                log.debug("who is there cannot be told now: %s", problem.detail)
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask(self) -> None:
        who: dict[str, Any] = {"tenant": self._tenant, "limit": MAX_BROKERS}
        announced = await ask(self._api.log, "coordinator", "brokers", **who)
        brokers = announced["brokers"]
        activations = (await ask(self._api.log, "coordinator", "activations", **who))["activations"]
        active = {one["broker"]: one for one in activations}
        if self.presence.put(await self._sources(who)):
            self._changed()
        self.world.places = self.presence.places
        shown = [{**_broker(one), "active": _active(active.get(one["broker"]))} for one in brokers]
        self._put(self.brokers, {"kind": "brokers", "brokers": shown, "more": announced["count"] - len(shown)})

    async def _sources(self, who: dict[str, Any]) -> list[dict[str, Any]]:
        """That are announced, as many as a world has room for."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while len(found) < MAX_SOURCES:
            page = await ask(self._api.log, "coordinator", "sources", **who, after=after)
            found += page["sources"]
            after = page["next"]
            if after is None:
                break
        return found


_SHOWN_OF_BROKER: Final = ("broker", "away", "sources", "place", "battery", "filters", "epoch", "counts")
MAX_ACTIVE: Final = 50
"""Filters of one broker that are shown; all are counted."""


def _broker(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one.get(name) for name in _SHOWN_OF_BROKER}


def _active(activation: dict[str, Any] | None) -> list[str]:
    found = [] if activation is None else activation["active"][:MAX_ACTIVE]
    return [one["subscription"]["text"] for one in found]


def _background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    task.add_done_callback(_complain)
    return task


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the page is not told any more", exc_info=error)


class Watchers:
    """All tenants that are looked at now."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._watched: dict[str, Watched] = {}
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        self._stops: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[Watched]:
        """A tenant, for as long as somebody looks."""
        if (leaving := self._leaving.pop(tenant, None)) is not None:
            leaving.cancel()
        if tenant not in self._watched:
            self._watched[tenant] = Watched(self._api, tenant)
            self._watched[tenant].start()
        watched = self._watched[tenant]
        watched.watchers += 1
        try:
            yield watched
        finally:
            watched.watchers -= 1
            if not watched.watchers:
                loop = asyncio.get_running_loop()
                self._leaving[tenant] = loop.call_later(LINGER_SECONDS, self._leave, tenant)

    def _leave(self, tenant: str) -> None:
        del self._leaving[tenant]
        stopping = asyncio.create_task(self._watched.pop(tenant).stop())
        self._stops.add(stopping)
        stopping.add_done_callback(self._stops.discard)

    async def close(self) -> None:
        """Look no more."""
        for leaving in self._leaving.values():
            leaving.cancel()
        await asyncio.gather(*(watched.stop() for watched in self._watched.values()), *self._stops)
