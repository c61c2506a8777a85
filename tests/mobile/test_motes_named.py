"""Settings by name, where only passive scanners hear: the unchanged firmware in presence mode, and whole brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from motes_kit import ADDRESS, SOURCE, US, another, living, until
from radio_kit import OTHER, Scene, on_air
from test_mote_names import ALIKE

from spinney_mobile.broker import Broker
from spinney_mobile.local import LocalPort
from spinney_mobile.mote_names import SILENT_SECONDS
from spinney_mobile.settings import AcquireBle, AcquireMotes, Device, Devices

Running = tuple[Broker, LocalPort]
WARM = "temperature > 25"
TWO = "C0:00:00:00:00:02"
PASSIVE = (AcquireBle(adapter="hci0", mode="passive"), AcquireMotes(adapter="hci0"))
QUIET = {"advert_mode": "presence", "readings": {"temperature": 30.0}}
KNOWN = Devices()
LISTED = Devices(allow="listed")


def play(folder: Path, scenario: Callable[[Scene], Awaitable[None]], **settings: Any) -> None:
    (folder / "mote").mkdir()
    on_air(folder / "mote", scenario, **{**QUIET, **settings})


@asynccontextmanager
async def broker(folder: Path, *listed: Device, devices: Devices = KNOWN, **more: Any) -> AsyncIterator[Running]:
    """One that hears passively, and to whom a subscription was given."""
    settings = {"device": listed, "devices": devices, "acquire": PASSIVE, **more}
    async with living(folder / "data", **settings) as (found, port):
        port.configured(US, {"warm": WARM})
        yield found, port


def sources(port: LocalPort) -> set[str]:
    return {note["publication"]["source"] for note in port.subscriptions.recent}


def connections(broker: Broker) -> int:
    return broker.pushing.counts().get("connections", 0)


def conflicts(broker: Broker) -> int:
    return broker.devices.counts["name conflicts"]


@pytest.mark.parametrize("patterns", [("hut",), ("box", "hut"), (ADDRESS,)])
def test_a_mote_that_settings_allow_by_its_whole_name_is_taken(tmp_path: Path, patterns: tuple[str, ...]) -> None:
    async def scenario(_: Scene) -> None:
        async with broker(tmp_path, devices=Devices(allow="listed", patterns=patterns)) as (_broker, port):
            await until(lambda: sources(port) == {SOURCE}, 300)

    play(tmp_path, scenario)


@pytest.mark.parametrize("patterns", [("hu*",), ("box",)])
def test_a_mote_that_settings_do_not_name_is_not_connected_to(tmp_path: Path, patterns: tuple[str, ...]) -> None:
    async def scenario(scene: Scene) -> None:
        async with broker(tmp_path, devices=Devices(allow="listed", patterns=patterns)) as (found, port):
            await until(lambda: scene.mote.board is not None and scene.life.samples > 600, 1_000)
            assert found.devices.counts["presence"] > 0, "it is heard"
            assert (connections(found), sources(port)) == (0, set())

    play(tmp_path, scenario)


def test_a_device_by_name_gives_its_mote_a_source_and_attributes(tmp_path: Path) -> None:
    hut = Device(mote="hut", name="attic", attributes={"room": "attic"})

    async def scenario(_: Scene) -> None:
        async with broker(tmp_path, hut, devices=LISTED) as (found, port):
            await until(lambda: port.subscriptions.recent, 300)
            assert sources(port) == {"attic"}
            assert {note["publication"]["room"] for note in port.subscriptions.recent} == {"attic"}
            assert found.announcer.sources == ["attic"]
            assert conflicts(found) == 0

    play(tmp_path, scenario)


def test_a_mote_that_is_denied_by_name_is_not_connected_to_and_settings_may_change(tmp_path: Path) -> None:
    denied = Device(mote="hut", allow=False)

    async def scenario(_: Scene) -> None:
        async with broker(tmp_path, denied) as (found, port):
            await until(lambda: found.devices.counts["presence"] > 100, 10_000)
            (seen,) = found.devices.seen()
            assert (seen.name, seen.allowed) == ("hut", False)
            assert (connections(found), found.announcer.sources) == (0, [])
            await configure(found)
            await until(lambda: sources(port) == {SOURCE}, 300)
            await configure(found, denied)
            before = connections(found)
            await until(lambda: found.announcer.sources == [], 300)
            presence = found.devices.counts["presence"]
            await until(lambda: found.devices.counts["presence"] > presence + 100, 10_000)
            assert connections(found) == before
            assert found.pushing.health(SOURCE) is None

    play(tmp_path, scenario, sample_interval_s=30, advert_interval_ms=1000)


@pytest.mark.parametrize("scan", ["active", "passive"])
def test_a_denied_mote_that_advertises_readings_is_known_by_its_scan_response_or_asked_once(
    tmp_path: Path, scan: Any
) -> None:
    acquire = (AcquireBle(adapter="hci0", mode=scan), AcquireMotes(adapter="hci1", addresses=(ADDRESS,)))
    asked = 0 if scan == "active" else 1

    async def scenario(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci1")
        for expected in (asked, 0):
            async with broker(tmp_path, Device(mote="hut", allow=False), acquire=acquire) as (found, port):
                await until(lambda: [one.allowed for one in found.devices.seen()] == [False], 300)
                sampled = found.taking.counts["sampled"]
                await until(lambda: found.devices.counts["heard"] > 1_000, 10_000)
                assert connections(found) == expected
                assert found.taking.counts["sampled"] == sampled == 0
                assert sources(port) == set()

    play(tmp_path, scenario, advert_mode="open", sample_interval_s=10)


async def configure(broker: Broker, *listed: Device) -> None:
    await broker.configure(replace(broker.settings, device=listed))


def described(broker: Broker) -> set[str]:
    """The sources of which it is known what they measure."""
    return {one.name for one in broker.status().sources if one.units}


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("dialler", ["hci0", "hci1"])
def test_a_mote_that_turns_out_to_have_another_name_is_that_one(
    tmp_path: Path, dialler: str, listed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its name has the CRC of one in settings. If only that is allowed, it is connected to once, and never again.

    The adapter that dials scans actively then: it hears the name unless it is another than the one that listens.
    """
    hut = Device(mote=ALIKE[0], name="attic")
    devices = LISTED if listed else KNOWN
    acquire = (PASSIVE[0], AcquireMotes(adapter=dialler))

    async def scenario(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci1")
        async with broker(tmp_path, hut, devices=devices, acquire=acquire) as (found, port):
            await until(lambda: conflicts(found) == 1, 300)
            assert "attic" not in described(found), "what it measures is not told of another"
            await until(lambda: not scene.life.radio.busy, 10)
            if not listed:
                await until(lambda: sources(port) == {SOURCE}, 300)
            before = connections(found)
            await asyncio.sleep(400.0)
            assert conflicts(found) == 1
            assert sources(port) == (set() if listed else {SOURCE})
            if listed:
                assert (before, connections(found)) == (1, 1)
                assert not scene.life.clock.is_set, "nothing was written to it"
        async with broker(tmp_path, hut, devices=devices, acquire=acquire) as (found, port):
            await asyncio.sleep(400.0)
            assert conflicts(found) == 0, "what it said is known"
            assert "attic" not in sources(port)
            assert "attic" not in found.announcer.sources
            assert (connections(found) == 0) == listed

    play(tmp_path, scenario, name=ALIKE[1], sample_interval_s=30, advert_interval_ms=1000)
    warnings = [one.getMessage() for one in caplog.records if ALIKE[1] in one.getMessage()]
    assert len(warnings) == 1


def test_a_mote_whose_name_was_known_before_is_known_by_its_address_for_patterns_too(tmp_path: Path) -> None:
    devices = Devices(allow="listed", patterns=("hu*",))
    active = (AcquireBle(adapter="hci0"), AcquireMotes(adapter="hci0"))

    async def scenario(_: Scene) -> None:
        async with broker(tmp_path, devices=devices, acquire=active) as (_broker, port):
            await until(lambda: sources(port) == {SOURCE}, 300)
        async with broker(tmp_path, devices=devices) as (found, port):
            await until(lambda: found.pushing.health(SOURCE), 300)
            await until(lambda: found.taking.counts["sampled"] > 0, 300)

    play(tmp_path, scenario)


def test_a_mote_with_another_address_is_the_same_by_its_name_once_the_one_before_is_silent(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        slow = {"sample_interval_s": 30, "advert_interval_ms": 1000}
        other = another(scene, tmp_path / "2", 2, scene.readings, name="hut", advert_mode="presence", **slow)
        async with broker(tmp_path, Device(mote="hut", name="attic")) as (found, port):
            await until(lambda: sources(port) == {"attic"}, 300)
            other.power_on()
            await until(lambda: conflicts(found) == 1, 300)
            await asyncio.sleep(2 * SILENT_SECONDS)
            assert found.pushing.health("attic") is not None
            assert held(found) == ADDRESS, "two with one name: the first is taken, and it is said once"
            assert conflicts(found) == 1
            scene.mote.power_off()
            await until(lambda: held(found) == TWO, 2 * SILENT_SECONDS)
            taken = found.taking.counts["sampled"]
            await until(lambda: found.taking.counts["sampled"] > taken, 600)
            assert sources(port) == {"attic"}
        other.power_off()

    play(tmp_path, scenario, sample_interval_s=30, advert_interval_ms=1000)


def held(broker: Broker) -> str | None:
    """The address of the mote that is the source attic."""
    health = broker.pushing.health("attic")
    return None if health is None else str(health["address"])
