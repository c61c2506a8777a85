"""Activation: nothing that a subscription needs is missed, nothing else goes up, and one change is worked out alone."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from spinney import feed, parse
from spinney.source_health import battery_bucket, encode, silence_bucket
from spinney.subscription import StateSubscription
from spinney_cloud.activation import Activations, Needs, fingerprint
from spinney_cloud.announcements import Announcement, read_announcement
from spinney_cloud.broker_knowledge import MAX_GROUPS, BrokerKnowledge
from spinney_cloud.cells import cell_at
from spinney_cloud.subscriptions import StoredSubscription, form_of
from spinney_cloud.wanted_index import BLOCK, WantedIndex


def stored(
    sid: str, text: str | dict[str, Any], *, enabled: bool = True, start: int = 1, **options: Any
) -> StoredSubscription:
    form = form_of(parse(text))
    return StoredSubscription(
        tenant="default", owner="ana", sid=sid, source=text, start=start, created=0.0, kind=form.kind,
        normal=form.normal, digest=form.digest, program=form.program, enabled=enabled, options=options,
    )  # fmt: skip


def announcement(client: str, sources: list[dict[str, Any]], **more: Any) -> Announcement:
    item = json.loads(json.dumps({"session": "s", "sources": sources, **more}))
    found = read_announcement(item, "default", client, 0.0)
    assert isinstance(found, Announcement)
    return found


def source(name: str, *, constants: dict[str, Any] | None = None, **attributes: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "constants": constants or {}, "attributes": attributes}


NO2 = {"min": 0, "max": 400}


class World:
    """Activations with what is told to brokers when all is worked out."""

    def __init__(self) -> None:
        self.now = 0.0
        self.activations = Activations(lambda: self.now)
        self.told: list[str] = []

    def settle(self) -> list[str]:
        """Work until nothing is left; who is to be told."""
        self.told = [client for client in self.activations.work() if client is not None]
        assert not self.activations.has_work
        return self.told

    def subscribe(self, sid: str, text: str | dict[str, Any], **more: Any) -> str:
        one = stored(sid, text, **more)
        self.activations.subscribe(one.key, one)
        self.settle()
        return one.digest

    def unsubscribe(self, sid: str) -> None:
        self.activations.subscribe(stored(sid, "TRUE").key, None)
        self.settle()

    def announce(self, client: str, *sources: dict[str, Any], **more: Any) -> None:
        self.activations.announce(announcement(client, list(sources), **more))
        self.settle()

    def tell(self, client: str, **codes: str) -> None:
        """A broker tells of some of its sources."""
        before = self.activations.brokers[client].announcement
        self.activations.told_health(replace(before, health={**(before.health or {}), **codes}))
        self.settle()

    def active(self, client: str) -> dict[str, dict[str, Any]]:
        """As it is sent, by digest."""
        desired = self.activations.brokers[client].desired()
        return {digest: one.to_json() for digest, one in desired.items()}

    def texts(self, client: str) -> set[str]:
        return {parse(one["subscription"]).to_text() for one in self.active(client).values()}


# ---- Which and how


def test_only_what_may_match_is_active_and_already_smaller() -> None:
    world = World()
    world.announce("b1", source("m1", NO2=NO2, constants={"room": "kit"}))
    world.subscribe("a", "NO2 > 40 AND room = 'kit'")
    world.subscribe("b", "NO2 > 500")
    world.subscribe("c", "NO2 > 40 AND room = 'hall'")
    world.subscribe("d", "CO > 1")
    assert world.texts("b1") == {"NO2 > 40"}


def test_a_new_subscription_reaches_those_whom_it_concerns_and_nobody_else() -> None:
    world = World()
    world.announce("b1", source("m1", NO2=NO2))
    world.announce("b2", source("m2", CO={}))
    world.subscribe("a", "NO2 > 40")
    assert world.told == ["b1"]
    world.subscribe("same", "NOT NO2 <= 40")
    assert world.told == []
    world.unsubscribe("a")
    assert world.told == []
    world.unsubscribe("same")
    assert world.told == ["b1"]
    assert world.active("b1") == {}


def test_only_roots_are_sent_and_what_stood_below_comes_back() -> None:
    world = World()
    world.announce("b1", source("m1", NO2=NO2))
    world.subscribe("strong", "NO2 > 100")
    weak = world.subscribe("weak", "NO2 > 40")
    assert list(world.active("b1")) == [weak]
    top = world.subscribe("top", "TOP 3 OVER 1h BY NO2")
    assert list(world.active("b1")) == [top]
    assert world.active("b1")[top]["kind"] == "top-k"
    world.unsubscribe("top")
    world.unsubscribe("weak")
    assert world.texts("b1") == {"NO2 > 100"}


def test_a_disjoint_state_filter_goes_as_it_is_and_stands_beside_what_covers_its_feed() -> None:
    world = World()
    world.announce("b1", source("m1", temp={"min": 10, "max": 24}, constants={"room": "kit"}))
    all_of_it = world.subscribe("all", "temp > 0")
    state = world.subscribe("state", "WHEN temp > 20 UNTIL temp <= 15 FOR room = 'kit' EACH room")
    active = world.active("b1")
    assert set(active) == {all_of_it, state}
    assert active[state]["kind"] == "state"
    subscription = parse(active[state]["subscription"])
    assert isinstance(subscription, StateSubscription)
    assert subscription.to_text() == "WHEN temp > 20 UNTIL temp <= 15 FOR room = 'kit' EACH room"


def test_a_state_filter_that_is_not_proven_disjoint_looks_like_its_feed_to_older_brokers_s2() -> None:
    world = World()
    world.announce("b1", source("m1", temp={"min": 10, "max": 40}))
    digest = world.subscribe("state", "WHEN temp > 20 UNTIL temp > 30")
    stronger = world.subscribe("stronger", "temp > 25")
    active = world.active("b1")
    assert set(active) == {digest, stronger}, "its feed is not sent whole, so that it covers nothing"
    one = active[digest]
    assert (one["kind"], parse(one["subscription"]).to_text()) == ("content", "temp > 20")
    assert parse(one["state"]).to_text() == "WHEN temp > 20 UNTIL temp > 30"


def test_one_more_subscription_of_a_state_has_its_bits_told_anew_r3() -> None:
    world = World()
    world.announce("b1", source("m1", temp={"min": 10, "max": 40}))
    digest = world.subscribe("ana", "WHEN temp > 30 UNTIL temp <= 20", start=5)
    assert world.active("b1")[digest]["start"] == 5
    world.subscribe("ben", "WHEN temp > 30 UNTIL temp <= 20", start=9)
    assert world.told == ["b1"]
    assert world.active("b1")[digest]["start"] == 9
    world.unsubscribe("ben")
    assert world.told == []
    content = world.subscribe("content", "temp > 30", start=11)
    assert "start" not in world.active("b1")[content]
    waits = world.subscribe("waits", {"when": "temp > 30", "until": "temp <= 20", "debounce": "5s"}, start=12)
    assert "start" not in world.active("b1")[waits], "what it waits for would begin again for others"


@pytest.mark.parametrize(
    "options", [{"debounce": "5s"}, {"dead_band": {"attribute": "temp", "by": 2}}, {"reorder": "5s"}]
)
def test_one_that_waits_or_is_put_in_order_goes_as_its_feed_s2(options: dict[str, Any]) -> None:
    world = World()
    world.announce("b1", source("m1", temp={"min": 10, "max": 40}))
    digest = world.subscribe("state", {"when": "temp > 20", "until": "temp > 30", **options})
    active = world.active("b1")[digest]
    assert (active["kind"], "state" in active) == ("content", False)


def test_what_is_disabled_is_not_active() -> None:
    world = World()
    world.announce("b1", source("m1", NO2=NO2))
    world.subscribe("a", "NO2 > 40")
    world.subscribe("a", "NO2 > 40", enabled=False)
    assert world.active("b1") == {}
    world.subscribe("a", "NO2 > 40")
    assert world.texts("b1") == {"NO2 > 40"}


def test_a_moved_broker_has_what_is_wanted_there() -> None:
    world = World()
    place = {"lat": 45.8, "long": 15.9, "radius": 100}
    world.announce("b1", source("m1", NO2=NO2), place=place)
    world.subscribe("here", "lat BETWEEN 45.7 AND 45.9 AND NO2 > 1")
    world.subscribe("there", "lat BETWEEN 46.7 AND 46.9 AND NO2 > 2")
    world.subscribe("anywhere", "NO2 > 350")
    assert len(world.active("b1")) == 2
    before = world.activations.evaluations
    world.announce("b1", source("m1", NO2=NO2), place={**place, "lat": 46.8})
    assert sorted(text[:9] for text in world.texts("b1")) == ["NO2 > 2 A", "NO2 > 350"]  # AND lat is there
    assert world.told == ["b1"]
    assert world.activations.evaluations - before == 2  # not what does not speak of the place


def test_sources_are_looked_at_apart_so_that_no_mixture_of_them_is_wanted() -> None:
    world = World()
    world.announce(
        "b1", source("m1", NO2=NO2, constants={"room": "kit"}), source("m2", CO={}, constants={"room": "hall"})
    )
    world.subscribe("a", "NO2 > 40 AND room = 'hall'")
    assert world.active("b1") == {}


def test_an_ended_broker_is_forgotten() -> None:
    world = World()
    world.announce("b1", source("m1", NO2=NO2))
    world.activations.end("b1")
    world.subscribe("a", "NO2 > 40")
    assert world.told == []


def test_knowledge_of_many_kinds_of_sources_is_joined() -> None:
    sources = [source(f"m{i}", NO2={"min": i, "max": i + 1}, constants={"lat": i / 1e4}) for i in range(3_000)]
    began = time.process_time()
    knowledge = BrokerKnowledge(announcement("b1", sources))
    assert time.process_time() - began < 5.0
    assert len(knowledge.groups) == 1
    assert len(knowledge.names) == 3_000
    for at in (0, 1_234, 2_999):
        assert knowledge.known.agrees({"id": "m1:1:1", "source": f"m{at}", "NO2": at, "lat": at / 1e4})
    assert not knowledge.known.agrees({"id": "m1:1:1", "source": "m1", "NO2": -5})
    few = BrokerKnowledge(announcement("b1", sources[:MAX_GROUPS]))
    assert len(few.groups) == MAX_GROUPS


def test_the_same_filters_have_one_fingerprint() -> None:
    world = World()
    world.announce("b1", source("m1", NO2=NO2))
    world.announce("b2", source("m1", NO2=NO2))
    world.subscribe("a", "NO2 > 40 AND flag IS NULL")
    world.subscribe("b", "NO2 < 10")
    first, second = (world.activations.brokers[name].desired() for name in ("b1", "b2"))
    assert fingerprint(first.values()) == fingerprint(reversed(second.values()))
    world.subscribe("c", "NO2 BETWEEN 20 AND 30")
    assert fingerprint(world.activations.brokers["b1"].desired().values()) != fingerprint(first.values())


def test_the_attributes_of_a_filter_are_all_that_it_depends_on() -> None:
    for text, names in {
        "S_WITHIN(location, BBOX(1, 2, 3, 4))": {"lat", "long"},
        "location IS NOT NULL": {"lat", "long"},
        "T_AFTER(time, TIMESTAMP('2026-01-01T00:00:00Z'))": {"time"},
        "WHEN a > 1 UNTIL b < 1 FOR c = 2 EACH d": {"a", "b", "c", "d"},
        "TOP 1 OVER 1h BY a + b WHERE c = 1 EACH d": {"a", "b", "c", "d"},
    }.items():
        assert Needs(form_of(parse(text)).normal).names == names


# ---- The index


def test_the_index_keeps_filters_over_many_blocks_and_forgets_them() -> None:
    index = WantedIndex()
    kept = [stored(f"s{i}", f"a = {i}") for i in range(BLOCK + 50)]
    for one in kept:
        assert index.put(one.key, one) == {one.digest}
        assert index.put(one.key, one) == set()
    knowledge = BrokerKnowledge(announcement("b", [source("m", a={"min": BLOCK - 1, "max": BLOCK + 1})]))
    assert {kept[i].digest for i in (BLOCK - 1, BLOCK, BLOCK + 1)} <= set(index.meeting(knowledge.possible))
    for one in kept:
        assert index.put(one.key, None) == {one.digest}
    assert len(index) == 0
    assert list(index.meeting(knowledge.possible)) == []


# ---- Nothing is missed and nothing else goes up


def random_text(random: Random) -> str:
    room = random.choice(["kit", "hall", "attic"])
    number = random.randrange(0, 100, 5)
    return random.choice(
        [
            f"NO2 > {number}",
            f"NO2 > {number} AND room = '{room}'",
            f"temp BETWEEN {number - 10} AND {number}",
            f"room = '{room}'",
            f"source = 'm{random.randrange(6)}'",
            f"lat BETWEEN {45 + number / 100} AND {45.2 + number / 100}",
            f"NO2 > temp + {number}",
            f"NO2 IS NULL AND room <> '{room}'",
            f"WHEN temp > {number} UNTIL temp <= {number - 10} EACH room",
            f"WHEN temp > {number} UNTIL NO2 <= {number}",
            f"TOP 3 OVER 1h BY NO2 WHERE temp > {number}",
            f"S_WITHIN(location, BBOX(15, {45 + number / 100}, 16, 46))",
        ]
    )


def random_announcement(random: Random, client: str) -> Announcement:
    sources = []
    for name in random.sample(range(6), random.randrange(1, 4)):
        low = random.randrange(0, 80)
        attributes = {}
        if random.random() < 0.7:
            attributes["NO2"] = {
                "min": low,
                "max": low + random.randrange(40),
                "presence": random.choice(["always", "maybe"]),
            }
        if random.random() < 0.7:
            attributes["temp"] = {"min": low - 20, "max": low + 20}
        constants = {"room": random.choice(["kit", "hall"])} if random.random() < 0.6 else {}
        sources.append(source(f"m{name}", constants=constants, **attributes))
    more: dict[str, Any] = {}
    if random.random() < 0.7:
        more["place"] = {"lat": 45 + random.random(), "long": 15.5, "radius": random.choice([10, 5_000])}
    return announcement(client, sources, **more)


def random_publication(random: Random, one: Announcement) -> dict[str, Any]:
    """One that agrees with what is announced."""
    while True:
        found = random.choice(list(one.sources.values()))
        publication: dict[str, Any] = {"id": f"{found.name}:1:1", "source": found.name}
        for name, words in found.attributes.items():
            if words.get("presence") == "always" or random.random() < 0.8:
                publication[name] = words["value"] if "value" in words else random.uniform(words["min"], words["max"])
        if random.random() < 0.8:
            lat = one.place.lat if one.place else 45 + random.random()
            publication |= {"lat": lat, "long": 15.5}
        if found.known.agrees({name: value for name, value in publication.items() if name != "source"}):
            return publication


@pytest.mark.parametrize("seed", range(12))
def test_an_active_filter_is_true_exactly_where_a_subscription_needs_the_publication(seed: int) -> None:
    random = Random(seed)
    world = World()
    wanted: dict[str, str] = {}
    brokers: dict[str, Announcement] = {}
    for _ in range(60):
        match random.randrange(5):
            case 0 | 1:
                sid = f"s{random.randrange(12)}"
                wanted[sid] = random_text(random)
                world.activations.subscribe(stored(sid, wanted[sid]).key, stored(sid, wanted[sid]))
            case 2 if wanted:
                sid = random.choice(list(wanted))
                world.activations.subscribe(stored(sid, wanted.pop(sid)).key, None)
            case 3:
                client = f"b{random.randrange(3)}"
                brokers[client] = random_announcement(random, client)
                world.activations.announce(brokers[client])
            case 4 if brokers and random.random() < 0.3:
                client = random.choice(list(brokers))
                del brokers[client]
                world.activations.end(client)
        if random.random() < 0.5:
            continue
        world.settle()
        for client, one in brokers.items():
            active = [feed(parse(item["subscription"])) for item in world.active(client).values()]
            for _ in range(12):
                publication = random_publication(random, one)
                needed = any(feed(parse(text)).evaluate(publication) is True for text in wanted.values())
                assert any(condition.evaluate(publication) is True for condition in active) == needed, publication


# ---- Density


def dense(per_cell: int = 1, every: str = "1m") -> dict[str, Any]:
    return {"density": {"per_cell": per_cell, "cell": 8, "every": every}}


def chosen(world: World) -> set[str]:
    """The sources of which something goes up."""
    found = set()
    for client, broker in world.activations.brokers.items():
        for one in broker.desired().values():
            found |= {name for name in broker.knowledge.names
                      if one.feed.evaluate({"NO2": 50, "source": name, "id": f"{name}:1:1"}) is True}  # fmt: skip
        assert client
    return found


HERE = {"lat": 45.8, "long": 15.9}
LATELY, SILENT = encode(0, silence_bucket(0.0)), encode(0, silence_bucket(700.0))


def power(share: float) -> str:
    return encode(battery_bucket(share), silence_bucket(0.0))


def test_just_enough_sources_serve_and_another_when_one_falls_silent() -> None:
    world = World()
    world.announce("b1", source("m1", NO2=NO2), source("m2", NO2=NO2), place=HERE, health=power(0.95) + power(0.8))
    world.announce("b2", source("m3", NO2=NO2), place=HERE, health=power(0.5))
    world.announce("b3", source("m4", NO2=NO2), place={"lat": 46.8, "long": 15.9}, health=power(0.1))
    digest = world.subscribe("d", "NO2 > 40", **dense())
    assert chosen(world) == {"m1", "m4"}  # one in each cell
    shown = world.activations.choices(digest, ["m1", "m4"])
    assert [(one["source"], one["cell"], one["reason"]) for one in shown] == [
        ("m1", cell_at(45.8, 15.9, 8), "chosen"),
        ("m4", cell_at(46.8, 15.9, 8), "chosen"),
    ]
    world.now = 700.0
    world.tell("b1", m1=SILENT)
    assert chosen(world) == {"m2", "m4"}
    assert world.activations.choices(digest, ["m4"])[0]["reason"] == "kept"


def test_clean_air_costs_no_reputation() -> None:
    """Three perfect motes with nothing to tell for an hour: with reports, and of a broker that has none to give."""
    for health in ({"health": LATELY * 3}, {}):
        world = World()
        sources = [source(f"m{number}", NO2=NO2) for number in range(3)]
        world.announce("b1", *sources, place=HERE, **health)
        digest = world.subscribe("d", "NO2 > 399", **dense(per_cell=2, every="1m"))
        before = world.activations.chosen_on("b1")[digest]
        for now in range(0, 3601, 600):
            world.now = float(now)
            world.announce("b1", *sources, place=HERE, **health)  # the heartbeat
        assert world.activations.chosen_on("b1")[digest] == before
        assert [one["reliability"] for one in world.activations.choices(digest, before)] == [1.0, 1.0]


def test_a_battery_is_the_motes_own_and_not_its_brokers() -> None:
    world = World()
    world.announce("b1", source("m1", NO2=NO2), source("m2", NO2=NO2), place=HERE, health=power(0.1) + power(0.8),
                   battery=1.0)  # fmt: skip
    world.announce("b2", source("m3", NO2=NO2), place=HERE, health=power(0.4), battery=0.05)
    world.subscribe("d", "NO2 > 40", **dense())
    assert chosen(world) == {"m2"}
    world.tell("b1", m2=power(0.04))
    assert chosen(world) == {"m3"}


def test_who_was_silent_is_asked_again_once_it_is_heard_and_counts_for_less() -> None:
    world = World()
    world.announce("b1", source("m1", NO2=NO2), source("m2", NO2=NO2), place=HERE, health=LATELY * 2)
    digest = world.subscribe("d", "NO2 > 40", **dense())
    world.tell("b1", m1=SILENT)
    world.now = 300.0
    world.tell("b1", m1=LATELY)
    assert chosen(world) == {"m2"}  # nothing goes back and forth
    world.tell("b1", m2=SILENT)
    assert chosen(world) == {"m1"}
    assert 0.2 < world.activations.choices(digest, ["m1"])[0]["reliability"] < 0.5  # five periods of 0.8


def test_silence_at_one_broker_is_no_failure_while_another_may_hear_the_source() -> None:
    for other in ({"health": LATELY}, {}):  # of the second, an older broker, nobody knows
        world = World()
        world.announce("b1", source("m1", NO2=NO2), source("m2", NO2=NO2), place=HERE, health=LATELY * 2)
        world.announce("b2", source("m1", NO2=NO2), place=HERE, **other)
        digest = world.subscribe("d", "NO2 > 40", **dense())
        world.now = 900.0
        world.tell("b1", m1=SILENT)
        assert world.activations.choices(digest, ["m1"])[0]["reliability"] == 1.0


def test_a_better_source_that_comes_later_changes_nothing() -> None:
    world = World()
    place = {"lat": 45.8, "long": 15.9}
    world.announce("b1", source("m1", NO2=NO2), place=place, health=power(0.5))
    world.subscribe("d", "NO2 > 40", **dense())
    world.announce("b2", source("m2", NO2=NO2), place=place, health=power(1.0))
    assert chosen(world) == {"m1"}
    world.activations.end("b1")
    world.settle()
    assert chosen(world) == {"m2"}


def test_who_is_away_or_moves_to_another_cell_does_not_serve_here() -> None:
    world = World()
    place = {"lat": 45.8, "long": 15.9}
    world.announce("b1", source("m1", NO2=NO2), place=place, health=power(0.95))
    world.announce("b2", source("m2", NO2=NO2), place=place, health=power(0.5))
    world.subscribe("d", "NO2 > 40", **dense())
    assert chosen(world) == {"m1"}
    gone = replace(world.activations.brokers["b1"].announcement, away=5.0)
    world.activations.announce(gone)
    world.settle()
    assert chosen(world) == {"m2"}
    world.announce("b1", source("m1", NO2=NO2), place={"lat": 47, "long": 15.9})
    assert chosen(world) == {"m1", "m2"}


def test_a_plain_subscription_to_the_same_wants_all_sources() -> None:
    world = World()
    world.announce("b1", source("m1", NO2=NO2), source("m2", NO2=NO2), place={"lat": 45.8, "long": 15.9})
    world.subscribe("d", "NO2 > 40", **dense())
    assert len(chosen(world)) == 1
    world.subscribe("plain", "NO2 > 40")
    assert chosen(world) == {"m1", "m2"}
    world.unsubscribe("plain")
    assert len(chosen(world)) == 1


def test_a_choice_stays_over_a_restart() -> None:
    world = World()
    place = {"lat": 45.8, "long": 15.9}
    sources = [source(f"m{i}", NO2=NO2) for i in range(5)]
    world.activations.restore_choice({stored("d", "NO2 > 40").digest: ["m3"]})
    world.activations.announce(announcement("b1", sources, place=place))
    one = stored("d", "NO2 > 40", **dense())
    world.activations.subscribe(one.key, one)
    world.settle()
    assert chosen(world) == {"m3"}
    assert world.activations.chosen_on("b1") == {one.digest: ["m3"]}
