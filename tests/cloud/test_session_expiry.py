"""Subscribers' sessions at nats-server that nobody uses end after a day, and their clients are told what was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_kit import cloud
from delivery_kit import Bench, Subscriber, bench, match, until
from servers import HOST, NatsServer
from stand_in import wait_until

import spinney.client
from spinney_cloud import session_expiry
from spinney_cloud.mqtt import MqttClient, Publish
from spinney_cloud.names import SESSIONS
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.service import Endpoints, Service
from spinney_cloud.session_expiry import SessionExpiry

DAY = 24 * 3600.0


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


class Expiry:
    """The expiry, on a clock of the test's."""

    def __init__(self, on: Bench, log: NatsLog, client: MqttClient) -> None:
        self.now = 1_000.0
        service = Service("delivery", on.settings, on.endpoints)
        self.expiry = SessionExpiry(service, log, client, clock=lambda: self.now)

    async def look(self, later: float = 0.0) -> dict[str, dict[str, Any]]:
        """What is known of each client's session after a look so much later."""
        self.now += later
        await self.expiry.look()
        return {one["client"]: one for one in self.expiry.list(None, "", 100)}

    async def until_away(self, client: str) -> None:
        """The server may need a moment to see that a client has gone."""
        async with asyncio.timeout(40):
            while (await self.look()).get(client, {}).get("connected", True):
                pass


@asynccontextmanager
async def expiry(on: Bench, port: int) -> AsyncIterator[Expiry]:
    client = MqttClient(HOST, port, "delivery", clean=True)
    await client.start()
    try:
        yield Expiry(on, on.log, client)
    finally:
        await client.close()


async def session_is_there(port: int, client_id: str) -> bool:
    client = MqttClient(HOST, port, client_id)
    await client.start()
    await client.close()
    return client.session_present


async def left(port: int, owner: str, *filters: str) -> None:
    """A client that was there once."""
    client = MqttClient(HOST, port, owner)
    await client.start()
    await client.subscribe(filters or (f"spinney/{owner}/note/+",))
    await client.close()


def test_a_session_that_is_away_for_longer_than_the_setting_is_ended_and_a_used_one_stays(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, expiry(on, nats.mqtt_port) as at:
            await left(nats.mqtt_port, "away")
            here = await Subscriber(nats.mqtt_port, "here").start()
            async with on.delivery():
                await on.subscribe("away")
                await on.tell(match("away", number=1), match("away", number=2))
                await at.until_away("away")
                while (known := await at.look())["away"]["waiting"] < 2:
                    pass
            assert [known[name]["connected"] for name in ("away", "here")] == [False, True]
            known = await at.look(DAY - 1)
            assert known["away"]["ended"] is None
            known = await at.look(2)
            assert known["away"]["ended"] is not None
            assert known["away"]["lost"] == 2
            assert known["here"]["connected"]
            assert at.expiry.expired == 1
            assert not await session_is_there(nats.mqtt_port, "away")
            await here.close()
            assert await session_is_there(nats.mqtt_port, "here")

    run(scenario())


def test_whoever_comes_back_in_time_begins_anew(nats: NatsServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, expiry(on, nats.mqtt_port) as at:
            await left(nats.mqtt_port, "ana")
            await at.until_away("ana")
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            assert (await at.look(DAY - 1))["ana"]["connected"]
            await ana.close()
            await at.until_away("ana")
            assert (await at.look(DAY - 1))["ana"]["ended"] is None
            assert (await at.look(2))["ana"]["ended"] is not None

    run(scenario())


def test_how_long_a_session_is_away_is_known_after_a_restart(nats: NatsServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on:
            await left(nats.mqtt_port, "ana")
            async with expiry(on, nats.mqtt_port) as at:
                await at.until_away("ana")
            (key,) = [key async for key, _, _ in on.log.bucket(SESSIONS).each()]
            entry = await on.log.bucket(SESSIONS).get(key)
            assert entry is not None
            record = orjson.loads(entry.value)
            record["away_since"] -= DAY + 1
            await on.log.bucket(SESSIONS).put(key, orjson.dumps(record))
            async with expiry(on, nats.mqtt_port) as at:
                await at.expiry._load()
                assert (await at.look())["ana"]["ended"] is not None

    run(scenario())


def test_a_session_that_hears_more_than_notifications_is_left_alone(nats: NatsServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, expiry(on, nats.mqtt_port) as at:
            await left(nats.mqtt_port, "pi", "spinney/pi/act", "spinney/pi/note/+")
            await left(nats.mqtt_port, "kit", "spinney/kit/pub")
            await left(nats.mqtt_port, "all", "spinney/+/note/+")
            assert await at.look() == {}
            assert await at.look(2 * DAY) == {}
            assert await session_is_there(nats.mqtt_port, "pi")

    run(scenario())


def test_a_session_that_ends_by_itself_is_forgotten(nats: NatsServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, expiry(on, nats.mqtt_port) as at:
            await left(nats.mqtt_port, "ana")
            assert "ana" in await at.look()
            clean = MqttClient(HOST, nats.mqtt_port, "ana", clean=True)
            await clean.start()
            await clean.close()
            assert await at.look() == {}
            assert [value async for _, value, _ in on.log.bucket(SESSIONS).each() if value is not None] == []

    run(scenario())


def test_its_client_is_told_once_how_much_was_lost(nats: NatsServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, expiry(on, nats.mqtt_port) as at:
            await left(nats.mqtt_port, "ana")
            await at.until_away("ana")
            assert (await at.look(DAY + 1))["ana"]["ended"] is not None
            heard: list[dict[str, Any]] = []
            ana = MqttClient(HOST, nats.mqtt_port, "ana", on_message=lambda m: _take(ana, heard, m))
            await ana.start()
            await ana.subscribe(["spinney/ana/note/+"])
            await ana.subscribe(["spinney/ana/reply"], 0)
            await at.look()
            await until(lambda: bool(heard))
            assert heard[0]["session_expired"]["lost"] == 0
            assert heard[0]["session_expired"]["session"] == session_expiry.fingerprint("ana")
            await at.look()
            await at.look()
            await (await ana.publish("spinney/ana/reply", b"{}"))
            await until(lambda: {} in heard)
            assert len([one for one in heard if one]) == 1
            await ana.close()

    run(scenario())


def _take(client: MqttClient, heard: list[dict[str, Any]], message: Publish) -> None:
    heard.append(orjson.loads(message.payload))
    client.ack(message)


def test_no_more_ended_sessions_are_kept_than_there_is_room_for(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_expiry, "MAX_ENDED", 1)

    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, expiry(on, nats.mqtt_port) as at:
            await left(nats.mqtt_port, "ana")
            await at.until_away("ana")
            await at.look(DAY + 1)
            await left(nats.mqtt_port, "bob")
            await at.until_away("bob")
            assert set(await at.look(DAY + 1)) == {"bob"}

    run(scenario())


def test_a_subscriber_is_told_what_its_session_lost(nats: NatsServer, tmp_path: Path) -> None:
    def ana() -> spinney.client.Subscriber:
        server = f"mqtt://{HOST}:{nats.mqtt_port}"
        return spinney.client.Subscriber("ana", server=server, state=tmp_path / "state", program="report.py")

    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, expiry(on, nats.mqtt_port) as at:
            with await asyncio.to_thread(ana().connect):
                await on.subscribe("ana")
            async with on.delivery():
                await on.tell(match("ana", number=1), match("ana", number=2))
                await at.until_away("ana")
                while (await at.look())["ana"]["waiting"] < 2:
                    pass
            assert (await at.look(DAY + 1))["ana"]["lost"] == 2
            with await asyncio.to_thread(ana().connect) as back:
                await until(lambda: back.counts.sessions_lost == 1)
                await at.look()
                await until(lambda: back.counts.lost == 2)

    run(scenario())


def test_sessions_are_listed_for_their_clients_and_for_operators(tmp_path: Path) -> None:
    with cloud(tmp_path) as running:
        asyncio.run(left(running.nats.mqtt_port, "ana"))
        asyncio.run(left(running.nats.mqtt_port, "bob"))
        running.start("delivery", "http")
        with running.client() as http:
            wait_until(lambda: len(http.get("/v1/sessions").json()["sessions"]) == 2)
            first = http.get("/v1/sessions?limit=1").json()
            second = http.get("/v1/sessions", params={"limit": 1, "after": first["next"]}).json()
            found = first["sessions"] + second["sessions"]
            assert {one["client"] for one in found} == {"ana", "bob"}
            assert all(one["away_since"] and not one["connected"] and one["waiting"] == 0 for one in found)
            alone = {"client": None, "after": "", "limit": 100}
            assert len(asked(running.endpoints, alone)) == 2
            assert [one["client"] for one in asked(running.endpoints, {**alone, "client": "bob"})] == ["bob"]


def asked(endpoints: Endpoints, question: dict[str, Any]) -> list[dict[str, Any]]:
    """What delivery answers."""

    async def ask() -> list[dict[str, Any]]:
        async with await NatsLog.connect(endpoints, name="test") as log:
            answer = orjson.loads(await log.ask("delivery", "sessions", orjson.dumps(question)))
            sessions: list[dict[str, Any]] = answer["sessions"]
            return sessions

    return asyncio.run(ask())
