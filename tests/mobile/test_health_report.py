"""What is told of sources' batteries and silences: to whom it is wanted, when it changes, within its share of bytes."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest
from coordinator_kit import Kit, until_so
from servers import NatsServer

from spinney.source_health import SILENCE_EDGES, SourceHealth, decode, without_silence
from spinney_cloud.announced_health import ToldHealth, by_source
from spinney_cloud.announcements import MEMBERS, Announcement, read_announcement
from spinney_mobile.announcing import GATHER_SECONDS, Announcer
from spinney_mobile.health_report import CHANGES_SECONDS, MESSAGE_BYTES, SHARE, HealthReport
from spinney_mobile.presence import ANNOUNCE_SECONDS, VALIDITY_SECONDS, Presence
from spinney_mobile.samples import Ability

ABILITIES = {name: Ability(0, 100, unit) for name, unit in (("NO2", "ug/m3"), ("temperature", "C"), ("battery", "%"))}
ANSWER = {"request": "ann", "ok": True}
READING_BYTES = 160
"""Of one that goes up, in JSON."""


class World:
    """A mobile broker's announcer, presence and report, a cloud that reads what they say, and all bytes counted."""

    def __init__(self, *, members: tuple[str, ...] | None = MEMBERS) -> None:
        self.now = 1_000.0
        self.announcer = Announcer()
        self.readings_bytes = 0
        self.said_bytes = 0
        self.health_bytes = 0
        self.messages = 0
        """That tell of nothing else."""
        self.cloud: dict[str, str] = {}
        self.announced: Announcement | None = None
        self._answer = ANSWER if members is None else {**ANSWER, "members": list(members)}
        self.report = HealthReport(lambda: self.readings_bytes)
        self.report.codes = lambda: self.announcer.health(self.now, lambda source: not source.startswith("private"))
        self.presence = Presence(lambda: 7, lambda: False, lambda: (), health=self.report)
        self.link()

    def link(self) -> None:
        self.presence.will()
        self.presence.opened(self.now)

    def hear(self, *sources: str, battery: float | None = None) -> None:
        for source in sources:
            self.announcer.hear(source, self.now)
            self.announcer.describe(source, ABILITIES, self.now)
            if battery is not None:
                self.announcer.set_battery(source, battery)

    def read(self, count: int = 1) -> None:
        """So many readings go up."""
        self.readings_bytes += count * READING_BYTES

    def go_on(self, seconds: float) -> None:
        """Time passes, and what is to be said is said."""
        self.now += seconds
        for source in self.announcer.silent(self.now):
            self.announcer.forget(source, self.now)
        for _ in range(2):
            if self.announcer.due(self.now):
                self.presence.announce(self.announcer.announce(), self.now)
            while (said := self.presence.next(self.now)) is not None:
                self._take(said)
            self.now += max(GATHER_SECONDS, ANNOUNCE_SECONDS)

    def _take(self, said: bytes) -> None:
        item: dict[str, Any] = json.loads(said)
        found = read_announcement(item, "default", "b1", self.now)
        self.said_bytes += len(said)
        if isinstance(found, ToldHealth):
            assert self.announced is not None
            self.messages += 1
            self.said_bytes += MESSAGE_BYTES
            self.health_bytes += len(said) + MESSAGE_BYTES
            self.cloud |= by_source(found.codes, self.announced.sources)
            return
        assert isinstance(found, Announcement)
        self.announced = found
        if found.health is not None:
            self.health_bytes += len(said) - len(_json({k: v for k, v in item.items() if k != "health"}))
            self.cloud = dict(found.health)
        else:
            self.cloud = {source: without_silence(code) for source, code in self.cloud.items()}
        self.announcer.departed(self.now)
        assert self.presence.replied({**self._answer, "session": self.presence.session}) is not None

    @property
    def share(self) -> float:
        return self.health_bytes / (self.said_bytes + self.readings_bytes)

    def health(self, source: str) -> SourceHealth:
        """As the cloud knows it."""
        return decode(self.cloud[source])


def _json(item: Any) -> bytes:
    return json.dumps(item, separators=(",", ":")).encode()


def hours(world: World, sources: list[str], count: float, readings: int = 0) -> None:
    for _ in range(round(count * 60)):
        world.hear(*sources, battery=0.8)
        world.read(readings)
        world.go_on(60.0 - 2 * ANNOUNCE_SECONDS)


@pytest.mark.parametrize("members", [None, (), ("another",)])
def test_a_cloud_that_does_not_ask_for_it_is_told_nothing(members: tuple[str, ...] | None) -> None:
    world = World(members=members)
    hours(world, ["m1", "m2"], 3, readings=10)
    assert (world.health_bytes, world.report.bytes, world.cloud) == (0, 0, {})


def test_each_source_is_told_of_and_that_costs_hardly_anything() -> None:
    world = World()
    hours(world, ["m1", "m2", "private"], 2, readings=3)
    assert world.health("m1") == SourceHealth(0.8, 0.0)
    assert world.health("private") == SourceHealth(None, 0.0)  # a rule keeps its battery to itself
    assert 0 < world.health_bytes < 0.01 * (world.said_bytes + world.readings_bytes)


def test_what_changes_is_told_within_minutes_where_readings_go_up() -> None:
    world = World()
    sources = [f"m{number}" for number in range(5)]
    hours(world, sources, 1, readings=5)
    before = world.messages
    hours(world, sources[1:], (SILENCE_EDGES[0] + 3 * CHANGES_SECONDS) / 3600, readings=5)
    assert world.health("m0").silent_seconds == SILENCE_EDGES[0]
    assert world.messages == before + 1
    world.hear("m0", battery=0.12)
    hours(world, sources[1:], 3 * CHANGES_SECONDS / 3600, readings=5)
    assert world.health("m0") == SourceHealth(0.1, 0.0)


def test_with_clean_air_all_is_told_at_the_heartbeats() -> None:
    """Nothing goes up but announcements, and the budget is a share of these."""
    world = World()
    sources = [f"c0000000{number:04d}" for number in range(20)]
    hours(world, sources, VALIDITY_SECONDS / 3600)
    assert world.health(sources[0]) == SourceHealth(0.8, 0.0)
    assert world.share <= SHARE


@pytest.mark.parametrize("count", [1, 3, 20, 100])
@pytest.mark.parametrize("readings", [0, 1, 30])
def test_whatever_happens_it_is_at_most_two_percent_of_what_goes_up(count: int, readings: int) -> None:
    """Sources that come and go, batteries that jump, links that are lost: twelve hours of it."""
    world, random = World(), Random(count * 100 + readings)
    sources = [f"c0000000{number:04d}" for number in range(count)]
    for minute in range(12 * 60):
        heard = [source for source in sources if random.random() < 0.3]
        world.hear(*heard, battery=random.choice([0.05, 0.2, 0.5, 0.9]))
        world.read(readings)
        world.go_on(60.0 - 2 * ANNOUNCE_SECONDS)
        assert world.health_bytes <= SHARE * (world.said_bytes + world.readings_bytes)
        if minute % 97 == 0:
            world.link()
    assert world.health_bytes > 0
    assert world.report.bytes >= world.health_bytes - MESSAGE_BYTES


def test_what_is_told_within_a_session_is_true_of_the_announcement_it_belongs_to() -> None:
    """A new link may be to another cloud: it is told anew, and never before it has asked."""
    world = World()
    hours(world, ["m1", "m2"], 1, readings=10)
    world.cloud = {}
    world.link()
    hours(world, ["m1", "m2", "m3"], 1, readings=10)
    assert {source: world.health(source).silent_seconds for source in ("m1", "m2", "m3")} == dict.fromkeys(
        ("m1", "m2", "m3"), 0.0
    )


def test_the_coordinator_asks_for_it_and_knows_it(nats: NatsServer) -> None:
    async def scenario() -> None:
        async with Kit(nats) as kit:
            world = World()
            world.hear("m1", "m2", battery=0.8)
            world.read(200)
            world.presence.announce(world.announcer.announce(), world.now)

            async def say() -> dict[str, Any]:
                said = world.presence.next(world.now)
                assert said is not None
                item: dict[str, Any] = json.loads(said)
                return item

            answer = await kit.announce("b1", await say())
            world.presence.replied(answer)
            told = await say()
            assert told == {"session": world.presence.session, "health": "xx"}
            await kit.request("b1", "ann", told)
            world.now += 700.0
            world.hear("m2")
            told = await say()
            await kit.request("b1", "ann", told)

            async def is_known() -> bool:
                shown = (await kit.ask("sources"))["sources"]
                return [(one["battery"], one["silent"]) for one in shown] == [(0.8, 600.0), (0.8, 0.0)]

            await until_so(is_known, "what was told of both sources")

    asyncio.run(scenario())


def test_no_silence_is_believed_for_longer_than_a_heartbeat_if_there_is_no_room_to_say_that_it_is_over() -> None:
    world = World()
    hours(world, ["m1", "m2"], 0.5, readings=20)
    hours(world, ["m2"], 0.15)
    assert world.health("m1").silent_seconds == SILENCE_EDGES[0]
    world.report.bytes = 10**9  # spent
    hours(world, ["m1", "m2"], VALIDITY_SECONDS / 3600)
    assert world.health("m1") == SourceHealth(0.8, None)
    world.report.bytes = 0
    hours(world, ["m1", "m2"], 0.1)
    assert world.health("m1") == SourceHealth(0.8, 0.0)


def test_a_silence_that_goes_on_is_told_again_after_an_announcement_without_room_for_it() -> None:
    world = World()
    others = [f"n{number}" for number in range(40)]
    hours(world, ["m1", *others], 0.5, readings=20)
    hours(world, others, 6 / 60, readings=20)
    assert world.health("m1").silent_seconds == SILENCE_EDGES[0]
    spent, world.report.bytes = world.report.bytes, 10**9
    hours(world, [*others, "m2"], 1 / 60)
    assert world.health("m1") == SourceHealth(0.8, None)
    world.report.bytes = spent
    hours(world, [*others, "m2"], 1 / 60)
    assert world.health("m1").silent_seconds == SILENCE_EDGES[0]


def test_after_a_restart_nothing_is_said_of_what_was_not_heard_since() -> None:
    world = World()
    world.hear("m1", "m2")
    world.announcer.announce()
    again = Announcer({key: value for key, value in world.announcer.changes().items() if value is not None})
    again.hear("m2", 5.0)
    again.silent(5.0)
    told = {source: decode(code) for source, code in again.health(700.0, lambda _: True).items()}
    assert told == {"m1": SourceHealth(), "m2": SourceHealth(None, 600.0)}
