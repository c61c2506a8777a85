"""What a user of a local broker expects of the port: retained messages, readings that are valid, withdrawn; TLS."""

from __future__ import annotations

import json
import queue
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from clouds import wait_until
from local_kit import RunningPort
from mobile_kit import Mobile, command
from paho.mqtt.enums import CallbackAPIVersion

from spinney import Publisher, Subscriber
from spinney.client import ClientError
from spinney_cloud.certs import Certificates
from spinney_mobile.local import sessions, valid

READING = {"source": "kit", "NO2": 57.0, "valid_for": 3600.0}


@pytest.fixture
def port(tmp_path: Path) -> Iterator[RunningPort]:
    with RunningPort(tmp_path) as running:
        yield running


def told(messages: queue.Queue[Any]) -> Any:
    return messages.get(timeout=60)


def subscribed(ana: Subscriber, sid: str, text: str) -> queue.Queue[Any]:
    """The readings that the subscription is told."""
    readings: queue.Queue[Any] = queue.Queue()
    ana.subscribe(text, sid=sid, callback=lambda note: readings.put(note.publication["NO2"]))
    return readings


class Hearing:
    """paho, hearing one topic filter: topic, payload, and whether it was retained."""

    def __init__(self, port: RunningPort, topic: str) -> None:
        self.messages: queue.Queue[tuple[str, bytes, bool]] = queue.Queue()
        self._granted: queue.Queue[bool] = queue.Queue()
        self.paho = paho.Client(CallbackAPIVersion.VERSION2)
        self.paho.on_message = lambda _c, _d, m: self.messages.put((m.topic, m.payload, m.retain))
        self.paho.on_subscribe = lambda *_: self._granted.put(True)
        self.paho.connect("127.0.0.1", port.number)
        self.paho.loop_start()
        self.paho.subscribe(topic, 1)
        self._granted.get(timeout=60)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.paho.publish(topic, payload, qos=1, retain=retain).wait_for_publish(60)

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


def test_what_is_published_is_heard_by_others_and_retained_for_those_who_come_later(port: RunningPort) -> None:
    early = Hearing(port, "spinney/+/pub")
    early.publish("spinney/kit/pub", b'{"NO2": 1}')
    early.publish("spinney/kit/pub", b'{"NO2": 2}', retain=True)
    assert [told(early.messages) for _ in range(2)] == [
        ("spinney/kit/pub", b'{"NO2": 1}', False),
        ("spinney/kit/pub", b'{"NO2": 2}', False),
    ]
    late = Hearing(port, "spinney/kit/#")
    assert told(late.messages) == ("spinney/kit/pub", b'{"NO2": 2}', True)
    late.close()
    early.publish("spinney/kit/pub", b"", retain=True)
    later = Hearing(port, "spinney/kit/pub")
    early.publish("spinney/kit/pub", b'{"NO2": 3}')
    assert told(later.messages) == ("spinney/kit/pub", b'{"NO2": 3}', False), "nothing was retained any more"
    later.close()
    early.close()
    assert [sample.values["NO2"] for sample in port.sink.samples] == [1, 2, 3], "and each was taken as a reading once"


def test_retained_messages_are_bounded(port: RunningPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_RETAINED", 2)
    client = Hearing(port, "spinney/+/reply")
    for name in ("a", "b", "c"):
        client.publish(f"spinney/{name}/pub", b'{"NO2": 1}', retain=True)
    late = Hearing(port, "spinney/+/pub")
    assert {told(late.messages)[0] for _ in range(2)} == {"spinney/b/pub", "spinney/c/pub"}
    assert port.port.server.counts["dropped"] == 1
    late.close()
    client.close()


def test_a_new_content_subscription_is_told_what_is_valid_l2(port: RunningPort) -> None:
    with Publisher("kit", server=port.url) as kit, Subscriber("ana", server=port.url) as ana:
        kit.publish(READING).wait(60)
        kit.publish({**READING, "NO2": 5.0}).wait(60)
        kit.publish({"source": "kit", "NO2": 99.0}).wait(60)
        high = subscribed(ana, "high", "NO2 > 40")
        kit.publish({"source": "kit", "NO2": 58.0}).wait(60)
        assert [told(high) for _ in range(2)] == [57.0, 58.0], "what was valid comes first"
        ana.subscribe("WHEN NO2 > 40 UNTIL NO2 < 30", sid="state")
        again = subscribed(ana, "low", "NO2 < 10")
        assert told(again) == 5.0


def test_a_withdrawn_reading_is_not_told_to_those_who_come_later(port: RunningPort) -> None:
    refused: list[tuple[str, ClientError]] = []
    with (
        Publisher("kit", server=port.url, on_refused=lambda id, why: refused.append((id, why))) as kit,
        Subscriber("ana", server=port.url) as ana,
    ):
        gone, stays = kit.publish(READING), kit.publish({**READING, "NO2": 58.0})
        kit.unpublish("kit:7:1")
        kit.unpublish(gone)
        kit.flush(60)
        stays.wait(60)
        assert told(subscribed(ana, "high", "NO2 > 40")) == 58.0
    assert refused == []
    assert port.unpublished == ["kit:7:1", gone.id], "the broker is told, for the cloud's sake"


def test_a_withdrawal_that_comes_first_is_remembered(port: RunningPort) -> None:
    client = Hearing(port, "spinney/+/reply")
    client.publish("spinney/kit/unpub", b'{"id": "kit:7:1"}')
    assert json.loads(told(client.messages)[1]) == {"request": "unpub", "id": "kit:7:1", "ok": True}
    for sequence, value in ((1, 57.0), (2, 58.0)):
        item = {**READING, "id": f"kit:7:{sequence}", "NO2": value}
        client.publish("spinney/kit/pub", json.dumps(item).encode())
    with Subscriber("ana", server=port.url) as ana:
        assert told(subscribed(ana, "high", "NO2 > 40")) == 58.0
    client.close()


@pytest.mark.parametrize("payload", [b"", b"{", b"7", b"[]", b"{}", b'{"id": 7}', b'{"id": "x"}', b'{"id": null}'])
def test_a_withdrawal_of_nothing_is_refused_and_harms_nobody(port: RunningPort, payload: bytes) -> None:
    client = Hearing(port, "spinney/+/reply")
    client.publish("spinney/kit/unpub", payload)
    reply = json.loads(told(client.messages)[1])
    assert reply["ok"] is False
    assert "source:boot:sequence" in reply["error"]["message"]
    client.publish("spinney/kit/pub", b'{"NO2": 1}')
    assert len(port.sink.samples) == 1
    client.close()


def test_what_is_kept_while_valid_is_bounded_and_what_gives_way_is_counted(
    port: RunningPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valid, "MAX_UNPUBLISHED", 1)
    port.port.subscriptions.valid = valid.LocalValid(limit=2)
    with Publisher("kit", server=port.url) as kit, Subscriber("ana", server=port.url) as ana:
        for value in (1.0, 2.0, 3.0):
            kit.publish({**READING, "NO2": value}).wait(60)
        kit.unpublish("kit:9:1")
        kit.unpublish("kit:9:2")
        kit.flush(60)
        low = subscribed(ana, "low", "NO2 < 10")
        assert [told(low) for _ in range(2)] == [2.0, 3.0]
    assert port.port.subscriptions.valid.dropped == 2


# ---- TLS


@pytest.mark.slow
def test_the_port_speaks_tls_with_a_certificate_and_its_clients_check_it(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certs")
    (tmp_path / "certs").mkdir()
    ca = certificates.make_ca()
    certificates.make_server(["127.0.0.1"])
    flags = (
        "--local-certificate",
        str(certificates.path("server")),
        "--local-key",
        str(certificates.key_path("server")),
    )
    with Mobile(tmp_path, "--cloud", "none", *flags) as mobile:
        assert mobile.local.startswith("mqtts://127.0.0.1:")
        with Subscriber("ana", server=mobile.local, ca=ca) as ana, Publisher("kit", server=mobile.local, ca=ca) as kit:
            high = subscribed(ana, "high", "NO2 > 40")
            kit.publish({"source": "m7", "NO2": 57.0}).wait(60)
            assert told(high) == 57.0
        other = Certificates(tmp_path / "other")
        (tmp_path / "other").mkdir()
        context = ssl.create_default_context(cafile=other.make_ca())
        host, number = mobile.local.removeprefix("mqtts://").split(":")
        with pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context(cafile=None).wrap_socket(_plain(host, int(number)), server_hostname=host)
        with pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(_plain(host, int(number)), server_hostname=host)
        wait_until(lambda: mobile.status()["counts"]["local_received"], "what was counted")


def _plain(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), 60)


def test_a_certificate_that_is_none_is_said_at_the_start(tmp_path: Path) -> None:
    for name in ("none.pem", "none.key"):
        (tmp_path / name).write_text("nothing")
    flags = ("--local-port", "0", "--local-certificate", str(tmp_path / "none.pem"), "--cloud", "none")
    done = command("run", *flags, "--data", str(tmp_path / "data"))
    assert done.returncode == 2
    assert "certificate and key go together" in done.stderr
    (tmp_path / "mobile.toml").write_text("acquire = []")
    done = command(
        "run", *flags, "--local-key", str(tmp_path / "none.key"), "--data", str(tmp_path / "data"),
        "--config", str(tmp_path / "mobile.toml"), "--web-port", "none",
    )  # fmt: skip
    assert done.returncode == 1
    assert "local.certificate" in done.stderr
    assert "Traceback" not in done.stderr
