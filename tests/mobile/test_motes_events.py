"""What motes let through becomes samples: whole, once, in order, at their own time, and none is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from motes_kit import EPOCH_S, HOT, SOURCE, Listener, clock, listening, until, wanted
from radio_kit import OTHER, Scene, on_air
from spinney_mote.ring import AGE

from spinney_mobile.motes import Identity
from spinney_mobile.samples import Sample

WARM = "temperature > 21"
EVERY = "temperature > -300"


def test_what_several_filters_say_of_one_sample_comes_as_one(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        other = "WHEN temperature > 28 UNTIL temperature <= 25"
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT, WARM, other), epoch=1)
            await until(lambda: broker.bits(HOT) == [False])
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.bits(HOT) == [False, True])
            last = broker.samples[-1]
            assert {digest: mark.bit for digest, mark in last.marks.items()} == {HOT: True, other: True}
            await until(lambda: broker.samples[-1].passed)  # it is warm still
            assert len(set(broker.numbers())) == len(broker.numbers())

    on_air(tmp_path, play)


def test_what_a_mote_keeps_back_is_counted(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [False])
            first = broker.numbers()[0][1] or 0
            await until(lambda: scene.life.sample.sequence >= first + 5)
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.bits(HOT) == [False, True])
            last = broker.numbers()[-1][1] or 0
            assert broker.motes.counts["kept back"] == last - first - 1 >= 4

    on_air(tmp_path, play)


def test_a_lost_connection_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(EVERY), epoch=1)
            await until(lambda: broker.samples)
            for _ in range(5):
                before = len(broker.samples)
                scene.air.cut(scene.mote.radio.controller)
                await until(lambda seen=before: len(broker.samples) >= seen + 4)
            numbers = [sequence or 0 for _, sequence in broker.numbers()]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert broker.motes.counts["failures"] >= 5

    on_air(tmp_path, play)


class Full(Listener):
    """A broker whose outbox takes nothing for a while."""

    is_full = False

    def sampled(self, sample: Sample) -> None:
        if self.is_full:
            raise OSError("no space left")
        super().sampled(sample)


def test_an_event_is_acknowledged_only_when_the_outbox_has_it(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening(kind=Full) as broker:
            assert isinstance(broker, Full)
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [False])
            await until(lambda: not len(scene.life.ring))
            broker.is_full = True
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.motes.counts["failures"] >= 2)
            assert len(scene.life.ring) == 1
            assert "no space" in broker.health()["error"]
            broker.is_full = False
            await until(lambda: broker.bits(HOT) == [False, True])
            await until(lambda: not len(scene.life.ring))

    on_air(tmp_path, play)


def test_bits_are_told_anew_when_events_were_lost_for_lack_of_room(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as before:
            before.motes.want(SOURCE, wanted(HOT, EVERY), epoch=1)
            await until(lambda: before.bits(HOT) == [False])
        scene.readings["temperature"] = 30.0
        lost = scene.life.ring.dropped
        await until(lambda: scene.life.ring.dropped > lost + 20)
        async with listening(kept=before.kept) as after:
            after.motes.want(SOURCE, wanted(HOT, EVERY), epoch=1)
            await until(lambda: after.bits(HOT) == [True])
            assert after.motes.counts["events lost"] > 20
            assert all(HOT in digests for _, digests in after.tables), "somebody evaluates it all the time"
            held = after.on_mote()
            scene.readings["temperature"] = 20.0
            await until(lambda: after.bits(HOT) == [True, False])
            assert after.on_mote() == held == {HOT}

    on_air(tmp_path, play, ring_bytes=512)


def test_more_labels_than_the_ring_holds_make_fewer_filters_not_an_endless_loop(tmp_path: Path) -> None:
    texts = [f"WHEN temperature > {25 + n} UNTIL temperature <= 22" for n in range(30)]

    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(*texts), epoch=1)
            await until(lambda: broker.motes.counts["events lost"], 300)
            await until(lambda: broker.on_mote() and all(broker.bits(text) for text in broker.on_mote()), 300)
            commits = broker.motes.counts["commits"]
            seen = scene.life.samples
            await until(lambda: scene.life.samples > seen + 30, 300)
            assert broker.motes.counts["commits"] == commits
            assert 8 <= len(broker.on_mote()) < 30

    on_air(tmp_path, play, ring_bytes=512)


def test_after_a_restart_of_the_mote_no_exit_is_missed(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.readings["temperature"] = 30.0
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [True])
            scene.mote.power_off()
            scene.readings["temperature"] = 20.0
            scene.mote.power_on()
            await until(lambda: broker.bits(HOT) == [True, False])
            assert broker.samples[-1].boot != broker.samples[0].boot
            await until(lambda: scene.life.clock.is_set)

    on_air(tmp_path, play)


def test_a_sample_has_the_time_at_which_it_was_measured(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as before:
            before.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: before.bits(HOT) == [False])
            assert abs(before.samples[0].time - before.samples[0].heard) < 3.0
        scene.mote.power_off()  # its clock is not set any more
        scene.readings["temperature"] = 30.0
        scene.mote.power_on()
        await asyncio.sleep(2.0)
        measured = clock()
        await asyncio.sleep(500.0)
        async with listening(kept=before.kept) as after:
            after.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: after.bits(HOT) == [True])
            assert abs(after.samples[0].time - measured) < 3.0
            assert after.samples[0].heard > measured + 490

    on_air(tmp_path, play)


def test_what_a_mote_without_the_time_says_is_so_old_was_measured_so_long_ago(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            await broker.puts_hot()
            broker.is_deaf = True
            scene.life.clock._is_set = False  # within one boot, so that nobody looks whether it is
            scene.readings["temperature"] = 30.0
            await until(lambda: len(scene.life.ring) == 1)
            measured = clock()
            await asyncio.sleep(500.0)
            assert scene.life.ring.read(scene.life.ring.first, 0)[18] & AGE
            broker.is_deaf = False
            await until(lambda: broker.bits(HOT) == [False, True])
            assert abs(broker.samples[-1].time - measured) < 3.0
            assert broker.samples[-1].heard > measured + 490

    on_air(tmp_path, play)


def test_a_mote_whose_clock_is_ahead_is_set_right_and_its_samples_are_not_from_the_future(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(EVERY), epoch=1)
            await until(lambda: broker.samples)
            scene.life.clock.set(round((EPOCH_S + 100_000) * 1000))
            await until(lambda: broker.motes.counts["clocks set"] == 2)
            seen = len(broker.samples)
            await until(lambda: len(broker.samples) > seen + 2)
            assert all(sample.time <= sample.heard for sample in broker.samples)
            assert abs(broker.samples[-1].time - broker.samples[-1].heard) < 3.0

    on_air(tmp_path, play)


def test_when_the_brokers_clock_jumps_the_motes_is_set_again(tmp_path: Path) -> None:
    jumped = 0.0

    def now() -> float:
        return clock() + jumped

    async def play(scene: Scene) -> None:
        nonlocal jumped
        async with listening(clock=now) as broker:
            broker.motes.want(SOURCE, wanted(EVERY), epoch=1)
            await until(lambda: broker.samples)
            jumped = 1e6
            await until(lambda: broker.motes.counts["clocks set"] == 2)
            assert abs(scene.life.clock.epoch_ms() / 1000 - now()) < 2.0

    on_air(tmp_path, play)


def test_events_left_when_a_source_is_released_are_its_next_owners(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci1")
        async with listening() as one, listening("hci1") as other:
            one.motes.want(SOURCE, wanted(EVERY), epoch=1)
            await until(lambda: len(one.samples) >= 3)
            one.motes.release(SOURCE)
            assert one.on_mote() == frozenset()
            await until(lambda: len(scene.life.ring) >= 3)
            taken = len(one.samples)
            other.motes.want(SOURCE, wanted(EVERY), epoch=2)
            await until(lambda: len(other.samples) >= 8)
            assert len(one.samples) == taken, "the first one takes nothing any more"
            numbers = [sequence or 0 for _, sequence in (*one.numbers(), *other.numbers())]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    on_air(tmp_path, play)


def test_settings_of_a_device_rename_and_add_attributes_before_anything_is_compiled(tmp_path: Path) -> None:
    text = "WHEN warmth > 25 UNTIL warmth <= 22"

    def identify(_address: str, _name: str | None) -> Identity:
        return Identity("hut", {"temperature": "warmth"}, {"room": "kit"}, (45.0, 16.0), "indoor")

    async def play(scene: Scene) -> None:
        async with listening(identify=identify) as broker:
            await until(lambda: broker.infos)
            assert list(broker.infos[0].abilities) == ["warmth", "heard"]
            ability = broker.infos[0].abilities["warmth"]
            assert (ability.minimum, ability.maximum, ability.unit) == (-40.0, 85.0, "°C")
            scene.readings["temperature"] = 30.0
            broker.motes.want("hut", wanted(text), epoch=1)
            await until(lambda: broker.samples)
            (sample,) = broker.samples
            assert sample.values == {"warmth": 30.0, "room": "kit"}
            assert (sample.source, sample.place, sample.type) == ("hut", (45.0, 16.0), "indoor")

    on_air(tmp_path, play)


@pytest.mark.parametrize("rename", [{"temperature": "time"}, {"temperature": "room"}, {"temperature": ""}])
def test_a_mote_with_attributes_that_cannot_be_named_so_is_told_and_harms_nobody(
    rename: dict[str, str], tmp_path: Path
) -> None:
    def identify(_address: str, _name: str | None) -> Identity:
        return Identity("hut", rename, {"room": "kit"})

    async def play(_: Scene) -> None:
        async with listening(identify=identify) as broker:
            broker.motes.want("hut", wanted(HOT), epoch=1)
            await until(lambda: broker.motes.counts["failures"])
            mote = broker.health("hut")
            assert "name" in mote["error"]

    on_air(tmp_path, play)


def test_the_battery_goes_with_the_sample(tmp_path: Path) -> None:
    sensors: list[dict[str, Any]] = [{"driver": "virtual", "quantities": ["temperature", "battery"]}]

    async def play(_: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(EVERY), epoch=1)
            await until(lambda: broker.samples)
            assert broker.samples[0].battery == 1.0
            await until(lambda: broker.infos[-1].battery == 1.0)

    on_air(tmp_path, play, sensors=sensors)
