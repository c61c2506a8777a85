"""Topics of local devices, from a real server: mapped by paths, retained values left out, back after a restart."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from hearing_kit import DEADLINE_SECONDS, NOW, Kept, until
from paho.mqtt.enums import CallbackAPIVersion
from servers import HOST, MosquittoServer, free_ports

from spinney_mobile.acquire import Acquirers, make
from spinney_mobile.acquire.json_path import path, template
from spinney_mobile.acquire.mqtt import MqttTopics
from spinney_mobile.sample_time import read_time
from spinney_mobile.samples import MAX_HEARD_BYTES, AcquirerError
from spinney_mobile.settings import AcquireMqtt, MqttTopic

LAMP = MqttTopic(topic="zigbee2mqtt/+", source="{topic[1]}", values={"temp": "$.climate.temp", "open": "$.contact"})


class Publisher:
    def __init__(self, port: int) -> None:
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        self._client.connect(HOST, port)
        self._client.loop_start()

    def publish(self, topic: str, payload: Any, retain: bool = False) -> None:
        text = payload if isinstance(payload, str | bytes) else json.dumps(payload)
        self._client.publish(topic, text, qos=1, retain=retain).wait_for_publish(60)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def heard_from(
    server: MosquittoServer,
    topics: tuple[MqttTopic, ...],
    play: Callable[[Kept, MqttTopics, Publisher], Awaitable[None]],
    before: Callable[[Publisher], None] = lambda _publisher: None,
) -> Kept:
    async def main() -> Kept:
        kept, publisher = Kept(), Publisher(server.port)
        before(publisher)
        settings = AcquireMqtt(url=f"mqtt://{HOST}:{server.port}", topics=(*topics, MqttTopic(topic="ready")))
        acquirer = MqttTopics("mqtt", settings, lambda: NOW)
        try:
            async with Acquirers(kept) as acquirers:
                acquirers.add(acquirer)
                await ready(kept, publisher)
                await play(kept, acquirer, publisher)
        finally:
            publisher.close()
        return kept

    return asyncio.run(main())


_numbers = itertools.count(1)


async def ready(kept: Kept, publisher: Publisher) -> None:
    """Until what is published is heard. Each call knows its own messages: one of an earlier call may still come."""
    number = next(_numbers)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not any((heard.values or {}).get("ready") == number for heard in kept.heards):
            await asyncio.to_thread(publisher.publish, "ready", number)


def found(kept: Kept) -> list[tuple[str, Any]]:
    return [(heard.address, dict(heard.values or {})) for heard in kept.heards if heard.address != "ready"]


def test_messages_are_mapped_by_paths(mosquitto: MosquittoServer) -> None:
    async def play(kept: Kept, acquirer: MqttTopics, publisher: Publisher) -> None:
        publisher.publish("zigbee2mqtt/lamp", {"climate": {"temp": 21.5}, "contact": True, "rest": [1]})
        publisher.publish("zigbee2mqtt/bridge/state", "online")
        publisher.publish("zigbee2mqtt/other", {"linkquality": 5})
        publisher.publish("zigbee2mqtt/broken", "{")
        publisher.publish("zigbee2mqtt/large", json.dumps({"contact": "x" * MAX_HEARD_BYTES}))
        publisher.publish("zigbee2mqtt/door", {"contact": False, "climate": {"temp": None}})
        await kept.until(lambda: len(found(kept)) == 2)
        assert acquirer.counts["unmapped"] == 2
        assert acquirer.counts["too large"] == 1

    kept = heard_from(mosquitto, (LAMP,), play)
    assert found(kept) == [("lamp", {"temp": 21.5, "open": True}), ("door", {"open": False})]
    assert kept.heards[-1].acquirer == "mqtt"


def test_without_paths_all_plain_values_are_taken(mosquitto: MosquittoServer) -> None:
    async def play(kept: Kept, _acquirer: MqttTopics, publisher: Publisher) -> None:
        publisher.publish("home/attic/temperature", "21.5")
        publisher.publish("tele/plug/SENSOR", {"power": 12, "type": 4, "list": [], "id": 7, "lat": 45.0, "on": True})
        await kept.until(lambda: len(found(kept)) == 2)

    topics = (MqttTopic(topic="home/#", source="{topic[-2]}"), MqttTopic(topic="tele/+/SENSOR", source="plug-{$.id}"))
    assert found(heard_from(mosquitto, topics, play)) == [
        ("attic", {"temperature": 21.5}),
        ("plug-7", {"power": 12, "lat": 45.0, "on": True}),
    ]


def test_a_retained_message_is_left_out_unless_it_tells_its_time(mosquitto: MosquittoServer) -> None:
    def before(publisher: Publisher) -> None:
        publisher.publish("old/a", {"v": 1}, retain=True)
        publisher.publish("dated/b", {"v": 2, "at": "2026-01-31T12:00:00+01:00"}, retain=True)
        publisher.publish("dated/c", {"v": 3, "at": "yesterday"}, retain=True)

    async def play(kept: Kept, acquirer: MqttTopics, _publisher: Publisher) -> None:
        await until(lambda: acquirer.counts["retained"] == 1)
        await kept.until(lambda: len(found(kept)) == 2)
        assert acquirer.counts["bad time"] == 1

    topics = (MqttTopic(topic="old/+"), MqttTopic(topic="dated/+", values={"v": "$.v"}, time="$.at"))
    kept = heard_from(mosquitto, topics, play, before)
    assert {(heard.address, heard.measured) for heard in kept.heards} >= {
        ("dated/b", 1769857200.0),
        ("dated/c", None),
    }


def test_a_server_that_restarts_is_heard_again(mosquitto: MosquittoServer) -> None:
    async def main() -> None:
        kept = Kept()
        settings = AcquireMqtt(url=f"mqtt://{HOST}:{mosquitto.port}", topics=(MqttTopic(topic="ready"),))
        async with Acquirers(kept) as acquirers:
            acquirers.add(make(settings))
            first = Publisher(mosquitto.port)
            await ready(kept, first)
            first.close()
            mosquitto.kill()
            await until(lambda: acquirers.status()[0].state == "failed")
            assert "connection was lost" in (acquirers.status()[0].error or "")
            mosquitto.start()
            second = Publisher(mosquitto.port)
            await ready(kept, second)
            second.close()
            assert acquirers.status()[0].state == "hearing"

    asyncio.run(main())


@pytest.mark.needs("mosquitto")
def test_who_is_not_let_in_is_told_what_to_check(tmp_path: Path) -> None:
    async def main(settings: AcquireMqtt) -> None:
        await make(settings).run(Kept())

    topics = (MqttTopic(topic="a"),)
    (nobody,) = free_ports(1)
    with pytest.raises(AcquirerError, match="is the MQTT server running"):
        asyncio.run(main(AcquireMqtt(url=f"mqtt://{HOST}:{nobody}", topics=topics)))
    with pytest.raises(AcquirerError, match="check password_file"):
        asyncio.run(main(AcquireMqtt(password_file=tmp_path / "none", topics=topics)))
    with pytest.raises(AcquirerError, match="name some"):
        make(AcquireMqtt())
    with MosquittoServer(tmp_path / "closed", anonymous=False) as closed, pytest.raises(AcquirerError, match="refused"):
        asyncio.run(main(AcquireMqtt(url=f"mqtt://{HOST}:{closed.port}", topics=topics)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$", {"a": {"b": [1, {"c d": 2}]}, "x.y": 3}),
        ("$.a.b[0]", 1),
        ("$.a.b[-1]['c d']", 2),
        ('$["x.y"]', 3),
        ("$.a.b[2]", None),
        ("$.a.b.c", None),
        ("$.a[0]", None),
        ("$.gone.deeper", None),
    ],
)
def test_paths(text: str, value: Any) -> None:
    assert path(text)({"a": {"b": [1, {"c d": 2}]}, "x.y": 3}) == value


@pytest.mark.parametrize("text", ["", "a", "$.", "$a", "$[x]", "$..a", "$.a[", "$.a b", "$" + ".a" * 33])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no path"):
        path(text)


def test_templates() -> None:
    item = {"id": 7, "name": "n", "flag": True}
    assert template("{topic}")("a/b", item) == "a/b"
    assert template("{topic[1]}-{$.id}")("a/b", item) == "b-7"
    assert template("$.name")("a/b", item) == "n"
    assert template("fixed")("a/b", item) == "fixed"
    assert template("{topic[5]}")("a/b", item) is None
    assert template("{$.flag}")("a/b", item) is None
    for wrong in ("{", "a}", "{nonsense}", "{topic[x]}", "{$a}"):
        with pytest.raises(ValueError, match=r"."):
            template(wrong)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (1769857200, 1769857200.0),
        (1769857200000, 1769857200.0),
        ("2026-01-31T11:00:00Z", 1769857200.0),
        ("2026-01-31T12:00:00.5+01:00", 1769857200.5),
    ],
)
def test_times(told: Any, seconds: float) -> None:
    assert read_time(told) == seconds


@pytest.mark.parametrize("told", ["2026-01-31T11:00:00", "noon", True, None, [], float("nan")])
def test_what_is_no_time_or_may_be_several_is_refused(told: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_time(told)
