"""`spinney homeassistant`: what the cloud notifies, as Home Assistant finds it on its own MQTT server."""

from __future__ import annotations

import json
import queue
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pytest
from clouds import ANY_PORTS, Cloud, wait_until
from paho.mqtt.enums import CallbackAPIVersion
from servers import HOST, MosquittoServer

from spinney_tools import homeassistant

CLOUD = [sys.executable, "-m", "spinney_tools", "cloud"]
START = "import sys; from spinney_tools.homeassistant import main; sys.exit(main(sys.argv[1:]))"
BRIDGE = [sys.executable, "-c", START]
SMOG = "spinney-mobile/subscription/smog"
HERE = "spinney-mobile/broker/house/availability"


class Home:
    """Home Assistant's MQTT integration: it keeps what it is told."""

    def __init__(self, port: int) -> None:
        self.messages: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.last: dict[str, bytes] = {}
        ready: queue.Queue[bool] = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda _c, _d, m: self.messages.put((m.topic, m.payload))
        self.client.on_subscribe = lambda *_: ready.put(True)
        self.client.connect(HOST, port)
        self.client.loop_start()
        self.client.subscribe([("homeassistant/#", 1), ("spinney-mobile/#", 1)])
        ready.get(timeout=60)

    def until(self, topic: str, payload: bytes | None = None) -> bytes:
        """The next message on a topic; with this payload, if given."""
        while True:
            name, found = self.messages.get(timeout=60)
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
def mosquitto(tmp_path: Path) -> Iterator[MosquittoServer]:
    with MosquittoServer(tmp_path / "mosquitto") as server:
        yield server


@pytest.mark.slow
@pytest.mark.needs("mosquitto")
def test_notifications_and_sources_become_devices_that_can_be_unavailable(
    tmp_path: Path, mosquitto: MosquittoServer
) -> None:
    home = Home(mosquitto.mqtt_port)
    with Cloud(tmp_path / "data", program=CLOUD, ports=ANY_PORTS) as cloud:
        places = dict(re.findall(r"(MQTT|HTTP) (\S+?),", cloud.ready_line))

        def publish(value: float) -> None:
            reading = {"source": "kerb", "temperature": 21.5, "PM10": value}
            httpx.post(f"{places['HTTP']}/v1/publications", json=reading, timeout=60).raise_for_status()

        command = [*BRIDGE, "--server", places["MQTT"], "--name", "house", "--expire-after", "2"]
        command += ["--to", f"mqtt://{HOST}:{mosquitto.mqtt_port}", "smog: WHEN PM10 > 150 UNTIL PM10 < 100"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as bridge:
            try:
                home.until(f"{SMOG}/state", b"OFF")
                event = home.config("event/spinney_subscription_smog/event")
                assert event["event_types"] == ["match", "enter", "exit", "top"]
                assert event["state_topic"] == f"{SMOG}/event"
                assert event["availability"] == [{"topic": HERE}]
                state = home.config("binary_sensor/spinney_subscription_smog/state")
                assert state["device"]["identifiers"] == event["device"]["identifiers"]
                assert state["state_topic"] == f"{SMOG}/state"
                assert home.last[HERE] == b"online"
                publish(180.0)
                told = json.loads(home.until(f"{SMOG}/event"))
                assert (told["event_type"], told["source"], told["PM10"]) == ("enter", "kerb", 180.0)
                home.until(f"{SMOG}/state", b"ON")
                home.until("spinney-mobile/source/kerb/availability", b"online")
                assert json.loads(home.until("spinney-mobile/source/kerb/state"))["PM10"] == 180.0
                assert home.config("sensor/spinney_kerb/PM10")["expire_after"] == 2
                home.until("spinney-mobile/source/kerb/availability", b"offline")
                publish(80.0)
                assert json.loads(home.until(f"{SMOG}/event"))["event_type"] == "exit"
                home.until(f"{SMOG}/state", b"OFF")
                bridge.send_signal(signal.SIGTERM)
                home.until(HERE, b"offline")
                assert bridge.wait(60) == 0
            finally:
                bridge.kill()
        wait_until(
            lambda: httpx.get(f"{places['HTTP']}/v1/subscriptions", timeout=60).json()["subscriptions"] == [],
            "the subscription to be over",
        )
    home.close()


def test_what_is_wrong_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert homeassistant.main(["--to", "mqtt://h", "--expire-after", "0", "a > 1"]) == 2
    assert capsys.readouterr().err == "spinney homeassistant: --expire-after has to be above 0\n"
    assert homeassistant.main(["--to", "mqtt://h", "--user", "ana", "a > 1"]) == 2
    assert capsys.readouterr().err.startswith("spinney homeassistant: --user ana needs --password-file")
