"""Where a matcher begins: the newest usable snapshot, and up to where its notifications are stored already.

Sequences of the log are not trusted alone. After a power cut the log may end before what was read of it, and new
records take the sequences of lost ones; the log's time of a record tells them apart.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from . import notes
from .engine import Engine, SnapshotError
from .names import LOG, NOTES, SUBSCRIPTIONS
from .nats_log import NatsLog, Refused, StreamState, read_range
from .settings import Settings
from .snapshots import Moment, Snapshot, SnapshotDamaged, Snapshots
from .subscription_journal import Journal, JournalDamaged

log = logging.getLogger(__name__)

LOOKED_AT = 10_000
"""The matcher's messages in the notification log that are compared with the log at most, from the last one back."""

_AT_ONCE = 200
_NOT_FOUND = 404

_CLOCK_SECONDS = 1e-5
"""The same time in two writings may differ by so much."""


class Place(NamedTuple):
    """A part of what a record told."""

    at: int
    part: int


class Beginning(NamedTuple):
    """What a matcher goes on from."""

    engine: Engine
    record_time: float
    """Of the last record that is in the engine."""
    snapshot: Moment | None
    stored: Place
    """Notifications up to here are in the notification log."""


async def begin(log_: NatsLog, settings: Settings, snapshots: Snapshots, journal: Journal) -> Beginning:
    """Find the place, and be there."""
    state = await log_.state(LOG)
    for path in snapshots.newest_first():
        try:
            snapshot = snapshots.read(path)
            why = await _unusable(log_, snapshot.moment, state)
            if why is not None:
                log.error("%s is not of this log: %s", path.name, why)
                snapshots.remove(path)
                continue
            engine = _restore(settings, snapshot, journal)
        except (SnapshotDamaged, SnapshotError, JournalDamaged, KeyError, TypeError, ValueError) as error:
            log.error("a snapshot is damaged and set aside, the one before is tried: %s", error)
            snapshots.set_aside(path)
            continue
        if engine.sequence + 1 < state.first:
            lost = f"{engine.sequence + 1} to {state.first - 1}"
            log.error("records %s of the log are gone, and were not matched", lost)
            entries = await _subscriptions(log_, state)
            engine.become(entries, state.first - 1)
            journal.begin(entries, engine.sequence)
        stored = await _stored(log_, engine.sequence, state)
        return Beginning(engine, snapshot.moment.record_time, snapshot.moment, stored)
    engine = await _anew(log_, settings, journal, state)
    return Beginning(engine, 0.0, None, await _stored(log_, engine.sequence, state))


async def _unusable(log_: NatsLog, moment: Moment, state: StreamState) -> str | None:
    """Why a snapshot cannot be of this log, if so."""
    if moment.sequence > state.last:
        return f"it is of record {moment.sequence}, and the log ends at {state.last}"
    time = await _time_of(log_, moment.sequence)
    if time is not None and abs(time - moment.record_time) > _CLOCK_SECONDS:
        return f"record {moment.sequence} is another one now"
    return None


async def _time_of(log_: NatsLog, sequence: int) -> float | None:
    """The log's time of a record; None for one that is not there (any more)."""
    if sequence < 1:
        return None
    try:
        found = await log_.connection.api(f"STREAM.MSG.GET.{LOG}", {"seq": sequence})
    except Refused as error:
        if error.code == _NOT_FOUND:
            return None
        raise
    return datetime.fromisoformat(found["message"]["time"]).timestamp()


def _restore(settings: Settings, snapshot: Snapshot, journal: Journal) -> Engine:
    engine = Engine(settings)
    for key, value in journal.resume(snapshot.state["journal"]).items():
        engine.begin(key, value)
    engine.restore(snapshot.state["engine"])
    return engine


async def _anew(log_: NatsLog, settings: Settings, journal: Journal, state: StreamState) -> Engine:
    """Without a snapshot: from the log's beginning, with the subscriptions from before it."""
    if state.first > 1:
        text = "matching begins anew at record %d: no snapshot is usable; states and windows are empty"
        log.warning(text, state.first)
    engine = Engine(settings)
    engine.sequence = state.first - 1
    entries = await _subscriptions(log_, state)
    for key, value in entries.items():
        engine.begin(key, value)
    journal.begin(entries, engine.sequence)
    return engine


async def _subscriptions(log_: NatsLog, state: StreamState) -> dict[str, dict[str, Any]]:
    """Those of the bucket that no record of the log will bring."""
    entries = {}
    for key, entry in (await log_.bucket(SUBSCRIPTIONS).load()).items():
        value = orjson.loads(entry.value)
        if value["start"] < state.first or value["start"] > state.last:
            entries[key] = value
    return entries


async def _stored(log_: NatsLog, sequence: int, state: StreamState) -> Place:
    """The matcher's last message of the notification log whose record is in the log, and the same one."""
    there = await log_.state(NOTES)
    strange = looked = 0
    last = there.last
    while last >= there.first and looked < LOOKED_AT:
        begin = max(there.first, last - _AT_ONCE + 1)
        found = [one async for messages in read_range(log_, NOTES, begin, last) for one in messages]
        for message in reversed(found):
            try:
                told = notes.decode(message.data)
            except notes.NotesError as error:
                log.error("message %d of the notification log is damaged: %s", message.sequence, error)
                continue
            if told.by != notes.MATCHER:
                continue
            looked += 1
            if told.at <= sequence or await _is_of(log_, told, state):
                if strange:
                    log.error("%d notification messages are of records that the log has lost", strange)
                return Place(told.at, told.part)
            strange += 1
        last = begin - 1
    return Place(sequence, 0)


async def _is_of(log_: NatsLog, told: notes.Notes, state: StreamState) -> bool:
    """Whether notifications are of the record that has their sequence now: that one is no younger than they."""
    if told.at > state.last:
        return False
    time = await _time_of(log_, told.at)
    return time is None or time <= told.time + _CLOCK_SECONDS
