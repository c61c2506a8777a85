"""Private rules and announcements: what a rule hides of readings is not announced either, nor from before the rule."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spinney import parse
from spinney_mobile.broker import Broker
from spinney_mobile.cells import H3
from spinney_mobile.motes import MoteInfo
from spinney_mobile.outbox import Outbox, decode
from spinney_mobile.samples import Ability, Heard, Sample
from spinney_mobile.settings import Cloud, Device, Place, Rule, Settings
from spinney_mobile.withdrawals import KEY

LAT, LONG = 45.815, 15.977
HERE = Place(kind="fixed", lat=LAT, long=LONG)
BEDROOM = Device(address="AA:BB:CC:DD:EE:01", name="baby", attributes={"room": "bedroom"}, type="baby monitor")
WHITELIST = Rule(name="only", share="only", attributes=("temp",))
COARSE = Rule(name="coarse", share="coarse", resolution=5)
LIMITS = Ability(-40.0, 85.0)


@contextmanager
def machine(folder: Path, *rules: Rule, **settings: Any) -> Iterator[Broker]:
    """A broker that is there, and does not run."""
    outbox = Outbox(folder / "outbox")
    outbox.open()
    nowhere = Cloud(url="mqtt://127.0.0.1:1")
    given: dict[str, Any] = {"place": HERE, "device": (BEDROOM,), **settings}
    try:
        yield Broker(Settings(name="pi", data=folder, cloud=nowhere, acquire=(), rule=rules, **given), outbox)
    finally:
        outbox.close()


def measure(broker: Broker, source: str = "baby", **values: Any) -> None:
    attributes = {"room": "bedroom"} if broker.settings.device and source == "baby" else {}
    type_ = BEDROOM.type if source == "baby" else None
    broker.sampled(Sample(source, {**attributes, **values}, broker.started, broker.started, "test", 1, 1, type=type_))


def announced(broker: Broker, after_seconds: float = 0.0) -> dict[str, Any]:
    """What it says of itself a moment later."""
    for seconds in (0.0, 1.0):
        broker.tick(broker.started + after_seconds + seconds)
    assert broker._announced is not None
    said: dict[str, Any] = json.loads(json.dumps(broker._announced))
    return said


def sources(broker: Broker, after_seconds: float = 0.0) -> dict[str, set[str]]:
    """The names of what it announces of each."""
    return {one["name"]: set(one["attributes"]) for one in announced(broker, after_seconds)["sources"]}


def stored(broker: Broker) -> None:
    """The cloud has all that has gone up."""
    broker.outbox.leave(list(broker.outbox.log.entries()))


def test_attributes_that_are_not_among_those_told_are_not_announced(tmp_path: Path) -> None:
    with machine(tmp_path, WHITELIST) as broker:
        measure(broker, temp=20.0, co2=900.0)
        assert sources(broker) == {"baby": {"temp"}}
        assert "bedroom" not in json.dumps(announced(broker))
        assert "place" not in announced(broker)


def test_of_a_mote_that_describes_itself_only_what_is_told_is_announced(tmp_path: Path) -> None:
    with machine(tmp_path, WHITELIST) as broker:
        abilities = {"temp": LIMITS, "co2": LIMITS}
        broker.described(MoteInfo("baby", BEDROOM.address, "b", abilities, (), 1, 1, None, "1.0"))
        assert sources(broker) == {"baby": {"temp"}}


def test_a_rule_for_other_sources_changes_nothing_of_what_is_announced_of_these(tmp_path: Path) -> None:
    other = Rule(name="only", when="source = 'cam'", share="only", attributes=("temp", "lat", "long", "cell"))
    with machine(tmp_path, other) as broker:
        measure(broker, temp=20.0)
        assert sources(broker)["baby"] >= {"room", "type", "temp"}
        assert announced(broker)["place"]["lat"] == pytest.approx(LAT, abs=0.01)


@pytest.mark.parametrize("share", ["only", "coarse"])
def test_the_place_of_all_is_announced_as_of_the_source_that_may_tell_least(tmp_path: Path, share: Any) -> None:
    rule = Rule(name="r", when="source = 'baby'", share=share, attributes=("temp",), resolution=5)
    with machine(tmp_path, rule) as broker:
        measure(broker, "lamp", temp=20.0)
        place = announced(broker).get("place", {})
        if share == "only":
            assert place == {}
        else:
            coarse = H3()
            assert (place["lat"], place["long"]) == pytest.approx(coarse.centre(coarse.cell(LAT, LONG, 5)))


RULES = {
    "never": Rule(name="r", when="source = 'baby'"),
    "never in this room": Rule(name="r", when="room = 'bedroom'"),
    "never here": Rule(name="r", when="lat > 45 AND lat < 46"),
    "never in this cell": Rule(name="r", when=f"cell = '{H3().cell(LAT, LONG, 9)}'"),
    "only": WHITELIST,
    "coarse": COARSE,
}


@pytest.mark.parametrize("name", RULES)
def test_what_was_announced_before_there_was_a_rule_is_not_announced_again(tmp_path: Path, name: str) -> None:
    with machine(tmp_path) as broker:
        measure(broker, temp=20.0, co2=900.0)
        before = announced(broker)
        assert set(sources(broker)["baby"]) >= {"room", "type", "co2", "lat", "long", "cell"}
        broker.announcer.departed(broker.started)
        broker.tick(broker.started + 20.0)
    with machine(tmp_path, RULES[name]) as broker:
        after = announced(broker)
        found = sources(broker)
        if name.startswith("never"):
            assert found == {}
        if name == "only":
            assert found == {"baby": {"temp"}}
        if name == "coarse":
            assert not found["baby"] & {"lat", "long", "cell"}
        assert after.get("place") != before["place"] or name in ("never", "never in this room")


def test_an_attribute_that_settings_give_no_more_is_not_announced_again(tmp_path: Path) -> None:
    with machine(tmp_path) as broker:
        measure(broker, temp=20.0)
        announced(broker)
    with machine(tmp_path, device=()) as broker:
        assert sources(broker) == {"baby": {"temp", "lat", "long", "cell"}}
        assert "bedroom" not in json.dumps(announced(broker))


def test_labels_of_others_do_not_speak_of_a_source_that_is_never_shared_any_more(tmp_path: Path) -> None:
    hot = {"filter": "hot", "kind": "state", "subscription": parse("WHEN temp > 25 UNTIL temp <= 22 ONCE").to_json()}
    leases = [{"source": source, "owner": "pi", "epoch": 1} for source in ("baby", "lamp")]
    activation = {"epoch": 1, "full": True, "add": [hot], "drop": [], "leases": leases}

    def enter(broker: Broker, name: str) -> list[str]:
        measure(broker, name, temp=30.0)
        labels = [label for entry in broker.outbox.log.entries() for label in decode(entry.data).labels.values()]
        return [mark.source for label in labels for mark in (label.mark, *label.membership)]

    with machine(tmp_path / "1") as broker:
        assert broker.activations.receive(json.dumps(activation).encode())
        assert enter(broker, "baby") == ["baby"]
    with machine(tmp_path / "1", RULES["never"]) as broker:
        told = enter(broker, "lamp")
        assert told.count("baby") == 1, "what waited to go up before there was the rule, and no more"
        assert "lamp" in told, "the scope holds by it alone"


def test_that_a_reading_which_is_never_shared_is_withdrawn_is_not_told_either(tmp_path: Path) -> None:
    with machine(tmp_path, RULES["never"]) as broker:
        for id in ("baby:1:1", "lamp:1:1"):
            broker.unpublish(id)
        assert [key for key in broker.outbox.state() if key.startswith(KEY)] == [f"{KEY}lamp:1:1"]


def test_a_source_that_a_rule_is_for_since_settings_of_devices_have_changed_is_given_up(tmp_path: Path) -> None:
    with machine(tmp_path, RULES["never in this room"], device=()) as broker:
        for name in ("baby", "lamp"):
            measure(broker, name, temp=20.0, room="kitchen")
            broker.taking.valid.stop({"id": f"{name}:1:1", "source": name, "valid_for": 60.0}, 1, broker.started)
        assert sources(broker).keys() == {"baby", "lamp"}
        asyncio.run(broker.configure(replace(broker.settings, device=(BEDROOM,))))
        assert len(broker.taking.valid) == 1, "of the lamp"
        stored(broker)
        assert sources(broker, 20.0).keys() == {"lamp"}


def test_adverts_that_wait_for_word_of_their_owner_do_so_no_longer_when_there_is_no_such_source(tmp_path: Path) -> None:
    with machine(tmp_path) as broker:
        broker.taking._connected = lambda: True
        broker.heard(Heard("mqtt", BEDROOM.address, broker.started, values={"temp": 20.0}))
        broker.sampled(Sample("baby", {"temp": 20.0}, broker.started, broker.started, "ble", rssi=-60))
        asyncio.run(broker.configure(replace(broker.settings, device=(replace(BEDROOM, allow=False),))))
        stored(broker)
        assert sources(broker, 20.0) == {}
        assert broker.taking.counts["sent"] == 2


def test_what_a_device_was_called_before_is_announced_no_more(tmp_path: Path) -> None:
    with machine(tmp_path) as broker:
        heard = Heard("mqtt", BEDROOM.address, broker.started, values={"temp": 20.0})
        broker.heard(heard)
        assert sources(broker).keys() == {"baby"}
        asyncio.run(broker.configure(replace(broker.settings, device=(replace(BEDROOM, name="cot"),))))
        broker.heard(heard)
        stored(broker)
        assert sources(broker, 20.0).keys() == {"cot"}
