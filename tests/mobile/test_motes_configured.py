"""Other settings of devices while it runs (SIGHUP): a mote is called, placed, described and taken as they say now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from motes_kit import ADDRESS, SOURCE, US, living, programs, until
from radio_kit import Scene, on_air

from spinney_mobile.broker import Broker
from spinney_mobile.local import LocalPort
from spinney_mobile.settings import Device, Place

ATTIC = Device(address=ADDRESS, name="attic", attributes={"room": "attic"}, rename={"temperature": "temp"})
HERE = Place(kind="fixed", lat=45.8, long=15.9)


def play(folder: Path, scenario: Callable[[Scene, Broker, LocalPort], Awaitable[None]], *listed: Device) -> None:
    async def living_on(scene: Scene) -> None:
        async with living(folder / "data", device=listed, place=HERE) as (broker, port):
            await scenario(scene, broker, port)

    (folder / "mote").mkdir()
    on_air(folder / "mote", living_on, readings={"temperature": 30.0})


async def configure(broker: Broker, *listed: Device) -> None:
    await broker.configure(replace(broker.settings, device=listed))


def told(port: LocalPort, name: str) -> list[object]:
    notes = [one for one in port.subscriptions.recent if one["sid"] == "s"]
    return [note["publication"].get(name) for note in notes]


def test_a_mote_gets_another_name_other_attributes_and_a_place(tmp_path: Path) -> None:
    async def scenario(scene: Scene, broker: Broker, port: LocalPort) -> None:
        port.configured(US, {"s": "temperature > 25"})
        await until(lambda: programs(scene) and told(port, "source")[:1] == [SOURCE], 300)
        await configure(broker, replace(ATTIC, lat=46.0, long=16.0))
        port.configured(US, {"s": "temp > 25 AND room = 'attic' AND lat = 46 AND source = 'attic'"})
        await until(lambda: "attic" in told(port, "source"), 300)
        await until(lambda: broker.announcer.sources == ["attic"], 300)
        assert broker.latest(SOURCE) is None
        status = {one.name: one for one in broker.status().sources}["attic"]
        assert status.on_mote == 0, "content filters have no bits"
        await until(lambda: programs(scene), 300)
        assert broker.status().counts["weak_hits"] == 0, "all of it is decided on the mote"

    play(tmp_path, scenario)


def test_filters_on_a_mote_follow_the_attributes_that_settings_give_it(tmp_path: Path) -> None:
    async def scenario(scene: Scene, broker: Broker, port: LocalPort) -> None:
        port.configured(US, {"s": "WHEN temp > 25 UNTIL temp <= 22 FOR room = 'attic'"})
        await until(lambda: told(port, "room") == ["attic"], 300)
        await configure(broker, replace(ATTIC, attributes={"room": "hall"}))
        await until(lambda: not programs(scene), 1000)
        await configure(broker, ATTIC)
        await until(lambda: programs(scene), 1000)
        scene.readings["temperature"] = 20.0
        await until(lambda: len(told(port, "room")) == 2, 1000)
        assert [note["why"] for note in port.subscriptions.recent] == ["exit", "enter"]

    play(tmp_path, scenario, ATTIC)


def test_of_a_mote_that_is_not_allowed_any_more_nothing_is_taken_until_it_is_again(tmp_path: Path) -> None:
    async def scenario(scene: Scene, broker: Broker, port: LocalPort) -> None:
        port.configured(US, {"s": "temp > 0"})
        await until(lambda: told(port, "temp"), 300)
        await configure(broker, replace(ATTIC, allow=False))
        await until(lambda: broker.announcer.sources == [], 300)
        sampled, samples = broker.taking.counts["sampled"], scene.life.samples
        await until(lambda: scene.life.samples > samples + 20, 300)
        assert broker.taking.counts["sampled"] == sampled
        assert broker.status().sources == []
        await configure(broker, ATTIC)
        await until(lambda: broker.taking.counts["sampled"] > sampled, 300)
        assert broker.announcer.sources == ["attic"]

    play(tmp_path, scenario, ATTIC)


def test_settings_of_other_devices_leave_a_mote_and_its_connection_alone(tmp_path: Path) -> None:
    async def scenario(scene: Scene, broker: Broker, port: LocalPort) -> None:
        port.configured(US, {"s": "temp > 0"})
        await until(lambda: told(port, "temp"), 300)
        connections = broker.pushing.counts()["connections"]
        await configure(broker, ATTIC, Device(address="AA:BB:CC:DD:EE:01", name="other"))
        samples = scene.life.samples
        await until(lambda: scene.life.samples > samples + 20, 300)
        assert broker.pushing.counts()["connections"] == connections
        assert broker.announcer.sources == ["attic"]

    play(tmp_path, scenario, ATTIC)
