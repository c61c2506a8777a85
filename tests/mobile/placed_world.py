"""Edge and centre side by side, with the mobile broker's own classes and the cloud's engine and activations.

Two mobile brokers hear the same sources; leases say whose each is. Motes keep the bits of some filters, their owner
those of others, the cloud all that is left. Readings go through Taking into an outbox that outlives its broker, and
from there into the engine's log, some twice. The centre is one evaluator that gets every reading, in the log's order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine_logs import joined, readings, wanted
from three_tiers import Cloud as Centre
from three_tiers import Record, Wanted

from spinney import Evaluator, Mark, PublicationId, StateSubscription, Subscription
from spinney_cloud.activation import Activations
from spinney_cloud.announcements import Announcement, read_announcement
from spinney_cloud.engine import Engine
from spinney_cloud.records import Announced, Publications, RowLabel, SubscriptionChange, Tick
from spinney_cloud.settings import Log, Settings
from spinney_mobile.active import ActiveFilter, ActiveSet
from spinney_mobile.announcing import SETTLE_SECONDS, Announcer
from spinney_mobile.cells import H3
from spinney_mobile.deciding import Decider
from spinney_mobile.leases import Leases
from spinney_mobile.listening import Taken
from spinney_mobile.numbering import CONTENT_SECONDS, Numbering
from spinney_mobile.outbox import OutRecord
from spinney_mobile.rules import Rules
from spinney_mobile.samples import Ability, Digest, Sample
from spinney_mobile.taking import Taking

FOREVER = 1e9
TENANT = "default"
LIMITS = Ability(0.0, 4.0)
"""What is declared of x, where it is; some samples have more."""


@dataclass
class Entry:
    """What the broker took, and what of it goes up; or only what goes up."""

    taken: Taken | None
    epoch: int
    active: frozenset[int]
    records: list[OutRecord] = field(default_factory=list)


class MobileBroker:
    """The synchronous part of a mobile broker. `journal` and `state` are on its disk."""

    def __init__(self, name: str, abilities: Mapping[str, Ability]) -> None:
        self.name = name
        self.abilities = abilities
        self.journal: list[Entry] = []
        self.state: dict[str, bytes] = {}
        self.active = ActiveSet()
        self.leases = Leases(name)
        self.started: set[int] = set()
        self.start()

    def start(self) -> None:
        """Begin with what is on the disk."""
        kept = dict(self.state)
        self.announcer = Announcer(kept, abilities=lambda _: self.abilities)
        self.taking = Taking(
            self, self.leases, Decider(self.name, kept), announcer=self.announcer, numbering=Numbering(kept),
            rules=Rules(grid=H3, resolution=9, kept=kept), listeners=[self],
        )  # fmt: skip
        self.taking.change(list(self.active.filters.values()), [], self.leases.known, 0.0)

    def append(self, records: Sequence[OutRecord], state: Mapping[str, bytes | None] | None = None) -> None:
        """As the outbox: all of it or nothing."""
        for key, value in (state or {}).items():
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value
        if not records:
            return
        last = self.journal[-1] if self.journal else None
        publication = records[0].publication
        if last and last.taken and not last.records and publication and publication["id"] == str(last.taken.id):
            last.records = list(records)
        else:
            self.journal.append(Entry(None, records[0].epoch, frozenset(), list(records)))

    def taken(self, taken: Taken) -> None:
        """A reading; its record, if it has one, comes next."""
        epoch = self.leases.epoch(taken.id.source)
        self.journal.append(Entry(taken, epoch, frozenset(self.started)))

    def tell_leases(self, leases: Sequence[Mapping[str, Any]]) -> None:
        """Who owns what now."""
        self.leases.tell(list(leases))
        self.taking.change([], [], self.leases.known, 0.0)


@dataclass
class Source:
    """A mote, which numbers its samples and keeps bits; or a sensor, which does neither."""

    name: str
    is_mote: bool
    owner: int
    epoch: int = 0
    boot: int = 1
    sequence: int = 0
    here: bool = True
    doubts: bool = False
    """It cannot decide on its next sample, whatever its bits are."""
    table: dict[Digest, Evaluator] = field(default_factory=dict)


class World:
    """What can happen are methods; indices wrap around, and what cannot happen now does nothing."""

    def __init__(self, subscriptions: Sequence[tuple[Subscription, bool]], *, limits: bool) -> None:
        self.subscriptions = [subscription for subscription, _ in subscriptions]
        self.stored = [wanted(f"s{n}", one.to_json()) for n, one in enumerate(self.subscriptions)]
        numbered = [Wanted(one, disjoint, lambda *_: "cloud") for one, disjoint in subscriptions]
        self.centre = Centre(numbered)
        self.engine = Engine(Settings(log=Log(duplicate_window=FOREVER, content_window=1.0, max_age=FOREVER)))
        self.activations = Activations()
        self.told: list[tuple[Any, ...]] = []
        self.now, self.clock, self.at, self.epoch = 0.0, 1000.0, 0, 0
        self.sent = self.kept = 0
        self.brokers = [MobileBroker(name, {"x": LIMITS} if limits else {}) for name in ("b0", "b1")]
        self.sources = [Source(f"mote-{n}", True, n % 2) for n in range(2)]
        self.sources += [Source(f"sensor-{n}", False, n % 2) for n in range(2)]
        for source in self.sources:
            self._lease(source, source.owner)
        for n, broker in enumerate(self.brokers):
            for source in self.sources:
                broker.announcer.hear(source.name, self.clock)
                if not limits:  # all is said before anything is measured
                    broker.announcer.sampled(source.name, {"x": 1.0, "y": 1.0, "room": "a"}, self.clock)
                    broker.announcer.sampled(source.name, {"x": "1", "room": 1.0}, self.clock)
                    broker.announcer.sampled(source.name, {"room": True}, self.clock)
            self.announce(n)
        self.settle()

    def __repr__(self) -> str:
        return f"World({[one.id for one in self.subscriptions]})"

    # ---- what can happen

    def start(self, index: int) -> None:
        """A subscription starts, in the log and at once on all brokers."""
        index %= len(self.subscriptions)
        if index in self.centre.running:
            return
        for n in range(len(self.brokers)):
            self.flush(n, FOREVER, 0)
        self.centre.start(index)
        one = self.stored[index] = self.stored[index].started(self.at + 1)
        self._apply(SubscriptionChange(TENANT, one.key, one.to_json()))
        self.activations.subscribe(one.key, one)
        for broker in self.brokers:
            broker.started.add(index)
        self._activate()

    def sample(self, n: int, values: dict[str, Any], repeated: bool) -> None:
        """A source measures; its owner and the other broker hear it, maybe twice."""
        source = self.sources[n % len(self.sources)]
        if not source.here:
            return
        self.clock += CONTENT_SECONDS + 1
        moment = float(values.get("time", self.clock))
        given = {name: value for name, value in values.items() if name != "time"}
        sample = Sample(source.name, given, moment, self.clock, "test")
        if source.is_mote:
            source.sequence += 1
            sample = self._marked(source, sample)
        for _ in range(1 + repeated):
            for broker in self.brokers:
                broker.taking.take(sample, self.clock)

    def flush(self, n: int, count: float, again: int) -> None:
        """A broker sends the first of its outbox; then the last of those once more."""
        broker = self.brokers[n % len(self.brokers)]
        sent = broker.journal[: int(min(count, len(broker.journal)))]
        del broker.journal[: len(sent)]
        for entry in sent:
            self._log(entry)
        for entry in sent[max(0, len(sent) - again) :]:
            self._log(Entry(None, entry.epoch, frozenset(), entry.records))

    def move(self, n: int, to: int) -> None:
        """A source gets another owner, after the old one has told all and sent all; one that was away is back."""
        source = self.sources[n % len(self.sources)]
        self._release(source)
        source.here = True
        self._lease(source, to % len(self.brokers))
        self._announce_here(source.name, over=False)

    def leave(self, n: int) -> None:
        """A source goes."""
        source = self.sources[n % len(self.sources)]
        if not source.here:
            return
        self._release(source)
        source.here = False
        self._announce_here(source.name, over=True)

    def table(self, n: int, indices: int) -> None:
        """The filters that a mote keeps bits of are others now, as far as its owner has them.

        A run of debounce, and where a dead band was left, do not go along with the bit (rule S2): these stay.
        """
        source = self.sources[n % 2]
        if not source.here:
            return
        owner = self.brokers[source.owner]
        states = [
            (one.digest, one.subscription)
            for one in owner.active.filters.values()
            if isinstance(one.subscription, StateSubscription)
            and not (one.subscription.debounce or one.subscription.dead_band)
        ]
        source.table = {
            digest: source.table.get(digest) or Evaluator(subscription)
            for place, (digest, subscription) in enumerate(states)
            if indices >> place & 1
        }
        owner.taking.decider.on_mote(source.name, list(source.table))

    def reboot(self, n: int) -> None:
        """A mote loses its bits, and counts its boots."""
        source = self.sources[n % 2]
        source.boot += 1
        source.sequence = 0
        source.table = {digest: Evaluator(one.subscription) for digest, one in source.table.items()}

    def doubt(self, n: int) -> None:
        """A mote will not be able to decide on its next sample."""
        self.sources[n % 2].doubts = True

    def write_bits(self, n: int) -> None:
        """The owner writes the bits that it knows down to a mote, which takes those that it does not know.

        With EACH a mote keeps a bit only where that is the same for all its samples, which it is not here.
        """
        source = self.sources[n % 2]
        decider = self.brokers[source.owner].taking.decider
        for digest, evaluator in source.table.items():
            bit, state = decider.bit(digest, source.name), evaluator.state(source.name)
            is_unknown = state is None or state.setting is None
            if source.here and is_unknown and bit is not None and evaluator.subscription.each is None:
                evaluator.learn(Mark(source.name, (0, source.boot, source.sequence), bit))

    def crash(self, n: int) -> None:
        """A broker, or the engine, goes on from what is stored."""
        if n == 2:
            snapshot = json.loads(json.dumps(self.engine.snapshot(), default=tuple))
            self.engine = Engine(Settings(log=Log(duplicate_window=FOREVER, content_window=1.0, max_age=FOREVER)))
            for index in self.centre.running:
                self.engine.begin(self.stored[index].key, self.stored[index].to_json())
            self.engine.restore(snapshot)
            return
        self.brokers[n].start()
        for source in self.sources:
            if source.owner == n and source.here:
                self.brokers[n].taking.decider.on_mote(source.name, list(source.table))

    def announce(self, n: int) -> None:
        """A broker announces what is new; the cloud acts on it at once, which the broker cannot know."""
        broker = self.brokers[n % len(self.brokers)]
        item = json.loads(json.dumps({**broker.announcer.announce(), "session": "s"}))
        broker.taking.tick(self.clock)
        said = read_announcement(item, TENANT, broker.name, 0.0)
        assert isinstance(said, Announcement)
        broker.announcer.departed(self.clock)
        self.activations.announce(said)
        self._activate()

    def settle(self) -> None:
        """So long that announcements have been acted on."""
        self.clock += SETTLE_SECONDS
        for broker in self.brokers:
            broker.announcer.due(self.clock)
            broker.taking.tick(self.clock)

    def tick(self, seconds: float) -> None:
        """Time passes in the log."""
        self.now += seconds
        self.centre.tick(self.now)
        self._apply(Tick())

    def finish(self) -> None:
        """Everything arrives, and falls due."""
        for n in range(len(self.brokers)):
            self.flush(n, FOREVER, 0)
        self.tick(FOREVER)

    # ---- how it happens

    def _marked(self, source: Source, sample: Sample) -> Sample:
        id = PublicationId(source.name, source.boot, source.sequence)
        publication = {**sample.values, "source": source.name, "time": sample.time}
        undecided = frozenset(
            digest for digest, one in source.table.items() if source.doubts or not one.decides(id, publication)
        )
        for digest in undecided:
            source.table[digest].forget(source.name)
        marks = {
            digest: one.observe(id, publication) for digest, one in source.table.items() if digest not in undecided
        }
        found: dict[Digest, Mark] = {digest: mark for digest, mark in marks.items() if mark is not None}
        source.doubts = False
        return Sample(
            sample.source, sample.values, sample.time, sample.heard, "test", id.boot, id.sequence, marks=found,
            undecided=undecided,
        )  # fmt: skip

    def _release(self, source: Source) -> None:
        if source.here:
            self.brokers[source.owner].taking.release(source.name)
            self.flush(source.owner, FOREVER, 1)
            source.table = {}

    def _lease(self, source: Source, to: int) -> None:
        self.epoch += 1
        source.owner, source.epoch = to, self.epoch
        leases = [
            {"source": one.name, "owner": self.brokers[one.owner].name, "epoch": one.epoch} for one in self.sources
        ]
        for broker in self.brokers:
            broker.tell_leases(leases)

    def _activate(self) -> None:
        for _ in self.activations.work():
            pass
        for broker in self.brokers:
            if broker.name not in self.activations.brokers:
                continue
            desired = self.activations.brokers[broker.name].desired()
            items = json.loads(json.dumps([one.to_json() for one in desired.values()]))
            before = broker.active.filters
            change = broker.active.apply((broker.active.epoch or 0) + 1, items, [], full=True)
            self._renew(
                broker, [one for one in change.added if one.digest in before and before[one.digest].start < one.start]
            )
            broker.taking.change(change.added, change.dropped, broker.leases.known, self.clock)

    def _renew(self, broker: MobileBroker, begun: Sequence[ActiveFilter]) -> None:
        """One more subscription shares these: motes get their programs anew."""
        for source in self.sources:
            for one in begun:
                if self.brokers[source.owner] is broker and one.digest in source.table:
                    assert isinstance(one.subscription, StateSubscription)
                    source.table[one.digest] = Evaluator(one.subscription)

    def _announce_here(self, source: str, *, over: bool) -> None:
        self.centre.announce(source, not over, self.now)
        self._apply(Announced(TENANT, (source,), over))

    def _log(self, entry: Entry) -> None:
        self.now += 0.25
        self.centre.tick(self.now)
        if entry.taken is not None:
            publication = entry.taken.publication
            self.centre.read(Record(entry.taken.id, entry.epoch, publication, entry.active, {}, {}), self.now)
            self.kept += not entry.records
        for record in entry.records:
            self.sent += 1
            self._apply(_as_logged(record))

    def _apply(self, record: Any) -> None:
        self.at += 1
        for notes in self.engine.apply(record, self.at, self.now):
            for note in notes.notes:
                assert note.reason != "repaired"
                self.told.append((int(note.sid[1:]), _id(note), note.why, note.scope))

    def answers(self) -> tuple[list[Any], list[Any]]:
        """What the edge told, and what the centre."""
        assert self.engine.damaged == 0, self.engine.damage
        ids = {one.id: n for n, one in enumerate(self.subscriptions)}
        centre = [(ids[one.subscription], _id(one), one.why, one.scope) for one in self.centre.told]
        return sorted(self.told, key=repr), sorted(centre, key=repr)


def _id(told: Any) -> str:
    """Of its publication. Who is lost has none, only a last mark, which a new evaluator repeats (S2)."""
    id = str(told.publication_id)
    return id if told.reason is None else id.partition(":")[0]


def _as_logged(record: OutRecord) -> Publications:
    labels = [
        RowLabel(None if record.publication is None else 0, digest, label) for digest, label in record.labels.items()
    ]
    if record.publication is None:
        return Publications(TENANT, 0.0, (), b"[]", tuple(labels))
    id = PublicationId.parse(record.publication["id"])
    row = {name: value for name, value in record.publication.items() if name not in ("id", "source")}
    epoch = record.epoch or None
    return joined(readings(id.source, id.sequence, row, boot=id.boot, epoch=epoch, labels=labels))
