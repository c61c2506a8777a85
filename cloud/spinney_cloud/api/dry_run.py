"""What a subscription would have delivered: a part of the log, replayed through an engine of its own. What the log has
no more comes from the pipeline's lake, if there is one (pipeline/replay_lake.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import orjson

from spinney.subscription_text import duration_seconds

from ..completeness import Answer, Judge
from ..completeness.answer import PAGE
from ..completeness.reading import LOOKBACK_SECONDS, Saying, judge_of, log_sayings, tell
from ..delivery_options import DEFAULT, DeliveryOptions
from ..engine import Engine
from ..fetch.placing import Given, Placing
from ..fetch.result import Fetched
from ..names import LOG, log_subject
from ..nats_log import Message, NatsLog, read_range
from ..note_payload import encode_notes
from ..notes import Notes
from ..records import Publications, Record, RecordError, SubscriptionChange, Tick, decode
from ..settings import Settings
from ..subscriptions import Form, StoredSubscription
from .dry_run_delivery import DryDelivery
from .log_tail import range_since

if TYPE_CHECKING:  # the lake's packages need not be there
    from ..pipeline.replay_lake import Earlier

logger = logging.getLogger(__name__)

MAX_SECONDS: Final = 10.0
MAX_ROWS: Final = 1_000_000
MAX_BYTES: Final = 256 * 1024**2
"""Of the log: an engine can remember no more than it was fed."""
MAX_NOTIFICATIONS: Final = 1_000
MAX_NOTIFICATION_BYTES: Final = 4 * 1024**2
"""Those beyond are counted only."""

ENDS: Final = frozenset({"time", "rows", "memory"})
"""What cuts a replay short, and not only what is told of it."""


class _EndedError(Exception):
    """A bound is reached while the lake is read."""


@dataclass(slots=True)
class Replay:
    """An engine with one subscription, and what came of it so far."""

    engine: Engine
    deadline: float
    judge: Judge | None = None
    """Told of all publications that are replayed from the log."""
    delivery: DryDelivery | None = None
    """None: all that is told would be delivered."""
    placing: Placing | None = None
    """What was fetched, to be replayed among them."""
    since: float | None = None
    until: float | None = None
    rows: int = 0
    passed_over: int = 0
    """Readings of the lake that need not be replayed."""
    bytes_read: int = 0
    count: int = 0
    kept: list[bytes] = field(default_factory=list)
    kept_bytes: int = 0
    cut: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        stored: StoredSubscription,
        settings: Settings,
        judge: Judge | None = None,
        options: DeliveryOptions = DEFAULT,
    ) -> Replay:
        """With nothing read yet."""
        engine = Engine(settings)
        engine.apply(SubscriptionChange(stored.tenant, stored.key, stored.to_json()), 0, 0.0)
        replay = cls(engine, time.monotonic() + MAX_SECONDS, judge)
        if options != DEFAULT:
            key = stored.tenant, stored.owner, stored.sid
            replay.delivery = DryDelivery(key, options, settings, replay._deliver)
        return replay

    @property
    def ended(self) -> bool:
        """Whether a bound is reached."""
        return not ENDS.isdisjoint(self.cut)

    def hear(self, earlier: Earlier) -> None:
        """What the log has no more, before the first part of the log."""
        try:
            for item in earlier.records(self._goes_on):
                self._goes_on(0)
                self._tell_fetched_before(item.sequence, item.arrival)
                self.since = item.arrival if self.since is None else self.since
                self.until = item.arrival
                if isinstance(item.record, Publications):
                    self.rows += sum(run.length for run in item.record.runs)
                    self.bytes_read += len(item.record.rows)
                self._tell(item.record, item.sequence, item.arrival)
        except _EndedError:
            pass
        self.passed_over = max(0, self.passed_over - self.rows)

    def _goes_on(self, scanned: int) -> None:
        self.passed_over += scanned
        if self.ended or self._at_bound():
            raise _EndedError

    def feed(self, messages: list[Message]) -> None:
        """The next part of the log."""
        for message in messages:
            if self.ended or self._at_bound():
                return
            self._apply(message)

    def _at_bound(self) -> bool:
        for bound, reached in (
            ("time", time.monotonic() > self.deadline),
            ("rows", self.rows >= MAX_ROWS),
            ("memory", self.bytes_read >= MAX_BYTES),
        ):
            if reached:
                self.cut.append(bound)
        return self.ended

    def _apply(self, message: Message) -> None:
        try:
            record = decode(message.data)
        except RecordError:
            return
        if isinstance(record, SubscriptionChange):  # others' subscriptions
            return
        self.since = message.time if self.since is None else self.since
        self.until = message.time
        self._tell_fetched_before(message.sequence, message.time)
        self.bytes_read += len(message.data)
        if isinstance(record, Publications):
            self.rows += sum(run.length for run in record.runs)
            if self.judge is not None:
                self.judge.heard(message.time, record.runs)
        self._tell(record, message.sequence, message.time)

    def _tell_fetched_before(self, sequence: int, arrival: float) -> None:
        if self.placing is not None:
            self._tell_fetched(self.placing.before(sequence, arrival))

    def _tell_fetched(self, given: Iterable[Given]) -> None:
        for item in given:
            assert isinstance(item.record, Publications)
            self.since = item.arrival if self.since is None else self.since
            self.until = max(item.arrival, self.until or item.arrival)
            self.rows += 1
            self.bytes_read += len(item.record.rows)
            self._tell(item.record, item.sequence, item.arrival)

    def finish(self, now: float) -> None:
        """What has fallen due since the last record."""
        if not self.ended:
            if self.placing is not None:
                self._tell_fetched(self.placing.rest(self.engine.sequence))
            self._tell(Tick(), self.engine.sequence + 1, now)
        elif self.placing is not None:
            self.placing.give_up()
        if self.delivery is not None:
            self.delivery.finish()
        if len(self.kept) < self.count:
            self.cut.append("notifications")

    def _tell(self, record: Record, sequence: int, at: float) -> None:
        for notes in self.engine.apply(record, sequence, at):
            if self.delivery is not None:
                self.delivery.take(notes)
            else:
                self._deliver_all(notes)
        if self.delivery is not None:
            self.delivery.run(at)

    def _deliver_all(self, notes: Notes) -> None:
        room = min(MAX_NOTIFICATIONS - len(self.kept), len(notes.notes))
        for told in encode_notes(notes, range(room)):
            self._deliver(told.payload)
        self.count += len(notes.notes) - room

    def _deliver(self, payload: bytes) -> None:
        self.count += 1
        if len(self.kept) < MAX_NOTIFICATIONS and self.kept_bytes < MAX_NOTIFICATION_BYTES:
            self.kept.append(payload)
            self.kept_bytes += len(payload)

    def result(self, form: Form, answer: Answer, after: int = 0, limit: int = PAGE) -> dict[str, Any]:
        """As the API tells it, with a page of the reasons why it may not be complete."""
        return {
            "kind": form.kind,
            "normal": form.normal,
            "cost": form.cost,
            "since": self.since,
            "until": self.until,
            "readings": self.rows + self.passed_over,
            "count": self.count,
            "left_out": {} if self.delivery is None else dict(self.delivery.left_out),
            "notifications": [orjson.Fragment(payload) for payload in self.kept],
            "cut": self.cut,
            "completeness": answer.to_json(after, limit),
        }


def private(tenant: str, owner: str, sid: str, form: Form) -> StoredSubscription:
    """A subscription that nobody else knows."""
    return StoredSubscription(
        tenant=tenant,
        owner=owner,
        sid=sid,
        source=form.normal,
        start=0,
        created=0.0,
        kind=form.kind,
        normal=form.normal,
        digest=form.digest,
        program=form.program,
    )


def _lake(settings: Settings, form: Form, tenant: str, since: float, until: float, before: int) -> Earlier | None:
    """What a lake has of a time before a record of the log; None without a lake."""
    if find_spec("deltalake") is None:
        return None
    from ..pipeline.replay_lake import Earlier

    if not Earlier.there_is(settings.lake):
        return None
    return Earlier(settings.lake, form, tenant, since, until, before)


def _hear_lake(replay: Replay, judge: Judge, earlier: Earlier | None) -> bool:
    """Whether what was purged of the log is all in the lake; it is replayed, as far as there is any."""
    from ..pipeline.lake import LakeError

    if earlier is None:
        return False
    try:
        replay.hear(earlier)
        earlier.numbers(judge)
        return earlier.is_whole()
    except LakeError as error:
        logger.warning("a dry run goes without the lake: %s", error)
        return False


def _lake_sayings(earlier: Earlier | None) -> tuple[list[Saying], float | None]:
    """The history that the log has no more; and when the log began, if that is in the lake."""
    from ..pipeline.lake import LakeError

    try:
        return ([], None) if earlier is None else (earlier.sayings(LOOKBACK_SECONDS), earlier.begins())
    except LakeError as error:
        logger.warning("the history of a dry run goes without the lake: %s", error)
        return [], None


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be replayed, for whom, and which of the reasons are shown."""

    tenant: str
    owner: str
    sid: str
    form: Form
    last: str
    reasons_after: int = 0
    reasons_limit: int = PAGE
    options: DeliveryOptions = DEFAULT
    now: float = field(default_factory=time.time)


async def dry_run(log: NatsLog, settings: Settings, asked: Asked, fetched: Fetched | None = None) -> dict[str, Any]:
    """Replay what came within the last such duration, and what was fetched of it, and say how complete that is."""
    now, tenant, form = asked.now, asked.tenant, asked.form
    since = now - duration_seconds(asked.last)
    judge = judge_of(form, since, now)
    replay = Replay.of(private(tenant, asked.owner, asked.sid, form), settings, judge, asked.options)
    first, last_sequence, purged = await range_since(log, since)
    if fetched is not None:
        earlier = _lake(settings, form, tenant, since, now, first) if purged else None
        replay.placing = await _placing(log, fetched, tenant, (first, last_sequence), earlier)
        for claim in () if fetched.unused else fetched.claims:
            judge.fetched(*claim)
    await _read_history(log, settings, asked, judge, last_sequence)
    if purged and not await asyncio.to_thread(
        _hear_lake, replay, judge, _lake(settings, form, tenant, since, now, first)
    ):
        replay.cut.append("retention")
        judge.note("retention", since, await _begins(log, first) or now)
    records = read_range(log, LOG, first, last_sequence, filter_subject=log_subject("*", tenant))
    async with aclosing(records):
        async for messages in records:
            await asyncio.to_thread(replay.feed, messages)
            if replay.ended:
                break
    await asyncio.to_thread(replay.finish, now)
    if replay.ended:
        judge.note("cut", since if replay.until is None else replay.until, now)
    answer = await asyncio.to_thread(judge.answer)
    told = replay.result(form, answer, asked.reasons_after, asked.reasons_limit)
    return told if fetched is None else {**told, "fetched": fetched.to_json()}


async def _placing(
    log: NatsLog, fetched: Fetched, tenant: str, records: tuple[int, int], earlier: Earlier | None
) -> Placing:
    """What was fetched, with the numbers looked at that the log and the lake before it have."""
    placing = Placing(fetched, tenant)
    if fetched.readings and not await _look(log, placing, tenant, records, earlier):
        placing.give_up()
    else:
        placing.looked()
    return placing


async def _look(log: NatsLog, placing: Placing, tenant: str, records: tuple[int, int], earlier: Earlier | None) -> bool:
    """Whether there was time for all of it."""
    deadline = time.monotonic() + MAX_SECONDS
    if earlier is not None:
        await asyncio.to_thread(earlier.look, placing)
    found = read_range(log, LOG, *records, filter_subject=log_subject("publications", tenant))
    async with aclosing(found):
        async for messages in found:
            await asyncio.to_thread(_look_at, placing, messages)
            if time.monotonic() > deadline:
                return False
    return True


def _look_at(placing: Placing, messages: list[Message]) -> None:
    for message in messages:
        try:
            record = decode(message.data)
        except RecordError:
            continue
        if isinstance(record, Publications):
            placing.look(message.sequence, message.time, record.runs)


async def _read_history(log: NatsLog, settings: Settings, asked: Asked, judge: Judge, last: int) -> None:
    begin = judge.since - LOOKBACK_SECONDS
    first, _, purged = await range_since(log, begin)
    sayings, is_whole = await log_sayings(log, asked.tenant, first, last)
    begins = await _begins(log, first) if first == 1 else None
    if purged:
        earlier = _lake(settings, asked.form, asked.tenant, judge.since, judge.until, first)
        before, begins = await asyncio.to_thread(_lake_sayings, earlier)
        sayings = [*before, *sayings]
    if begins is not None:
        judge.nothing_before(begins)
    if not is_whole:
        judge.note("effort", judge.since, judge.until)
    await asyncio.to_thread(tell, judge, sayings)


async def _begins(log: NatsLog, first: int) -> float | None:
    """The log's time of its first record; None if there is none."""
    async with aclosing(read_range(log, LOG, first, first)) as found:
        async for messages in found:
            return messages[0].time
    return None
