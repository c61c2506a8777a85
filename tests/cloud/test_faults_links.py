"""Links that fall silent without ending, servers that stand still, and wills that come late."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import orjson
import pytest
from fault_kit import (
    ACK_PENDING,
    IN_FLIGHT,
    Listener,
    Source,
    Stand,
    Wire,
    loading,
    run,
    seed_of_today,
    standing,
    until,
)
from servers import HOST

from spinney.mqtt_codec import Will
from spinney_cloud.mqtt import MqttClient, Publish
from spinney_cloud.names import topic

pytestmark = pytest.mark.slow

KEEPALIVE_SECONDS = 1


async def away(client: httpx.AsyncClient, stand: Stand, broker: str) -> bool | None:
    """What the cloud says of a mobile broker; None: nothing."""
    found = (await client.get(f"{stand.http}/v1/brokers")).json()["brokers"]
    return next((bool(each["away"]) for each in found if each["broker"] == broker), None)


class MobileBroker:
    """Announces itself, with a will."""

    def __init__(self, port: int, name: str, session: str, client_id: str) -> None:
        self.name = name
        self.session = session
        will = Will(topic(name, "ann"), self._said(away=True))
        self.mqtt = MqttClient(HOST, port, client_id, clean=True, will=will, keepalive_seconds=KEEPALIVE_SECONDS)

    def _said(self, **more: Any) -> bytes:
        return orjson.dumps({"session": self.session, **more})

    def vanish(self) -> None:
        """Without a word, and for good."""
        self.mqtt.target = replace(self.mqtt.target, port=1)  # where nobody listens
        self.mqtt.abort()

    async def announce(self) -> None:
        await self.mqtt.start()
        source = {"name": "m7", "attributes": {"NO2": {"min": 0, "max": 400}}}
        await (await self.mqtt.publish(topic(self.name, "ann"), self._said(sources=[source], validity=600)))


async def is_away(client: httpx.AsyncClient, stand: Stand, broker: str, expected: bool) -> bool:
    return await away(client, stand, broker) is expected


def test_a_will_of_an_older_session_ends_nothing_and_that_of_the_current_one_does(tmp_path: Path) -> None:
    """The old link has fallen silent; its will comes when the server has waited for long enough."""

    async def test() -> None:
        wills: list[str] = []

        def hear(message: Publish) -> None:
            item = orjson.loads(message.payload)
            wills.extend([item["session"]] if item.get("away") else [])
            witness.ack(message)

        async with standing(tmp_path) as stand, Wire(stand.nats.mqtt_port) as wire, httpx.AsyncClient() as http:
            port = stand.nats.mqtt_port
            witness = MqttClient(HOST, port, "witness", clean=True, on_message=hear)
            await witness.start()
            await witness.subscribe("spinney/b1/ann")
            first = MobileBroker(wire.port, "b1", "s1", "b1-first")
            await first.announce()
            await until(lambda: is_away(http, stand, "b1", False), "b1 to be there")
            wire.fall_silent()
            wire.refuse()
            second = MobileBroker(port, "b1", "s2", "b1-second")
            await second.announce()
            await until(lambda: wills == ["s1"], "the late will")
            after = MobileBroker(port, "b2", "s1", "b2")
            await after.announce()
            await until(lambda: is_away(http, stand, "b2", False), "what came after the will to be dealt with")
            assert await away(http, stand, "b1") is False
            second.vanish()
            await until(lambda: wills == ["s1", "s2"], "the will")
            await until(lambda: is_away(http, stand, "b1", True), "b1 to be away")
            third = MobileBroker(port, "b1", "s3", "b1-third")
            await third.announce()
            await until(lambda: is_away(http, stand, "b1", False), "b1 to be back")
            for client in (first.mqtt, second.mqtt, third.mqtt, after.mqtt, witness):
                await client.close()

    run(test())


def test_links_of_clients_that_fall_silent_lose_nothing_and_delay_nobody(tmp_path: Path) -> None:
    async def test() -> None:
        async with standing(tmp_path) as stand, Wire(stand.nats.mqtt_port) as wire:
            port = stand.nats.mqtt_port
            kit = Source(wire.port, "kit", 1, keepalive_seconds=KEEPALIVE_SECONDS)
            lab = Source(port, "lab", 2)
            ana = Listener(wire.port, "ana", keepalive_seconds=KEEPALIVE_SECONDS)
            ben = Listener(port, "ben")
            for each in (ana, ben):
                await each.start()
                await each.subscribe("all", "x >= 0")
            for source in (kit, lab):
                await source.start()
            for _ in range(2):
                seen = len(ana.got)
                await until(lambda seen=seen: len(ana.got) > seen + 100, "notifications by the wire")  # type: ignore[misc]  # awaited at once
                wire.fall_silent()
                began, before = monotonic(), dict(lab.published)
                await until(lambda before=before: _has(ben, before), "what lab publishes to reach ben")  # type: ignore[misc]  # awaited at once
                assert monotonic() - began < 2.0
            for source in (kit, lab):
                await source.finish()
                assert source.told == source.published
            ids = {
                f"{name}:1:{n}"
                for one in (kit, lab)
                for name, last in one.published.items()
                for n in range(1, last + 1)
            }
            for each in (ana, ben):
                await until(lambda each=each: {one["publication"]["id"] for one in each.order} == ids, each.name)  # type: ignore[misc]  # awaited at once
            assert ben.repeated == 0
            assert wire.connections >= 2 + 2
            for each in (ana, ben):
                await each.mqtt.close()

    run(test())


def _has(listener: Listener, before: dict[str, int]) -> bool:
    """Whether it got something newer of each of these sources."""
    newest: dict[str, int] = {}
    for one in listener.order[-500:]:
        source, _, number = one["publication"]["id"].split(":")
        newest[source] = max(newest.get(source, 0), int(number))
    return all(newest.get(source, 0) > number for source, number in before.items())


def test_a_nats_server_that_stands_still_for_a_while_costs_nothing_but_time(tmp_path: Path) -> None:
    async def test() -> None:
        seed = seed_of_today()
        print(f"seed {seed}")
        async with standing(tmp_path) as stand, loading(stand, seed) as load:
            await load.goes_on()
            await asyncio.to_thread(stand.nats.pause)
            await asyncio.sleep(1.0)  # so long it stands still
            stand.nats.resume()
            await load.goes_on()
            judgement = await load.finish()
            judgement.check(load, IN_FLIGHT + ACK_PENDING)

    run(test())


@pytest.mark.soak
@pytest.mark.parametrize("which", ["nats", "mqtt", "both"])
def test_links_of_our_processes_that_fall_silent_are_made_anew(tmp_path: Path, which: str) -> None:
    """As soon as they hear nothing for longer than they must: 30 s and more at keepalives of 20 s."""

    async def test() -> None:
        seed = seed_of_today()
        print(f"seed {seed}")
        async with (
            Wire() as nats,
            Wire() as mqtt,
            standing(tmp_path, (nats, mqtt)) as stand,
            loading(stand, seed) as load,
        ):
            await load.goes_on()
            for number in range(3):
                began = monotonic()
                for wire in {"nats": (nats,), "mqtt": (mqtt,), "both": (nats, mqtt)}[which]:
                    wire.fall_silent()
                await load.goes_on()
                print(f"round {number}: goes on after {monotonic() - began:.1f} s")
            judgement = await load.finish()
            judgement.check(load, 3 * IN_FLIGHT)

    run(test(), 900.0)
