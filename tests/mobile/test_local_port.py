"""The local MQTT port, with real clients: the SDK, paho, mosquitto's, and a plain socket for what no client says."""

from __future__ import annotations

import json
import queue
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from local_kit import RunningPort, wait_until
from paho.mqtt.enums import CallbackAPIVersion

from spinney import Publisher, Subscriber, SyntaxError
from spinney import mqtt_codec as codec
from spinney.client import ClientError, PublicationRefused
from spinney_mobile.local import server
from spinney_mobile.local.port import read_passwords
from spinney_mobile.settings import Device, Devices


@pytest.fixture
def port(tmp_path: Path) -> Iterator[RunningPort]:
    with RunningPort(tmp_path) as running:
        yield running


class Client:
    """paho, with its messages in a queue."""

    def __init__(self, port: int, name: str, *, clean: bool = True, user: str = "", password: str = "") -> None:
        self.messages: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.granted: queue.Queue[Any] = queue.Queue()
        self.connected: queue.Queue[Any] = queue.Queue()
        self.gone: queue.Queue[Any] = queue.Queue()
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=name, clean_session=clean, reconnect_on_failure=False
        )
        if user:
            self.paho.username_pw_set(user, password)
        self.paho.on_message = lambda _c, _d, message: self.messages.put((message.topic, message.payload))
        self.paho.on_subscribe = lambda _c, _d, _m, reasons, _p: self.granted.put(reasons)
        self.paho.on_connect = lambda _c, _d, flags, reason, _p: self.connected.put((reason, flags.session_present))
        self.paho.on_disconnect = lambda *_: self.gone.put(True)
        self.paho.connect("127.0.0.1", port)
        self.paho.loop_start()

    def hears(self, *topics: str, qos: int = 1) -> list[bool]:
        self.paho.subscribe([(topic, qos) for topic in topics])
        return [not reason.is_failure for reason in self.granted.get(timeout=60)]

    def next(self) -> tuple[str, Any]:
        topic, payload = self.messages.get(timeout=60)
        return topic, json.loads(payload)

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


def connect(port: int, client_id: str = "raw") -> socket.socket:
    """A client of which we write each byte."""
    raw = socket.create_connection(("127.0.0.1", port), 60)
    raw.sendall(codec.connect(client_id, clean=True, keepalive_seconds=0))
    assert raw.recv(4) == b"\x20\x02\x00\x00"
    return raw


def ended(raw: socket.socket) -> bool:
    """Whether the other side has ended it, in whichever way."""
    try:
        return raw.recv(1) == b""
    except ConnectionResetError:
        return True


# ---- as the cloud does it


def test_the_sdk_publishes_and_subscribes_here_as_at_the_cloud(port: RunningPort) -> None:
    with Subscriber("ana", server=port.url) as ana, Publisher("kit", server=port.url) as kit:
        high = ana.subscribe("NO2 > 40", sid="high")
        kit.publish({"source": "m7", "NO2": 57.0}).wait(60)
        told = next(iter(high))
        assert (told.sid, told.why, told.publication["NO2"]) == ("high", "match", 57.0)
        kit.publish({"source": "m7", "NO2": 5.0}).wait(60)
    assert [sample.source for sample in port.sink.samples] == ["m7", "m7"]
    assert port.sink.samples[0].sequence is not None


def test_a_state_subscription_tells_enter_and_exit_of_what_sensors_say(port: RunningPort) -> None:
    with Subscriber("ana", server=port.url) as ana:
        warm = iter(ana.subscribe("WHEN temp > 25 UNTIL temp <= 22 EACH room", sid="warm"))
        for temp in (21, 26, 24, 22):
            port.hear("window", {"temp": temp, "room": "lab"})
        assert [(note.why, note.scope, note.publication["temp"]) for note in (next(warm), next(warm))] == [
            ("enter", "lab", 26),
            ("exit", "lab", 22),
        ]


def test_a_top_k_subscription_promotes_when_a_window_ends_though_nothing_is_heard(port: RunningPort) -> None:
    with Subscriber("ana", server=port.url) as ana:
        best = iter(ana.subscribe("TOP 1 OVER 300ms BY NO2 DESC", sid="best"))
        port.hear("a", {"NO2": 9})
        port.hear("b", {"NO2": 3})
        first = next(best)
        assert (first.why, first.publication["source"]) == ("top", "a")
        assert next(best).publication["source"] == "b"


def test_what_is_wrong_with_a_subscription_is_said_with_its_place(port: RunningPort) -> None:
    with Subscriber("ana", server=port.url) as ana, pytest.raises(SyntaxError, match=r"1:7.*expected a value"):
        ana.subscribe("NO2 > ", sid="bad")


def test_a_reading_that_is_none_is_refused_and_the_others_are_stored(port: RunningPort) -> None:
    client = Client(port.number, "kit")
    assert client.hears("spinney/kit/reply") == [True]
    client.paho.publish("spinney/kit/pub", json.dumps([{"NO2": 1}, {"NO2": [2]}, 3, {"source": "x"}]), qos=1)
    topic, refused = client.next()
    assert topic == "spinney/kit/reply"
    assert [each["row"] for each in refused["refused"]] == [1, 2, 3]
    assert "stored" in client.next()[1]
    client.paho.publish("spinney/kit/pub", "{", qos=1)
    assert "not JSON" in client.next()[1]["refused"][0]["reason"]
    assert [sample.values for sample in port.sink.samples] == [{"NO2": 1}]
    client.close()


@pytest.mark.parametrize("lat", [90.5, -1e9])
def test_a_reading_from_nowhere_on_earth_is_refused_with_the_reason(port: RunningPort, lat: float) -> None:
    with Publisher("kit", server=port.url) as kit:
        with pytest.raises(PublicationRefused, match=r"lat .* is beyond 90 degrees"):
            kit.publish({"source": "m7", "NO2": 1, "lat": lat, "long": 16}).wait(60)
        kit.publish({"source": "m7", "NO2": 1, "lat": 45, "long": 16}).wait(60)


def test_a_publisher_hears_that_settings_do_not_allow_its_source(port: RunningPort) -> None:
    port.call(lambda: port.sink.devices.configure(Devices(), [Device(address="m7", allow=False)]))
    with Publisher("kit", server=port.url) as kit, pytest.raises(PublicationRefused, match="m7 is not allowed"):
        kit.publish({"source": "m7", "NO2": 1}).wait(60)


def test_the_sdk_hears_of_what_is_refused(port: RunningPort) -> None:
    with Publisher("kit", server=port.url) as kit, pytest.raises(PublicationRefused, match="at most 4096 bytes"):
        kit.publish({"source": "m7", "text": "x" * 5000}).wait(60)


def test_unsubscribing_ends_it(port: RunningPort) -> None:
    with Subscriber("ana", server=port.url) as ana:
        ana.subscribe("NO2 > 40", sid="high")
        assert len(port.port.subscriptions) == 1
        ana.unsubscribe("high")
        assert len(port.port.subscriptions) == 0


def test_more_subscriptions_than_the_limit_are_refused(tmp_path: Path) -> None:
    with RunningPort(tmp_path, subscriptions=1) as port, Subscriber("ana", server=port.url) as ana:
        ana.subscribe("NO2 > 40", sid="a")
        with pytest.raises(ClientError, match="1 subscriptions are here already"):
            ana.subscribe("NO2 > 41", sid="b")


def test_the_settings_own_subscriptions_do_not_count_for_the_limit_of_clients(tmp_path: Path) -> None:
    def configure(port: RunningPort, *sids: str) -> None:
        port.call(lambda: port.port.configured("pi", dict.fromkeys(sids, "NO2 > 40")))

    with RunningPort(tmp_path, subscriptions=1) as port, Subscriber("ana", server=port.url) as ana:
        configure(port, "one")
        ana.subscribe("NO2 > 40", sid="a")
        configure(port, "one", "two", "three")
        assert len(port.port.subscriptions) == 4
    with RunningPort(tmp_path, subscriptions=1) as port, Subscriber("ana", server=port.url) as ana:
        assert len(port.port.subscriptions) == 4
        configure(port, "two")
        assert port.port.subscriptions.feeds().keys() == {"ana/a", "pi/two"}
        with pytest.raises(ClientError, match="1 subscriptions are here already"):
            ana.subscribe("NO2 > 41", sid="b")
        ana.unsubscribe("a")
        ana.subscribe("NO2 > 41", sid="b")


def test_subscriptions_and_their_state_outlive_a_restart(tmp_path: Path) -> None:
    with RunningPort(tmp_path) as port, Subscriber("ana", server=port.url) as ana:
        warm = iter(ana.subscribe("WHEN temp > 25 UNTIL temp <= 22", sid="warm"))
        port.hear("window", {"temp": 30})
        assert next(warm).why == "enter"
    with RunningPort(tmp_path) as port, Subscriber("ana", server=port.url) as ana:
        told = iter(ana.resume("warm"))
        port.hear("window", {"temp": 29})
        port.hear("window", {"temp": 20})
        assert next(told).why == "exit"


@pytest.mark.parametrize("damage", [b"{", b'{"v": 9}', b'{"v": 1, "subscriptions": [{"owner": "a/b"}]}', b"[]"])
def test_a_damaged_file_of_subscriptions_is_none(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "local-subscriptions.json").write_bytes(damage)
    with RunningPort(tmp_path) as port:
        assert len(port.port.subscriptions) == 0
    assert "must subscribe again" in caplog.text


def test_what_pages_show_are_the_newest_notifications(port: RunningPort) -> None:
    port.call(lambda: port.port.configured("pi", {"all": "temp > 0"}))
    for temp in range(1, 61):
        port.hear("window", {"temp": temp})
    recent = list(port.port.subscriptions.recent)
    assert len(recent) == 50
    assert [note["publication"]["temp"] for note in recent[:2]] == [60, 59]
    port.call(lambda: port.port.configured("pi", {"other": "temp > 0"}))
    assert len(port.port.subscriptions) == 1


# ---- MQTT


def test_a_session_keeps_what_comes_while_its_client_is_away(port: RunningPort) -> None:
    client = Client(port.number, "ana-session", clean=False)
    assert client.hears("spinney/ana/note/#") == [True]
    client.paho.publish("spinney/ana/sub/high", "NO2 > 40", qos=1).wait_for_publish(60)
    client.close()
    wait_until(lambda: port.port.server.connections == 0, "the client's end")
    port.hear("m7", {"NO2": 50})
    again = Client(port.number, "ana-session", clean=False)
    assert again.connected.get(timeout=60)[1]
    assert again.next()[1]["publication"]["NO2"] == 50
    again.close()


def test_what_was_not_acknowledged_comes_again(port: RunningPort) -> None:
    raw = socket.create_connection(("127.0.0.1", port.number), 60)
    raw.sendall(codec.connect("ana-1", clean=False, keepalive_seconds=0))
    assert raw.recv(4) == b"\x20\x02\x00\x00"
    raw.sendall(codec.subscribe(1, {"spinney/ana/note/#": 1}))
    assert raw.recv(5) == b"\x90\x03\x00\x01\x01"
    raw.sendall(codec.publish(codec.topic_bytes("spinney/ana/sub/high"), b"NO2 > 40", 2, qos=1))
    assert raw.recv(4) == codec.puback(2)
    port.hear("m7", {"NO2": 50})
    (first,) = codec.Decoder().feed(raw.recv(4096))
    raw.close()
    wait_until(lambda: port.port.server.connections == 0, "the client's end")
    raw = socket.create_connection(("127.0.0.1", port.number), 60)
    raw.sendall(codec.connect("ana-1", clean=False, keepalive_seconds=0))
    decoder = codec.Decoder()
    packets: list[codec.Packet] = []
    while len(packets) < 2:
        packets += decoder.feed(raw.recv(4096))
    connack, second = packets
    assert connack == codec.ConnAck(True, 0)
    assert isinstance(first, codec.Publish)
    assert isinstance(second, codec.Publish)
    assert (second.dup, second.id, second.payload) == (True, first.id, first.payload)
    raw.sendall(codec.puback(second.id))
    raw.sendall(codec.PINGREQ)
    assert raw.recv(2) == b"\xd0\x00"
    raw.close()


def test_a_client_that_is_away_loses_the_oldest_beyond_the_limit_and_it_is_counted(
    port: RunningPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_QUEUED", 3)
    client = Client(port.number, "ana-session", clean=False)
    client.hears("spinney/ana/note/#")
    client.paho.publish("spinney/ana/sub/high", "NO2 > 40", qos=1).wait_for_publish(60)
    client.close()
    wait_until(lambda: port.port.server.connections == 0, "the client's end")
    for number in range(50, 55):
        port.hear("m7", {"NO2": number})
    assert port.port.server.counts["dropped"] == 2
    again = Client(port.number, "ana-session", clean=False)
    assert [again.next()[1]["publication"]["NO2"] for _ in range(3)] == [52, 53, 54]
    again.close()


def test_a_second_client_with_the_same_id_throws_the_first_off(port: RunningPort) -> None:
    first = Client(port.number, "same")
    first.connected.get(timeout=60)
    second = Client(port.number, "same")
    assert first.gone.get(timeout=60)
    second.hears("spinney/ana/note/#")
    first.paho.loop_stop()
    second.close()


def test_with_passwords_a_client_comes_in_under_its_own_name_only(tmp_path: Path) -> None:
    with RunningPort(tmp_path, passwords={"ana": "secret", "bob": "other"}) as port:
        stranger = Client(port.number, "x", user="ana", password="guess")
        assert stranger.connected.get(timeout=60)[0].is_failure
        stranger.paho.loop_stop()
        ana = Client(port.number, "y", user="ana", password="secret")
        assert ana.hears("spinney/ana/note/#", "spinney/bob/note/#", "spinney/#", "#") == [True, False, False, False]
        bob = Client(port.number, "y", user="bob", password="other")
        assert bob.connected.get(timeout=60)[0].is_failure  # the session of that id is ana's
        bob.paho.loop_stop()
        ana.paho.publish("spinney/bob/pub", '{"NO2": 1}', qos=1)
        assert ana.gone.get(timeout=60)
        ana.paho.loop_stop()
        assert port.sink.samples == []


def test_passwords_are_lines_of_client_and_password(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.write_text("# people\nana:secret:with:colons\n\nbob:x\n")
    assert read_passwords(file) == {"ana": "secret:with:colons", "bob": "x"}
    file.write_text("ana:secret\nbob\n")
    with pytest.raises(ValueError, match=r"passwords:2: expected client:password"):
        read_passwords(file)


def test_a_topic_that_means_nothing_ends_the_connection_with_a_reason(
    port: RunningPort, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(port.number, "kit")
    client.paho.publish("home/kitchen", "{}", qos=1)
    assert client.gone.get(timeout=60)
    client.paho.loop_stop()
    assert "may not publish to 'home/kitchen'" in caplog.text


def test_a_will_is_published_when_a_client_vanishes(port: RunningPort) -> None:
    raw = socket.create_connection(("127.0.0.1", port.number), 60)
    will = codec.Will("spinney/kit/pub", b'{"source": "door", "open": true}')
    raw.sendall(codec.connect("kit", clean=True, keepalive_seconds=0, will=will))
    assert raw.recv(4) == b"\x20\x02\x00\x00"
    raw.close()
    wait_until(lambda: port.sink.samples, "the will")
    assert port.sink.samples[0].values == {"open": True}


@pytest.mark.needs("mosquitto_pub", "mosquitto_sub")
def test_mosquittos_clients_work(port: RunningPort) -> None:
    common = ["-V", "mqttv311", "-p", str(port.number), "-q", "1"]
    subscriber = subprocess.Popen(
        ["mosquitto_sub", *common, "-C", "1", "-W", "60", "-t", "spinney/ana/note/#"], stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: any(session.filters for session in list(port.port.server._sessions.values())), "its SUBSCRIBE")
    subprocess.run(["mosquitto_pub", *common, "-t", "spinney/ana/sub/high", "-m", "NO2 > 40"], check=True)
    subprocess.run(["mosquitto_pub", *common, "-t", "spinney/kit/pub", "-m", '{"NO2": 57}'], check=True)
    out, _ = subscriber.communicate(timeout=60)
    assert json.loads(out)["publication"]["NO2"] == 57


# ---- what no client says


@pytest.mark.parametrize(
    "bytes_",
    [
        b"\x00\x00",
        b"\xff\xff\xff\xff\xff",
        b"\x10\x02\x00\x04",
        b"\x30\x03\x00\x01a",
        b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x00\x00\x00",
        b"\x10\x0c\x00\x04MQTT\x04\x01\x00\x00\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        codec.connect("a", clean=True, keepalive_seconds=0) * 2,
        codec.connect("a", clean=True, keepalive_seconds=0) + b"\x82\x02\x00\x01",
        codec.connect("a", clean=True, keepalive_seconds=0) + b"\x82\x07\x00\x01\x00\x02a#\x00",
        codec.connect("a", clean=True, keepalive_seconds=0) + b"\x34\x07\x00\x03abc\x00\x01",
        codec.connect("", clean=False, keepalive_seconds=0),
    ],
    ids=range(12),
)
def test_bytes_that_are_no_mqtt_end_their_connection_and_no_other(port: RunningPort, bytes_: bytes) -> None:
    other = connect(port.number, "other")
    with socket.create_connection(("127.0.0.1", port.number), 60) as raw:
        raw.sendall(bytes_)
        while raw.recv(4096):
            pass
    other.sendall(codec.PINGREQ)
    assert other.recv(2) == b"\xd0\x00"
    other.close()


def test_more_connections_than_the_limit_are_refused(port: RunningPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 1)
    first = connect(port.number)
    with socket.create_connection(("127.0.0.1", port.number), 60) as second:
        assert ended(second)
    first.sendall(codec.PINGREQ)
    assert first.recv(2) == b"\xd0\x00"
    first.close()
    assert port.port.server.counts["refused"] == 1


def test_a_client_that_says_nothing_is_let_go(port: RunningPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECT_SECONDS", 0.01)
    with socket.create_connection(("127.0.0.1", port.number), 60) as raw:
        assert raw.recv(1) == b""


def test_a_client_that_falls_silent_beyond_its_keepalive_is_let_go(
    port: RunningPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "KEEPALIVE_FACTOR", 0.01)
    with socket.create_connection(("127.0.0.1", port.number), 60) as raw:
        raw.sendall(codec.connect("a", clean=True, keepalive_seconds=1))
        assert raw.recv(4) == b"\x20\x02\x00\x00"
        assert raw.recv(1) == b""


def test_a_client_that_does_not_read_fills_its_queue_and_not_our_memory(
    port: RunningPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_WRITE_BUFFER", 1024)
    monkeypatch.setattr(server, "MAX_QUEUED", 10)
    raw = connect(port.number)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    raw.sendall(codec.subscribe(1, {"spinney/ana/note/#": 0}))
    assert raw.recv(5) == b"\x90\x03\x00\x01\x00"
    port.call(lambda: port.port.configured("ana", {"all": "x IS NOT NULL"}))
    while not port.port.server.counts["dropped"]:
        port.hear("m7", {"x": "y" * 4000})
    (session,) = port.port.server._sessions.values()
    assert len(session.queue) == 10
    raw.close()
