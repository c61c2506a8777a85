"""The whole cloud, with its real processes: what it promises as one thing."""

from __future__ import annotations

import queue
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import paho.mqtt.client as paho
import psutil
import pytest
from clouds import Cloud, alive, kill, wait_until
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from security_kit import Mosquitto
from servers import HOST, MosquittoServer

pytestmark = pytest.mark.slow

START = "import sys; from spinney_tools.cloud import main; sys.exit(main(sys.argv[1:]))"
REAL = [sys.executable, "-c", START]
PROCESSES = ("gateway", "matcher", "coordinator", "delivery", "http")
ANSWER_SECONDS = 60.0


class Client:
    """An MQTT client with a persistent session that gathers what its topics bring."""

    def __init__(self, port: int, name: str, protocol: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv311) -> None:
        self.name = name
        self._gathered: defaultdict[str, queue.Queue[Any]] = defaultdict(queue.Queue)
        persistent = {"clean_session": False} if protocol == MQTTProtocolVersion.MQTTv311 else {}
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{name}-id", protocol=protocol, **persistent)
        self.client.on_message = lambda _c, _u, message: self._gathered[
            message.topic.removeprefix(f"spinney/{name}/")
        ].put(orjson.loads(message.payload))
        granted: queue.Queue[object] = queue.Queue()
        self.client.on_connect = lambda client, *_: client.subscribe(
            [(f"spinney/{name}/reply", 1), (f"spinney/{name}/note/+", 1)]
        )
        self.client.on_subscribe = lambda *_: granted.put(None)
        self.client.connect(HOST, port)
        self.client.loop_start()
        granted.get(timeout=ANSWER_SECONDS)

    def publish(self, leaf: str, payload: object) -> None:
        """At QoS 1, and again after a reconnect."""
        text = payload if isinstance(payload, str) else orjson.dumps(payload)
        self.client.publish(f"spinney/{self.name}/{leaf}", text, qos=1)

    def next(self, leaf: str) -> Any:
        """The next message of a leaf."""
        return self._gathered[leaf].get(timeout=ANSWER_SECONDS)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture(params=["own", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    """With its own server, and with a mosquitto set up as `spinney cloud conf` says. Not started yet."""
    if request.param == "own":
        yield Cloud(tmp_path / "data", program=REAL)
        return
    with Mosquitto(tmp_path / "mosquitto", tmp_path / "data", secured=False) as server:
        yield Cloud(tmp_path / "data", program=REAL, ports=["--http-port", "0", "--nats-port", "0", *server.options])


def get(cloud: Cloud, path: str) -> Any:
    with urllib.request.urlopen(f"{cloud.addresses()['HTTP']}{path}", timeout=ANSWER_SECONDS) as answer:
        body = answer.read()
    return orjson.loads(body) if body.startswith(b"{") else body.decode()


def health(cloud: Cloud) -> Any:
    """What /readyz says; None while it says no."""
    try:
        return get(cloud, "/readyz")
    except OSError:  # 503 is one, too
        return None


def publish_hot(client: Client, value: int) -> None:
    """A reading that the subscription `hot` is for, told as stored and notified."""
    client.publish("pub", {"source": "m7", "NO2": value})
    # a reply that was under way at a kill comes again
    wait_until(lambda: "m7" in client.next("reply").get("stored", ()), "it is stored")
    assert client.next("note/hot")["publication"]["NO2"] == value


def test_a_start_goes_on_where_the_one_before_ended(cloud: Cloud) -> None:
    with cloud:
        health = get(cloud, "/readyz")
        assert health["ready"]
        assert set(health["processes"]) >= set(PROCESSES)
        with Client(cloud.port("MQTT"), "kit") as kit:
            kit.publish("sub/hot", "NO2 > 40")
            assert kit.next("reply")["ok"]
            publish_hot(kit, 57)
        assert cloud.stop() == 0
        assert " error " not in cloud.said
        assert "killed" not in cloud.said
    with cloud, Client(cloud.port("MQTT"), "kit") as kit:
        publish_hot(kit, 58)


def test_nothing_is_left_and_nothing_lost_when_all_of_it_is_killed(cloud: Cloud) -> None:
    with cloud:
        with Client(cloud.port("MQTT"), "kit") as kit:
            kit.publish("sub/hot", "NO2 > 40")
            assert kit.next("reply")["ok"]
        family = cloud.family()
        kill(cloud.pid)
        cloud.wait()
        wait_until(lambda: not [each for each in family if alive(each.pid)], "all are gone")
    with cloud, Client(cloud.port("MQTT"), "kit") as kit:
        publish_hot(kit, 57)


def test_each_process_and_nats_server_may_be_killed_and_all_goes_on(cloud: Cloud) -> None:
    with cloud, Client(cloud.port("MQTT"), "kit") as kit:
        kit.publish("sub/hot", "NO2 > 40")
        assert kit.next("reply")["ok"]
        for value, name in enumerate((*PROCESSES, "nats-server"), start=50):
            wait_until(lambda: health(cloud), "all are ready: none is killed while another one starts")
            victim = cloud.child(name)
            assert victim
            kill(victim.pid)
            wait_until(lambda name=name: f"{name} was killed by SIGKILL" in cloud.said, f"the loss of {name} is told")
            kit.publish("pub", {"source": "m7", "id": f"m7:1:{value}", "NO2": value})
            wait_until(lambda value=value: kit.next("note/hot")["publication"]["NO2"] == value, "it is notified")
        wait_until(lambda: health(cloud), "all are ready again")
        metrics = get(cloud, "/metrics")
        assert all(f'spinney_supervisor_restarts_total{{process="{name}"}} 1.0' in metrics for name in PROCESSES)
        assert all(f'spinney_up{{process="{name}"}} 1' in metrics for name in PROCESSES)


@pytest.mark.needs("mosquitto")
def test_mqtt_5_clients_come_by_way_of_mosquitto(tmp_path: Path, mosquitto: MosquittoServer) -> None:
    ports = ["--http-port", "0", "--nats-port", "0", "--mqtt", f"mqtt://{HOST}:{mosquitto.mqtt_port}"]
    with (
        Cloud(tmp_path / "data", program=REAL, ports=ports) as cloud,
        Client(cloud.port("MQTT"), "kit", MQTTProtocolVersion.MQTTv5) as kit,
    ):
        kit.publish("sub/hot", "NO2 > 40")
        assert kit.next("reply")["ok"]
        publish_hot(kit, 57)


def test_an_existing_nats_server_serves_for_both(tmp_path: Path, nats: Any) -> None:
    ports = ["--http-port", "0", "--nats", nats.url, "--mqtt", f"mqtt://{HOST}:{nats.mqtt_port}"]
    with (
        Cloud(tmp_path / "data", program=REAL, ports=ports) as cloud,
        Client(cloud.port("MQTT"), "kit") as kit,
    ):
        kit.publish("sub/hot", "NO2 > 40")
        assert kit.next("reply")["ok"]
        publish_hot(kit, 57)
        assert cloud.stop() == 0
    assert psutil.pid_exists(nats.pid)
