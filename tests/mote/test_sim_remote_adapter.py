"""An adapter of the virtual radio whose host is elsewhere: bleak works as on one's own, and is told when it is gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from bleak import BleakClient, BleakScanner
from bleak.exc import BleakError
from radio_kit import ADDRESS, BROKER, Scene

from spinney.mote.link import MoteLink
from spinney_tools.sim.remote_adapter import ServedRadio, install, serve

WAIT_SECONDS = 60.0


async def until(event: asyncio.Event) -> None:
    """At most a minute."""
    async with asyncio.timeout(WAIT_SECONDS):
        await event.wait()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hci"


def scene_of(folder: Path) -> Scene:
    folder.mkdir()
    scene = Scene(folder, {"temperature": 21.5}, {})
    scene.mote.power_on()
    return scene


def test_a_mote_is_heard_and_connected_to_over_an_adapter_of_another_process(tmp_path: Path, path: Path) -> None:
    async def run() -> str:
        scene = scene_of(tmp_path / "mote")
        counts: Counter[str] = Counter()
        heard = asyncio.Event()
        async with serve(ServedRadio(scene.air, "hci0", BROKER), path, counts):
            with install(path, BROKER, lambda: None):
                async with BleakScanner(lambda device, _: heard.set() if device.address == ADDRESS else None):
                    await until(heard)
                async with BleakClient(ADDRESS) as client, MoteLink(client) as link:
                    info = await link.info()
        scene.mote.power_off()
        assert counts["hosts"] == 1
        return info.name

    assert asyncio.run(run()) == "hut"


def test_an_adapter_that_is_not_there_is_an_error_of_bleaks(path: Path) -> None:
    async def run() -> None:
        with install(path, BROKER, lambda: None), pytest.raises(BleakError, match="no such adapter"):
            await BleakScanner().start()

    asyncio.run(run())


def test_a_host_that_reads_nothing_misses_adverts_and_is_unplugged_in_the_end(tmp_path: Path, path: Path) -> None:
    async def run() -> Counter[str]:
        scene = scene_of(tmp_path / "mote")
        counts: Counter[str] = Counter()
        radio = ServedRadio(scene.air, "hci0", BROKER)
        async with serve(radio, path, counts):
            reader, writer = await asyncio.open_unix_connection(path)
            async with asyncio.timeout(WAIT_SECONDS):
                while not radio.is_on:
                    await asyncio.sleep(0)
                host = radio.controller.host
                report, other = b"\x04\x3e\xff\x02" + bytes(252), b"\x04\x0e\xff" + bytes(253)
                while not counts["dropped reports"]:
                    host.on_packet(report)
                while not counts["unplugged hosts"]:
                    host.on_packet(other)
                while radio.is_on:
                    await asyncio.sleep(0)
            writer.close()
            del reader
        scene.mote.power_off()
        return counts

    assert asyncio.run(run())["unplugged hosts"] == 1


def test_an_adapter_has_one_host_at_a_time_and_the_next_finds_it_as_new(tmp_path: Path, path: Path) -> None:
    async def run() -> Counter[str]:
        scene = scene_of(tmp_path / "mote")
        counts: Counter[str] = Counter()
        lost = asyncio.Event()
        radio = ServedRadio(scene.air, "hci0", BROKER)
        async with serve(radio, path, counts):
            with install(path, BROKER, lost.set):
                await BleakScanner().start()
                _, second = await asyncio.open_unix_connection(path)
                async with asyncio.timeout(WAIT_SECONDS):
                    while not counts["refused hosts"]:
                        await asyncio.sleep(0)
                second.close()
                assert radio.is_on
                radio.controller.host.close()
                await until(lost)
            assert not radio.is_on
            with install(path, BROKER, lambda: None):
                heard = asyncio.Event()
                async with BleakScanner(lambda _device, _data: heard.set()):
                    await until(heard)
        scene.mote.power_off()
        return counts

    assert asyncio.run(run()) == {"hosts": 2, "refused hosts": 1}
