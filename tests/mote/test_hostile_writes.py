"""Hostile writes to a mote: the unchanged firmware on the virtual radio goes on, and its filters are what they were."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from functools import cache
from pathlib import Path

import pytest
from bleak import BleakClient
from bleak.exc import BleakError
from radio_kit import ADDRESS, HOT, LONG, OTHER, Scene, connected, linked, next_advert, on_air, program
from spinney_mote import gatt, upload, wire

from spinney.mote import advert, protocol
from spinney.mote.protocol import ControlOp, Info

CHARACTERISTICS = {
    "filters": protocol.FILTERS,
    "events": protocol.EVENTS,
    "info": protocol.INFO,
    "time": protocol.TIME,
    "control": protocol.CONTROL,
}
READ_ONLY = ("events", "info")
WRITES = 10_000
BETWEEN_ADVERTS = 100
ADVERT_SECONDS = 2.0
KEPT = 7
"""The filter that is there."""
INTERVAL_S = 0.0075
"""The shortest that BLE has between packets. A write and its answer take two, so the main loop looks at every write."""


def nonsense(chance: random.Random, where: str) -> bytes:
    """Random bytes, and what is almost right."""
    if where == "filters" and chance.random() < 0.7:
        return _filters(chance)
    if where == "control" and chance.random() < 0.7:
        op = chance.choice([one for one in ControlOp if one != ControlOp.REBOOT])
        return bytes([op, chance.randrange(256)]) + chance.randbytes(chance.choice([0, 1, 2, 4, 5, 9, 200]))
    if where == "time" and chance.random() < 0.7:
        return struct.pack("<q", chance.getrandbits(chance.randrange(64)) * chance.choice([1, 1, -1]))
    return chance.randbytes(chance.choice([0, 1, 2, 3, 8, 11, 20, 180, 244, 300, 512]))


def _filters(chance: random.Random) -> bytes:
    """A step of an upload, often damaged; a commit never has the CRC of what is staged."""
    number = chance.randrange(4)
    good = _program(number)
    op = chance.choice([1, 1, 1, 2, 3, 4, 5, chance.randrange(256)])
    wanted = chance.choice([number, number, number, KEPT, 65535])
    offset = chance.choice([0, 0, 0, len(good) // 2, chance.randrange(700)])
    size = chance.choice([len(good), len(good), chance.randrange(65536)])
    crc = chance.choice([protocol.program_crc(good), 0, chance.getrandbits(32)])
    chunk = bytearray(good[offset : offset + 180])
    if chunk and chance.random() < 0.5:
        chunk[chance.randrange(len(chunk))] ^= 1 << chance.randrange(8)
    if op == protocol.FilterOp.COMMIT:
        size, crc = chance.randrange(1, 9), chance.getrandbits(32)
    return struct.pack(wire.FILTER_HEAD, op, wanted, offset, size, crc) + bytes(chunk)


@cache
def _program(number: int) -> bytes:
    return program(LONG if number % 2 else HOT, number)


async def attack(scene: Scene, where: str, writes: int) -> int:
    """Writes nonsense, and hears the mote in between; how many writes were taken by the characteristic."""
    chance = random.Random(where)
    client = BleakClient(ADDRESS, timeout=20.0)
    taken = 0
    for number in range(1, writes + 1):
        if not client.is_connected:
            await client.connect()
        with contextlib.suppress(BleakError):
            await client.write_gatt_char(CHARACTERISTICS[where], nonsense(chance, where), response=True)
            taken += 1
        if number % BETWEEN_ADVERTS == 0:
            heard = await next_advert(ADVERT_SECONDS)
            advert.Advert.decode(heard.service_data[advert.BTHOME])
            assert scene.life.radio.gatt.writes_dropped == 0, "the mote looked at every write"
    await client.disconnect()
    return taken


@pytest.mark.slow
@pytest.mark.parametrize("where", CHARACTERISTICS)
def test_10_000_hostile_writes_change_no_filter_and_stop_no_advert(tmp_path: Path, where: str) -> None:
    async def play(scene: Scene) -> None:
        async with linked() as mote:
            crc = await mote.change_filters({KEPT: program(HOT, KEPT)})
        scene.air.interval_s = INTERVAL_S
        taken = await attack(scene, where, WRITES)
        assert taken == 0 if where in READ_ONLY else taken > 0.75 * WRITES
        scene.air.interval_s = 0.0
        await asyncio.sleep(upload.OWNER_MS / 1000)
        async with linked() as mote:
            info = await mote.info()
            assert info.table_crc == crc
            assert not info.last_crash, "a mote that restarts goes on, too"
            both = protocol.table_crc([program(HOT, KEPT), program(HOT, 8)])
            assert await mote.change_filters({8: program(HOT, 8)}) == both
            await mote.set_sampling(True)
            scene.readings["temperature"] = 30.0
            async for event in mote.events():
                assert event.filter_id in (KEPT, 8)
                break
        assert scene.mote.board is not None
        assert scene.mote.board.crash is None
        assert not [line for line in scene.mote.log if "Error" in line]

    on_air(tmp_path, play)


def test_a_flood_of_writes_is_bounded_and_counted_and_others_get_through(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci1")
        async with connected() as client, linked("hci1") as mote:
            for _ in range(30):  # faster than the main loop looks
                await client.write_gatt_char(protocol.CONTROL, bytes([ControlOp.PING, 0]), response=True)
            await mote.control(ControlOp.PING)
            assert scene.life.radio.gatt.writes_dropped >= 30 - gatt.MAX_WRITES_OF_ONE * 2
            assert Info.decode(bytes(await client.read_gatt_char(protocol.INFO))).writes_refused >= 20

    on_air(tmp_path, play)
