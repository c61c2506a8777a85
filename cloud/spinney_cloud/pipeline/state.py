"""State and top-k subscriptions in the pipeline, by the core's own StateFilter and TopK: what the engine would say.

What must be remembered is kept in *units*, by scope, so that no two share anything:

    a state subscription whose scopes are sources      all of these of one source    TENANT/SOURCE
    any other state subscription (EACH, ONCE, reorder) one subscription              its key
    a top-k subscription                               one, or one of its EACH       its key, or KEY/VALUE
    publications with `valid_for` (rule L2)            a tenant                      .valid/TENANT

Units live in shards. A shard is told of everything that concerns it, in the log's order, and that the log has gone on;
so what falls due happens at the record with which it does (rule I3), and what a batch tells is a function of the log
alone. (Spark's timers would fire a batch later, and nobody could say at which record.) Nothing here knows of Spark.

What came late is found by who plans the reading (duplicates.py), from its start on and by W before it. So right after a
start there is one difference to the engine: a reading that is older than another of its source, which came more than W
before that start and was not of the subscription's feed, is examined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import orjson

from spinney import Label, Matcher, Notification, PublicationId
from spinney.notification import scope_key
from spinney.publication import attribute

from ..engine.batch import Reading
from ..engine.subscribed import StateSubscribed, TopSubscribed, subscribed
from ..engine.told import Told, owner_and_sid, told
from ..engine.valid import Valid
from ..records import Announced, Record, SubscriptionChange, Unpublish
from .subscriptions import Standing, Subscriptions

SHARDS = 16
"""Never to be changed for a checkpoint that exists: it says which shard keeps what."""

DUE, ROW, SILENT = 0, 1, 2
"""In what order a record tells: first what is due (rule I3), then of its rows, then of its silent labels."""

NOT_A_ROW = -1


Running = StateSubscribed | TopSubscribed


class Place(NamedTuple):
    """Where in a record something is told; of one place, things are told in order."""

    step: int
    row: int
    wake: float
    key: str


class Said(NamedTuple):
    """A notification with its place."""

    at: int
    time: float
    tenant: str
    place: Place
    told: Told


class Moment(NamedTuple):
    """A record of the log, and the log's time there."""

    at: int
    time: float


class Keeping(Protocol):
    """What keeps units."""

    def get(self, name: str) -> bytes | None: ...
    def put(self, name: str, data: bytes) -> None: ...
    def remove(self, name: str) -> None: ...


class Offer(NamedTuple):
    """A reading or a label for a subscription of a unit."""

    unit: str
    key: str
    label: Any = None
    """As its JSON."""


class Row(NamedTuple):
    """A row of a record that concerns this shard."""

    row: int
    """NOT_A_ROW for silent labels, which come last."""
    tenant: str
    source: str
    boot: int
    sequence: int
    epoch: int | None
    late: bool
    publication: Mapping[str, Any] | None
    offers: tuple[Offer, ...]
    valid: bool
    """Whether it is to be kept for content subscriptions to come."""


def shard_of(unit: str) -> int:
    """Which shard keeps a unit."""
    return crc32(unit.encode()) % SHARDS


def valid_unit(tenant: str) -> str:
    """Of the publications that are valid."""
    return f".valid/{tenant}"


def units_of(one: Standing, source: str, publication: Mapping[str, Any] | None, label: Label | None) -> list[str]:
    """The units that a reading or a label of a subscription goes to."""
    key = one.stored.key
    if one.stored.kind == "state":
        if not one.of_source():
            return [key]
        if label is None:
            return [source_unit(one.stored.tenant, source)]
        return [source_unit(one.stored.tenant, name) for name in dict.fromkeys(mark.source for mark in label.marks())]
    each = one.each()
    if each is None:
        return [key]
    assert publication is not None
    return [f"{key}/{scope_key(attribute(publication, each))}"]


def source_unit(tenant: str, source: str) -> str:
    """Of the state subscriptions for which the source is a scope."""
    return f"{tenant}/{source}"


@dataclass(frozen=True, slots=True)
class Limits:
    """As the cloud's settings have them."""

    valid_kept: int = 100_000
    longest_seconds: float = 7 * 24 * 3600.0


DEFAULT_LIMITS = Limits()


@dataclass(slots=True)
class _Unit:
    """By subscription: the record that began it, and what it remembers, read when it is needed."""

    kept: dict[str, list[Any]]
    live: dict[str, Running] = field(default_factory=dict)
    changed: bool = False

    def wakes(self) -> dict[str, float]:
        """When a tick would do something, by subscription."""
        found = {key: self.live[key].next_wake() if key in self.live else item[1] for key, item in self.kept.items()}
        return {key: wake for key, wake in found.items() if wake is not None}

    def encode(self) -> bytes:
        """What is left of it; empty if nothing is."""
        for key, one in self.live.items():
            snapshot = one.snapshot()
            if snapshot is not None:
                self.kept[key] = [self.kept[key][0], one.next_wake(), snapshot]
            else:
                del self.kept[key]
        return orjson.dumps(self.kept, default=tuple) if self.kept else b""


class Shard:
    """One batch of one shard: what it is told, in the log's order, and what that tells."""

    def __init__(
        self,
        number: int,
        keeping: Keeping,
        wakes: dict[str, float],
        after: int,
        subscriptions: Subscriptions,
        first_at: Callable[[float], Moment],
        limits: Limits,
    ) -> None:
        self.said: list[Said] = []
        self.wakes = wakes
        """By unit; it is kept from batch to batch."""
        self._number = number
        self._keeping = keeping
        self._subscriptions = subscriptions
        self._first_at = first_at
        self._limits = limits
        self._units: dict[str, _Unit] = {}
        self._valid: dict[str, Valid] = {}
        self._now = Moment(after, 0.0)
        self._due = [(wake, name) for name, wake in wakes.items()]  # heap; what is no longer its wake is skipped
        heapify(self._due)

    # ---- what happens

    def rows(self, at: int, time: float, rows: Iterable[Row]) -> None:
        """A record of publications."""
        self.until(at, time)
        self._now = Moment(at, time)
        for row in rows:
            self._row(row)

    def control(self, at: int, time: float, record: Record) -> None:
        """A record of another kind."""
        self.until(at, time)
        self._now = Moment(at, time)
        before = self._subscriptions.find(record.key) if isinstance(record, SubscriptionChange) else None
        sources = self._subscriptions.apply(record, at, time)
        match record:
            case SubscriptionChange():
                self._changed(record.key, before)
            case Announced() if sources:
                self._announced(record.tenant, sources, record.over)
            case Unpublish() if self._is_mine(valid_unit(record.tenant)):
                self._valid_of(record.tenant).unpublish(record.id, time)

    def until(self, at: int, time: float) -> None:
        """The log has come to this record: what was due happened at the first one that was late enough."""
        while (wake := self.next_wake()) is not None and wake <= time:
            moment = self._first_at(wake)
            # who looks by time may be led astray by a clock that was set back
            self._now = moment if self._now.at < moment.at <= at else Moment(at, time)
            while (wake := self.next_wake()) is not None and wake <= self._now.time:
                self._tick(heappop(self._due)[1], wake)

    def next_wake(self) -> float | None:
        """When something is due next."""
        while self._due and self.wakes.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def finish(self) -> None:
        """Keep what has changed."""
        for name, unit in self._units.items():
            for key in [key for key, item in unit.kept.items() if not self._stands(key, item[0])]:
                self._end(unit, key)
                self._wakes_at(name)
            if unit.changed:
                self._put(name, unit.encode())
        for tenant, valid in self._valid.items():
            self._put(valid_unit(tenant), orjson.dumps(valid.snapshot()))

    # ---- how

    def _row(self, row: Row) -> None:
        id = PublicationId(row.source, row.boot, row.sequence)
        if row.valid and row.publication is not None:
            self._valid_of(row.tenant).keep(str(id), row.publication, self._now.time)
        away = self._subscriptions.tenant(row.tenant).away
        for offer in row.offers:
            one = self._one(offer.unit, offer.key)
            if one is None:
                continue
            reading = None if row.publication is None else Reading(id, row.publication, row.epoch, row.late)
            if isinstance(one, TopSubscribed):
                assert reading is not None
                found = one.feed(reading, self._now.time)
            else:
                assert isinstance(one, StateSubscribed)
                if offer.label is None:
                    assert reading is not None
                    found = one.feed(reading, self._now.time, away)
                else:
                    found = one.take(Label.from_json(offer.label), reading, self._now.time, away)
            step = SILENT if row.row == NOT_A_ROW else ROW
            self._say(offer.unit, offer.key, Place(step, row.row, 0.0, offer.key), found)
            self._wakes_at(offer.unit)

    def _tick(self, name: str, wake: float) -> None:
        """What is due in a unit."""
        del self.wakes[name]
        for key, when in sorted(self._unit(name).wakes().items()):
            if when <= self._now.time and (one := self._one(name, key)) is not None:
                self._say(name, key, Place(DUE, 0, wake, key), one.tick(self._now.time))
        self._wakes_at(name)

    def _changed(self, key: str, before: Standing | None) -> None:
        now = self._subscriptions.find(key)
        if before is not None and now is not before and self._is_mine(key):
            self._drop(key)
        tenant = key.split(".")[1]
        if now is None or now is before or now.stored.kind != "content" or not self._is_mine(valid_unit(tenant)):
            return
        owner, sid = owner_and_sid(key)
        compiled = now.stored.compiled_feed() if Matcher().native else now.stored.normal
        found = self._valid_of(tenant).matching(compiled, self._now.time)
        for place, (id, publication) in enumerate(found):
            told_ = Told(owner, sid, "match", None, id, publication)
            self.said.append(Said(*self._now, tenant, Place(ROW, place, 0.0, key), told_))

    def _announced(self, tenant: str, sources: list[str], over: bool) -> None:
        for source in sources:
            name = source_unit(tenant, source)
            if self._is_mine(name):
                for key in list(self._unit(name).kept):
                    self._tell_announced(name, key, source, over)
        for key, standing in self._subscriptions.tenant(tenant).standing.items():
            is_mine = standing.stored.kind == "state" and self._is_mine(key) and not standing.of_source()
            if is_mine and self._unit(key).kept:
                for source in sources:
                    self._tell_announced(key, key, source, over)

    def _tell_announced(self, name: str, key: str, source: str, over: bool) -> None:
        one = self._one(name, key)
        if isinstance(one, StateSubscribed):
            one.announced(source, over, self._now.time)
            self._wakes_at(name)

    def _say(self, name: str, key: str, place: Place, found: Iterable[Notification]) -> None:
        """What a unit's subscription says; a label may speak of other sources, too, which have units of their own."""
        tenant = key.split(".")[1]
        source = name.removeprefix(source_unit(tenant, "")) if name.startswith(source_unit(tenant, "")) else None
        mine = [one for one in found if source is None or one.scope in (None, source)]
        self.said += [Said(*self._now, tenant, place, one) for one in told(key, mine)]

    # ---- units

    def _is_mine(self, name: str) -> bool:
        return shard_of(name) == self._number

    def _unit(self, name: str) -> _Unit:
        unit = self._units.get(name)
        if unit is None:
            data = self._keeping.get(name)
            unit = self._units[name] = _Unit(orjson.loads(data) if data else {})
        return unit

    def _one(self, name: str, key: str) -> Running | None:
        """A unit's subscription as it runs, empty if it is new; None if it has ended."""
        unit = self._unit(name)
        if key in unit.kept and not self._stands(key, unit.kept[key][0]):
            self._end(unit, key)
        standing = self._subscriptions.find(key)
        if standing is None or not standing.runs:
            return None
        unit.changed = True
        one = unit.live.get(key)
        if one is None:
            stored = standing.stored
            made = subscribed(stored.kind, key, stored.digest, stored.normal)
            assert isinstance(made, Running)
            one = unit.live[key] = made
            if key in unit.kept:
                one.restore(unit.kept[key][2])
            else:
                unit.kept[key] = [standing.begun, None, None]
        return one

    def _stands(self, key: str, begun: int) -> bool:
        """Whether a subscription still is the one that began there."""
        standing = self._subscriptions.find(key)
        return standing is not None and standing.begun == begun

    @staticmethod
    def _end(unit: _Unit, key: str) -> None:
        del unit.kept[key]
        unit.live.pop(key, None)
        unit.changed = True

    def _wakes_at(self, name: str) -> None:
        wake = min(self._unit(name).wakes().values(), default=None)
        if wake == self.wakes.get(name):
            return
        if wake is None:
            del self.wakes[name]
        else:
            self.wakes[name] = wake
            heappush(self._due, (wake, name))

    def _drop(self, name: str) -> None:
        """A subscription that has ended needs its unit no more."""
        unit = self._unit(name)
        for key in list(unit.kept):
            self._end(unit, key)
        self.wakes.pop(name, None)

    def _put(self, name: str, data: bytes) -> None:
        if data:
            self._keeping.put(name, data)
        else:
            self._keeping.remove(name)

    def _valid_of(self, tenant: str) -> Valid:
        valid = self._valid.get(tenant)
        if valid is None:
            valid = self._valid[tenant] = Valid(self._limits.valid_kept, self._limits.longest_seconds)
            data = self._keeping.get(valid_unit(tenant))
            if data:
                valid.restore(orjson.loads(data))
        return valid


class Happening(NamedTuple):
    """A record that concerns a shard."""

    at: int
    time: float
    rows: tuple[Row, ...] | None
    """Of a record of publications; None: any other."""


def run(shard: Shard, happenings: Iterable[Happening], record_at: Callable[[int], Record | None], end: Moment) -> None:
    """A batch, in the log's order; `record_at`: the record itself, None for one that cannot be read."""
    for one in sorted(happenings, key=lambda one: one.at):
        if one.rows is not None:
            shard.rows(one.at, one.time, one.rows)
        elif (record := record_at(one.at)) is not None:
            shard.control(one.at, one.time, record)
    shard.until(*end)
    shard.finish()
