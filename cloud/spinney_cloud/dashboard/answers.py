"""What browsers ask about the hour, worked out once for all who ask the same, and never for most of the time."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import orjson

from .world import SLOT_SECONDS, World

MAX_PASTS: Final = 32
"""That are remembered."""
REST: Final = 4
"""After each answer it rests for so many times as long: answers take a fifth of one core at most."""


class Answers:
    """About one tenant."""

    def __init__(
        self,
        world: World,
        is_read_back: asyncio.Event,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.worked_out = 0
        """Times of the hour."""
        self._is_read_back = is_read_back
        """The world has its hour; nothing is said of a part of it."""
        self._world = world
        self._clock = clock
        self._rest = rest
        self._pasts: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._turn = asyncio.Lock()
        self._rests_until = 0.0

    async def past(self, at: float, resolution: int) -> bytes:
        """How the map was then."""
        key = int(at // SLOT_SECONDS), resolution
        body = self._pasts.get(key) or await self._in_turn(lambda: self._past(key, at))
        return b'{"kind":"past","at":%b,%b}' % (orjson.dumps(at), body)

    async def series(self, sources: Sequence[str]) -> bytes:
        """The last hour of these."""
        return await self._in_turn(lambda: orjson.dumps({"kind": "series", "series": self._world.series(sources)}))

    async def _in_turn(self, work: Callable[[], bytes]) -> bytes:
        await self._is_read_back.wait()
        async with self._turn:
            began = self._clock()
            if began < self._rests_until:
                await self._rest(self._rests_until - began)
                began = self._clock()
            found = work()
            ended = self._clock()
            self._rests_until = ended + REST * (ended - began)
        return found

    def _past(self, key: tuple[int, int], at: float) -> bytes:
        if (known := self._pasts.get(key)) is not None:  # by whoever had the turn before
            return known
        self.worked_out += 1
        cells, more = map(orjson.dumps, self._world.cells(key[1], at))
        body = b'"points":[%b],"cells":%b,"more":%b' % (self._world.past(at), cells, more)
        if self._world.is_over(at):
            self._pasts[key] = body
            while len(self._pasts) > MAX_PASTS:
                self._pasts.popitem(last=False)
        return body
