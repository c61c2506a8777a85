"""Spinney's messages in one run: announcements, activations, filters on motes, and what motes and phones let through.

What decides is the real thing, in virtual time and without a network: of the cloud broker what it makes of an
announcement, of the mobile broker its announcer, presence, leases, decider, taking and the plan of a mote's table, of
the mote the firmware's table, machine and ring. Payloads are what these make. What is simpler than life: the network
takes no time and loses nothing, so that each reading goes up alone, as it would from one mote on a phone; a phone looks
where it is every four seconds instead of four times a second. A test compares the counts with a mobile broker, a cloud
broker and a mote that really run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from spinney import parse
from spinney.client.outbox import Entry
from spinney.identity import PublicationId
from spinney.packed import is_packed
from spinney_cloud.activation import Active, BrokerActivation, Needs, specialised
from spinney_cloud.announcements import MEMBERS, Announcement, read_announcement
from spinney_cloud.packers import Packers
from spinney_cloud.replies import FORMATS
from spinney_cloud.subscriptions import form_of
from spinney_mobile.active import ActiveFilter
from spinney_mobile.announcing import GATHER_SECONDS, Announcer
from spinney_mobile.batches import Batches
from spinney_mobile.cells import H3
from spinney_mobile.deciding import Decider
from spinney_mobile.fetching import Fetches
from spinney_mobile.leases import Leases
from spinney_mobile.numbering import Numbering
from spinney_mobile.outbox import Outbox, OutRecord, encode
from spinney_mobile.packing import unpacked
from spinney_mobile.presence import Presence
from spinney_mobile.reports import VERSION as REPORTS
from spinney_mobile.reports import Reports, State
from spinney_mobile.rules import Rules
from spinney_mobile.samples import Digest, Sample
from spinney_mobile.taking import Taking
from spinney_mobile.tally import Tally

from .footprint_mote import CarriedMote, Pushed
from .footprint_setting import ABILITIES, RESOLUTION, Step, Walk, heard_at
from .footprint_traffic import Footprint
from .matching import WrongAnswer

MAX_PAYLOAD: Final = 1024 * 1024
"""As the cloud says it in its first answer."""
PREFIX: Final = "Zm9vYmFy"
"""Of the names of batches, as long as a broker's."""
STATE_START: Final = 1_000
"""Where in the log a subscription began: brokers are told so of states."""


class Filters:
    """What follows from subscriptions and places, worked out once in a run: nothing here changes with time."""

    def __init__(self) -> None:
        self._needs: dict[str, tuple[Digest, Needs]] = {}
        self._active: dict[tuple[Digest, bytes], Active | None] = {}
        self._pushed: dict[bytes, Pushed] = {}

    def needs(self, text: str) -> tuple[Digest, Needs]:
        """What a subscription needs of a broker, under its digest."""
        found = self._needs.get(text)
        if found is None:
            form = form_of(parse(text))
            found = self._needs[text] = (form.digest, Needs(form.normal))
        return found

    def active(self, digest: Digest, needs: Needs, broker: BrokerActivation, key: bytes) -> Active | None:
        """What is left of it with what was announced; None if nothing there can match."""
        if (digest, key) not in self._active:
            serves = broker.knowledge.serves(needs.prepared)
            found = specialised(digest, needs, broker.knowledge, None, STATE_START) if serves else None
            self._active[digest, key] = found
        return self._active[digest, key]

    def pushed(self, item: Mapping[str, Any]) -> Pushed:
        """As a broker has it of an activation."""
        key = orjson.dumps(item)
        if key not in self._pushed:
            self._pushed[key] = Pushed.of(ActiveFilter.from_json(item))
        return self._pushed[key]


class Coordinator:
    """The cloud broker, as far as announcements and activations go."""

    def __init__(self, filters: Filters, texts: Sequence[str]) -> None:
        self._filters = filters
        self._needs = dict(filters.needs(text) for text in texts)
        self._desired: dict[bytes, Mapping[Digest, Active]] = {}
        self._sent: dict[str, Mapping[Digest, Active]] = {}
        self._packers = Packers()
        self._sessions: dict[str, str] = {}
        self._leases: dict[str, list[dict[str, Any]]] = {}
        self._epochs: dict[str, int] = {}

    def desired(self, item: Mapping[str, Any]) -> Mapping[Digest, Active]:
        """What a broker that has announced this is to evaluate."""
        key = orjson.dumps([item.get("place"), [source["attributes"] for source in item["sources"]]])
        if key not in self._desired:
            announcement = read_announcement(item, "default", "any", 0.0)
            assert isinstance(announcement, Announcement)
            broker = BrokerActivation(announcement)
            for digest, needs in self._needs.items():
                broker.put(digest, self._filters.active(digest, needs, broker, key))
            self._desired[key] = broker.desired()
        return self._desired[key]

    def greeting(self, client: str, session: str) -> bytes | None:
        """What a broker is told of the gateway at the first announcement of a session."""
        if self._sessions.get(client) == session:
            return None
        self._sessions[client] = session
        return orjson.dumps({"max_payload": MAX_PAYLOAD, "formats": FORMATS})

    def packed(self, client: str, message: Mapping[str, Any]) -> bytes:
        """An activation, or an answer, as it goes out."""
        return self._packers.pack(client, orjson.dumps(message))

    def announced(self, client: str, payload: bytes, now: float) -> dict[str, Any] | None:
        """The activation that follows from an announcement; None if nothing has changed for its broker."""
        self._packers.heard(client, packed=is_packed(payload))
        item = orjson.loads(unpacked(payload))
        wish, before = self.desired(item), self._sent.get(client)
        add = [one for digest, one in wish.items() if before is None or not one.is_like(before.get(digest))]
        drop = [digest for digest in before or () if digest not in wish]
        leases = [{"source": source, "owner": client, "epoch": 1} for source in item["lease"]]
        is_new = leases != self._leases.get(client, [])
        if before is not None and not (add or drop or is_new):
            return None
        self._sent[client], self._leases[client] = wish, leases
        self._epochs[client] = self._epochs.get(client, int(now * 1000)) + 1
        message: dict[str, Any] = {"epoch": self._epochs[client], "full": before is None}
        message |= {"add": [one.to_json() for one in add], "drop": drop}
        return {**message, "leases": leases} if before is None or is_new else message


@dataclass(slots=True)
class Spent:
    """What one run took."""

    footprint: Footprint = field(default_factory=Footprint)
    announcements: int = 0
    activations: int = 0
    tallies: int = 0
    """Of what was sent and spared."""
    readings: int = 0
    unneeded: int = 0
    """Readings outside of what was announced, which go up unfiltered."""
    commits: int = 0
    visits: int = 0
    events: int = 0
    sent: set[tuple[str, float]] = field(default_factory=set)
    """The source and the time of each reading that went up."""


class Phone:
    """A mobile broker that is carried about, and the mote on it. It is the store of its own readings."""

    def __init__(
        self, name: str, source: str, cloud: Coordinator, filters: Filters, spent: Spent, *, packs: bool = True
    ) -> None:
        """Without `packs` all is JSON at QoS 1, as with a cloud that names no formats."""
        self.name = name
        self._packs = packs
        self.source = source
        self._cloud = cloud
        self._filters = filters
        self._spent = spent
        self._epoch: int | None = None
        self._active: dict[Digest, Pushed] = {}
        self._here: dict[str, Any] = {}
        self._leases = Leases(self.name)
        self._announcer = Announcer(grid=H3(), resolution=RESOLUTION)
        self._batches = Batches(Outbox(Path(self.name)), self._leases, PREFIX)
        self._batch = 0
        self._taking = Taking(
            self,
            self._leases,
            Decider(self.name),
            announcer=self._announcer,
            numbering=Numbering(),
            rules=Rules(grid=H3, resolution=RESOLUTION),
            placing=lambda sample: self._here,  # noqa: ARG005  # one place for all
        )
        self._tally = Tally(self._counts)
        self._presence = Presence(lambda: self._epoch, lambda: False, lambda: self._leases.wanted, self._tally.along)
        self._presence.will()
        self._presence.opened(0.0)
        self._reports = Reports(lambda: 0, lambda: None, 0.0)
        self._reports.look = lambda: State(self._epoch, with_motes=(self.source,))
        self._reports.opened()
        self._fetches = Fetches(lambda: 0)
        self._mote = CarriedMote(self.source, spent.footprint.ble)

    def step(self, step: Step) -> None:
        """Goes on to here, and announces what has changed; then takes the mote's sample, if one is due."""
        lat, long = step.place
        self._here = {"lat": lat, "long": long, "cell": step.cell}
        now = step.time_s
        if self._tally.due is None:
            self._tally.opened(now)
        self._announcer.move(step.place, now)
        self._say(now)
        self._say(now + GATHER_SECONDS)
        if self.source not in self._announcer:
            self._announcer.hear(self.source, now)
            self._announcer.describe(self.source, ABILITIES, now)
        if (tally := self._tally.next(self._presence.session, now)) is not None:
            self._spent.tallies += 1
            self._spent.footprint.publish(f"spinney/{self.name}/ann", self._batches.packing.text(tally))
        if (report := self._reports.next(self._presence.session, now)) is not None:
            report = self._fetches.along(report)
            self._spent.footprint.publish(f"spinney/{self.name}/ann", self._batches.packing.text(report))
        if (offer := self._fetches.offer(self._presence.session, now)) is not None:
            self._spent.footprint.publish(f"spinney/{self.name}/ann", self._batches.packing.text(offer))
        if step.raws is not None:
            self._measure(step.raws, now)

    def _counts(self) -> dict[str, int]:
        """As a broker tells the cloud of them."""
        sent = {name: self._taking.counts[name] for name in ("sent", "spared", "bytes_sent", "bytes_spared")}
        return {**sent, "motes_sent": self._mote.counts.samples, "motes_spared": self._mote.counts.kept_back}

    def end(self) -> None:
        """Counts what its mote did."""
        self._spent.commits += self._mote.counts.commits
        self._spent.visits += self._mote.counts.visits
        self._spent.events += self._mote.counts.events
        self._spent.unneeded += self._taking.counts["sent_unwanted"]

    # ---- announcing

    def _say(self, now: float) -> None:
        if self._announcer.due(now):
            body = self._announcer.announce()
            self._taking.tick(now)
            if self._leases.want(self._announcer.sources):
                self._presence.lease_changed(now)
            self._presence.announce(body, now)
        packing, is_answered = self._batches.packing, self._presence.is_answered
        announcement = self._presence.next(now)
        if announcement is None:
            return
        self._spent.announcements += 1
        payload = packing.text(announcement)
        self._spent.footprint.publish(f"spinney/{self.name}/ann", payload, at_most_once=packing.agreed and is_answered)
        self._activated(self._cloud.announced(self.name, payload, now), now)
        self._greeted()
        asked = {"members": list(MEMBERS), "reports": REPORTS}
        answer = {"request": "ann", "ok": True, "session": self._presence.session, **asked}
        self._spent.footprint.answer(f"spinney/{self.name}/reply", self._cloud.packed(self.name, answer))
        self._reports.replied(answer, now)
        self._fetches.answered(answer, now)
        if self._presence.replied(answer) is not None:
            self._announcer.departed(now)

    def _activated(self, message: Mapping[str, Any] | None, now: float) -> None:
        if message is None:
            return
        self._spent.activations += 1
        self._spent.footprint.publish(f"spinney/{self.name}/act", self._cloud.packed(self.name, message))
        self._epoch = message["epoch"]
        if "leases" in message:
            self._leases.tell(message["leases"])
        added = {item["filter"]: self._filters.pushed(item) for item in message["add"]}
        self._active |= added
        for digest in message["drop"]:
            del self._active[digest]
        self._taking.change([one.active for one in added.values()], message["drop"], self._leases.known, now)
        decider = self._taking.decider
        if epoch := self._leases.epoch(self.source):
            self._mote.want(self._active, epoch, lambda digests: decider.on_mote(self.source, digests))

    def _greeted(self) -> None:
        if (greeting := self._cloud.greeting(self.name, self._presence.session)) is not None:
            self._spent.footprint.answer(f"spinney/{self.name}/reply", greeting)
            if self._packs:
                self._batches.packing.told(orjson.loads(greeting))

    # ---- readings

    def _measure(self, raws: tuple[int, ...], now: float) -> None:
        joined = self._mote.observe(raws, now)
        if joined is None:
            return
        self._taking.take(
            Sample(
                self.source,
                joined.values,
                joined.time,
                heard_at(now),
                "motes",
                joined.boot,
                joined.sequence,
                marks=joined.marks,
                passed=joined.passed,
            ),
            now,
        )

    def append(self, records: Sequence[OutRecord], state: Mapping[str, bytes | None] | None = None) -> None:
        """As the outbox: a reading leaves at once, and the cloud says that it is stored."""
        del state
        for record in records:
            self._upload(record)

    def _upload(self, record: OutRecord) -> None:
        if record.publication is None:
            raise WrongAnswer("labels without a reading, although every source stays with its phone")
        id = PublicationId.parse(record.publication["id"])
        self._batch += 1
        batch = f"{PREFIX}-{self._batch}"
        payload = self._batches.encode(batch, [Entry(self._batch, id, encode(record, 0.0))])
        footprint, packing = self._spent.footprint, self._batches.packing
        footprint.publish(f"spinney/{self.name}/pub", payload, at_most_once=packing.agreed)
        numbers = {} if packing.agreed else {self.source: (id.boot, id.sequence)}
        stored = {"stored": numbers, "batch": batch}
        packing.stored([batch])
        told = orjson.dumps(stored) if numbers else self._cloud.packed(self.name, stored)
        footprint.answer(f"spinney/{self.name}/reply", told)
        self._spent.readings += 1
        self._spent.sent.add((self.source, record.publication["time"]))


def source_of(volunteer: int) -> str:
    """What a volunteer's mote is called."""
    return f"m{volunteer}"


def play(walk: Walk, texts: Sequence[str], filters: Filters, *, packs: bool = True) -> Spent:
    """One run with these subscriptions."""
    spent = Spent()
    cloud = Coordinator(filters, texts)
    phones = [
        Phone(f"v{number}", source_of(number), cloud, filters, spent, packs=packs) for number in range(walk.volunteers)
    ]
    for step in walk.steps:
        phones[step.volunteer].step(step)
    for phone in phones:
        phone.end()
    return spent
