"""The radio of a mote: the unchanged firmware on the virtual radio, reached through bleak by spinney.mote.link."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bleak import BleakClient
from bleak.exc import BleakError, BleakGATTProtocolError
from radio_kit import (
    HOT,
    LONG,
    OTHER,
    Scene,
    connected,
    keyboard,
    linked,
    next_advert,
    on_air,
    pair,
    program,
    until,
)
from spinney_mote import upload

from spinney.mote import advert, link, protocol
from spinney.mote.link import MoteLink
from spinney.mote.protocol import ControlOp, EventFlag, FilterOp, LinkError, LinkLost, MoteRefused, PairingNeeded


async def table_crc() -> int:
    async with linked() as mote:
        return (await mote.info()).table_crc


async def collect(mote: MoteLink, count: int, first: int = 0) -> list[protocol.Event]:
    found: list[protocol.Event] = []
    async for event in mote.events(first):
        found.append(event)
        if len(found) == count:
            break
    return found


# ---- what is on the air


def test_the_advert_is_bthome_and_the_scan_response_says_what_changed(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        heard = await next_advert()
        assert heard.local_name == "hut"
        found = advert.Advert.decode(heard.service_data[advert.BTHOME])
        assert [(one.name, one.value) for one in found.readings] == [("temperature", 20.0)]
        before = advert.ScanData.decode(heard.manufacturer_data[advert.COMPANY])
        assert before.names(found)
        async with linked() as mote:
            crc = await mote.change_filters({7: program(HOT, 7)})
            scene.readings["temperature"] = 30.0
            (event,) = await collect(mote, 1)
        heard = await next_advert()
        after = advert.ScanData.decode(heard.manufacturer_data[advert.COMPANY])
        assert (before.table_crc, after.table_crc) == (0, crc)
        assert after.last_event == event.number & 0xFFFF != before.last_event

    on_air(tmp_path, play)


def test_a_passive_scanner_hears_each_sample_under_a_number_of_its_own(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        ids = []
        for step in range(4):
            scene.readings["temperature"] = 20.0 + step
            await asyncio.sleep(1.1)
            heard = await next_advert(active=False)
            assert not heard.manufacturer_data
            found = advert.Advert.decode(heard.service_data[advert.BTHOME])
            assert found.readings[0].value == 20.0 + step
            ids.append(found.packet_id)
        assert ids == sorted(set(ids))

    on_air(tmp_path, play)


def test_what_others_see_of_the_service(tmp_path: Path) -> None:
    async def play(_: Scene) -> None:
        async with connected() as client:
            service = client.services.get_service(protocol.SERVICE)
            found = {one.uuid: set(one.properties) for one in service.characteristics}
            assert found == {
                protocol.FILTERS: {"write"},
                protocol.EVENTS: {"notify", "indicate"},
                protocol.INFO: {"read"},
                protocol.TIME: {"read", "write"},
                protocol.CONTROL: {"write", "notify"},
            }
            assert client.mtu_size == 247

    on_air(tmp_path, play)


# ---- filters and events


def test_filters_over_the_air_and_the_events_they_let_through(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with linked() as mote:
            info = await mote.info()
            assert (info.name, info.table_crc, info.attribute_count) == ("hut", 0, 1)
            assert [(row.name, row.p, row.q) for row in info.attributes] == [("temperature", 1, 100)]
            crc = await mote.change_filters({7: program(HOT, 7)})
            assert crc == protocol.table_crc([program(HOT, 7)]) == (await mote.info()).table_crc
            following = asyncio.ensure_future(collect(mote, 3))
            for temperature in (19.0, 23.0, 30.0, 26.0, 20.0, 24.0):
                scene.readings["temperature"] = temperature
                await asyncio.sleep(1.5)
            events = await following
        assert [(one.filter_id, one.owner_epoch, one.bit) for one in events] == [
            (7, 1, False),
            (7, 1, True),
            (7, 1, False),
        ]
        assert [one.values[0] for one in events[1:]] == [3000, 2000]
        assert all(EventFlag.LABEL in one.flags for one in events)
        assert [one.number - events[0].number for one in events] == [0, 1, 2]

    on_air(tmp_path, play)


def test_a_broker_that_knows_nothing_can_ask_which_filters_there_are(tmp_path: Path) -> None:
    wanted = {number: program(HOT, number) for number in (3, *range(100, 180), 0xFFFF)}

    async def play(_: Scene) -> None:
        async with linked() as mote:
            assert await mote.filters() == {}
            await mote.change_filters(wanted)
            found = await mote.filters()
        assert found == {number: protocol.program_crc(one) for number, one in wanted.items()}

    on_air(tmp_path, play)


def test_a_change_is_all_or_nothing_and_a_refusal_says_why(tmp_path: Path) -> None:
    async def play(_: Scene) -> None:
        async with linked() as mote:
            crc = await mote.change_filters({1: program(HOT, 1), 2: program(HOT, 2)})
            bad = bytearray(program(HOT, 3))
            bad[0] = 9
            with pytest.raises(MoteRefused, match="version 9") as refused:
                await mote.change_filters({3: bytes(bad), 4: program(HOT, 4)}, drop=[1])
            assert refused.value.status == protocol.Status.REFUSED
            assert (await mote.info()).table_crc == crc
            assert await mote.change_filters({4: program(HOT, 4)}, drop=[1, 2]) == protocol.table_crc([program(HOT, 4)])

    on_air(tmp_path, play)


def test_a_large_change_goes_in_several_commits_that_add_before_they_drop(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        many = {number: program(HOT if number < 40 else LONG, number) for number in range(65)}
        async with linked() as mote:
            crc = await mote.change_filters(many)
            assert crc == protocol.table_crc(list(many.values()))
            assert len(scene.life.table) == 65
            assert await mote.change_filters({200: program(HOT, 200)}, range(65)) == protocol.table_crc(
                [program(HOT, 200)]
            )

    on_air(tmp_path, play)


class Counted:
    """A client that counts the chunks it writes, and may lose its connection in the middle of one."""

    def __init__(self, client: BleakClient, scene: Scene, cut_at: int = -1) -> None:
        self.client = client
        self.scene = scene
        self.cut_at = cut_at
        self.offsets: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    async def write_gatt_char(self, where: str, data: bytes, response: bool) -> None:
        if where == protocol.FILTERS and data[0] == FilterOp.PUT:
            self.offsets.append(protocol.FILTER_HEAD.unpack_from(data)[2])
            if len(self.offsets) == self.cut_at:
                self.scene.cut_in_next_packet()
        await self.client.write_gatt_char(where, data, response)


def test_a_connection_lost_in_the_middle_of_a_chunk_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_CHUNK", 60)

    async def play(scene: Scene) -> None:
        long = program(LONG, 7)
        assert 180 < len(long) < 240
        cut = None
        with contextlib.suppress(BleakError):
            async with connected() as client:
                cut = Counted(client, scene, cut_at=3)
                async with MoteLink(cut) as mote:
                    with pytest.raises(LinkLost):
                        await mote.change_filters({7: long})
        assert cut is not None
        assert cut.offsets == [0, 60, 120]
        assert await table_crc() == 0
        async with connected() as client:
            again = Counted(client, scene)
            async with MoteLink(again) as mote:
                assert await mote.change_filters({7: long}) == protocol.table_crc([long])
        assert again.offsets == [120, 180]

    on_air(tmp_path, play)


def test_events_of_a_lost_connection_are_replayed_until_they_are_acknowledged(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with linked() as mote:
            await mote.change_filters({7: program(HOT, 7)})
            first, second = await collect_while(scene, mote, [30.0, 20.0])
            await mote.ack(first.number)
        for temperature in (30.0, 20.0, 30.0):
            scene.readings["temperature"] = temperature
            await asyncio.sleep(1.2)
        async with linked() as mote:
            again = await collect(mote, 4, second.number)
            assert replace(again[0], time=None) == replace(second, time=None)  # an age grows
            assert [one.number for one in again] == [second.number + step for step in range(4)]
            assert [one.bit for one in again] == [False, True, False, True]
            assert mote.events_lost == 0
            await mote.ack(again[-1].number)
            info = await mote.info()
            assert info.first_event == info.next_event == again[-1].number + 1

    on_air(tmp_path, play)


async def collect_while(scene: Scene, mote: MoteLink, temperatures: list[float]) -> list[protocol.Event]:
    """The events that these temperatures make, one each."""
    scene.readings["temperature"] = temperatures[0]
    found: list[protocol.Event] = []
    left = list(temperatures)
    async for event in mote.events():
        if event.bit == (left[0] > 25):
            found.append(event)
            left.pop(0)
            if not left:
                break
            scene.readings["temperature"] = left[0]
    return found


def test_a_ring_that_overflowed_is_seen_as_lost_events(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with linked() as mote:
            await mote.change_filters({7: program(HOT, 7)})
            (first,) = await collect_while(scene, mote, [30.0])
        for step in range(40):
            scene.readings["temperature"] = 20.0 if step % 2 == 0 else 30.0
            await asyncio.sleep(1.0)
        async with linked() as mote:
            info = await mote.info()
            assert info.events_dropped > 0
            (oldest,) = await collect(mote, 1, first.number + 1)
            assert oldest.number == info.first_event
            assert mote.events_lost == oldest.number - first.number - 1 > 0

    on_air(tmp_path, play, ring_bytes=256)


def test_events_that_the_host_had_no_room_for_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "MAX_EVENTS", 3)

    async def play(scene: Scene) -> None:
        async with linked() as mote:
            await mote.change_filters({7: program(HOT, 7)})
            numbers = []
            async for event in mote.events():
                numbers.append(event.number)
                if len(numbers) == 1:
                    for step in range(12):  # the caller is busy elsewhere
                        scene.readings["temperature"] = 30.0 if step % 2 == 0 else 20.0
                        await asyncio.sleep(1.0)
                if len(numbers) == 10:
                    break
            assert mote.events_dropped > 0
            assert mote.events_lost == 0
            assert numbers == list(range(numbers[0], numbers[0] + 10))

    on_air(tmp_path, play)


def test_critical_events_are_indicated_and_all_stay_in_order(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with linked(scene=scene) as mote:
            await mote.change_filters({7: program(HOT, 7, critical=True), 8: program(HOT, 8)})
            following = asyncio.ensure_future(collect(mote, 6))
            for temperature in (20.0, 30.0, 20.0):
                scene.readings["temperature"] = temperature
                await asyncio.sleep(1.2)
            events = await following
        assert [one.filter_id for one in events] == [7, 8] * 3
        assert [EventFlag.CRITICAL in one.flags for one in events] == [True, False] * 3
        assert scene.indications == 3

    on_air(tmp_path, play)


def test_several_brokers_hear_the_same_events_and_one_too_many_is_turned_away(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        names = ["hci0", "hci1", "hci2"]
        for number, name in enumerate(names[1:], 2):
            await scene.add_broker(f"F0:00:00:00:00:0{number}", name)
        await scene.add_broker("F0:00:00:00:00:08", "hci3")
        await scene.add_broker("F0:00:00:00:00:09", "hci4")
        async with contextlib.AsyncExitStack() as stack:
            motes = [await stack.enter_async_context(linked(name)) for name in names]
            await motes[0].change_filters({7: program(HOT, 7)})
            following = [asyncio.ensure_future(collect(mote, 2)) for mote in motes]
            scene.readings["temperature"] = 30.0
            await asyncio.sleep(1.5)
            scene.readings["temperature"] = 20.0
            heard = await asyncio.gather(*following)
            assert heard[0] == heard[1] == heard[2]
            assert (await next_advert(adapter="hci3")).service_data
            with pytest.raises((BleakError, TimeoutError)):
                async with connected("hci3"):
                    pass
            assert scene.life.radio.turned_away == 0, "nobody is invited in vain"
        async with linked("hci4") as mote:
            assert (await mote.info()).table_crc

    on_air(tmp_path, play)


def test_only_one_broker_at_a_time_changes_the_filters(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci1")
        async with linked() as mine, linked("hci1") as theirs:
            await mine._filters(FilterOp.DROP, 99)
            with pytest.raises(MoteRefused) as busy:
                await theirs.change_filters({7: program(HOT, 7)})
            assert busy.value.status == protocol.Status.BUSY
            await asyncio.sleep(upload.OWNER_MS / 1000)
            assert await theirs.change_filters({7: program(HOT, 7)}) == protocol.table_crc([program(HOT, 7)])

    on_air(tmp_path, play)


# ---- power loss, reboot


def test_a_power_cut_at_any_byte_of_a_commit_leaves_the_old_table_or_the_new_one(tmp_path: Path) -> None:
    async def play(scene: Scene) -> set[int]:
        seen = set()
        one, two = program(HOT, 1), program(HOT, 2)
        for cut in range(0, 400, 7):
            scene.mote.flash.cut_after_bytes = None
            if not scene.mote.is_on:
                scene.mote.power_on()
            async with linked() as mote:
                await mote.change_filters({1: one}, [2])
                scene.mote.flash.cut_after_bytes = cut
                with contextlib.suppress(LinkError):
                    await mote.change_filters({2: two})
            cut_off = scene.mote.flash.cut_after_bytes == 0
            scene.mote.flash.cut_after_bytes = None
            if cut_off:
                await until(lambda: not scene.mote.is_on)
                scene.mote.power_on()
            crc = await table_crc()
            assert crc in (protocol.table_crc([one]), protocol.table_crc([one, two]))
            seen.add(crc)
            if not cut_off:
                break
        return seen

    assert len(on_air(tmp_path, play)) == 2


def test_a_reboot_keeps_the_filters_and_their_bits_are_unknown(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.readings["temperature"] = 30.0
        async with linked() as mote:
            crc = await mote.change_filters({7: program(HOT, 7)})
            (before,) = await collect(mote, 1)
            await mote.reboot()
            await until(lambda: scene.mote.counts["starts"] == 2)
        async with linked() as mote:
            assert (await mote.info()).table_crc == crc
            (after,) = await collect(mote, 1, before.number + 1)
            assert (before.bit, after.bit) == (True, True)
            assert after.boot > before.boot
            assert mote.events_lost == 0

    on_air(tmp_path, play)


# ---- time, control


def test_the_clock_is_set_over_the_air(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.readings["temperature"] = 30.0
        async with linked() as mote:
            assert (await mote.clock()).epoch_ms is None
            await mote.change_filters({7: program(HOT, 7)})
            (aged,) = await collect(mote, 1)
            assert EventFlag.AGE in aged.flags
            await mote.set_time(lambda: 1_800_000_000.0)
            clock = (await mote.clock()).epoch_ms
            assert clock is not None
            assert 0 <= clock - 1_800_000_000_000 < 500
            (event,) = await collect(mote, 1)
            assert event.time is not None
            assert EventFlag.AGE not in event.flags
            assert 1_799_999_990 < event.time <= 1_800_000_000
            assert protocol.InfoFlag.TIME_SET in (await mote.info()).flags

    on_air(tmp_path, play)


def test_what_is_written_as_time_is_not_what_is_read(tmp_path: Path) -> None:
    async def play(_: Scene) -> None:
        async with connected() as client:
            await client.write_gatt_char(protocol.TIME, bytes(8), response=True)
            value = bytes(await client.read_gatt_char(protocol.TIME))
        assert protocol.MoteTime.decode(value).epoch_ms is None

    on_air(tmp_path, play)


def test_sampling_can_be_switched_off_and_on(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with linked() as mote:
            await mote.set_sampling(False)
            await asyncio.sleep(2)
            before = (await mote.info()).sequence
            await asyncio.sleep(5)
            info = await mote.info()
            assert info.sequence == before
            assert protocol.InfoFlag.SAMPLING_ON not in info.flags
            await mote.set_sampling(True)
            await until(lambda: scene.life.sample.sequence > before)

    on_air(tmp_path, play)


def test_what_a_mote_does_not_know_or_cannot_read_is_refused_in_words(tmp_path: Path) -> None:
    async def play(_: Scene) -> None:
        async with linked() as mote:
            for op, payload, status in [
                (ControlOp.SAMPLING, b"", protocol.Status.MALFORMED),
                (ControlOp.ACK, b"\1\2\3", protocol.Status.MALFORMED),
                (ControlOp.FORGET, b"", protocol.Status.REFUSED),
            ]:
                with pytest.raises(MoteRefused) as refused:
                    await mote.control(op, payload)
                assert refused.value.status == status
                assert refused.value.op == op.name
            with pytest.raises(MoteRefused) as refused:
                await mote._ask("99", protocol.CONTROL, bytes([99, 1]), (99, 1))
            assert refused.value.status == protocol.Status.UNKNOWN_OP
            assert (await mote.info()).writes_refused == 4

    on_air(tmp_path, play)


def test_attributes_that_do_not_fit_into_info_are_described_one_by_one(tmp_path: Path) -> None:
    names = ["temperature", "humidity", "pressure", "co2", "pm25", "pm10", "NO2", "battery"]

    async def play(scene: Scene) -> None:
        async with linked() as mote:
            first = await mote._read_info()
            assert len(first.attributes) < first.attribute_count == 24
            info = await mote.info()
        assert [row.name for row in info.attributes] == [one.name for one in scene.life.attributes]
        assert len(info.attributes) == 24

    on_air(tmp_path, play, sensors=[{"driver": "virtual", "quantities": names}] * 3)


def test_an_idle_stranger_loses_its_place(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with connected() as client:
            await until(lambda: not client.is_connected, 40)
        assert scene.life.radio.turned_away == 1

    on_air(tmp_path, play, bonded_writes=True)


# ---- pairing


def test_who_has_not_paired_may_read_and_not_write(tmp_path: Path) -> None:
    async def play(_: Scene) -> None:
        async with linked() as mote:
            info = await mote.info()
            assert protocol.InfoFlag.BONDED_WRITES in info.flags
            with pytest.raises(PairingNeeded):
                await mote.change_filters({7: program(HOT, 7)})
            with pytest.raises(PairingNeeded):
                await mote.set_time()
            with pytest.raises(PairingNeeded):
                await mote.set_sampling(False)
        assert await table_crc() == 0

    on_air(tmp_path, play, bonded_writes=True)


def test_a_board_that_can_refuses_such_writes_before_the_firmware_sees_them(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with connected() as client:
            for where in (protocol.FILTERS, protocol.CONTROL, protocol.TIME):
                with pytest.raises(BleakGATTProtocolError):
                    await client.write_gatt_char(where, bytes(11), response=True)
            await asyncio.sleep(0.5)
        assert scene.life.radio.gatt.writes_refused == 0

    on_air(tmp_path, play, bonded_writes=True)


def test_pairing_is_accepted_while_it_is_open_and_the_bond_outlives_a_reboot(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with connected() as client:
            assert await pair(client)
            async with MoteLink(client) as mote:
                crc = await mote.change_filters({7: program(HOT, 7)})
        scene.mote.power_off()
        scene.mote.power_on()
        await asyncio.sleep(200)  # nobody may pair any longer
        async with connected() as client:
            assert await pair(client)  # which uses the bond
            async with MoteLink(client) as mote:
                assert (await mote.info()).table_crc == crc
                await mote.change_filters({}, [7])

    on_air(tmp_path, play, bonded_writes=True)


def test_pairing_is_refused_when_it_is_over_until_a_bonded_broker_opens_it(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci1")
        async with connected() as client:
            assert await pair(client)
        await asyncio.sleep(130)
        assert not await may_write("hci1")
        assert scene.life.radio._bonds.refused > 0
        async with connected() as client:
            assert await pair(client)
            async with MoteLink(client) as mote:
                await mote.open_pairing(60)
        assert await may_write("hci1")

    on_air(tmp_path, play, bonded_writes=True)


async def may_write(adapter: str) -> bool:
    """Whether a broker that pairs, or tries to, may then write."""
    client = BleakClient("C0:00:00:00:00:01", timeout=20.0, bluez={"adapter": adapter})
    await client.connect()
    try:
        await pair(client)
        async with MoteLink(client) as mote:
            await mote.control(ControlOp.PING)
    except LinkError:
        await client.unpair()
        return False
    await client.disconnect()
    return True


@pytest.mark.parametrize(("typed", "accepted"), [(123456, True), (123457, False)])
def test_with_a_passkey_only_who_knows_it_may_write(tmp_path: Path, typed: int, accepted: bool) -> None:
    async def play(scene: Scene) -> bool:
        keyboard(scene.broker, typed)
        return await may_write("hci0")

    assert on_air(tmp_path, play, bonded_writes=True, passkey=123456) == accepted


def test_without_the_passkey_pairing_alone_is_not_enough(tmp_path: Path) -> None:
    async def play(_: Scene) -> bool:
        return await may_write("hci0")  # a broker that can neither show nor type anything

    assert not on_air(tmp_path, play, bonded_writes=True, passkey=123456)
