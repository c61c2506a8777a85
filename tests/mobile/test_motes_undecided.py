"""Bits that a mote does not always know: unchanged firmware on the virtual radio, and a broker that writes them down.

Rule S2: what the mote leaves undecided the broker decides with its own bit, and tells the mote what that is then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deciding_kit import Edge
from deciding_kit import active as active_as
from deciding_kit import sample as sample_of
from motes_kit import SOURCE, Listener, active, listening, programs, until
from radio_kit import Scene, linked, on_air

from spinney import PublicationId, StateFilter, parse
from spinney.evaluator import Evaluator, Setting
from spinney.mote.link import MoteLink
from spinney.mote.protocol import SET_BIT_WRITE, ControlOp, PairingNeeded
from spinney.subscription import StateSubscription
from spinney_mobile.deciding import Decider
from spinney_mobile.leases import Lease
from spinney_mobile.motes import mote as mote_module
from spinney_mobile.motes.mote import Mote
from spinney_mobile.motes.open_bits import MAX_WRITES
from spinney_mobile.samples import Sample
from spinney_tools.sim.mote import FIRMWARE

OVERLAP = "WHEN temperature > 25 UNTIL humidity > 60"
TIES = "WHEN temperature - humidity > 5 UNTIL temperature - humidity <= 5"
BOTH, RISES, FALLS, NEITHER = (30.0, 70.0), (30.0, 50.0), (20.0, 70.0), (20.0, 50.0)
ABOVE, BELOW = (8.05, 3.05), (8.0, 3.0)
"""Both 5 apart, but not in doubles."""
FAR, NEAR = (20.0, 3.0), (4.0, 3.0)
SENSORS = [{"driver": "virtual", "quantities": ["temperature", "humidity"]}]
STEPS = 30
Change = tuple[str, float, float, bool]
"""Of a filter's bit: temperature and humidity of the sample that set it to another value."""


def state(text: str) -> StateSubscription:
    parsed = parse(text)
    assert isinstance(parsed, StateSubscription)
    return parsed


class Owner(Listener):
    """A broker that decides what its motes leave undecided, with bits that are 0 at first."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.own: dict[str, bool] = {}
        self.changes: list[Change] = []
        self.is_sure = True
        self.motes.bit = self.bit

    def bit(self, digest: str, _source: str, _value: Any) -> bool | None:
        return self.own.get(digest) if self.is_sure else None

    def sampled(self, sample: Sample) -> None:
        super().sampled(sample)
        for digest in self.on_mote() | sample.marks.keys() | self.own.keys():
            if digest in sample.marks:
                self._set(digest, sample.marks[digest].bit, sample)
            elif digest in sample.undecided or digest not in self.on_mote():
                bit = self.own.get(digest, False)
                wanted = state(digest).exit if bit else state(digest).enter
                self._set(digest, bit is not (wanted.evaluate(sample.values) is True), sample)

    def _set(self, digest: str, bit: bool, sample: Sample) -> None:
        if bit is not self.own.get(digest, False):
            self.changes.append((digest, sample.values["temperature"], sample.values["humidity"], bit))  # type: ignore[arg-type]
        self.own[digest] = bit


def play(
    folder: Path, scenario: Callable[[Scene, Owner], Any], *texts: str, kind: Any = Owner, waits: bool = True
) -> None:
    """Plays with a mote that holds these filters, and a broker that owns it."""

    async def main(scene: Scene) -> None:
        set_to(scene, NEITHER)
        async with listening(kind=kind) as broker:
            broker.motes.want(SOURCE, {text: active(text) for text in texts}, epoch=1)
            if waits:
                await until(lambda: broker.on_mote() == set(texts))
            await scenario(scene, broker)

    on_air(folder, main, readings={"temperature": 20.0, "humidity": 50.0}, sensors=SENSORS, ring_bytes=65536)


def set_to(scene: Scene, both: tuple[float, float]) -> None:
    scene.readings["temperature"], scene.readings["humidity"] = both


async def see(scene: Scene, both: tuple[float, float]) -> None:
    """The mote samples this once at least."""
    set_to(scene, both)
    seen = scene.life.samples
    await until(lambda: scene.life.samples > seen)


def written(broker: Listener) -> int:
    return broker.motes.counts["bits written"]


# ---- what goes where


def test_an_overlapping_filter_is_evaluated_on_the_mote_once_its_bit_is_known(tmp_path: Path) -> None:
    async def scenario(scene: Scene, broker: Owner) -> None:
        assert programs(scene)[0][0] == 2
        await see(scene, RISES)
        await until(lambda: broker.bits(OVERLAP) == [True])
        await see(scene, FALLS)
        await until(lambda: broker.bits(OVERLAP) == [True, False])
        count = len(broker.samples)
        for quiet in (NEITHER, FALLS, NEITHER):
            await see(scene, quiet)
        assert len(broker.samples) == count, "all else is suppressed"
        assert broker.motes.counts["undecided"] == 0

    play(tmp_path, scenario, OVERLAP)


def test_while_the_bit_is_unknown_the_feed_passes_until_it_is_written_down(tmp_path: Path) -> None:
    async def scenario(scene: Scene, broker: Owner) -> None:
        await see(scene, BOTH)
        await until(lambda: broker.samples)
        assert broker.samples[0].undecided == {OVERLAP}
        assert broker.samples[0].passed
        assert not broker.samples[0].marks
        await until(lambda: written(broker))
        await until(lambda: broker.bits(OVERLAP))
        assert all(not sample.undecided for sample in broker.samples[broker.motes.counts["undecided"] :])

    play(tmp_path, scenario, OVERLAP)


def test_while_the_broker_does_not_know_the_bit_either_nothing_is_written_down(tmp_path: Path) -> None:
    async def scenario(scene: Scene, broker: Owner) -> None:
        broker.is_sure = False
        for count in range(1, 4):
            await see(scene, BOTH)
            await until(lambda wanted=count: broker.motes.counts["undecided"] >= wanted)
        await see(scene, NEITHER)
        await until(lambda: not broker.is_connected)
        connections = broker.motes.counts["connections"]
        await asyncio.sleep(60)
        assert broker.motes.counts["connections"] == connections, "there is nothing to connect for"
        assert written(broker) == broker.motes.counts["bits refused"] == 0
        await see(scene, RISES)
        await until(lambda: broker.bits(OVERLAP) == [True])

    play(tmp_path, scenario, OVERLAP)


@pytest.mark.parametrize("before", [RISES, FALLS])
def test_a_reboot_inside_the_overlap_changes_nothing_that_is_told(tmp_path: Path, before: tuple[float, float]) -> None:
    async def scenario(scene: Scene, broker: Owner) -> None:
        await see(scene, before)
        await until(lambda: len(broker.bits(OVERLAP)) == 1 and not len(scene.life.ring))
        bit = broker.bits(OVERLAP)[0]
        broker.changes.clear()
        set_to(scene, BOTH)
        scene.mote.power_off()
        scene.mote.power_on()
        await until(lambda: written(broker))
        await until(lambda: len(broker.changes) >= 6)
        first = next(sample for sample in broker.samples if sample.undecided)
        assert (first.boot, first.sequence) == (scene.life.sample.boot, 1)
        assert [change[-1] for change in broker.changes[:6]] == [not bit, bit] * 3, (
            "each sample of it, as at the centre"
        )

    play(tmp_path, scenario, OVERLAP)


def test_a_tie_in_doubt_is_decided_by_the_broker_and_written_down(tmp_path: Path) -> None:
    async def scenario(scene: Scene, broker: Owner) -> None:
        await see(scene, FAR)
        await until(lambda: broker.bits(TIES) == [True])
        await see(scene, ABOVE)
        await until(lambda: written(broker) >= 1)
        assert broker.own[TIES] is True
        await see(scene, FAR)
        await see(scene, BELOW)
        await until(lambda: broker.own[TIES] is False)
        await until(lambda: written(broker) >= 2)
        await see(scene, NEAR)
        told = len(broker.samples)
        await see(scene, NEAR)
        assert len(broker.samples) == told, "it knows that the bit is 0"
        assert broker.bits(TIES) == [True]

    play(tmp_path, scenario, TIES)


def test_a_mote_that_sleeps_is_told_its_bit_in_the_same_moment_and_keeps_it(tmp_path: Path) -> None:
    async def main(scene: Scene) -> None:
        set_to(scene, BOTH)
        async with listening(kind=Owner) as broker:
            broker.motes.want(SOURCE, {OVERLAP: active(OVERLAP)}, epoch=1)
            await until(lambda: broker.motes.counts["undecided"] and written(broker), 600)
            set_to(scene, NEITHER)
            await asyncio.sleep(200)
            bit, boot = broker.own[OVERLAP], broker.samples[-1].boot
            set_to(scene, FALLS if bit else RISES)
            await until(lambda: broker.bits(OVERLAP) and broker.bits(OVERLAP)[-1] is not bit, 600)
            told = broker.motes.counts["undecided"]
            set_to(scene, BOTH)
            await until(lambda: broker.bits(OVERLAP)[-1] is bit, 600)
            assert broker.motes.counts["undecided"] == told
            assert broker.samples[-1].boot == boot, "it has slept, and its bit with it"

    readings = {"temperature": 20.0, "humidity": 50.0}
    on_air(tmp_path, main, readings=readings, sensors=SENSORS, deep_sleep=True, sample_interval_s=30, awake_ms=3000)


class Deciding(Listener):
    """A broker that decides with the real evaluators, and what the cloud makes of what it sends up."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.decider = Decider("us")
        self.decider.change([active(OVERLAP), active(TIES)], (), {SOURCE: Lease(SOURCE, "us", 1)})
        self.motes.on_table = self._on_mote
        self.motes.bit = self.decider.bit
        self.cloud = {text: StateFilter(state(text)) for text in (OVERLAP, TIES)}
        self.changes: list[Change] = []

    def _on_mote(self, source: str, digests: Collection[str]) -> None:
        self._on_table(source, digests)
        self.decider.on_mote(source, digests)

    def sampled(self, sample: Sample) -> None:
        super().sampled(sample)
        assert sample.boot is not None
        assert sample.sequence is not None
        id = PublicationId(sample.source, sample.boot, sample.sequence)
        decision = self.decider.decide(id, sample.values, 1, sample.marks, sample.undecided)
        for text, label in decision.labels.items():
            for told in self.cloud[text].take(label, sample.values, 0.0):
                self.changes.append((text, *sample.values.values(), told.why == "enter"))


@pytest.mark.parametrize("kind", [Owner, Deciding])
@pytest.mark.parametrize("seed", range(4))
def test_the_subscriber_is_told_what_one_evaluator_of_all_samples_tells(
    seed: int, kind: type[Listener], tmp_path: Path
) -> None:
    """Overlaps and ties, lost connections, reboots with nothing lost, filters that come and go beside them."""
    chance = random.Random(seed)
    made: list[tuple[float, float]] = []
    choices = (BOTH, RISES, FALLS, NEITHER, BOTH, ABOVE, BELOW, FAR, NEAR, (8.05, 70.0), (30.0, 25.0))

    async def scenario(scene: Scene, broker: Any) -> None:
        def world(quantity: str) -> float:
            if quantity == "temperature":
                set_to(scene, chance.choice(choices))
            else:
                made.append((scene.readings["temperature"], scene.readings["humidity"]))
            return scene.readings[quantity]

        scene.mote._world = world
        for _ in range(STEPS):
            await asyncio.sleep(3 * chance.random())
            others = [text for text in ("temperature > 27", "humidity > 65", "cell = 'x'") if chance.random() < 0.3]
            broker.motes.want(SOURCE, {text: active(text) for text in (OVERLAP, TIES, *others)}, epoch=1)
            if chance.random() < 0.2:
                scene.air.cut(scene.mote.radio.controller)
            if chance.random() < 0.3:
                await until(lambda: scene.life.samples and not len(scene.life.ring))
                scene.mote.power_off()
                scene.mote.power_on()
                await asyncio.sleep(1.0)
        scene.mote._world = scene.readings.get
        set_to(scene, NEITHER)
        await until(lambda: not len(scene.life.ring))
        assert broker.motes.counts["events lost"] == 0
        assert broker.motes.counts["undecided"] > 3
        assert written(broker) > 0
        for text in (OVERLAP, TIES):
            assert [change for change in broker.changes if change[0] == text] == reference(text, made)

    play(tmp_path, scenario, OVERLAP, TIES, kind=kind)


def reference(text: str, made: list[tuple[float, float]]) -> list[Change]:
    evaluator = Evaluator(state(text), recorded=lambda _: Setting(False))
    found = []
    for number, (temperature, humidity) in enumerate(made, 1):
        values = {"temperature": temperature, "humidity": humidity}
        mark = evaluator.observe(PublicationId("m", 1, number), values)
        if mark is not None:
            found.append((text, temperature, humidity, mark.bit))
    return found


# ---- what goes wrong


def once(monkeypatch: pytest.MonkeyPatch, before: Callable[[MoteLink], Any]) -> list[int]:
    """Has something happen just before a bit is written for the first time; the numbers of the newest events."""
    asked: list[int] = []
    set_bit = MoteLink.set_bit

    async def later(link: MoteLink, wanted: int, epoch: int, newest: int, bit: bool) -> None:
        asked.append(newest)
        if len(asked) == 1:
            await before(link)
        await set_bit(link, wanted, epoch, newest, bit)

    monkeypatch.setattr(MoteLink, "set_bit", later)
    return asked


def test_a_bit_that_events_have_overtaken_is_refused_and_written_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(scene: Scene, broker: Owner) -> None:
        async def overtaken(_link: MoteLink) -> None:
            newest = scene.life.ring.next
            await until(lambda: scene.life.ring.next > newest)

        asked = once(monkeypatch, overtaken)
        await see(scene, BOTH)
        await until(lambda: written(broker))
        assert broker.motes.counts["bits refused"] == 1
        assert len(asked) == 2
        assert asked[1] > asked[0]
        assert broker.motes.counts["failures"] == 0, "it is no reason to hang up"

    play(tmp_path, scenario, OVERLAP)


def test_a_connection_lost_between_a_sample_and_its_bit_is_made_anew_for_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(scene: Scene, broker: Owner) -> None:
        async def cut(_link: MoteLink) -> None:
            set_to(scene, NEITHER)
            scene.air.cut(scene.mote.radio.controller)

        asked = once(monkeypatch, cut)
        await see(scene, BOTH)
        await until(lambda: len(asked) == 1)
        await until(lambda: written(broker))
        assert broker.motes.counts["failures"] == 1
        bit = broker.own[OVERLAP]
        assert bool(scene.life.table.image[scene.life.table.first() + 2] & 2) is bit, "by no event of its own"
        assert broker.bits(OVERLAP) == []

    play(tmp_path, scenario, OVERLAP)


def test_an_answer_that_was_lost_is_asked_for_a_few_times_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mote knows the bit, the broker does not know that it does."""

    async def scenario(scene: Scene, broker: Owner) -> None:
        async def written_already(link: MoteLink) -> None:
            entry = next(iter(mote_of(broker).table.entries.values()))
            payload = entry.number, entry.epoch, scene.life.ring.next - 1, broker.own[OVERLAP]
            await link.control(ControlOp.SET_BIT, SET_BIT_WRITE.pack(*payload))
            set_to(scene, NEITHER)

        asked = once(monkeypatch, written_already)
        await see(scene, BOTH)
        await until(lambda: broker.motes.counts["bits refused"])
        await until(lambda: not broker.is_connected)
        await see(scene, RISES if not broker.own[OVERLAP] else FALLS)
        await until(lambda: broker.bits(OVERLAP))
        await until(lambda: not broker.is_connected)
        connections = broker.motes.counts["connections"]
        await asyncio.sleep(60)
        assert broker.motes.counts["connections"] == connections
        assert 1 <= len(asked) <= MAX_WRITES

    play(tmp_path, scenario, OVERLAP)


def mote_of(broker: Listener) -> Mote:
    (mote,) = broker.motes._motes.values()
    return mote


def test_who_is_not_paired_may_not_set_a_bit(tmp_path: Path) -> None:
    async def main(_scene: Scene) -> None:
        async with linked() as link:
            with pytest.raises(PairingNeeded):
                await link.set_bit(1, 1, 0, True)

    on_air(tmp_path, main, bonded_writes=True)


# ---- versions


def older(folder: Path) -> Path:
    """The mote runs programs of version 1 only, as its library did before; until this file is removed."""
    file = folder / "lib" / "spinney_mote" / "programs.py"
    file.parent.mkdir(parents=True)
    text = (FIRMWARE / "lib" / "spinney_mote" / "programs.py").read_text()
    assert text.count("VERSION = 2") == 1
    file.write_text(text.replace("VERSION = 2", "VERSION = 1"))
    return file


def test_a_mote_of_the_version_before_gets_the_feed_until_its_library_is_newer(tmp_path: Path) -> None:
    library = older(tmp_path)

    async def scenario(scene: Scene, broker: Owner) -> None:
        await until(lambda: programs(scene))
        assert programs(scene)[0][0] == 1
        assert "too old" in broker.health()["here"][OVERLAP]
        for both in (BOTH, RISES, FALLS):
            await see(scene, both)
        await until(lambda: len(broker.samples) >= 3)
        assert not any(sample.undecided or sample.marks for sample in broker.samples)
        library.unlink()
        scene.mote.power_off()
        scene.mote.power_on()
        await until(lambda: broker.on_mote() == {OVERLAP})
        assert [one[0] for one in programs(scene)] == [2]
        await see(scene, RISES)
        await until(lambda: broker.bits(OVERLAP)[-1:] == [True])

    play(tmp_path, scenario, OVERLAP, waits=False)


def test_a_mote_that_goes_back_to_the_version_before_gives_its_programs_up(tmp_path: Path) -> None:
    async def scenario(scene: Scene, broker: Owner) -> None:
        await see(scene, RISES)
        await until(lambda: broker.bits(OVERLAP) == [True])
        scene.mote.power_off()
        older(tmp_path)
        scene.mote.power_on()
        await until(lambda: broker.on_mote() == frozenset())
        await until(lambda: [one[0] for one in programs(scene)] == [1])
        await see(scene, BOTH)
        await until(lambda: broker.samples[-1].values["humidity"] == BOTH[1])
        assert not broker.samples[-1].undecided

    play(tmp_path, scenario, OVERLAP)


def test_a_broker_of_the_version_before_puts_its_own_programs_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drops what it does not know, compiles nothing of version 2, and reads what the other has kept of the mote."""

    async def main(scene: Scene) -> None:
        set_to(scene, BOTH)
        async with listening(kind=Owner) as after:
            after.motes.want(SOURCE, {OVERLAP: active(OVERLAP)}, epoch=1)
            await until(lambda: written(after))
            await until(lambda: not len(scene.life.ring))
        monkeypatch.setattr(mote_module, "VERSION", 1)
        async with listening(kind=Owner, kept=after.kept) as before:
            before.motes.want(SOURCE, {OVERLAP: active(OVERLAP)}, epoch=2)
            await until(lambda: [one[0] for one in programs(scene)] == [1])
            count = len(before.samples)
            await until(lambda: len(before.samples) > count + 3)
            assert not any(sample.undecided for sample in before.samples[count:])

    on_air(tmp_path, main, readings={"temperature": 20.0, "humidity": 50.0}, sensors=SENSORS)


def test_a_broker_that_restarts_leaves_programs_of_version_2_as_they_are(tmp_path: Path) -> None:
    async def main(scene: Scene) -> None:
        set_to(scene, RISES)
        async with listening(kind=Owner) as before:
            before.motes.want(SOURCE, {OVERLAP: active(OVERLAP)}, epoch=1)
            await until(lambda: before.bits(OVERLAP) == [True])
            await until(lambda: not before.is_connected)
        generation = scene.life.table.generation
        set_to(scene, FALLS)
        await until(lambda: len(scene.life.ring))
        async with listening(kind=Owner, kept=before.kept) as after:
            after.motes.want(SOURCE, {OVERLAP: active(OVERLAP)}, epoch=1)
            await until(lambda: after.bits(OVERLAP) == [False])
        assert scene.life.table.generation == generation

    on_air(tmp_path, main, readings={"temperature": 20.0, "humidity": 50.0}, sensors=SENSORS)


# ---- what goes up


class Sending(Listener):
    """A broker that decides and sends as mobile brokers do, of all but the connection to the cloud."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.edge = Edge(active_as(TIES, TIES), sources=(SOURCE,))
        self.motes.on_table = self._on_mote
        self.motes.bit = self.edge.taking.decider.bit

    def _on_mote(self, source: str, digests: Collection[str]) -> None:
        self._on_table(source, digests)
        self.edge.taking.decider.on_mote(source, digests)

    def sampled(self, sample: Sample) -> None:
        super().sampled(sample)
        assert self.edge.taking.take(sample, self.edge.now) is None


def test_the_broker_sends_its_own_label_with_a_sample_that_the_mote_left_undecided(tmp_path: Path) -> None:
    async def scenario(scene: Scene, broker: Any) -> None:
        for both, bit in ((FAR, True), (BELOW, False), (ABOVE, True), (NEAR, False)):
            await see(scene, both)
            await until(lambda wanted=bit: sent(broker) and sent(broker)[-1] is wanted)
            await until(lambda: not len(scene.life.ring))
        assert broker.motes.counts["undecided"] >= 2
        assert written(broker) >= 2
        assert broker.edge.taking.counts["weak_hits"] == 0

    play(tmp_path, scenario, TIES, kind=Sending)


def sent(broker: Sending) -> list[bool]:
    """The bits that went up, each time that it was another."""
    bits = [record.labels[TIES].mark.bit for record in broker.edge.store.records if TIES in record.labels]
    return [bit for at, bit in enumerate(bits) if not at or bits[at - 1] is not bit]


def test_a_sample_that_an_advert_told_before_is_decided_when_its_event_comes() -> None:
    edge = Edge(active_as(TIES, TIES), known={"temperature": 8.0, "humidity": 3.0}, sources=("m1",))
    edge.taking.decider.on_mote("m1", [TIES])
    values = {"temperature": BELOW[0], "humidity": BELOW[1]}
    heard = replace(sample_of("m1", **values), boot=1, sequence=1)
    edge.taking.take(heard, edge.now)
    assert not edge.store.publications, "its mote evaluates the filter"
    edge.taking.take(replace(heard, undecided=frozenset({TIES})), edge.now)
    (record,) = edge.store.records
    assert record.labels[TIES].mark.bit is False
    assert edge.taking.decider.bit(TIES, "m1") is False
    edge.taking.take(replace(heard, undecided=frozenset({TIES})), edge.now)
    assert len(edge.store.records) == 1, "once"
