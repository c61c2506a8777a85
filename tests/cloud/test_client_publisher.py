"""The publisher: what it has taken reaches the log, in order, whatever becomes of the link."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import MosquittoServer, NatsServer, answers, free_ports
from stand_in import StandIn, wait_until

import spinney
from spinney.client import (
    Closed,
    ConnectionRefused,
    NotStored,
    Outbox,
    OutboxFull,
    PublicationDropped,
    PublicationRefused,
    PublicationTooLarge,
    Publisher,
    ServerUnreachable,
)
from spinney_cloud.certs import Certificates

Server = NatsServer | MosquittoServer


def url(server: Server) -> str:
    return f"mqtt://127.0.0.1:{server.mqtt_port}"


def numbers(cloud: StandIn, source: str = "kit") -> list[int]:
    """Of what is stored of a source, in order, each once."""
    ids = [spinney.PublicationId.parse(id) for id in cloud.ids]
    return [id.sequence for id in ids if id.source == source]


def test_importing_spinney_does_not_import_paho() -> None:
    program = "import spinney, sys; assert 'paho' not in sys.modules; spinney.Publisher; assert 'paho' in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_publication_is_stored_with_its_source_and_number(mqtt_server: Server) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud, Publisher("kit", server=url(mqtt_server)) as kit:
        first = kit.publish({"NO2": 57, "type": "air", "ok": True})
        second = kit.publish({"source": "balcony", "temp": 21.5})
        kit.flush(10)
        assert first.stored
        assert second.stored
        boot = spinney.PublicationId.parse(first.id).boot
        assert cloud.log == [
            {"id": f"kit:{boot}:0", "source": "kit", "NO2": 57.0, "type": "air", "ok": True},
            {"id": f"balcony:{boot}:0", "source": "balcony", "temp": 21.5},
        ]
        assert kit.counts.stored == 2
        assert kit.waiting == 0


def test_a_batch_is_in_order_and_shares_messages(mqtt_server: Server) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud, Publisher("kit", server=url(mqtt_server), linger_ms=5) as kit:
        receipts = kit.publish_batch({"n": n} for n in range(1_000))
        kit.flush(10)
        assert all(receipt.stored for receipt in receipts)
        assert numbers(cloud) == list(range(1_000)) == [item["n"] for item in cloud.log]
        assert len(cloud.messages) < 100


def test_lingering_collects_what_comes_one_by_one(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, Publisher("kit", server=url(mosquitto), linger_ms=60_000) as kit:
        for n in range(20):
            kit.publish({"n": n})
        assert not cloud.messages
        kit.flush(10)
        assert len(cloud.messages) == 1
        assert len(cloud.log) == 20


def test_a_message_does_not_wait_for_the_one_before_it(mqtt_server: Server) -> None:
    """Without TCP_NODELAY each second one takes 40 ms. One of ten rounds must be quick: a busy machine delays some."""
    with StandIn(mqtt_server.mqtt_port), Publisher("kit", server=url(mqtt_server)) as kit:
        assert any(median_seconds(kit, 21) < 0.02 for _ in range(10))


def median_seconds(kit: Publisher, count: int) -> float:
    """From the publish of a reading until it is stored, one after the other."""
    seconds = []
    for n in range(count):
        began = time.monotonic()
        kit.publish({"n": n}).wait(10)
        seconds.append(time.monotonic() - began)
    return statistics.median(seconds)


def test_an_own_id_is_kept(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, Publisher("kit", server=url(mosquitto)) as kit:
        receipt = kit.publish({"id": "m7:4:17", "temp": 20})
        receipt.wait(10)
        assert receipt.id == "m7:4:17"
        assert cloud.log[0]["source"] == "m7"
        with pytest.raises(spinney.PublicationError, match="not of source 'm8'"):
            kit.publish({"id": "m7:4:18", "source": "m8"})


def test_what_is_no_publication_is_refused_at_the_door() -> None:
    kit = Publisher("kit")
    with pytest.raises(spinney.PublicationError) as error:
        kit.publish({"NO2": float("nan")})
    assert error.value.attribute == "NO2"
    with pytest.raises(spinney.PublicationError):
        kit.publish_batch([{"NO2": 1}, {"NO2": [2]}])
    assert kit.waiting == 0
    with pytest.raises(PublicationTooLarge):
        kit.publish({"text": "x" * (1 << 20)})
    kit.close()


def test_what_the_cloud_refuses_leaves_with_its_reason_and_the_rest_is_stored(mqtt_server: Server) -> None:
    told: list[tuple[str, Exception]] = []
    with StandIn(mqtt_server.mqtt_port) as cloud:
        cloud.refuse = lambda item: "too hot" if item["temp"] > 50 else None
        with Publisher("kit", server=url(mqtt_server), on_refused=lambda *what: told.append(what)) as kit:
            receipts = kit.publish_batch([{"temp": 20}, {"temp": 99}, {"temp": 21}])
            kit.flush(10)
            with pytest.raises(PublicationRefused, match="too hot"):
                receipts[1].wait(0)
            receipts[0].wait(0)
            receipts[2].wait(0)
            assert kit.counts.refused == 1
    assert [id for id, _ in told] == [receipts[1].id]
    assert isinstance(told[0][1], PublicationRefused)


def test_what_the_server_took_and_the_cloud_did_not_hear_is_sent_again(mqtt_server: Server) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud:
        cloud.deaf = True
        with Publisher("kit", server=url(mqtt_server), resend_seconds=0.1) as kit:
            receipt = kit.publish({"n": 0})
            wait_until(lambda: len(cloud.messages) >= 2, "a second copy")
            assert not receipt.stored
            cloud.deaf = False
            receipt.wait(10)
        assert numbers(cloud) == [0]


def test_a_lost_one_is_not_taken_for_stored_because_a_later_one_is(mqtt_server: Server) -> None:
    with (
        StandIn(mqtt_server.mqtt_port) as cloud,
        Publisher("kit", server=url(mqtt_server), resend_seconds=0.2) as kit,
    ):
        cloud.deaf = True
        lost = kit.publish({"n": 0})
        wait_until(lambda: cloud.messages, "the first")
        cloud.deaf = False
        later = kit.publish({"n": 1})
        later.wait(10)
        lost.wait(10)
        assert sorted(numbers(cloud)) == [0, 1]


def test_a_cloud_that_names_no_batches_is_taken_at_its_cumulative_word(mqtt_server: Server) -> None:
    with (
        StandIn(mqtt_server.mqtt_port, names_batches=False) as cloud,
        Publisher("kit", server=url(mqtt_server), resend_seconds=0.2) as kit,
    ):
        cloud.mute = True
        first = kit.publish({"n": 0})
        wait_until(lambda: cloud.log, "the first")
        cloud.mute = False
        kit.publish({"n": 1}).wait(10)
        first.wait(10)
        # The word for another publisher of the same source, which began later, says nothing of this one.
        cloud.deaf = True
        mine = kit.publish({"n": 2})
        wait_until(lambda: any(b'"n":2' in payload for _, payload in cloud.messages), "the third")
        boot = spinney.PublicationId.parse(mine.id).boot
        cloud.say("spinney/kit/reply", {"stored": {"kit": [boot + 1, 100]}})
        cloud.say("spinney/kit/reply", {"stored": {"kit": "nonsense"}, "refused": [{"row": 99}, 7]})
        cloud.deaf = False
        mine.wait(10)
        assert numbers(cloud) == [0, 1, 2]


@pytest.mark.parametrize("how", ["kill", "restart"])
def test_nothing_is_lost_when_the_server_goes_and_comes_back(mqtt_server: Server, how: str) -> None:
    states: list[bool] = []
    with (
        StandIn(mqtt_server.mqtt_port) as cloud,
        Publisher(
            "kit", server=url(mqtt_server), resend_seconds=0.5, on_connection=lambda up, _: states.append(up)
        ) as kit,
    ):
        kit.publish_batch({"n": n} for n in range(500))
        if how == "kill":
            mqtt_server.kill()
            kit.publish_batch({"n": n} for n in range(500, 1_000))
            wait_until(lambda: not kit.connected, "the loss is noticed")
            mqtt_server.start()
        else:
            mqtt_server.restart()
            kit.publish_batch({"n": n} for n in range(500, 1_000))
        kit.flush(20)
        assert sorted(numbers(cloud)) == list(range(1_000))
        wait_until(lambda: states[-1:] == [True] and False in states, "on_connection")


def test_a_half_open_link_holds_everything_until_it_speaks_again(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, Publisher("kit", server=url(mosquitto)) as kit:
        kit.publish({"n": 0}).wait(10)
        mosquitto.pause()
        kit.publish({"n": 1})
        with pytest.raises(NotStored) as error:
            kit.flush(0.2)
        assert error.value.count == 1
        mosquitto.resume()
        kit.flush(10)
        assert numbers(cloud) == [0, 1]


def test_publishing_begins_before_there_is_a_server(tmp_path: Path) -> None:
    server = MosquittoServer(tmp_path / "late")
    kit = Publisher("kit", server=url(server))
    receipt = kit.publish({"n": 0})
    with pytest.raises(ServerUnreachable) as error:
        kit.connect(0.3)
    assert error.value.server == url(server)
    kit.connect(0)
    with server, StandIn(server.mqtt_port) as cloud:
        receipt.wait(20)
        kit.close()
        assert numbers(cloud) == [0]


def test_a_wrong_password_is_told_at_once(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", extra='authorization { users = [{user: kit, password: "right"}] }') as server:
        with pytest.raises(ConnectionRefused) as error:
            Publisher("kit", server=url(server), password="wrong").connect()
        assert error.value.user == "kit"
        assert "right" not in str(error.value)
        with Publisher("kit", server=url(server), password="right") as kit:
            assert kit.connected


def test_topics_that_are_not_granted_are_told(tmp_path: Path) -> None:
    rights = '{user: kit, password: "p", permissions: {publish: ["spinney.kit.pub"], subscribe: ["other.>"]}}'
    with (
        NatsServer(tmp_path / "nats", extra=f"authorization {{ users = [{rights}] }}") as server,
        pytest.raises(ConnectionRefused, match="spinney/kit/reply"),
    ):
        Publisher("kit", server=url(server), password="p").connect()


def test_tls_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    ca, _, _ = certificates.make_ca(), certificates.make_server(["127.0.0.1"]), certificates.make_client("kit")
    (plain,) = free_ports(1)
    listener = f"""cafile {ca}
certfile {certificates.path("server")}
keyfile {certificates.key_path("server")}
require_certificate true
listener {plain} 127.0.0.1"""
    own = (certificates.path("client-kit"), certificates.key_path("client-kit"))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(MosquittoServer(tmp_path / "mosquitto", listener=listener))
        wait_until(lambda: answers(plain), "the listener without TLS")
        cloud = stack.enter_context(StandIn(plain))
        address = f"mqtts://127.0.0.1:{server.mqtt_port}"
        with Publisher("kit", server=address, ca=ca, certificate=own) as kit:
            kit.publish({"n": 1}).wait(10)
            assert numbers(cloud) == [0]
        for wrong in (
            Publisher("kit", server=address, ca=ca),
            Publisher("kit", server=address, certificate=own),
            Publisher("kit", server=address, ca=tmp_path / "none"),
        ):
            with pytest.raises(ServerUnreachable):
                wrong.connect(0.5)


def test_mqtt_over_a_web_socket(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    extra = f'websocket {{ listen: "127.0.0.1:{port}", no_tls: true }}'
    with (
        NatsServer(tmp_path / "nats", extra=extra) as server,
        StandIn(server.mqtt_port) as cloud,
        Publisher("kit", server=f"ws://127.0.0.1:{port}") as kit,
    ):
        kit.publish_batch({"n": n} for n in range(100))
        kit.flush(10)
        assert numbers(cloud) == list(range(100))


def test_disconnected_it_keeps_what_is_published_until_it_is_connected_again(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        kit = Publisher("kit", server=url(mosquitto)).connect()
        kit.publish({"n": 0}).wait(10)
        kit.disconnect()
        assert not kit.connected
        later = kit.publish({"n": 1})
        kit.connect()
        later.wait(10)
        kit.close()
        kit.close()
        assert numbers(cloud) == [0, 1]
        with pytest.raises(Closed):
            kit.publish({"n": 2})


def test_a_server_that_pings_and_never_acknowledges_is_left(
    mosquitto: MosquittoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spinney.client.sending.PUBACK_SECONDS", 0.1)
    with StandIn(mosquitto.mqtt_port) as cloud, Publisher("kit", server=url(mosquitto)) as kit:
        monkeypatch.setattr(kit, "acked", lambda _: None)  # as if none came
        cloud.mute = True
        kit.publish({"n": 0})
        wait_until(lambda: len(cloud.messages) >= 3, "over and over, on new links")
        cloud.mute = False
        kit.flush(10)


class NonsenseServer:
    """Lets everybody in, and then says anything: as MQTT, nearly."""

    def __init__(self, seed: int) -> None:
        self.connections = 0
        self._randomly = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                self.connections += 1
                link.settimeout(0.02)
                with link, contextlib.suppress(OSError):
                    self._say_nonsense(link)

    def _say_nonsense(self, link: socket.socket) -> None:
        for answer in (b"\x20\x02\x00\x00", b"\x90\x03\x00\x01\x01", *(self._packet() for _ in range(3))):
            link.recv(10_000)
            link.sendall(answer)

    def _packet(self) -> bytes:
        body = self._randomly.randbytes(self._randomly.randrange(12))
        kind = self._randomly.choice(b"\x20\x30\x32\x34\x40\x50\x62\x90\xb0\xd0\xe0\x00\xf0")
        return bytes([kind, len(body)]) + body


def test_a_server_that_talks_nonsense_is_tried_again_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: died.append(args.exc_value))
    monkeypatch.setattr("spinney.client.dialogue.FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("spinney.client.dialogue.LONGEST_PAUSE_SECONDS", 0.001)
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    server = NonsenseServer(seed)
    kit = Publisher("kit", server=f"mqtt://127.0.0.1:{server.port}")
    try:
        kit.publish({"n": 0})
        kit.connect(0)
        wait_until(lambda: server.connections > 200 or died, "many connections")
    finally:
        kit.disconnect()
        server.close()
    assert died == []
    assert kit.waiting == 1


def test_no_server_is_told_within_the_time() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ServerUnreachable, match="refused"):
        Publisher("kit", server=f"mqtt://127.0.0.1:{port}").connect(1.0)


@pytest.mark.parametrize(
    ("when_full", "raises"), [("raise", True), ("drop_oldest", False)], ids=["raises", "drops the oldest"]
)
def test_a_full_outbox(when_full: str, raises: bool) -> None:
    told: list[str] = []
    kit = Publisher(
        "kit",
        outbox=Outbox(max_count=3),
        when_full=when_full,  # type: ignore[arg-type]  # one of its words
        on_refused=lambda id, _: told.append(id),
    )
    first = kit.publish_batch([{"n": 0}, {"n": 1}, {"n": 2}])
    if raises:
        with pytest.raises(OutboxFull):
            kit.publish({"n": 3})
    else:
        kit.publish({"n": 3})
        with pytest.raises(PublicationDropped):
            first[0].wait(0)
        assert kit.counts.dropped == 1
        wait_until(lambda: told == [first[0].id], "on_refused")
    assert kit.waiting == 3
    with pytest.raises(NotStored):
        kit.close()
    with pytest.raises(Closed):
        first[2].wait(0)


def test_a_full_outbox_waits_for_room_and_numbers_in_order(mosquitto: MosquittoServer) -> None:
    with (
        StandIn(mosquitto.mqtt_port) as cloud,
        Publisher("kit", server=url(mosquitto), outbox=Outbox(max_count=5)) as kit,
    ):
        threads = [threading.Thread(target=lambda: [kit.publish({"n": n}) for n in range(100)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kit.flush(10)
        assert numbers(cloud) == list(range(400))


def test_a_full_outbox_that_does_not_empty_is_told() -> None:
    kit = Publisher("kit", outbox=Outbox(max_count=1), full_wait_seconds=0.05)
    kit.publish({"n": 0})
    with pytest.raises(OutboxFull):
        kit.publish({"n": 1})
    with pytest.raises(NotStored):
        kit.close()


def test_messages_keep_below_what_the_cloud_says_it_takes(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        cloud.max_payload = 2_000
        with Publisher("kit", server=url(mosquitto), linger_ms=60_000) as kit:
            kit.publish({"n": 0})
            kit.flush(10)
            large = kit.publish({"text": "x" * 1_500})
            kit.publish_batch({"n": n} for n in range(200))
            kit.flush(10)
            assert large.stored
            assert max(len(payload) for _, payload in cloud.messages) <= 2_000
            with pytest.raises(PublicationTooLarge):
                kit.publish({"text": "x" * 2_000})


def test_what_has_become_too_large_leaves_with_an_error(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, Publisher("kit", server=url(mosquitto), linger_ms=60_000) as kit:
        cloud.deaf = True
        large = kit.publish({"text": "x" * 5_000})
        cloud.say("spinney/kit/reply", {"stored": {}, "max_payload": 2_000})
        with pytest.raises(PublicationTooLarge):
            large.wait(10)
        assert kit.waiting == 0


def test_unpublish_reaches_the_cloud(mqtt_server: Server) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud, Publisher("kit", server=url(mqtt_server)) as kit:
        receipt = kit.publish({"n": 0, "valid_for": 3600})
        kit.unpublish(receipt)
        kit.flush(10)
        wait_until(lambda: cloud.unpublished == [receipt.id], "unpub")


def test_unpublish_survives_a_lost_link(nats: NatsServer) -> None:
    with StandIn(nats.mqtt_port) as cloud, Publisher("kit", server=url(nats)) as kit:
        nats.pause()
        kit.unpublish("m7:4:17")
        wait_until(lambda: kit._unpublished["m7:4:17"].sent == 1, "it is sent to a server that does not hear it")
        nats.kill()
        nats.start()
        kit.flush(8)  # before it is due again
        wait_until(lambda: "m7:4:17" in cloud.unpublished, "unpub")


def test_a_receipt_can_be_awaited(mosquitto: MosquittoServer) -> None:
    async def main(kit: Publisher) -> None:
        receipts = [kit.publish({"n": n}) for n in range(3)]
        await asyncio.wait_for(asyncio.gather(*[wrap(receipt) for receipt in receipts]), 10)
        assert all(receipt.stored for receipt in receipts)
        refused = kit.publish({"n": -1})
        with pytest.raises(PublicationRefused):
            await asyncio.wait_for(wrap(refused), 10)

    async def wrap(receipt: spinney.client.Receipt) -> None:
        await receipt

    with StandIn(mosquitto.mqtt_port) as cloud, Publisher("kit", server=url(mosquitto)) as kit:
        cloud.refuse = lambda item: "negative" if item["n"] < 0 else None
        asyncio.run(main(kit))


def test_a_callback_that_fails_is_reported_and_harms_no_other(
    mosquitto: MosquittoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    told: list[str] = []

    def fail(id: str, _error: Exception) -> None:
        told.append(id)
        raise ZeroDivisionError

    with StandIn(mosquitto.mqtt_port) as cloud, Publisher("kit", server=url(mosquitto), on_refused=fail) as kit:
        cloud.refuse = lambda _: "no"
        receipts = kit.publish_batch([{"n": 0}, {"n": 1}])
        kit.flush(10)
        wait_until(lambda: len(told) == 2 and len(reported) == 2, "both callbacks")
    assert told == [receipt.id for receipt in receipts]
    assert reported == [ZeroDivisionError] * 2


WORDS = ["stored", "batch", "refused", "row", "id", "reason", "max_payload", "request", "ok", "error", "kit"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3000) | st.floats() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=12,
)


class Message(NamedTuple):
    """A reply that came over no link."""

    payload: bytes

    def ack(self) -> None:
        """To nobody."""


@given(JSON)
def test_whatever_comes_as_a_reply_harms_nothing(item: object) -> None:
    kit = Publisher("kit")
    receipt = kit.publish({"n": 0})
    kit.arrived(Message(json.dumps(item).encode()))  # type: ignore[arg-type]  # all that it needs of one
    assert not receipt.stored
    with contextlib.suppress(NotStored):
        kit.close()


def test_two_publishers_of_one_process_have_different_boots() -> None:
    boots = set()
    for _ in range(5):
        kit = Publisher("kit", outbox=Outbox())
        boots.add(spinney.PublicationId.parse(kit.publish({"n": 0}).id).boot)
        with pytest.raises(NotStored):
            kit.close()
    assert len(boots) == 5


def test_names_and_addresses_that_cannot_be_are_refused() -> None:
    for name in ("", "a/b", "*", "ü", "x" * 65):
        with pytest.raises(ValueError, match="a client's name"):
            Publisher(name)
    for server in ("http://here", "mqtt://", "mqtt://here:99999", "mqtt://user:hush@here"):
        with pytest.raises(ValueError, match=r"address|server|port") as error:
            Publisher("kit", server=server)
        assert "hush" not in str(error.value)


def test_a_password_is_shown_nowhere() -> None:
    kit = Publisher("kit", password="hush-hush")
    assert "hush-hush" not in repr(vars(kit))
    kit.close()


def test_the_envelope_is_one_json_object_with_a_batch_of_its_own(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        for _ in range(2):
            with Publisher("kit", server=url(mosquitto)) as kit:
                kit.publish({"name": "Šuma \u0001 \U0001f332"}).wait(10)
        envelopes = [json.loads(payload) for _, payload in cloud.messages]
        assert [list(envelope) for envelope in envelopes] == [["batch", "publications"]] * 2
        assert envelopes[0]["batch"] != envelopes[1]["batch"]
        assert envelopes[0]["publications"][0]["name"] == "Šuma \u0001 \U0001f332"
