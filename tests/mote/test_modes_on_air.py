"""What others hear of a mote in each mode, over the virtual radio; who may set the mode, and who may read the key."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from bleak import BleakScanner
from bleak.exc import BleakError
from radio_kit import ADDRESS, HOT, OTHER, Scene, connected, keyboard, linked, next_advert, on_air, pair, program, until

from spinney.mote import advert, adverts
from spinney.mote.advert import Presence, ScanData
from spinney.mote.adverts import Mode
from spinney.mote.link import MoteLink
from spinney.mote.protocol import InfoFlag, LinkError, PairingNeeded
from spinney_mobile.decode.bthome import BTHome
from spinney_mobile.decode.decoder import Decoded
from spinney_mobile.samples import Heard


def read(heard: Any, key: bytes | None = None) -> Decoded | None:
    """What a reader of BTHome makes of it."""
    return BTHome().decode(Heard("ble", ADDRESS, 0.0, services=dict(heard.service_data)), key)


async def own(mote: MoteLink, mode: Mode = Mode.PRESENCE, **options: Any) -> adverts.AdvertState:
    """As the mobile broker does at the end of a visit."""
    return await adverts.set_mode(mote, mode, (await mote.info()).table_crc, **options)


async def drain(mote: MoteLink, seconds: float = 3.0) -> int:
    """Takes the events that wait; how many."""
    count = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for event in mote.events(0):
                count += 1
                await mote.ack(event.number)
    return count


def test_a_plain_scanner_hears_no_measurement_of_what_filters_hold_back(tmp_path: Path) -> None:
    """The issue's own run: WHEN temperature > 25 UNTIL <= 22, and 200 samples below."""

    async def play(scene: Scene) -> None:
        async with linked() as mote:
            info = await mote.info()
            assert adverts.in_force(info) is Mode.OPEN
            assert InfoFlag.ADVERT_MODES in info.flags
            await mote.change_filters({7: program(HOT, 7)})
            await own(mote)
            assert adverts.in_force(await mote.info()) is Mode.PRESENCE
            await drain(mote)
        found = []

        def heard(device: Any, data: Any) -> None:
            if device.address == ADDRESS:
                found.append(data)

        first = scene.life.sample.sequence
        async with BleakScanner(heard, None, "active", bluez={"adapter": "hci0"}):
            for step in range(200):
                scene.readings["temperature"] = 10.0 + step / 20
                await asyncio.sleep(1.0)
        assert scene.life.sample.sequence - first >= 199
        assert len(found) >= 30
        for data in found:
            assert advert.BTHOME not in data.service_data
            assert read(data) is None
            said = Presence.decode(data.service_data[advert.PRESENCE])
            assert said is not None
            assert not said.has_events
        responses = {data.manufacturer_data[advert.COMPANY] for data in found if data.manufacturer_data}
        assert [ScanData.decode(one).sequence for one in responses] == [0], "nothing changes with a sample"

    on_air(tmp_path, play)


def test_a_passive_scanner_knows_the_mote_its_table_and_that_events_wait(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with linked() as mote:
            crc = await mote.change_filters({7: program(HOT, 7)})
            await own(mote)
            assert await drain(mote) == 1
        data = await next_advert(10.0, active=False)
        assert not data.manufacturer_data
        assert list(data.service_data) == [advert.PRESENCE]
        said = Presence.decode(data.service_data[advert.PRESENCE])
        assert said == Presence(crc, advert.name_crc("hut"), None, has_events=False, clock_is_set=False)
        async with linked() as mote:
            await mote.set_time()
        scene.readings["temperature"] = 30.0
        async with asyncio.timeout(5.0):
            while True:
                data = await next_advert(10.0, active=False)
                said = Presence.decode(data.service_data[advert.PRESENCE])
                assert said is not None
                assert said.clock_is_set
                if said.has_events:
                    break
        async with linked() as mote:
            assert await drain(mote) == 2 - 1
        data = await next_advert(10.0, active=False)
        said = Presence.decode(data.service_data[advert.PRESENCE])
        assert said is not None
        assert not said.has_events

    on_air(tmp_path, play)


def test_a_broker_of_before_knows_it_by_its_scan_response(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with linked() as mote:
            crc = await mote.change_filters({7: program(HOT, 7)})
            await own(mote)
        data = await next_advert(10.0)
        said = ScanData.decode(data.manufacturer_data[advert.COMPANY])
        assert (said.table_crc, said.boot, data.local_name) == (crc, scene.life.sample.boot, "hut")
        assert said.last_event == scene.life.ring.next - 1 & 0xFFFF

    on_air(tmp_path, play)


def test_adverts_come_seldom_while_there_is_nothing_to_say(tmp_path: Path) -> None:
    async def count(scene: Scene, seconds: float) -> int:
        before = scene.mote.radio.adverts
        await asyncio.sleep(seconds)
        return scene.mote.radio.adverts - before

    async def play(scene: Scene) -> None:
        async with linked() as mote:
            await mote.change_filters({7: program(HOT, 7)})
        assert 90 <= await count(scene, 100) <= 105, "open: each second"
        async with linked() as mote:
            await own(mote)
            await drain(mote)
        assert 15 <= await count(scene, 100) <= 30, "presence: each 5 s, with BLE's own random delay"
        scene.readings["temperature"] = 30.0
        await asyncio.sleep(2.0)
        assert await count(scene, 2) >= 15, "an event: fast"
        await asyncio.sleep(10.0)
        assert 5 <= await count(scene, 10) <= 12, "nobody comes"

    on_air(tmp_path, play, advert_interval_ms=1000)


def test_encrypted_adverts_are_bthomes_and_the_key_is_read_over_an_authenticated_bond(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        keyboard(scene.broker, 123456)
        async with connected() as client:
            assert await pair(client)
            async with MoteLink(client) as mote:
                assert (await own(mote, Mode.ENCRYPTED)).mode is Mode.PRESENCE, "there is no key yet"
                assert await adverts.bind_key(mote) is None
                key = await adverts.new_bind_key(mote)
                assert await adverts.bind_key(mote) == key
                assert (await own(mote, Mode.ENCRYPTED)).mode is Mode.ENCRYPTED
        counters, ids = [], []
        for step in range(4):
            scene.readings["temperature"] = 20.0 + step
            await asyncio.sleep(1.2)
            data = await next_advert(active=True)
            assert read_error(data) == "encrypted: set this device's bindkey"
            decoded = read(data, key)
            assert decoded is not None
            assert decoded.values == {"temperature": 20.0 + step}
            said = ScanData.decode(data.manufacturer_data[advert.COMPANY])
            assert decoded.counter is not None
            counters.append(decoded.counter)
            ids.append(said.sequence)
        assert counters == sorted(set(counters))
        assert ids == sorted(set(ids)), "the scan response says which sample it is"

    on_air(tmp_path, play, bonded_writes=True, passkey=123456)


def read_error(data: Any) -> str:
    try:
        read(data)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("bonded", [True, False])
def test_the_key_is_for_nobody_without_a_passkey(tmp_path: Path, bonded: bool) -> None:
    async def play(scene: Scene) -> None:
        await next_advert()
        scene.life.key.renew()
        async with connected() as client:
            if bonded:
                assert await pair(client)
            async with MoteLink(client) as mote:
                assert (await own(mote)).mode is Mode.PRESENCE
                for ask in adverts.bind_key, adverts.new_bind_key, adverts.forget_bind_key:
                    with pytest.raises(PairingNeeded):
                        await ask(mote)

    on_air(tmp_path, play, bonded_writes=bonded)


def test_who_is_not_bonded_cannot_set_the_mode(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with connected() as client:
            assert await pair(client)
        await scene.add_broker(OTHER, "hci1")
        await until(lambda: not scene.life.radio._bonds.is_open())
        async with connected("hci1") as client, MoteLink(client) as mote:
            with pytest.raises((LinkError, BleakError)):
                await own(mote)
        assert scene.life.modes.mode == Mode.OPEN

    on_air(tmp_path, play, bonded_writes=True, pairing_s=5)


def test_a_sleeping_mote_in_presence_is_found_and_can_be_connected_to(tmp_path: Path) -> None:
    async def play(_: Scene) -> None:
        await next_advert(200.0)
        async with linked() as mote:
            assert InfoFlag.SLEEPS in (await mote.info()).flags
            await mote.change_filters({7: program(HOT, 7)})
            await own(mote)
            await drain(mote)
        for _ in range(5):
            began = asyncio.get_running_loop().time()
            await next_advert(200.0, active=False)
            assert asyncio.get_running_loop().time() - began < 120
            async with linked() as mote:
                assert (await own(mote)).mode is Mode.PRESENCE
            await asyncio.sleep(70)

    on_air(tmp_path, play, deep_sleep=True, sample_interval_s=60)
