"""A whole broker and a mote that it keeps quiet: what is heard, taken and shown; and that keys stay where they are."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from motes_kit import ADDRESS, HOT, SOURCE, US, clock, living, until
from radio_kit import OTHER, Scene, connected, linked, on_air, pair
from test_motes_adverts import mode, samples, scanning

from spinney.mote import adverts as on_link
from spinney.mote.adverts import Mode
from spinney.mote.link import MoteLink
from spinney_mobile import listing, metrics, top
from spinney_mobile.broker import Broker
from spinney_mobile.motes import adverts
from spinney_mobile.outbox import Outbox
from spinney_mobile.settings import AcquireBle, Cloud, Devices, HomeAssistant, Motes, Settings


def play(folder: Path, scenario: Any, **settings: Any) -> None:
    (folder / "mote").mkdir()
    on_air(folder / "mote", scenario, **settings)


def of_mote(broker: Broker) -> dict[str, Any]:
    return next((dict(one.mote) for one in broker.status().sources if one.mote is not None), {})


def test_with_a_filter_of_ones_own_on_the_mote_a_plain_scanner_hears_no_measurement(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scanning(scene) as scanner, living(tmp_path / "data") as (broker, port):
            port.configured(US, {"hot": HOT})
            await until(lambda: of_mote(broker).get("adverts") == "presence", 300)
            await until(lambda: mode(scene) is Mode.PRESENCE)
            scene.readings["temperature"] = 24.0
            await samples(scene, 3)
            await until(lambda: not of_mote(broker)["connected"])
            scanner.readings.clear()
            taken = broker.taking.counts["sampled"]
            await samples(scene, 200)
            assert scanner.readings == []
            assert scanner.presences
            assert broker.taking.counts["sampled"] == taken
            assert SOURCE in broker.announcer, "it is heard all the same"
            scene.readings["temperature"] = 30.0
            await until(lambda: port.subscriptions.recent)
            assert scanner.readings == []

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "settings", [{"send": "all"}, {"home_assistant": HomeAssistant(url="mqtt://127.0.0.1:1")}], ids=["all", "home"]
)
def test_where_all_is_passed_on_nothing_is_lost_of_a_quiet_mote(tmp_path: Path, settings: dict[str, Any]) -> None:
    numbers: list[int] = []

    class Kept:
        def taken(self, taken: Any) -> None:
            numbers.append(taken.id.sequence)

    async def scenario(scene: Scene) -> None:
        async with scanning(scene) as scanner, living(tmp_path / "data", **settings) as (broker, _port):
            broker.taking.listeners.append(Kept())
            await until(lambda: len(numbers) > 5, 300)
            scanner.readings.clear()
            await until(lambda: len(numbers) >= 40, 600)
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert scanner.readings == []

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("motes", "file", "shown"),
    [
        (Motes(), {}, "advertises no readings"),
        (Motes(adverts="open"), {}, "advertises its readings"),
        (Motes(adverts="leave"), {}, "advertises its readings"),
        (Motes(), {"advert_mode": "open"}, f"advertises its readings ({adverts.FIXED})"),
        (Motes(adverts="encrypted"), {}, f"advertises no readings ({adverts.NO_KEY})"),
    ],
)
def test_what_a_mote_advertises_and_why_is_shown(
    tmp_path: Path, motes: Motes, file: dict[str, Any], shown: str
) -> None:
    async def scenario(_: Scene) -> None:
        async with living(tmp_path / "data", motes=motes) as (broker, port):
            port.configured(US, {"hot": HOT})
            await until(lambda: of_mote(broker).get("filters"), 300)
            await until(lambda: not of_mote(broker)["connected"], 300)
            status = broker.status().to_json()
            assert f"filters on it, {shown}\n" in listing.summary(status) + "\n"
            assert any(line.endswith(f"filters on it, {shown}") for line in top.motes(status))

    play(tmp_path, scenario, readings={"temperature": 24.0}, **file)


def test_a_brokers_motes_are_quiet_for_as_long_as_settings_say(tmp_path: Path) -> None:
    async def scenario(_: Scene) -> None:
        async with living(tmp_path / "data", motes=Motes(open_after=900.0)) as (broker, _port):
            await until(lambda: of_mote(broker).get("adverts") == "presence", 300)
            async with linked() as by_hand:
                assert (await on_link.state(by_hand)).open_after == 900

    play(tmp_path, scenario)


def test_the_battery_of_a_quiet_mote_is_its_own(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with living(tmp_path / "data") as (broker, port):
            port.configured(US, {"hot": HOT})
            await until(lambda: of_mote(broker).get("adverts") == "presence", 300)
            scene.mote.battery.drain(55.0)
            await until(lambda: broker.devices.battery(SOURCE) == 0.4, 300)
            scene.mote.battery.drain(10.0)
            await until(lambda: broker.devices.battery(SOURCE) == 0.3, 300)

    play(tmp_path, scenario, readings={"temperature": 24.0, "battery": 90.0})


def test_a_quiet_mote_that_lets_others_write_only_is_not_announced(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci9")
        async with connected("hci9") as owner:
            assert await pair(owner)
            async with MoteLink(owner) as link:
                await on_link.set_mode(link, Mode.PRESENCE, (await link.info()).table_crc)
        await asyncio.sleep(100.0)
        async with living(tmp_path / "data") as (broker, port):
            port.configured(US, {"hot": HOT})
            await until(lambda: SOURCE in broker.announcer, 300)
            await until(lambda: SOURCE not in broker.announcer, 1_000)
            for _ in range(20):
                await asyncio.sleep(100.0)
                assert SOURCE not in broker.announcer
            assert mode(scene) is Mode.PRESENCE

    play(tmp_path, scenario, bonded_writes=True, pairing_s=60, sample_interval_s=30)


# ---- encrypted


def without_gatt(folder: Path, **more: Any) -> Settings:
    """A broker that only listens: adverts are all that it has."""
    return Settings(name=US, cloud=Cloud(url=None), acquire=(AcquireBle(adapter="hci0"),), data=folder, **more)


def test_a_broker_with_the_key_takes_encrypted_readings_and_tells_the_key_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "bindkeys.toml"

    async def scenario(scene: Scene) -> None:
        await until(lambda: scene.mote.board is not None)
        await until(lambda: getattr(scene.life, "samples", 0) > 0)
        scene.life.key.renew()
        key = bytes(scene.life.key.key)
        file.write_text(f'[[device]]\naddress = "{ADDRESS}"\nbindkey = "{key.hex()}"\n')
        file.chmod(0o600)
        settings = without_gatt(tmp_path, send="all", devices=Devices(bindkeys=file))
        outbox = Outbox(tmp_path / "outbox", settings.outbox)
        outbox.open()
        broker = Broker(settings, outbox, clock=clock)
        running = asyncio.create_task(broker.run())
        await until(lambda: broker.taking.counts["sampled"] >= 20, 300)
        assert broker.latest(SOURCE) is not None
        assert broker.devices.counts["undecodable"] == 0
        status = broker.status()
        everything = [
            json.dumps(status.to_json()),
            metrics.render(status),
            json.dumps([one.to_json() for one in broker.devices.seen()]),
            listing.summary(status.to_json()),
            json.dumps(broker.announcer.body()),
            caplog.text,
            *(str(entry) for entry in outbox.log.entries()),
        ]
        # without it, it is said and counted, and nothing else happens
        await broker.configure(replace(settings, devices=Devices()))
        taken = broker.taking.counts["sampled"]
        await until(lambda: broker.devices.counts["no key"] > 5, 300)
        assert broker.taking.counts["sampled"] == taken
        (source,) = broker.status().sources
        assert "bindkey" in (source.error or "")
        await broker.configure(settings)
        await until(lambda: broker.taking.counts["sampled"] > taken, 300)
        broker.stop()
        await running
        outbox.close()
        everything += [caplog.text, *(_text(path) for path in (tmp_path / "outbox").rglob("*") if path.is_file())]
        assert not [text for text in everything if key.hex() in text.lower() or repr(key)[2:-1] in text]

    play(tmp_path, scenario, advert_mode="encrypted")


def _text(path: Path) -> str:
    return path.read_bytes().decode("latin-1")
