"""Whoever evaluates a state filter, mote or broker, and however often it changes hands: subscribers are told the same.

The reference sees every sample of the mote in one place. What the tiers tell goes through labels, as it does for real.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from motes_kit import EPOCH_S, SOURCE, Listener, active, constants, listening, until
from radio_kit import Scene, on_air

from spinney import Known, Label, Notification, PublicationId, StateFilter, parse
from spinney.label import Mark
from spinney.subscription import StateSubscription
from spinney_mobile.deciding import Decider
from spinney_mobile.leases import Lease
from spinney_mobile.samples import Sample

KITCHEN = "WHEN temperature > 25 AND room = 'kit' UNTIL temperature <= 22"
FOLLOWED = [KITCHEN, KITCHEN + " FOR temperature <> 30", KITCHEN + " ONCE", KITCHEN + " EACH room"]
OTHERS = ["temperature > -300", "temperature > 27", "WHEN temperature > 30 UNTIL temperature < 10", "cell = 'x'"]
ON_MOTE = constants(room="kit")
STEPS = 40


class Told:
    """What a subscriber is told for each of the followed subscriptions."""

    def __init__(self) -> None:
        self._filters = {text: StateFilter(_state(text), disjoint=True) for text in FOLLOWED}
        self.notifications: list[tuple[str, str, str | None, float]] = []

    def feed(self, number: int, publication: dict[str, object]) -> None:
        for text, one in self._filters.items():
            self._note(text, one.feed(PublicationId(SOURCE, 1, number), publication, float(number)))

    def take(self, text: str, label: Label, sample: Sample) -> None:
        self._note(text, self._filters[text].take(label, publication_of(sample), 0.0))

    def _note(self, text: str, notifications: list[Notification]) -> None:
        for one in notifications:
            assert one.publication is not None
            number = one.publication["co2"]
            assert isinstance(number, float)
            self.notifications.append((text, one.why, one.scope, number))


def _state(text: str) -> StateSubscription:
    subscription = parse(text)
    assert isinstance(subscription, StateSubscription)
    return subscription


def publication_of(sample: Sample) -> dict[str, object]:
    return {**sample.values, "room": "kit", "source": sample.source, "time": sample.time}


class Deciding(Listener):
    """A broker that decides, too."""

    decider: Decider
    told: Told
    epoch: int
    on_sample = 0

    def begin(self, decider: Decider, told: Told, epoch: int) -> None:
        self.decider, self.told, self.epoch = decider, told, epoch
        self.motes.on_table = decider.on_mote

    def sampled(self, sample: Sample) -> None:
        super().sampled(sample)
        assert sample.boot is not None
        assert sample.sequence is not None
        id = PublicationId(sample.source, sample.boot, sample.sequence)
        marks: dict[str, Mark] = dict(sample.marks)
        decision = self.decider.decide(id, publication_of(sample), self.epoch, marks)
        for text, label in decision.labels.items():
            if text in FOLLOWED:
                self.told.take(text, label, sample)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 4, 5, 9, 11])
def test_the_subscriber_is_told_what_one_evaluator_of_all_samples_tells(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    made: list[tuple[int, float]] = []
    following = True

    def world(quantity: str) -> float:
        if quantity == "co2":
            made.append((len(made) + 1, scene_readings["temperature"]))
            return float(len(made))
        if following and chance.random() < 0.3:
            scene_readings["temperature"] = chance.choice((20.0, 22.0, 23.0, 25.0, 26.0, 30.0, 31.0))
        return scene_readings["temperature"]

    scene_readings = {"temperature": 23.0}

    async def play(scene: Scene) -> None:
        nonlocal following
        following = False
        scene.mote._world = world
        scene.air.interval_s = 0.15  # as slow as a connection may be: hands change while samples are made
        kept: dict[str, bytes] = {}
        bits: dict[str, bytes] = {}
        told, epoch = Told(), 1
        broker_count = 0
        while broker_count < 3:
            broker_count += 1
            async with listening(kind=Deciding, kept=kept) as broker:
                assert isinstance(broker, Deciding)
                decider = Decider("us", bits)
                broker.begin(decider, told, epoch)
                followed = {text: active(text) for text in FOLLOWED}
                decider.change(followed.values(), (), {SOURCE: Lease(SOURCE, "us", epoch)})
                broker.motes.want(SOURCE, followed, ON_MOTE, epoch)
                await until(lambda: broker.health().get("filters"))
                for _ in range(STEPS):
                    following = True
                    await asyncio.sleep(chance.random())
                    others = {text: active(text) for text in OTHERS if chance.random() < 0.3}
                    known = chance.choice((ON_MOTE, Known()))
                    broker.motes.want(SOURCE, {**followed, **others}, known, epoch)
                    if chance.random() < 0.2:
                        scene.air.cut(scene.mote.radio.controller)
                    seen = len(made) + chance.randrange(10)
                    await until(lambda end=seen: len(made) >= end)
                following = False
                await until(lambda: scene.life.ring.next > 1 and not len(scene.life.ring))
                bits.update({key: value for key, value in decider.changes().items() if value is not None})
                kept = broker.kept
        reference = Told()
        for number, temperature in made:
            publication: dict[str, object] = {
                "temperature": temperature, "co2": float(number), "room": "kit", "source": SOURCE,
                "time": EPOCH_S + number,
            }  # fmt: skip
            reference.feed(number, publication)
        assert len(reference.notifications) > 50
        assert told.notifications == reference.notifications

    sensors = [{"driver": "virtual", "quantities": ["temperature", "co2"]}]
    on_air(tmp_path, play, sensors=sensors, ring_bytes=65536)
