"""What is counted on the virtual air: adverts, their bytes and what they tell, scan responses, connections and GATT."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from bleak import BleakClient, BleakScanner
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData
from bleak.exc import BleakError
from radio_kit import ADDRESS, HOT, Scene, linked, on_air, program

from spinney.mote.advert import BTHOME
from spinney.mote.protocol import SERVICE
from spinney_tools.sim.sniffer import ENCRYPTED, OPEN, OTHER, PRESENCE, Sniffer, Traffic, told

FLAGS = bytes.fromhex("020106")


def bthome(content: str) -> bytes:
    data = bytes.fromhex("16d2fc" + content)
    return FLAGS + bytes([len(data)]) + data


def presence() -> bytes:
    service = bytes.fromhex(SERVICE.replace("-", ""))[::-1]
    data = b"\x21" + service + bytes(10)
    return FLAGS + bytes([len(data)]) + data


@pytest.mark.parametrize(
    ("data", "kind", "sample"),
    [
        (bthome("40000702c409"), OPEN, b"\x07"),
        (bthome("4002c409"), OPEN, bytes.fromhex("02c409")),
        (bthome("400007"), OPEN, None),
        (bthome("41aabbccdd01000000deadbeef"), ENCRYPTED, bytes.fromhex("01000000")),
        (presence(), PRESENCE, None),
        (FLAGS, OTHER, None),
        (bytes.fromhex("02010605ff99040102"), OTHER, None),
        (b"", OTHER, None),
        (b"\x05\x16", OTHER, None),
    ],
)
def test_an_advert_is_known_by_its_bytes(data: bytes, kind: str, sample: bytes | None) -> None:
    assert told(data) == (kind, sample)


def test_a_sample_counts_once_however_often_it_is_repeated() -> None:
    sniffer = Sniffer()
    for content in ("40000702c409", "40000702c409", "40000802c409", "400009"):
        sniffer.advert("m", bthome(content))
    sniffer.advert("m", presence())
    found = sniffer.of("m")
    assert (found.adverts, found.kinds, found.readings) == (5, {OPEN: 4, PRESENCE: 1}, {OPEN: 2})
    assert found.advert_bytes == 4 * 13 - 3 + 31
    both = found + Traffic(adverts=2, kinds=found.kinds)
    assert (both.adverts, both.kinds[OPEN]) == (7, 8)
    assert sniffer.of("other").counts()["adverts"] == 0


def test_the_sniffer_counts_what_a_plain_scanner_hears(tmp_path: Path) -> None:
    """In `open` each reading is on the air, whatever a filter holds back."""

    async def play(scene: Scene) -> None:
        async with linked() as mote:
            await mote.change_filters({7: program(HOT, 7)})
        traffic, heard, samples = scene.mote.radio.traffic, 0, set()
        adverts, readings, responses = traffic.adverts, traffic.readings[OPEN], traffic.scan_responses
        taken = scene.mote.battery.ledger.samples

        def hear(device: BLEDevice, data: AdvertisementData) -> None:
            nonlocal heard
            if device.address == ADDRESS and BTHOME in data.service_data:
                heard += 1
                samples.add(data.service_data[BTHOME][2])

        async with BleakScanner(hear):
            await asyncio.sleep(60)
        assert abs(traffic.readings[OPEN] - readings - len(samples)) <= 1, "the first may have been on the air before"
        assert abs(scene.mote.battery.ledger.samples - taken - len(samples)) <= 1
        assert len(samples) >= 59
        assert traffic.scan_responses - responses == traffic.adverts - adverts > 200
        assert heard == traffic.adverts - adverts
        async with linked() as mote:
            info = await mote.info()
            assert info.next_event - info.first_event == 1, "its first bit; the filter holds all else back"

    on_air(tmp_path, play)


def test_connections_and_their_bytes_are_counted_for_both_sides(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        mote, broker = scene.mote.radio.traffic, scene.broker.traffic
        async with linked() as link:
            await link.info()
            await asyncio.sleep(3)
        await asyncio.sleep(1)
        assert mote.connections == 1
        assert broker.connections == 0
        assert mote.connected_s == pytest.approx(3.0, abs=0.5)
        assert mote.sent_bytes == broker.received_bytes > 100
        assert mote.received_bytes == broker.sent_bytes > 20
        assert mote.sent_packets == broker.received_packets > 3
        assert scene.air.counts["data bytes"] == mote.sent_bytes + broker.sent_bytes

    on_air(tmp_path, play)


def test_a_mote_does_not_answer_who_has_not_told_it_yet_that_the_last_connection_is_over(tmp_path: Path) -> None:
    """The end of a connection needs an interval to arrive; a mote that took another one would keep it for ever."""

    async def play(scene: Scene) -> None:
        scene.air.interval_s = 0.5
        client = BleakClient(ADDRESS)
        await client.connect()
        await client.disconnect()
        with contextlib.suppress(BleakError, TimeoutError):
            await BleakClient(ADDRESS, timeout=5.0).connect()
        await asyncio.sleep(30)
        board = scene.mote.board
        assert board is not None
        assert bool(scene.mote.radio.controller.le_connections) == bool(scene.mote.radio.device.connections) is False
        scene.air.interval_s = 0.0
        async with linked() as link:
            await link.info()

    on_air(tmp_path, play)
