"""Home Assistant's side: what it would find on its MQTT server, against a real mosquitto."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import paho.mqtt.client as paho
import pytest
from fault_kit import Wire
from paho.mqtt.enums import CallbackAPIVersion
from servers import MosquittoServer

from spinney.client import Notification
from spinney.identity import PublicationId
from spinney_mobile.home_assistant import HomeAssistant, discovery
from spinney_mobile.home_assistant import bridge as bridge_module
from spinney_mobile.listening import Taken
from spinney_mobile.samples import Sample
from spinney_mobile.settings import HomeAssistant as Settings

UNITS = {"temperature": "C", "humidity": "%", "pm25": "ug/m3", "odd": "furlong"}
BROKER = "spinney-mobile/broker/pi/availability"


def taken(source: str, values: dict[str, Any], *, heard: float = 1000.0, rssi: int | None = None) -> Taken:
    publication = {"id": f"{source}:1:1", "source": source, "time": heard, "lat": 45.0, **values}
    sample = Sample(source, values, heard, heard, "test", rssi=rssi)
    return Taken(PublicationId(source, 1, 1), publication, sample, wanted=False)


class Reader:
    """What Home Assistant's MQTT integration does: it subscribes, and keeps what it is told."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.messages: queue.Queue[tuple[str, bytes, bool]] = queue.Queue()
        self.last: dict[str, bytes] = {}
        ready: queue.Queue[bool] = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda _c, _d, m: self.messages.put((m.topic, m.payload, m.retain))
        self.client.on_subscribe = lambda *_: ready.put(True)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.client.subscribe([("homeassistant/+/+/+/config", 1), ("spinney-mobile/#", 1)])
        ready.get(timeout=60)

    async def until(self, topic: str, payload: bytes | None = None) -> bytes:
        """The next message on a topic; with this payload, if given."""
        while True:
            name, found, _ = await asyncio.to_thread(self.messages.get, timeout=60)
            self.last[name] = found
            if name == topic and payload in (None, found):
                return found

    def config(self, topic: str) -> dict[str, Any]:
        item = json.loads(self.last[f"homeassistant/{topic}/config"])
        assert isinstance(item, dict)
        return item

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def reader(mosquitto: MosquittoServer) -> Iterator[Reader]:
    reader = Reader(mosquitto.mqtt_port)
    yield reader
    reader.close()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def home(port: int, clock: Clock, **more: Any) -> AsyncIterator[HomeAssistant]:
    settings = replace(Settings(url=f"mqtt://127.0.0.1:{port}", expire_after=60.0), **more)
    bridge = HomeAssistant(settings, "pi", "1.0", lambda _: UNITS, clock)
    running = asyncio.create_task(bridge.run())
    try:
        yield bridge
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def test_each_attribute_becomes_an_entity_of_its_device(reader: Reader) -> None:
    async def run() -> None:
        async with home(reader.port, Clock()) as bridge:
            await reader.until(BROKER, b"online")
            bridge.taken(
                taken(
                    "window", {"temperature": 21.5, "humidity": 40.0, "door": True, "odd": 3.0, "mode": "eco"}, rssi=-70
                )
            )
            state = json.loads(await reader.until("spinney-mobile/source/window/state"))
            assert state == {
                "temperature": 21.5,
                "humidity": 40.0,
                "door": True,
                "odd": 3.0,
                "mode": "eco",
                "time": 1000.0,
                "_rssi": -70,
            }
            assert reader.last["spinney-mobile/source/window/availability"] == b"online"
            item = reader.config("sensor/spinney_window/temperature")
            assert (item["device_class"], item["unit_of_measurement"], item["state_class"]) == (
                "temperature",
                "°C",
                "measurement",
            )
            assert item["state_topic"] == "spinney-mobile/source/window/state"
            assert item["value_template"] == "{{ value_json[\"temperature\"] | default('') }}"
            assert item["expire_after"] == 60
            assert item["availability_mode"] == "all"
            assert [each["topic"] for each in item["availability"]] == [
                BROKER,
                "spinney-mobile/source/window/availability",
            ]
            assert item["device"] == {"identifiers": ["spinney_window"], "name": "window"}
            door = reader.config("binary_sensor/spinney_window/door")
            assert (door["device_class"], door["payload_on"], door["payload_off"]) == ("door", "True", "False")
            odd = reader.config("sensor/spinney_window/odd")
            assert "device_class" not in odd
            assert odd["unit_of_measurement"] == "furlong"
            assert "state_class" not in reader.config("sensor/spinney_window/mode")
            assert reader.config("sensor/spinney_window/_rssi")["entity_category"] == "diagnostic"
            names = [json.loads(payload)["unique_id"] for topic, payload in reader.last.items() if "config" in topic]
            assert len(set(names)) == 6
            bridge.taken(taken("window", {"temperature": 22.0}))
            assert json.loads(await reader.until("spinney-mobile/source/window/state"))["temperature"] == 22.0
            assert bridge.counts["entities"] == 6

    asyncio.run(run())


def test_an_attribute_that_comes_later_becomes_an_entity_then(reader: Reader) -> None:
    async def run() -> None:
        async with home(reader.port, Clock()) as bridge:
            await reader.until(BROKER, b"online")
            bridge.taken(taken("window", {"temperature": 21.5}))
            await reader.until("spinney-mobile/source/window/state")
            bridge.taken(taken("window", {"humidity": 40.0}))
            await reader.until("homeassistant/sensor/spinney_window/humidity/config")
            assert bridge.counts["entities"] == 2

    asyncio.run(run())


def test_who_comes_later_finds_entities_and_whether_they_are_there_but_no_old_reading(reader: Reader) -> None:
    async def run() -> None:
        async with home(reader.port, Clock()) as bridge:
            await reader.until(BROKER, b"online")
            bridge.taken(taken("window", {"temperature": 21.5}))
            bridge.subscribed("smog", "PM10 > 150", has_state=True)
            await reader.until("spinney-mobile/subscription/smog/state")
            late = Reader(reader.port)
            late.client.publish("spinney-mobile/end", b"", qos=1)
            await late.until("spinney-mobile/end")
            late.close()
            assert late.last.keys() == {
                BROKER,
                "homeassistant/sensor/spinney_window/temperature/config",
                "homeassistant/event/spinney_subscription_smog/event/config",
                "homeassistant/binary_sensor/spinney_subscription_smog/state/config",
                "spinney-mobile/source/window/availability",
                "spinney-mobile/subscription/smog/state",
                "spinney-mobile/end",
            }

    asyncio.run(run())


def test_a_state_is_on_while_it_holds_anywhere(reader: Reader) -> None:
    def note(why: str, source: str) -> Notification:
        return Notification(id="n", sid="smog", why=why, time=1000.0, publication={"source": source, "PM10": 1.0})

    async def run() -> None:
        topic = "spinney-mobile/subscription/smog"
        async with home(reader.port, Clock()) as bridge:
            await reader.until(BROKER, b"online")
            bridge.subscribed("smog", "WHEN PM10 > 150 UNTIL PM10 < 100", has_state=True)
            await reader.until(f"{topic}/state", b"OFF")
            for why, source, state in (
                ("enter", "a", b"ON"), ("enter", "b", b"ON"), ("exit", "a", b"ON"), ("exit", "b", b"OFF")
            ):  # fmt: skip
                bridge.notified(note(why, source))
                told = json.loads(await reader.until(f"{topic}/event"))
                assert (told["event_type"], told["source"]) == (why, source)
                assert await reader.until(f"{topic}/state") == state

    asyncio.run(run())


async def acknowledged(bridge: HomeAssistant) -> None:
    while bridge._unacked:
        await asyncio.sleep(0.001)


def test_what_the_server_has_acknowledged_makes_room_for_more(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "MAX_UNACKED", 10)

    async def run() -> None:
        async with home(reader.port, Clock()) as bridge:
            await reader.until(BROKER, b"online")
            for number in range(30):
                await acknowledged(bridge)
                bridge.taken(taken("window", {"temperature": float(number)}))
                assert json.loads(await reader.until("spinney-mobile/source/window/state"))["temperature"] == number
            assert bridge.counts["left out"] == 0
            await acknowledged(bridge)
            for _ in range(30):
                bridge.taken(taken("window", {"temperature": 1.0}))
            assert bridge.counts["left out"] == 20

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_broker_that_vanishes_is_said_to_be_offline_by_the_server(reader: Reader) -> None:
    async def run() -> None:
        async with AsyncExitStack() as wires:
            wire = await wires.enter_async_context(Wire(reader.port))
            async with home(wire.port, Clock()):
                await reader.until(BROKER, b"online")
                await wires.aclose()
                await reader.until(BROKER, b"offline")

    asyncio.run(run())


def test_a_source_that_falls_silent_is_unavailable_until_it_is_heard_again(reader: Reader) -> None:
    async def run() -> None:
        clock = Clock()
        async with home(reader.port, clock, expire_after=1.0) as bridge:
            await reader.until(BROKER, b"online")
            bridge.taken(taken("window", {"temperature": 21.5}))
            await reader.until("spinney-mobile/source/window/availability", b"online")
            clock.now = 1002.0
            await reader.until("spinney-mobile/source/window/availability", b"offline")
            bridge.taken(taken("window", {"temperature": 21.5}, heard=1002.0))
            await reader.until("spinney-mobile/source/window/availability", b"online")

    asyncio.run(run())


def test_the_broker_is_offline_when_it_ends(reader: Reader) -> None:
    async def run() -> None:
        async with home(reader.port, Clock()):
            await reader.until(BROKER, b"online")
        await reader.until(BROKER, b"offline")

    asyncio.run(run())


def test_when_home_assistant_starts_it_is_told_all_again(reader: Reader) -> None:
    async def run() -> None:
        async with home(reader.port, Clock()) as bridge:
            await reader.until(BROKER, b"online")
            bridge.taken(taken("window", {"temperature": 21.5}))
            await reader.until("spinney-mobile/source/window/state")
            reader.client.publish("homeassistant/status", b"online", qos=1)
            await reader.until("homeassistant/sensor/spinney_window/temperature/config")
            await reader.until("spinney-mobile/source/window/state")

    asyncio.run(run())


def test_after_the_server_was_gone_it_is_told_all_again(mosquitto: MosquittoServer, caplog: Any) -> None:
    async def run() -> None:
        reader = Reader(mosquitto.mqtt_port)
        async with home(mosquitto.mqtt_port, Clock()) as bridge:
            await reader.until(BROKER, b"online")
            bridge.taken(taken("window", {"temperature": 21.5}))
            await reader.until("spinney-mobile/source/window/state")
            reader.close()
            await asyncio.to_thread(mosquitto.restart)
            reader = Reader(mosquitto.mqtt_port)
            await reader.until("spinney-mobile/source/window/state")
            assert bridge.error is None
        reader.close()

    asyncio.run(run())
    assert "the connection was lost" in caplog.text


@pytest.mark.needs("mosquitto")
def test_a_wrong_password_is_said_with_what_to_do(tmp_path_factory: Any, caplog: Any) -> None:
    async def run(port: int) -> None:
        async with home(port, Clock()) as bridge:
            while not bridge.error or "refused us" not in bridge.error:
                await asyncio.sleep(0.01)

    with MosquittoServer(tmp_path_factory.mktemp("mosquitto"), anonymous=False) as server:
        asyncio.run(run(server.mqtt_port))
    assert "check home_assistant.user and password_file" in caplog.text


def test_a_class_is_given_only_with_a_unit_that_home_assistant_takes_for_it() -> None:
    describer = discovery.Describer("homeassistant", "pi", "1", 60.0)
    for unit, device_class in (("C", "temperature"), ("K", "temperature"), ("furlong", None), (None, None)):
        units = {} if unit is None else {"temperature": unit}
        ((_, message),) = describer.entities("m", {"temperature": 1.0}, units, rssi=False)
        assert json.loads(message.payload).get("device_class") == device_class


def test_what_only_grows_is_a_total_and_a_second_sensor_is_of_the_firsts_kind() -> None:
    describer = discovery.Describer("ha", "pi", "1", 60.0)
    readings = {"energy": 1.0, "temperature_2": 1.0, "water_2": 1.0, "motion_2": True, "battery_2": 9.0}
    units = {"energy": "kWh", "temperature_2": "C", "water_2": "L", "battery_2": "%"}
    found = dict(describer.entities("m", readings, units, rssi=False))
    assert all(message.topic.startswith("ha/") for message in found.values())
    items = {name: json.loads(message.payload) for name, message in found.items()}
    assert {name: (item.get("device_class"), item.get("state_class")) for name, item in items.items()} == {
        "energy": ("energy", "total_increasing"),
        "temperature_2": ("temperature", "measurement"),
        "water_2": ("water", "total_increasing"),
        "motion_2": ("motion", None),
        "battery_2": ("battery", "measurement"),
    }
    assert items["battery_2"]["entity_category"] == "diagnostic"


def test_names_that_no_topic_can_have_stay_apart() -> None:
    assert discovery.slug("window") == "window"
    assert discovery.slug("a/b") != discovery.slug("a_b") != discovery.slug("a+b")
    assert not set("/+#") & set(discovery.slug("zigbee2mqtt/lamp+#"))
    assert len(discovery.slug("x" * 200)) < 64


def test_more_sources_than_the_limit_forget_the_one_silent_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "MAX_SOURCES", 2)
    bridge = HomeAssistant(Settings(url="mqtt://x"), "pi", "1", lambda _: {})
    for name in ("a", "b", "a", "c"):
        bridge.taken(taken(name, {"t": 1.0}))
    assert list(bridge._sources) == ["a", "c"]
    assert bridge.counts["left out"] == 4
