"""A world to evaluate subscriptions in twice: in one place, and where the readings are made (design: edge = centre).

Sources are motes with state filters of their own, sensors that their owner evaluates, and plain publishers. Owners are
mobile brokers with an outbox; links deliver at least once; sources change owners, reboot, leave and come back; brokers
crash and go on from their snapshot; subscriptions start while all this goes on. Nothing is dropped, nothing is late.

The same records go to both: the centre gets every reading, the tiers only what some feed or label sends up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spinney.evaluator import Evaluator, may_overlap_upstream
from spinney.feed import feed
from spinney.identity import Duplicates, Lateness, PublicationId
from spinney.label import Label, Mark
from spinney.membership import OwnerFilter
from spinney.notification import Notification
from spinney.state import StateFilter
from spinney.subscription import ContentSubscription, StateSubscription, Subscription
from spinney.top_k import TopK

Place = Literal["mote", "owner", "cloud"]
FOREVER = 1e9


@dataclass
class Wanted:
    """A subscription of the world, and where each source's bit is to be evaluated while it has one of its owners."""

    subscription: Subscription
    disjoint: bool
    places: Callable[[str, int], Place]

    def place(self, source: str, epoch: int) -> Place:
        """Some filters are evaluated in the cloud whatever their table says (rule S2)."""
        if epoch == 0 or not isinstance(self.subscription, StateSubscription):
            return "cloud"
        may_be_upstream = self.disjoint or may_overlap_upstream(self.subscription)
        return self.places(source, epoch) if may_be_upstream else "cloud"

    @property
    def may_be_doubtful(self) -> bool:
        """Whether a mote may keep its bit and not be able to decide on a reading."""
        state = self.subscription
        return isinstance(state, StateSubscription) and not (state.debounce or state.dead_band)


@dataclass(frozen=True)
class Record:
    """What an outbox holds: a reading with its labels, or a silent label."""

    id: PublicationId | None
    epoch: int
    publication: Mapping[str, Any] | None
    active: frozenset[int]
    """The subscriptions that had started for this reading (rule I4)."""
    labels: Mapping[int, Label]
    places: Mapping[int, Place]


class Cloud:
    """Evaluates whatever the log brings: readings, labels, ticks."""

    def __init__(self, world: list[Wanted]) -> None:
        self.world = world
        self.told: list[Notification] = []
        self.running: dict[int, StateFilter | TopK | None] = {}
        self.duplicates = Duplicates(FOREVER)
        self.lateness = Lateness()

    def start(self, index: int) -> None:
        wanted = self.world[index]
        match wanted.subscription:
            case StateSubscription() as subscription:
                self.running[index] = StateFilter(subscription, disjoint=wanted.disjoint)
            case ContentSubscription():
                self.running[index] = None
            case subscription:
                self.running[index] = TopK(subscription)

    def read(self, record: Record, log_time: float) -> None:
        if record.id is None:
            for index, label in record.labels.items():
                self._take(index, label, record, log_time)
            return
        if self.duplicates.repeats(record.id, log_time):
            return
        assert not self.lateness.examine(record.id), "the world must not make readings late"
        for index in sorted(record.active):
            if index in record.labels:
                self._take(index, record.labels[index], record, log_time)
            elif record.places.get(index, "cloud") == "cloud":
                self._feed(index, record, log_time)

    def _take(self, index: int, label: Label, record: Record, log_time: float) -> None:
        state = self.running[index]
        assert isinstance(state, StateFilter)
        label = Label.from_json(json.loads(json.dumps(label.to_json())))
        self.told += state.take(label, record.publication, log_time)

    def _feed(self, index: int, record: Record, log_time: float) -> None:
        assert record.id is not None
        assert record.publication is not None
        match self.running[index], self.world[index].subscription:
            case StateFilter() as state, _:
                self.told += state.feed(record.id, record.publication, log_time, record.epoch)
            case TopK() as top, _:
                self.told += top.feed(record.id, record.publication, log_time)
            case None, ContentSubscription() as content:
                if content.filter.evaluate(record.publication) is True:
                    self.told.append(
                        Notification(
                            subscription=content.id,
                            publication_id=record.id,
                            why="match",
                            scope=None,
                            time=log_time,
                            publication=record.publication,
                        )
                    )

    def tick(self, log_time: float) -> None:
        for running in self.running.values():
            if running is not None:
                self.told += running.tick(log_time)

    def wakes(self) -> dict[int, float | None]:
        return {index: running.next_wake() for index, running in self.running.items() if running is not None}

    def announce(self, source: str, here: bool, log_time: float) -> None:
        for running in self.running.values():
            if isinstance(running, StateFilter):
                running.announced(source) if here else running.announcement_over(source, log_time)

    def crash(self) -> None:
        """Go on from a snapshot."""
        for index, running in list(self.running.items()):
            if running is not None:
                snapshot = json.loads(json.dumps(running.snapshot()))
                self.start(index)
                self.running[index].restore(snapshot)
        self.duplicates = Duplicates.restore(json.loads(json.dumps(self.duplicates.snapshot())))
        self.lateness = Lateness.restore(json.loads(json.dumps(self.lateness.snapshot())))


@dataclass
class Broker:
    """A mobile broker: its part of the state filters, and an outbox that outlives it."""

    filters: dict[int, OwnerFilter] = field(default_factory=dict)
    outbox: list[Record] = field(default_factory=list)
    duplicates: Duplicates = field(default_factory=lambda: Duplicates(FOREVER))

    def crash(self) -> None:
        for index, old in self.filters.items():
            self.filters[index] = OwnerFilter(old.subscription)
            self.filters[index].restore(json.loads(json.dumps(old.snapshot())))


@dataclass
class Source:
    """A mote, a sensor or a plain publisher."""

    name: str
    owner: int | None = None
    epoch: int = 0
    boot: int = 1
    sequence: int = 0
    evaluators: dict[int, Evaluator] = field(default_factory=dict)
    doubts: bool = False
    """It cannot decide on its next reading, whatever its bits are."""


class World:
    """Everything at once. Methods are what can happen; indices wrap around, what cannot happen now does nothing."""

    def __init__(self, world: list[Wanted], owned: int, plain: int, brokers: int = 2) -> None:
        self.world = world
        self.brokers = [Broker() for _ in range(brokers)]
        self.sources = [Source(f"owned-{n}") for n in range(owned)] + [Source(f"plain-{n}") for n in range(plain)]
        self.owned = owned
        self.started: set[int] = set()
        self.active: list[set[int]] = [set() for _ in range(brokers)]
        self.centre, self.cloud = Cloud(world), Cloud(world)
        self.now = 0.0
        self.sent_up = self.kept_back = 0
        for n in range(owned):
            self.move(n, n)

    def __repr__(self) -> str:
        places = [
            {source.name: [wanted.place(source.name, epoch) for epoch in range(1, 4)] for source in self.sources}
            for wanted in self.world
        ]
        return f"World({[(wanted.subscription.id, place) for wanted, place in zip(self.world, places, strict=True)]})"

    # ---- what can happen

    def start(self, index: int, broker: int) -> None:
        """A subscription starts in the cloud, and at one broker; elsewhere later, or when a source comes from there."""
        index %= len(self.world)
        if index not in self.started:
            self.started.add(index)
            self.centre.start(index)
            self.cloud.start(index)
        self._activate(broker % len(self.brokers), {index})

    def sample(self, n: int, publication: dict[str, Any], repeated: bool) -> None:
        """A source makes a reading; the link to its owner may deliver it twice."""
        source = self.sources[n % len(self.sources)]
        plain = n % len(self.sources) >= self.owned
        if source.owner is None and not plain:
            return
        source.sequence += 1
        reading = PublicationId(source.name, source.boot, source.sequence)
        if plain:
            record = Record(reading, 0, publication, frozenset(self.started), {}, {})
            self._log(record, repeated)
            return
        assert source.owner is not None
        marks = self._marks(source, reading, publication)
        source.doubts = False
        for _ in range(1 + repeated):
            self._gather(self.brokers[source.owner], source, reading, publication, marks)

    def flush(self, broker: int, count: int, again: int) -> None:
        """A broker sends the first of its outbox; then the last of those once more, for want of an answer."""
        outbox = self.brokers[broker % len(self.brokers)].outbox
        sent, outbox[:] = outbox[:count], outbox[count:]
        for record in (*sent, *sent[max(0, len(sent) - again) :]):
            self._log(record, False)

    def move(self, n: int, broker: int) -> None:
        """A source gets a new owner, which knows nothing of its bits (rule S2)."""
        source = self.sources[n % self.owned]
        broker %= len(self.brokers)
        if source.owner is not None:
            self._activate(broker, self.active[source.owner])
        self._release(source)
        source.owner = broker
        source.epoch += 1
        source.evaluators = {index: Evaluator(self._state(index)) for index in source.evaluators}
        for owner_filter in self.brokers[broker].filters.values():
            owner_filter.join(source.name)
        self._announce(source, True)

    def leave(self, n: int) -> None:
        """A source goes; its bits end when it has been away for too long (rule S4)."""
        source = self.sources[n % self.owned]
        if source.owner is not None:
            self._release(source)
            self._announce(source, False)

    def reboot(self, n: int) -> None:
        """A source loses what it knew, and counts its boots."""
        source = self.sources[n % len(self.sources)]
        source.boot += 1
        source.sequence = 0
        source.evaluators = {index: Evaluator(self._state(index)) for index in source.evaluators}

    def doubt(self, n: int) -> None:
        """A mote will not be able to decide on its next reading."""
        self.sources[n % self.owned].doubts = True

    def write_bits(self, n: int) -> None:
        """The owner writes the bits that it knows down to a mote that does not know them (rule S2)."""
        source = self.sources[n % self.owned]
        if source.owner is None:
            return
        for index, evaluator in source.evaluators.items():
            owners = self.brokers[source.owner].filters.get(index)
            known = None if owners is None else owners.evaluator.state(source.name)
            mine = evaluator.state(source.name)
            is_unknown = mine is None or mine.setting is None or mine.newest[:2] < (0, source.boot)
            if is_unknown and known and known.setting and known.newest[:2] == (source.epoch, source.boot):
                evaluator.learn(Mark(source.name, (0, source.boot, source.sequence), *known.setting))

    def crash(self, broker: int) -> None:
        """A broker, or the cloud, goes on from its snapshot."""
        if broker % 3 == 2:
            self.cloud.crash()
        else:
            self.brokers[broker % len(self.brokers)].crash()

    def tick(self, seconds: float) -> None:
        """Time passes in the log."""
        self.now += seconds
        assert self.centre.wakes() == self.cloud.wakes()
        self.centre.tick(self.now)
        self.cloud.tick(self.now)

    def finish(self) -> None:
        """Everything arrives, and falls due."""
        for n in range(len(self.brokers)):
            self.flush(n, len(self.brokers[n].outbox), 0)
        self.tick(FOREVER)

    # ---- how it happens

    def _state(self, index: int) -> StateSubscription:
        subscription = self.world[index].subscription
        assert isinstance(subscription, StateSubscription)
        return subscription

    def _activate(self, broker: int, indices: set[int]) -> None:
        self.active[broker] |= indices
        for index in indices:
            if isinstance(self.world[index].subscription, StateSubscription):
                self.brokers[broker].filters.setdefault(index, OwnerFilter(self._state(index)))

    def _marks(self, source: Source, reading: PublicationId, publication: dict[str, Any]) -> dict[int, Mark | None]:
        """What the source itself evaluates, undecided marks among it."""
        assert source.owner is not None
        marks: dict[int, Mark | None] = {}
        for index in self.active[source.owner]:
            if self.world[index].place(source.name, source.epoch) == "mote":
                evaluator = source.evaluators.setdefault(index, Evaluator(self._state(index)))
                if source.doubts and self.world[index].may_be_doubtful:
                    evaluator.forget(source.name)
                    decides = False
                else:
                    decides = evaluator.decides(reading, publication)
                mark = evaluator.observe(reading, publication) if decides else None
                order = (0, reading.boot, reading.sequence)
                marks[index] = mark if decides else Mark(source.name, order, None)
        return marks

    def _gather(
        self,
        broker: Broker,
        source: Source,
        reading: PublicationId,
        publication: dict[str, Any],
        marks: Mapping[int, Mark | None],
    ) -> None:
        """A reading reaches its owner, which labels it and puts it into the outbox."""
        assert source.owner is not None
        active = frozenset(self.active[source.owner])
        places = {index: self.world[index].place(source.name, source.epoch) for index in active}
        if broker.duplicates.repeats(reading, 0.0):
            decided = {index: mark for index, mark in marks.items() if mark is not None and mark.bit is not None}
            assert not any(broker.filters[index].take(mark, source.epoch) for index, mark in decided.items()), (
                "a mark that comes again says nothing new"
            )
            return
        labels: dict[int, Label] = {}
        for index, place in places.items():
            label = None
            mark = marks.get(index)
            if place == "mote" and mark is not None and mark.bit is not None:
                label = broker.filters[index].take(mark, source.epoch)
            elif place == "owner" or mark is not None:
                label = broker.filters[index].feed(reading, publication, source.epoch)
            if label is not None:
                labels[index] = label
        broker.outbox.append(Record(reading, source.epoch, publication, active, labels, places))

    def _release(self, source: Source) -> None:
        """Its owner tells what it has withheld and sends everything, before another can own the source."""
        if source.owner is None:
            return
        broker = self.brokers[source.owner]
        released = ((index, one.release(source.name)) for index, one in broker.filters.items())
        labels = {index: label for index, label in released if label is not None}
        if labels:
            broker.outbox.append(Record(None, source.epoch, None, frozenset(), labels, {}))
        self.flush(source.owner, len(broker.outbox), 1)
        source.owner = None

    def _announce(self, source: Source, here: bool) -> None:
        self.centre.announce(source.name, here, self.now)
        self.cloud.announce(source.name, here, self.now)

    def _log(self, record: Record, repeated: bool) -> None:
        self.now += 0.25
        for _ in range(1 + repeated):
            if record.id is not None:
                self.centre.read(Record(record.id, record.epoch, record.publication, record.active, {}, {}), self.now)
            if self._goes_up(record):
                self.sent_up += 1
                self.cloud.read(record, self.now)
            else:
                self.kept_back += 1

    def _goes_up(self, record: Record) -> bool:
        """Rule R1, and the labels of what is evaluated upstream."""
        if record.labels or record.publication is None:
            return True
        return any(
            feed(self.world[index].subscription).evaluate(record.publication) is True
            for index in record.active
            if record.places.get(index, "cloud") == "cloud"
        )
