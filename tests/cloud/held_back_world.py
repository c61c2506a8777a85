"""A small world of brokers, motes, links and subscriptions, which keeps every sample: what a Judge is compared with.

Activations are the coordinator's own; entries are made as the recorder makes them, and read again from JSON. What
brokers do is modelled here anew: which filters are at work when, what they send, when that comes, what is lost. All of
it is a pure function of the seed.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
from test_activation import announcement, stored

from spinney import feed, parse
from spinney.compiled import compile_filter
from spinney_cloud.activation import Activations, Active
from spinney_cloud.announcement_table import Announcements
from spinney_cloud.announcements import Away, Over
from spinney_cloud.completeness import Answer, Judge, entries
from spinney_cloud.completeness.recorder import entry_of
from spinney_cloud.fetch.result import Claim
from spinney_cloud.leases import Leases
from spinney_cloud.records import Run
from spinney_cloud.subscriptions import form_of

SECONDS = 900.0
SAMPLES_AT_ONCE = 3
DETECTED_SECONDS = 60.0
"""By then the cloud knows of a link that is broken."""
WIDE = ["TRUE", "co2 >= 0", "co2 >= 0 OR temp > -50"]
NARROW = [
    "co2 > 50", "co2 > 300", "co2 > 900", "temp > 20", "co2 > 100 AND room = 'kit'", "room = 'hall'",
    "co2 > 200 OR temp > 30", "temp BETWEEN 10 AND 30", "source = 'b0m0' AND co2 > 10",
    "WHEN co2 > 500 UNTIL co2 < 400", "WHEN temp > 25 UNTIL temp <= 22 EACH room", "TOP 3 OVER 1m BY co2 DESC",
]  # fmt: skip


@dataclass
class Mote:
    """A source. Of a Spinney mote (`commits`) the filters that it has committed hold samples back, too."""

    name: str
    constants: dict[str, Any]
    attributes: dict[str, dict[str, float]]
    commits: bool
    table: list[Callable[[Mapping[str, Any]], bool]] = field(default_factory=list)
    number: int = 0

    def announced(self) -> dict[str, Any]:
        return {"name": self.name, "constants": self.constants, "attributes": self.attributes}


@dataclass
class Sample:
    """One, and what became of it."""

    at: float
    source: str
    publication: dict[str, Any]
    sent: bool
    arrival: float | None = None
    """In the log, if it was sent and kept; else when it would have come, as far as anybody can say."""
    missing: bool = False
    """Lost, or told by nobody, whatever was asked for."""
    waits: bool = False
    """Outside of what was announced, so that it is on its way whatever was asked for."""
    stopped_by: str | None = None
    """The broker that has it, and did not send it; None where it was sent, lost, or never left its mote."""


@dataclass
class Broker:
    name: str
    motes: list[Mote]
    private: bool = False
    up: bool = True
    runs: bool = True
    run: int = 0
    link: int = 0
    epoch: int = 0
    filters: dict[str, Active] = field(default_factory=dict)
    told: dict[str, Active] = field(default_factory=dict)
    """What the cloud has sent."""
    told_epoch: int = 100
    sent_anything: bool = False
    knows_leases: dict[str, str] = field(default_factory=dict)
    waiting: list[Sample] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)
    lost: int = 0
    lost_since: float | None = None
    plans: int = 0
    all_until: float = 0.0
    """Nothing is in force that it announced: all that it hears goes up."""
    is_fresh: bool = False


class World:
    """`run` it; then `heard` is the log, `history` what the cloud wrote down, `samples` all there were."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.history: list[tuple[float, dict[str, Any]]] = []
        self.samples: list[Sample] = []
        self.log: list[tuple[float, Sample, str]] = []
        self.direct: list[tuple[float, int]] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._activations = Activations(clock=lambda: self.now)
        self._announcements = Announcements()
        self._leases = Leases()
        self._held: dict[str, dict[str, int]] = {}
        self._standing: dict[str, str] = {}
        self._announced: dict[str, list[list[float]]] = {}
        """By source, from when to when somebody announced it."""
        random = self.random
        self.brokers = [self._broker(number) for number in range(random.randint(1, 3))]
        if len(self.brokers) > 1 and random.random() < 0.4:  # one that two of them hear
            shared = Mote("shared", {"room": "hall"}, {"co2": {"min": 0, "max": 2000}}, False)
            for broker in self.brokers[:2]:
                broker.motes.append(shared)

    def _broker(self, number: int) -> Broker:
        random = self.random
        motes = []
        for index in range(random.randint(1, 3)):
            attributes = {"co2": {"min": 0, "max": random.choice([45, 800, 2000])}}
            if random.random() < 0.5:
                attributes["temp"] = {"min": -10, "max": random.choice([18, 40])}
            constants = {"room": random.choice(["kit", "hall"])}
            motes.append(Mote(f"b{number}m{index}", constants, attributes, random.random() < 0.3))
        return Broker(f"b{number}", motes, private=random.random() < 0.03)

    # ---- time

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + seconds, next(self._order), what))

    def run(self) -> None:
        random = self.random
        self.say(entries.kept(3600))
        for _ in range(random.choice([0, 1, 1, 2])):
            self.subscribe(random.choice(WIDE if random.random() < 0.4 else NARROW))
        for broker in self.brokers:
            self.after(random.uniform(0, 3), lambda broker=broker: self.arrive(broker))  # type: ignore[misc]
            for mote in broker.motes:
                if mote.name != "shared" or broker is self.brokers[0]:
                    self.after(random.uniform(0, 4), lambda mote=mote: self.sample(mote))  # type: ignore[misc]
        self.after(1, self.publish)
        for _ in range(random.choice([0, 0, 1, 2, 4])):
            happens = random.choices(
                [self.change, self.cut, self.restart, self.lose, self.leave], weights=[8, 4, 2, 1, 1]
            )[0]
            self.after(random.uniform(30, SECONDS), happens)
        while self._queue and self._queue[0][0] < SECONDS:
            self.now, _, what = heapq.heappop(self._queue)
            what()

    def say(self, value: dict[str, Any]) -> None:
        self.history.append((self.now, orjson.loads(orjson.dumps(value))))

    # ---- subscriptions

    def subscribe(self, text: str) -> None:
        sid = f"s{next(self._order)}"
        options = {}
        if self.random.random() < 0.1 and not text.startswith(("WHEN", "TOP")):
            options = {"density": {"per_cell": 1, "cell": 5, "every": "10m"}}
        one = stored(sid, text, **options)
        self._standing[sid] = one.key
        self._activations.subscribe(one.key, one)
        self.activate()

    def change(self) -> None:
        if self._standing and self.random.random() < 0.5:
            sid = self.random.choice(sorted(self._standing))
            self._activations.subscribe(self._standing.pop(sid), None)
            self.activate()
        else:
            self.subscribe(self.random.choice(NARROW + WIDE))

    def activate(self) -> None:
        for client in [one for one in self._activations.work() if one is not None]:
            broker = next(one for one in self.brokers if one.name == client)
            self.tell(broker)

    def tell(self, broker: Broker, *, full: bool = False) -> None:
        announced = self._announcements.get("default", broker.name)
        if announced is None or announced.away is not None:
            return
        held = self._leases.held_by(broker.name)
        moved = held != self._held.get(broker.name, {})
        if moved:
            self.say(entries.leased(broker.name, self._held.get(broker.name), held))
            self._held[broker.name] = held
        active = self._activations.brokers[broker.name].desired()
        full = full or not broker.sent_anything
        before = {} if full else broker.told
        add = [one for digest, one in active.items() if not one.is_like(before.get(digest))]
        drop = [digest for digest in before if digest not in active]
        owners = {
            name: lease.client
            for name in sorted(self._leases.wanted_by(broker.name))
            if (lease := self._leases.owner(name))
        }
        if not (full or add or drop or owners != broker.knows_leases):
            return
        broker.told_epoch += 1
        message = {
            "epoch": broker.told_epoch,
            "full": full,
            "add": [one.to_json() for one in add],
            "drop": drop,
            "leases": [],
        }
        chosen = frozenset(one.digest for one in add if one.sources is not None)
        self.say(entries.activated(broker.name, message, chosen))
        broker.told, broker.sent_anything = active, True
        epoch, link, run = broker.told_epoch, broker.link, broker.run
        delay = self.random.choice([0.2, 0.5, 2.0, 2.0, 10.0])
        self.after(delay, lambda: self.take(broker, epoch, link, run, active, owners))

    def take(
        self, broker: Broker, epoch: int, link: int, run: int, active: dict[str, Active], owners: dict[str, str]
    ) -> None:
        """An activation reaches its broker, on the link that it was sent on; late ones are put right later."""
        if (broker.link, broker.run) != (link, run) or not broker.up or epoch < broker.epoch:
            return
        broker.epoch, broker.filters, broker.knows_leases = epoch, active, owners
        broker.is_fresh = broker.is_fresh and self.now < broker.all_until
        self.plan(broker)
        self.after(2.0, lambda: self.report(broker, link))

    def plan(self, broker: Broker) -> None:
        broker.plans += 1
        broker.pending = {mote.name for mote in broker.motes if mote.commits}
        for mote in broker.motes:
            if mote.commits:
                seconds = self.random.choice([1.0, 5.0, 20.0, 2000.0])
                self.after(seconds, lambda mote=mote, plan=broker.plans: self.commit(broker, mote, plan))  # type: ignore[misc]

    def commit(self, broker: Broker, mote: Mote, plan: int) -> None:
        if plan != broker.plans or not broker.runs:
            return
        mote.table = tests_of(broker.filters)
        broker.pending.discard(mote.name)
        link = broker.link
        self.after(2.0, lambda: self.report(broker, link))

    # ---- presence

    def announce(self, broker: Broker, said: Any, **more: Any) -> None:
        change = self._announcements.decide("default", broker.name, said, self.now)
        value = entry_of(broker.name, change)
        come, gone = self._announcements.put("default", broker.name, change.after)
        for source in come:
            self._announced.setdefault(source, []).append([self.now, SECONDS])
        for source in gone:
            self._announced[source][-1][1] = self.now
        if value is not None:
            self.say(value)
        moved = (
            self._leases.end(broker.name) if change.after is None else self._leases.ask(broker.name, change.after.lease)
        )
        if change.after is None:
            self._activations.end(broker.name)
        else:
            self._activations.announce(change.after)
        self.activate()
        for one in self.brokers:
            if (
                one.name in moved.values()
                or (one is broker and more.get("full"))
                or any(one.name in self._leases.asking(source) for source in moved)
            ):
                self.tell(one, full=bool(more.get("full")) and one is broker)
        if change.after is None:
            held = self._leases.held_by(broker.name)
            self.say(entries.leased(broker.name, self._held.get(broker.name), held))
            self._held[broker.name] = held

    def arrive(self, broker: Broker) -> None:
        """On a new link; it has lost what was under way."""
        if not broker.runs:
            return
        broker.up, broker.link = True, broker.link + 1
        for sample in broker.waiting:
            self.deliver(sample, broker, self.random.uniform(0.3, 1.5))
        broker.waiting = []
        if broker.link == 1:
            broker.all_until, broker.is_fresh = self.now + 10, True
        said = announcement(
            broker.name, [mote.announced() for mote in broker.motes],
            session=f"{broker.run}-{broker.link}", lease=[mote.name for mote in broker.motes],
        )  # fmt: skip
        self.announce(broker, said, full=broker.epoch != broker.told_epoch)
        link = broker.link
        self.after(3.0, lambda: self.report(broker, link))

    def cut(self) -> None:
        broker = self.random.choice(self.brokers)
        if not (broker.up and broker.link):
            return
        broker.up = False
        link = broker.link
        self.after(self.random.uniform(0.5, DETECTED_SECONDS), lambda: self.missed(broker, link))
        self.after(self.random.choice([5.0, 30.0, 100.0, 300.0]), lambda: self.arrive(broker))

    def missed(self, broker: Broker, link: int) -> None:
        """The will; and much later the end of the announcement. A newer session takes the place of either."""
        said = Away(f"{broker.run}-{link}")
        self.announce(broker, said)
        if not broker.up:
            self.after(120.0, lambda: self.ended(broker, link))

    def ended(self, broker: Broker, link: int) -> None:
        now = self._announcements.get("default", broker.name)
        if now is not None and now.away is not None and now.session == f"{broker.run}-{link}":
            self.announce(broker, Over(now.session))

    def restart(self) -> None:
        """It ends, and is started again; what was at work is kept, and motes go on."""
        broker = self.random.choice(self.brokers)
        if not (broker.up and broker.link):
            return
        session = f"{broker.run}-{broker.link}"
        broker.up = broker.runs = False
        broker.run += 1
        self.announce(broker, Over(session))

        def back() -> None:
            broker.runs = True
            self.plan(broker)
            self.arrive(broker)

        self.after(self.random.choice([20.0, 60.0]), back)

    def leave(self) -> None:
        """For good."""
        broker = self.random.choice(self.brokers)
        if broker.up and broker.link and len(self.brokers) > 1:
            session = f"{broker.run}-{broker.link}"
            broker.up = broker.runs = False
            self.announce(broker, Over(session))

    def lose(self) -> None:
        """It drops what waits, for want of room."""
        broker = self.random.choice(self.brokers)
        if not broker.waiting:
            self.cut()
            self.after(self.random.uniform(20, 90), self.lose)
            return
        broker.lost += sum(sample.sent for sample in broker.waiting)
        broker.lost_since = broker.waiting[0].at
        for sample in broker.waiting:
            sample.missing, sample.arrival = True, None
        broker.waiting = []

    def report(self, broker: Broker, link: int) -> None:
        if not broker.up or broker.link != link or not broker.epoch:
            return
        item = {"run": f"{broker.name}-{broker.run}", "epoch": broker.epoch, "pending": sorted(broker.pending)}
        if broker.private:
            item["private"] = True
        if any(mote.commits for mote in broker.motes):
            item["motes"] = True
        elif broker.is_fresh:
            item["fresh"] = True
        broker.is_fresh = False
        if broker.lost and broker.lost_since is not None:
            item |= {"lost": broker.lost, "seconds": self.now - broker.lost_since}
            broker.lost, broker.lost_since = 0, None
        value = entries.reported(broker.name, json.loads(json.dumps(item)))
        self.after(self.random.uniform(0.1, 1.0), lambda: self.say(value))

    # ---- readings

    def sample(self, mote: Mote) -> None:
        self.after(self.random.uniform(2, 4), lambda: self.sample(mote))
        for _ in range(SAMPLES_AT_ONCE):
            self.sample_once(mote, self.owner(mote))

    def sample_once(self, mote: Mote, owner: Broker | None) -> None:
        mote.number += 1
        publication: dict[str, Any] = {"source": mote.name, "id": f"{mote.name}:1:{mote.number}", **mote.constants}
        outside = not mote.commits and self.random.random() < 0.02
        for name, limits in mote.attributes.items():
            publication[name] = (
                float(limits["max"] + 50) if outside else self.random.uniform(limits["min"], limits["max"])
            )
        for name in mote.attributes:
            if self.random.random() < 0.2:
                del publication[name]
        sample = Sample(self.now, mote.name, publication, False)
        if owner is None:
            sample.missing = True
            if not outside:  # its limits are a promise, and to whoever was there it would have shown
                self.samples.append(sample)
            return
        self.samples.append(sample)
        if owner.private and publication.get("co2", 0) > 20:
            sample.missing = True
            return
        passes = not mote.commits or any(test(publication) for test in mote.table)
        outside = outside or self.now < owner.all_until
        sample.sent = passes and (outside or any(test(publication) for test in tests_of(owner.filters)))
        if passes and not sample.sent:
            sample.stopped_by = owner.name
        if owner.up:
            self.deliver(sample, owner, self.random.uniform(0.1, 1.0))
        else:
            sample.waits = outside
            owner.waiting.append(sample)

    def owner(self, mote: Mote) -> Broker | None:
        """The broker that takes itself for its owner."""
        hears = [one for one in self.brokers if mote in one.motes and one.runs and one.link]
        ours = [one for one in hears if one.knows_leases.get(mote.name, one.name) == one.name]
        return ours[0] if ours else None

    def deliver(self, sample: Sample, broker: Broker, delay: float) -> None:
        sample.arrival = self.now + delay
        if sample.sent:
            self.log.append((sample.arrival, sample, broker.name))

    def publish(self) -> None:
        """A source of its own, which sends all; some are lost."""
        self.after(7.0, self.publish)
        number = len(self.samples)
        publication = {"source": "direct", "id": f"direct:1:{number}", "room": self.random.choice(["kit", "hall"])}
        publication |= {"co2": self.random.uniform(0, 2000), "temp": self.random.uniform(-10, 40)}
        sample = Sample(self.now, "direct", publication, True, self.now)
        self.direct.append((self.now, len(self.direct)))
        sample.missing = self._loses_direct and int(self.now) % 400 > 320
        self.samples.append(sample)
        if not sample.missing:
            self.log.append((self.now, sample, f"#{len(self.direct) - 1}"))

    @property
    def _loses_direct(self) -> bool:
        return len(self.brokers) == 2

    # ---- what is asked

    def judged(self, text: str, since: float, until: float, claims: Iterable[Claim] = ()) -> Answer:
        """As a dry run asks."""
        subscription = parse(text)
        form = form_of(subscription)
        judge = Judge(
            form.kind, feed(subscription), form.digest if form.kind == "state" else None, since, until,
            waits_for_labels=False,
        )  # fmt: skip
        for claim in claims:
            judge.fetched(*claim)
        for at, value in self.history:
            judge.entry(at, entries.read_entry(value, "default", at))
        for at, sample, client in sorted(self.log, key=lambda one: one[0]):
            if since <= at <= until:
                if client.startswith("#"):
                    judge.heard(at, [Run("direct", 1, int(client[1:]), 1, "someone", None, 1)])
                else:
                    judge.heard(at, [Run(sample.source, 1, 1, 1, client, None, 1)])
        return judge.answer()

    def missing(self, text: str, since: float, until: float) -> list[Sample]:
        """What the log of the time lacks of what was taken, and would have come in it or should have by its end."""
        test = compile_filter(feed(parse(text)))
        there = {id(sample) for at, sample, _ in self.log if since <= at <= until and not sample.missing}
        last_direct = [at for at, sample, _ in self.log if sample.source == "direct" and since <= at <= until]
        found = []
        for one in self.samples:
            if not test(one.publication) or id(one) in there:
                continue
            if not any(
                begun <= until and since <= end for begun, end in self._announced.get(one.source, [[0, SECONDS]])
            ):
                continue
            if one.source == "direct":  # what is missing before the first, or after the last, nobody can know
                if last_direct and last_direct[0] < one.at < last_direct[-1]:
                    found.append(one)
                continue
            if one.waits and not one.missing and (one.arrival is None or one.arrival > until):
                continue  # it comes later, if only after the world's end
            came = one.arrival if one.arrival is not None else one.at
            due = one.at + DETECTED_SECONDS + 5
            if since <= came <= until if one.arrival is not None else since <= one.at and due <= until:
                found.append(one)
        return found

    def claims(self, until: float) -> list[Claim]:
        """Since when brokers say that they have all that they stopped, by chance; not of what motes may hold back."""
        sources = [(broker.name, mote.name) for broker in self.brokers for mote in broker.motes if not _commits(broker)]
        chosen = [one for one in sources if self.random.random() < 0.8]
        return [Claim(*one, self.random.uniform(-SECONDS, until), until) for one in chosen]

    def fetched(self, claims: Iterable[Claim]) -> set[int]:
        """What brokers have by these claims: what would have come since."""
        since = {(one.client, one.source): one.since for one in claims}
        return {
            id(one)
            for one in self.samples
            if one.stopped_by is not None
            and (one.stopped_by, one.source) in since
            and (one.arrival is None or one.arrival >= since[one.stopped_by, one.source])
        }

    def questions(self, count: int) -> Iterator[tuple[str, float, float]]:
        for _ in range(count):
            since = self.random.uniform(5, SECONDS - 200)
            yield self.random.choice(NARROW), since, self.random.uniform(since + 120, SECONDS)


def _commits(broker: Broker) -> bool:
    return any(mote.commits for mote in broker.motes)


def tests_of(filters: Mapping[str, Active]) -> list[Callable[[Mapping[str, Any]], bool]]:
    """What filters let through; a state filter nothing, since what it lets through hangs on what was before."""
    return [compile_filter(one.feed) for one in filters.values() if one.state is None]
