"""The matcher process: reads the log, and writes what each record tells into the notification log.

It needs no other process. Killed at any instant, it goes on from its newest snapshot and reads the log again; what it
says is a function of the log, so it knows by the last message of the notification log what it need not say again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson
from prometheus_client import generate_latest

from . import notes, records
from .engine import Engine
from .failpoints import failpoint
from .log_clock import LogClock
from .matcher_metrics import MatcherMetrics
from .matcher_start import Beginning, Place, begin
from .names import LOG, NOTES, READERS, log_subject, notes_subject
from .nats_log import LogError, Message, NatsLog, Stored, Truncated
from .positions import Position
from .records import RecordError, SubscriptionChange, Tick
from .service import Service
from .snapshot_taker import SnapshotTaker
from .snapshots import Moment, Snapshots
from .subscription_journal import Journal

log = logging.getLogger(__name__)

READER = "matcher"
"""Our key in the bucket of readers."""

POSITION_SECONDS = 0.1
"""How often our position is put there."""

PATIENCE_SECONDS = 0.2
"""For which we wait for records before we look at what else there is to do."""

TICK_SECONDS = 0.02
"""Between two ticks that we ask for, at least."""

DRAIN_SECONDS = 5.0
"""For notifications to be stored when we are to stop."""

SNAPSHOT_SECONDS = 60.0
"""For a snapshot that somebody waits for."""

SNAPSHOT_LOOK_SECONDS = 0.02
"""Between looks whether it is there."""

AGAIN_SECONDS = 0.5
"""Before we begin again, when the log's server has failed us."""

_RECORDS_AT_ONCE = 256


async def serve(service: Service) -> None:
    """Match until told to stop; begin again from a snapshot when the log has lost what was read of it."""
    current: list[Matcher] = []
    async with await NatsLog.connect(service.endpoints, name="matcher") as log_:
        await _answer(service, log_, lambda: current[0] if current else None)
        while not service.stopping.is_set():
            matcher = Matcher(service, log_)
            current[:] = [matcher]
            try:
                await matcher.run()
            except Truncated as error:
                log.error("%s; beginning again from a snapshot", error)
            except LogError as error:
                log.warning("%s; beginning again", error)
                await asyncio.sleep(AGAIN_SECONDS)
            finally:
                await matcher.close()


async def _answer(service: Service, log_: NatsLog, current: Callable[[], Matcher | None]) -> None:
    """Answer questions for metrics and health; `snapshot` asks for one of all that has been read, for a backup."""
    service.metrics.register(MatcherMetrics(current))

    def health() -> dict[str, Any]:
        matcher = current()
        return {"ready": False, "why": "starting"} if matcher is None else matcher.health()

    async def tell_metrics(_: bytes) -> bytes:
        return generate_latest(service.metrics)

    async def tell_health(_: bytes) -> bytes:
        return orjson.dumps(health())

    async def take_snapshot(_: bytes) -> bytes:
        matcher = current()
        if matcher is None:
            raise LookupError("starting")
        return orjson.dumps({"sequence": await matcher.snapshot_now()})

    service.health = health
    await log_.answer("matcher", "metrics", tell_metrics)
    await log_.answer("matcher", "health", tell_health)
    await log_.answer("matcher", "snapshot", take_snapshot)


class Matcher:
    """One life, from a snapshot to the end."""

    def __init__(self, service: Service, log_: NatsLog) -> None:
        self.service = service
        self.settings = service.settings
        self.time = 0.0
        """Of the last record read, by the log."""
        self.notes = self.note_messages = self.damaged_records = self.too_large = self.repeated = 0
        self.caught_up = False
        self.behind = 0
        self._log = log_
        self._snapshots = Snapshots(self.settings.data / "snapshots", self.settings.matching.snapshots_kept)
        self.journal = Journal(self._snapshots.folder)
        self.taker = SnapshotTaker(self._snapshots, self.journal)
        self._writer = log_.writer(NOTES)
        self._ticks = log_.writer(LOG)
        self._pending: deque[tuple[int, asyncio.Future[Stored]]] = deque()
        """Notifications that are not known to be stored, by record."""
        self._stored = Place(0, 0)
        self._clock = LogClock()
        self._tick_at = 0.0
        self._snapshot_at = 0.0
        self._damage = 0
        self.engine = Engine(self.settings)

    # ---- from beginning to end

    async def run(self) -> None:
        """Find the place, read from there, and leave a snapshot."""
        began = await begin(self._log, self.settings, self._snapshots, self.journal)
        self._take_up(began)
        goal = (await self._log.state(LOG)).last
        reader = self._log.reader(LOG, after=self.engine.sequence)
        report = asyncio.create_task(self._report(), name="position of the matcher")
        try:
            while not self.service.stopping.is_set():
                messages = await reader.next(timeout_seconds=self._patience(), at_most=_RECORDS_AT_ONCE)
                for message in messages:
                    await self._read(message)
                self.behind = reader.pending
                if self.engine.sequence >= goal:
                    self.caught_up = True
                    self.service.ready()
                await self._look_round(idle=not messages)
                await asyncio.sleep(0)
            await self._finish()
        finally:
            report.cancel()
            await asyncio.gather(report, return_exceptions=True)
            await reader.close()

    def _take_up(self, began: Beginning) -> None:
        self.engine, self.time, self._stored = began.engine, began.record_time, began.stored
        self.taker.published = began.snapshot
        self.taker.look()
        self._damage = self.engine.damaged
        self._snapshot_at = time.monotonic() + (self.settings.matching.snapshot_interval if began.snapshot else 0.0)
        gc.collect()
        gc.freeze()  # subscriptions stay: no collection need look at them again
        subscriptions = sum(tenant.kinds.total() for tenant in self.engine.tenants.values())
        log.info("matching goes on after record %d", self.engine.sequence, extra={"subscriptions": subscriptions})

    async def _finish(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._writer.drain()
        except TimeoutError:
            log.warning("stopping with notifications that are not stored; they will be made again")
        self.taker.proceed(self.stored_up_to, wait=True)
        if not self.taker.busy and self._is_news():
            self._snapshot()
            self.taker.proceed(self.stored_up_to, wait=True)
        await self._put_position(timeout_seconds=1.0)

    async def close(self) -> None:
        """Give up what is open; a snapshot that is half done is made again."""
        self.taker.give_up()
        self.journal.close()
        await self._writer.close()
        await self._ticks.close()
        self._pending.clear()

    # ---- records

    async def _read(self, message: Message) -> None:
        try:
            record = records.decode(message.data)
        except RecordError as error:
            self.damaged_records += 1
            log.error("record %d is passed over: %s", message.sequence, error)
            record = Tick()
        for told in self.engine.apply(record, message.sequence, message.time):
            if (told.at, told.part) > self._stored:
                await self._tell(told)
        self.time = message.time
        self._clock.read(message.time, time.monotonic(), own=isinstance(record, Tick))
        if isinstance(record, SubscriptionChange):
            self.journal.append(message.sequence, record.key, record.value)
        if self.engine.damaged != self._damage:
            self._damage = self.engine.damaged
            log.error("what could not be matched is passed over: %s", self.engine.damage)

    async def _tell(self, told: notes.Notes) -> None:
        name = f"m{told.at}.{told.part}.{told.time * 1e6:.0f}"
        future = await self._writer.put(notes_subject(told.tenant), notes.encode(told), message_id=name)
        self._pending.append((told.at, future))
        self.notes += len(told.notes)
        self.note_messages += 1
        failpoint("matcher.told")

    @property
    def stored_up_to(self) -> int:
        """All notifications of the records up to here are stored."""
        while self._pending and self._pending[0][1].done():
            failpoint("matcher.stored")
            at, future = self._pending.popleft()
            error = None if future.cancelled() else future.exception()
            if error is not None:
                self.too_large += 1
                log.error("notifications of record %d can never be stored: %s", at, error)
            elif not future.cancelled():
                self.repeated += future.result().duplicate
        return self._pending[0][0] - 1 if self._pending else self.engine.sequence

    # ---- time

    def _patience(self) -> float:
        """How long to wait for records: not beyond what is due next."""
        wake = self.engine.next_wake()
        if wake is None:
            return PATIENCE_SECONDS
        now = time.monotonic()
        return min(PATIENCE_SECONDS, max(self._clock.seconds_until(wake, now), self._tick_at - now, 0.001))

    async def _look_round(self, *, idle: bool) -> None:
        """What there is to do beside reading."""
        wake, now = self.engine.next_wake(), time.monotonic()
        if idle and wake is not None and self._clock.seconds_until(wake, now) <= 0:
            await self._tick(now)
        self.taker.proceed(self.stored_up_to)
        if now >= self._snapshot_at and not self.taker.busy:
            self._snapshot_at = now + self.service.settings.matching.snapshot_interval
            if self._is_news():
                self._snapshot()

    async def _tick(self, now: float) -> None:
        """Have the log say what time it is."""
        if now >= self._tick_at and not self._ticks.pending:
            self._tick_at = now + TICK_SECONDS
            self._clock.ask()
            (await self._ticks.put(log_subject("tick", "all"), records.encode(Tick()))).add_done_callback(_look_at)

    def _is_news(self) -> bool:
        published = self.taker.published
        return self.engine.sequence > 0 and (published is None or published.sequence != self.engine.sequence)

    def _snapshot(self) -> None:
        if self.journal.is_long:
            self.journal.rewrite(self.engine.sequence)
        moment = Moment(self.engine.sequence, self.time, time.time())
        self.taker.take(moment, lambda: {"engine": self.engine.snapshot()})

    async def snapshot_now(self) -> int:
        """Wait for a snapshot of all that has been read by now; its sequence."""
        wanted = self.engine.sequence
        async with asyncio.timeout(SNAPSHOT_SECONDS):
            while wanted and (self.taker.published is None or self.taker.published.sequence < wanted):
                self._snapshot_at = 0.0
                await asyncio.sleep(SNAPSHOT_LOOK_SECONDS)
        return 0 if self.taker.published is None else self.taker.published.sequence

    # ---- what others are told

    def position(self) -> Position:
        """How far we are; the floor is the oldest snapshot that is kept, for when newer ones are damaged."""
        return Position(LOG, self.taker.floor, self.stored_up_to, self.time)

    async def _report(self) -> None:
        """Put our position where the keeper looks, whenever it has changed."""
        last: Position | None = None
        while True:
            await asyncio.sleep(POSITION_SECONDS)
            position = self.position()
            if position != last:
                try:
                    await self._log.bucket(READERS).put(READER, position.encode())
                    last = position
                except LogError as error:
                    log.warning("our position is not put: %s", error)

    async def _put_position(self, *, timeout_seconds: float) -> None:
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._log.bucket(READERS).put(READER, self.position().encode())
        except (TimeoutError, LogError) as error:
            log.warning("our last position is not put: %s", error)

    @property
    def lag_seconds(self) -> float:
        """How old the last record is that was read, while there are others to read."""
        return max(0.0, time.time() - self.time) if self.behind and self.time else 0.0

    def health(self) -> dict[str, Any]:
        """What /readyz shows."""
        blocked = self._writer.blocked
        why = None if self.caught_up else "reading the log from the last snapshot"
        if blocked is not None:
            why = f"notifications are not stored: {blocked}"
        return {
            "ready": self.caught_up and blocked is None,
            **({} if why is None else {"why": why}),
            "sequence": self.engine.sequence,
            "stored": self.stored_up_to,
            "behind": self.behind,
            "lag_seconds": self.lag_seconds,
            "snapshot": None if self.taker.published is None else self.taker.published.sequence,
        }


def _look_at(done: asyncio.Future[Stored]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("a tick is not stored: %s", error)
