"""The keeper: purges the log and the notification log, and looks after the disk they are on.

A stream's own limits would drop what a reader has not read yet, or stop all intake for good. So the streams only have
a hard cap, and the keeper purges below it by what the required readers say in the bucket of readers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import orjson

from .data_dir import write_whole
from .log_errors import LogError
from .message_ages import MessageAges
from .names import LOG, NOTES, READERS
from .nats_log import NatsLog, StreamState
from .positions import Position
from .retention import Hold, Limit, beyond_bytes, lowest_floor, plan, required_readers
from .settings import Log

logger = logging.getLogger(__name__)

MAX_ROUNDS = 10
"""Messages differ in size, so what goes by bytes is found in rounds; the next interval does the rest."""
RELEASED_FILE = "released.json"
_SECOND = 1_000_000_000


class Keeper:
    """Purges by one connection to the log's server. `run` does it every interval."""

    def __init__(self, log: NatsLog, settings: Log, data: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.holds: dict[str, Hold] = {}
        """By stream, who keeps it from being purged."""
        self.purged: dict[str, int] = {LOG: 0, NOTES: 0}
        self.states: dict[str, StreamState] = {}
        """As they were last found."""
        self.failures = 0
        self._log = log
        self._path = data / RELEASED_FILE
        self._clock = clock
        self._ages = {LOG: MessageAges(), NOTES: MessageAges()}
        self._released = _load(self._path)

    async def run(self) -> None:
        """Keep, until cancelled. What fails is tried again at the next interval."""
        while True:
            try:
                await self.keep()
            except LogError as error:
                self.failures += 1
                logger.warning("the keeper could not purge: %s", error)
            await asyncio.sleep(self.settings.keeper_interval)

    async def keep(self) -> None:
        """Purge what may go now."""
        positions = await self._positions()
        self._forget_releases(positions)
        for stream in (LOG, NOTES):
            await self._keep_stream(stream, positions)

    def limit(self, stream: str) -> Limit:
        """What the settings say of a stream."""
        if stream == LOG:
            return Limit(self.settings.max_age, self.settings.max_bytes)
        return Limit(self.settings.notes_max_age, self.settings.notes_max_bytes)

    async def release(self, reader: str) -> int:
        """Do not wait for this reader until it has come further; its floor. ValueError if nobody waits for it."""
        known = {name for stream in (LOG, NOTES) for name in self._required(stream)}
        if reader not in known:
            raise ValueError(f"nobody waits for a reader {reader!r:.60}; the readers are {', '.join(sorted(known))}")
        position = (await self._positions()).get(reader)
        self._released[reader] = 0 if position is None else position.floor
        self._save()
        logger.warning("reader %s is released: what it has not read may be purged", reader)
        return self._released[reader]

    def _required(self, stream: str) -> tuple[str, ...]:
        return required_readers(stream, pipeline=self.settings.pipeline)

    async def _positions(self) -> dict[str, Position]:
        entries = await self._log.bucket(READERS).load()
        return {name: Position.decode(entry.value) for name, entry in entries.items()}

    def _forget_releases(self, positions: dict[str, Position]) -> None:
        """Who has come further is waited for again."""
        further = [
            name for name, floor in self._released.items() if name in positions and positions[name].floor > floor
        ]
        for name in further:
            del self._released[name]
        if further:
            self._save()

    def _save(self) -> None:
        write_whole(self._path, orjson.dumps({"v": 1, "released": self._released}))

    async def _keep_stream(self, stream: str, positions: dict[str, Position]) -> None:
        floor, reader = lowest_floor(stream, self._required(stream), positions, self._released)
        for _ in range(MAX_ROUNDS):
            state = self.states[stream] = await self._log.state(stream)
            wish = min(await self._wish(stream, state), state.last - 1)  # the newest tells the matcher where it was
            purge_to, hold = plan(stream, state.first, wish, floor, reader)
            self._note(stream, hold)
            if purge_to < state.first:
                return
            self.purged[stream] += await self._log.purge(stream, purge_to)

    async def _wish(self, stream: str, state: StreamState) -> int:
        """The sequence up to which age or bytes would have messages go."""
        limit, ages, now = self.limit(stream), self._ages[stream], self._clock()
        ages.saw(state.last, state.now, now, limit.max_age)
        wish = max(
            beyond_bytes(state.first, state.messages, state.bytes, limit.max_bytes),
            ages.older_than(limit.max_age, now),
        )
        oldest = ages.timestamp(limit.max_age, now)
        if wish < state.first <= ages.last_before and state.first_time is not None and state.first_time < oldest:
            return max(wish, min(ages.last_before, await self._last_before(stream, state, oldest)))
        return wish

    async def _last_before(self, stream: str, state: StreamState, moment: float) -> int:
        """The newest sequence of before a moment: a consumer that begins there is told how many messages follow."""
        start = datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")
        config = {
            "deliver_policy": "by_start_time",
            "opt_start_time": start,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 5 * _SECOND,
        }
        made = await self._log.connection.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
        with suppress(LogError):  # it goes by itself
            await self._log.connection.api(f"CONSUMER.DELETE.{stream}.{made['name']}")
        return state.last - int(made["num_pending"])

    def _note(self, stream: str, hold: Hold | None) -> None:
        before = self.holds.pop(stream, None)
        if hold is not None:
            self.holds[stream] = hold
            if before is None or before.reader != hold.reader:
                logger.warning(
                    "%s holds %s: %d messages are kept beyond the limits for it", hold.reader, stream, hold.messages
                )
        elif before is not None:
            logger.info("%s is within its limits again, or its reader is", stream)


def _load(path: Path) -> dict[str, int]:
    try:
        return dict(orjson.loads(path.read_bytes())["released"])
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        logger.error("%s is damaged, so no reader is released: %s", path, error)
        return {}


class Disk:
    """The free space where the log is. Below the floor nothing new is taken in."""

    def __init__(self, path: Path, floor: int) -> None:
        self.path = path
        self.floor = floor
        self.free = 0
        self.full = False
        """Below the floor when last looked at."""

    def look(self) -> bool:
        """Look now; whether it is below the floor."""
        found = os.statvfs(self.path)
        self.free = found.f_bavail * found.f_frsize
        was, self.full = self.full, self.free < self.floor
        if self.full and not was:
            logger.error("%d bytes are free on %s, below the floor of %d: refusing", self.free, self.path, self.floor)
        elif was and not self.full:
            logger.warning("%d bytes are free on %s: taking in again", self.free, self.path)
        return self.full
