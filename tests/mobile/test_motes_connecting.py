"""Who is connected to, when, and for how long: only when there is something to do, and never beyond the slots."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bumble.device import AdvertisingType
from motes_kit import ADDRESS, HOT, SOURCE, another, listening, programs, until, wanted
from radio_kit import Scene, connected, linked, on_air, pair

from spinney_mobile.motes import AdvertPolicy
from spinney_mobile.motes.mote import BLIND_LOOK_SECONDS, LOOK_SECONDS, MAX_RETRY_SECONDS
from spinney_mobile.samples import Heard
from spinney_tools.sim.mote import VirtualMote
from spinney_tools.sim.radio import Radio

EVERY = "temperature > -300"
OPEN = AdvertPolicy(None)
"""The mote goes on advertising its readings."""
SENSOR = "D0:00:00:00:00:05"


async def other_sensor(scene: Scene) -> Radio:
    """Of another maker, that can be connected to."""
    radio = Radio(scene.air, "thermometer", SENSOR)
    await radio.power_on()
    await radio.device.start_advertising(
        AdvertisingType.UNDIRECTED_CONNECTABLE_SCANNABLE,
        advertising_data=bytes.fromhex("0201060716d2fc4002c409"),
        auto_restart=True,
    )
    return radio


def test_where_nothing_happens_nobody_connects(tmp_path: Path) -> None:
    async def play(_: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [False], 120)
            await until(lambda: not broker.is_connected)
            before = broker.motes.counts["connections"]
            await asyncio.sleep(LOOK_SECONDS * 0.9)
            assert broker.motes.counts["connections"] == before
            await asyncio.sleep(LOOK_SECONDS * 0.2)
            assert broker.motes.counts["connections"] == before + 1, "the longest interval"

    on_air(tmp_path, play, sample_interval_s=60, advert_interval_ms=1000)


def test_a_mote_that_is_not_ours_is_asked_what_it_is_and_left_alone(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            await until(lambda: broker.infos)
            assert broker.infos[0].source == SOURCE
            await asyncio.sleep(2 * LOOK_SECONDS)
            assert broker.motes.counts["connections"] == 1
            assert not scene.life.clock.is_set
            scene.mote.power_off()
            scene.mote.power_on()
            await until(lambda: len(broker.infos) == 2)
            assert broker.infos[1].boot > broker.infos[0].boot

    on_air(tmp_path, play, sample_interval_s=60, advert_interval_ms=1000)


def test_where_scan_responses_are_not_heard_motes_are_looked_at_at_intervals(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening(policy=OPEN) as before:
            before.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: before.bits(HOT) == [False])
        async with listening(kept=before.kept, policy=OPEN) as broker:
            broker.deaf_to_scans = True
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.on_mote() == {HOT})
            await until(lambda: not broker.is_connected)
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.bits(HOT)[-1:] == [True], BLIND_LOOK_SECONDS + 30)
            assert all(broker.presence), "it is known to be a mote"

    on_air(tmp_path, play)


@pytest.mark.parametrize("address", [ADDRESS, "c0-00-00-*", SOURCE])
def test_a_mote_that_settings_name_is_known_where_only_passive_scanners_hear(tmp_path: Path, address: str) -> None:
    async def play(scene: Scene) -> None:
        async with listening(mode="passive", addresses=(address,)) as broker:
            await until(lambda: broker.infos)
            assert broker.infos[0].name == "hut"
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.on_mote() == {HOT})
            await until(lambda: not broker.is_connected)
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.bits(HOT) == [False, True], BLIND_LOOK_SECONDS + 30)
            assert all(broker.presence), "no advert is taken for a sample beside its events"

    on_air(tmp_path, play)


def test_a_passive_scanner_takes_a_mote_that_nobody_names_for_any_other_sensor(tmp_path: Path) -> None:
    async def play(_: Scene) -> None:
        async with listening(mode="passive", addresses=("A4:C1:38:*",)) as broker:
            await until(lambda: len(broker.presence) > 20)
            assert not any(broker.presence)
            assert broker.motes.counts["connections"] == 0

    on_air(tmp_path, play)


def test_another_makers_sensor_that_settings_take_for_a_mote_stays_a_sensor_and_a_person_is_told(
    tmp_path: Path,
) -> None:
    async def play(scene: Scene) -> None:
        scene.mote.power_off()
        sensor = await other_sensor(scene)
        async with listening(mode="passive", addresses=(SENSOR,)) as broker:
            await until(lambda: broker.motes.counts["failures"] == 1)
            broker.presence.clear()
            await until(lambda: len(broker.presence) > 20)
            assert not any(broker.presence)
            health = broker.health(SENSOR.replace(":", "").lower())
            assert "not a Spinney mote" in health["error"]
            assert "addresses" in health["error"]
            assert broker.kept == {}
        sensor.power_off()

    on_air(tmp_path, play)


def test_an_advert_without_readings_needs_no_scan_response(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            await broker.puts_hot()
            broker.deaf_to_scans, broker.old_scan = True, bytes.fromhex("51" + "00" * 11)
            before = broker.motes.counts["connections"]
            await asyncio.sleep(10 * BLIND_LOOK_SECONDS)
            assert broker.motes.counts["connections"] == before
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.bits(HOT) == [False, True], 10)

    on_air(tmp_path, play)


def test_a_scan_response_that_is_told_again_with_later_adverts_is_no_news(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening(policy=OPEN) as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [False])
            broker.deaf_to_scans, broker.old_scan = True, bytes.fromhex("51" + "00" * 11)
            await until(lambda: not broker.is_connected)
            before = broker.motes.counts["connections"]
            await asyncio.sleep(10 * BLIND_LOOK_SECONDS)
            assert 5 <= broker.motes.counts["connections"] - before <= 11
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.bits(HOT) == [False, True], BLIND_LOOK_SECONDS + 30)

    on_air(tmp_path, play)


def test_other_makers_sensors_and_motes_that_are_not_allowed_are_not_connected_to(tmp_path: Path) -> None:
    async def play(_: Scene) -> None:
        async with listening(identify=lambda _address, _name: None) as broker:
            broker.motes.heard(Heard("hci0", "A4:C1:38:00:00:01", 0.0, services={"0000fcd2": b"\x40"}))
            await until(lambda: len(broker.presence) > 20)
            assert not any(broker.presence)
            assert not broker.health()
            assert broker.motes.counts["connections"] == 0

    on_air(tmp_path, play)


def test_more_motes_than_slots_are_all_served_in_turn(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        readings = {"temperature": 20.0}
        motes = [another(scene, tmp_path / str(n), n, readings) for n in range(2, 8)]
        for mote in motes:
            mote.power_on()
        sources = [mote_source(mote) for mote in (scene.mote, *motes)]
        most = 0
        async with listening(connections=2) as broker:

            def connections() -> int:
                nonlocal most
                most = max(most, broker.motes.connected)
                return most

            for source in sources:
                broker.motes.want(source, wanted(EVERY), epoch=1)
            await until(lambda: connections() and all(len(broker.numbers(source)) > 40 for source in sources), 600)
            assert most == 2
            for source in sources:
                numbers = [sequence or 0 for _, sequence in broker.numbers(source)]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), source
            counts = [len(broker.numbers(source)) for source in sources]
            assert min(counts) * 2 > max(counts), "no mote is served much less than another"
        for mote in motes:
            mote.power_off()

    on_air(tmp_path / "1", play)


def mote_source(mote: VirtualMote) -> str:
    return mote.radio.address.replace(":", "").lower()


def test_a_mote_that_cannot_be_reached_is_tried_less_and_less_often_and_holds_up_nobody(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            await until(lambda: broker.presence)
            scene.mote.power_off()
            silent = broker.motes
            for second in range(3 * int(MAX_RETRY_SECONDS)):
                silent.heard(_ADVERT)
                await asyncio.sleep(1.0)
                if second == 600:
                    early = silent.counts["failures"]
            assert 4 <= early <= 12
            assert silent.counts["failures"] - early <= 3
            scene.mote.power_on()
            await until(lambda: broker.infos, MAX_RETRY_SECONDS + 60)

    on_air(tmp_path, play)


_ADVERT = Heard("hci0", ADDRESS, 0.0, manufacturers={0xFFFF: bytes.fromhex("51" + "00" * 11)})


def test_a_mote_that_lets_only_paired_brokers_write_is_paired_while_it_is_open(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            await broker.puts_hot()
            await asyncio.sleep(200.0)
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.bits(HOT) == [False, True])
            assert broker.motes.counts["failures"] == 0

    on_air(tmp_path, play, bonded_writes=True, pairing_s=60)


def test_of_a_mote_that_is_closed_to_us_the_adverts_are_used_and_a_person_is_told(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.add_broker("F0:00:00:00:00:09", "hci9")
        async with connected("hci9") as other:
            assert await pair(other)
        await asyncio.sleep(100.0)
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.motes.counts["failures"] == 2)
            broker.presence.clear()
            await until(lambda: broker.presence)
            assert not any(broker.presence)
            assert "pair" in broker.health()["error"]
            async with connected("hci9") as other:
                await pair(other)
            assert programs(scene) == []

    on_air(tmp_path, play, bonded_writes=True, pairing_s=60)


def test_a_mote_that_sleeps_between_samples_is_caught_awake_and_let_sleep(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [False], 300)
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.bits(HOT) == [False, True], 300)
            slept = scene.mote.counts["deep sleeps"]
            await until(lambda: scene.mote.counts["deep sleeps"] >= slept + 5, 600)
            assert not broker.is_connected

    on_air(tmp_path, play, deep_sleep=True, sample_interval_s=30, awake_ms=3000)


def test_several_brokers_may_read_a_mote_while_one_owns_it(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.add_broker("F0:00:00:00:00:02", "hci1")
        await scene.add_broker("F0:00:00:00:00:03", "hci2")
        async with listening() as one, listening("hci1") as other:
            one.motes.want(SOURCE, wanted(EVERY), epoch=1)
            await until(lambda: len(one.samples) > 3 and other.infos, 120)
            assert other.samples == []
            async with linked("hci2") as by_hand:
                assert (await by_hand.info()).name == "hut"

    on_air(tmp_path, play)
