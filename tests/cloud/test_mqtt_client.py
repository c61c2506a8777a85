from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats import connect
from servers import HOST, MosquittoServer, NatsServer, free_ports

from spinney.mqtt_codec import REFUSED
from spinney_cloud.certs import Certificates
from spinney_cloud.mqtt import MqttClient, MqttError, MqttRefused, Publish, Will, link
from spinney_cloud.mqtt.client import WindowFull

Server = NatsServer | MosquittoServer
BOTH = pytest.mark.parametrize(
    "kind", [NatsServer, pytest.param(MosquittoServer, marks=pytest.mark.needs("mosquitto"))]
)


@pytest.fixture(params=["nats", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))])
def hasty_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Sends soon again what is not acknowledged."""
    if request.param == "nats":
        with NatsServer(tmp_path / "nats", ack_wait="1s") as server:
            yield server
    else:
        with MosquittoServer(tmp_path / "mosquitto") as server:
            yield server


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


@asynccontextmanager
async def client(server: Server | int, name: str, **options: Any) -> AsyncIterator[MqttClient]:
    port = server if isinstance(server, int) else server.mqtt_port
    made = MqttClient(options.pop("host", HOST), port, name, **options)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


class Inbox:
    """Keeps messages, acknowledged or not."""

    def __init__(self, *, ack: bool = True) -> None:
        self.messages: list[Publish] = []
        self.client: MqttClient | None = None
        self.ack = ack
        self._news = asyncio.Event()

    def take(self, message: Publish) -> None:
        self.messages.append(message)
        self._news.set()
        if self.ack and self.client is not None:
            self.client.ack(message)

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()


@asynccontextmanager
async def listening(server: Server, name: str, *, ack: bool = True, **options: Any) -> AsyncIterator[Inbox]:
    inbox = Inbox(ack=ack)
    made = MqttClient(HOST, server.mqtt_port, name, on_message=inbox.take, **options)
    inbox.client = made
    await made.start()
    try:
        yield inbox
    finally:
        await made.close()


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def first_of_each(payloads: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(payloads))


async def delivery(server: Server) -> None:
    async with listening(server, "listener") as inbox, client(server, "publisher") as publisher:
        assert inbox.client is not None
        assert await inbox.client.subscribe(["spinney/+/pub", "other/#"]) == (1, 1)
        for payload in numbers(3000):
            await publisher.publish("spinney/m7/pub", payload)
        await publisher.drain()
        await publisher.publish("other/thing", b"once", qos=0)
        await inbox.until(lambda: len(inbox.messages) >= 3001)
        assert [message.payload for message in inbox.messages if message.qos] == numbers(3000)
        assert {message.topic for message in inbox.messages} == {"spinney/m7/pub", "other/thing"}
        assert not any(message.dup for message in inbox.messages)
        assert publisher.in_flight == 0
        assert publisher.acknowledged == 3000


def test_messages_arrive_in_order(mqtt_server: Server) -> None:
    run(delivery(mqtt_server))


def test_what_is_not_acknowledged_comes_again_and_what_is_does_not(hasty_server: Server) -> None:
    async def test() -> None:
        async with client(hasty_server, "publisher") as publisher:
            async with listening(hasty_server, "listener", ack=False) as inbox:
                assert inbox.client is not None
                await inbox.client.subscribe("a")
                for payload in numbers(10):
                    await (await publisher.publish("a", payload))
                await inbox.until(lambda: len(inbox.messages) == 10)
                for message in inbox.messages[:4]:
                    inbox.client.ack(message)
                await (await inbox.client.publish("after", b""))  # a server may not read what comes before a good-bye
                await unacknowledged(hasty_server, 6)
            async with listening(hasty_server, "listener") as inbox:
                assert inbox.client is not None
                assert inbox.client.session_present
                await inbox.until(lambda: len(inbox.messages) >= 6)
                assert sorted(inbox.payloads) == numbers(10)[4:]
                assert all(message.dup for message in inbox.messages)

    run(test())


async def unacknowledged(server: Server, count: int) -> None:
    """nats-server takes acknowledgements in its own time, and forgets those of a client that has left meanwhile."""
    if isinstance(server, NatsServer):
        nats = await connect(server.url)
        while True:
            reply = await nats.request("$JS.API.CONSUMER.LIST.$MQTT_msgs", b"", timeout=10)
            if sum(each["num_ack_pending"] for each in json.loads(reply.data)["consumers"]) == count:
                break
        await nats.close()


def test_an_acknowledgement_of_an_earlier_connection_is_not_sent(hasty_server: Server) -> None:
    async def test() -> None:
        async with listening(hasty_server, "listener", ack=False) as inbox:
            assert inbox.client is not None
            await inbox.client.subscribe("a")
            async with client(hasty_server, "publisher") as publisher:
                await (await publisher.publish("a", b"x"))
            await inbox.until(lambda: len(inbox.messages) == 1)
            inbox.client.abort()
            await inbox.until(lambda: len(inbox.messages) == 2)
            first, again = inbox.messages
            assert again.dup
            assert (first.connection, again.connection) == (1, 2)
            inbox.client.ack(first)
            await (await inbox.client.publish("b", b"what went before has arrived, too"))
            inbox.client.abort()
            await inbox.until(lambda: len(inbox.messages) == 3)
            inbox.client.ack(inbox.messages[2])

    run(test())


def test_a_publisher_sends_again_in_order_over_restarts_of_the_server(mqtt_server: Server) -> None:
    count = 3000

    async def test() -> None:
        async with (
            listening(mqtt_server, "listener") as inbox,
            client(mqtt_server, "publisher", max_in_flight=200) as publisher,
        ):
            assert inbox.client is not None
            await inbox.client.subscribe("a")
            for number, payload in enumerate(numbers(count)):
                await publisher.publish("a", payload)
                if number in (1000, 2000):
                    publisher.abort()  # the last of them cannot have been acknowledged yet
                    await asyncio.to_thread(mqtt_server.restart)
            await publisher.drain()
            await inbox.until(lambda: len(set(inbox.payloads)) == count)
            assert first_of_each(inbox.payloads) == numbers(count)
            assert publisher.connections >= 3
            assert publisher.resent > 0

    run(test())


def test_kill_9_of_the_server_loses_nothing_that_was_not_acknowledged(nats: NatsServer) -> None:
    async def test() -> None:
        async with client(nats, "publisher", max_in_flight=500) as publisher, listening(nats, "listener") as inbox:
            assert inbox.client is not None
            await inbox.client.subscribe("a")
            for number, payload in enumerate(numbers(6000)):
                await publisher.publish("a", payload)
                if number in (2000, 4000):
                    nats.kill()
                    await asyncio.to_thread(nats.start)
            await publisher.drain()
            await inbox.until(lambda: len(set(inbox.payloads)) == 6000)
            assert first_of_each(inbox.payloads) == numbers(6000)

    run(test())


def test_publish_waits_while_the_window_is_full(mqtt_server: Server) -> None:
    async def test() -> None:
        async with client(mqtt_server, "publisher", max_in_flight=10) as publisher:
            mqtt_server.pause()
            done = [await publisher.publish("a", payload) for payload in numbers(10)]
            with pytest.raises(WindowFull):
                publisher.publish_nowait("a", b"one more")
            waiting = asyncio.create_task(publisher.publish("a", b"waits"))
            await asyncio.wait({waiting}, timeout=0.05)
            assert not waiting.done()
            assert publisher.in_flight == 10
            mqtt_server.resume()
            await asyncio.gather(*done)
            await (await waiting)
            await publisher.publish_nowait("a", b"one more")

    run(test())


def test_a_server_that_says_nothing_is_noticed_and_found_again(mqtt_server: Server) -> None:
    async def test() -> None:
        async with client(mqtt_server, "publisher", keepalive_seconds=1) as publisher:
            mqtt_server.pause()
            unacknowledged = await publisher.publish("a", b"x")
            async with asyncio.timeout(5):
                while publisher.connected.is_set():
                    await asyncio.sleep(0.02)
            assert not unacknowledged.done()
            mqtt_server.resume()
            await unacknowledged
            assert publisher.connections == 2

    run(test())


def test_close_ends_in_time_although_the_server_says_nothing(
    mqtt_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "CLOSE_SECONDS", 0.3)

    async def test() -> None:
        async with client(mqtt_server, "publisher") as publisher:
            mqtt_server.pause()
            done = [await publisher.publish("a", b"x" * 500_000) for _ in range(20)]
            async with asyncio.timeout(5):
                await publisher.close()
            assert all(future.cancelled() for future in done)
            with pytest.raises(MqttError, match="closed"):
                await publisher.publish("a", b"x")

    run(test())


def test_an_idle_connection_is_kept_alive(mqtt_server: Server) -> None:
    async def test() -> None:
        async with client(mqtt_server, "idle", keepalive_seconds=1) as idle:
            assert not await _lost_within(idle, 2.0)
            assert idle.connections == 1

    run(test())


async def _lost_within(one: MqttClient, seconds: float) -> bool:
    assert one._link is not None
    done, _ = await asyncio.wait({one._link.lost}, timeout=seconds)
    return bool(done)


def test_a_session_that_the_server_forgot_is_subscribed_again(mqtt_server: Server) -> None:
    async def test() -> None:
        async with listening(mqtt_server, "listener", clean=True) as inbox, client(mqtt_server, "p") as publisher:
            assert inbox.client is not None
            await inbox.client.subscribe(["a", "b"])
            await inbox.client.unsubscribe("b")
            await asyncio.to_thread(mqtt_server.restart)
            async with asyncio.timeout(10):
                while not inbox.messages:
                    await (await publisher.publish("b", b"no more"))
                    await (await publisher.publish("a", b"again"))
            assert not inbox.client.session_present
            assert {message.topic for message in inbox.messages} == {"a"}

    run(test())


def test_ids_begin_anew_after_the_last_and_skip_those_in_use(nats: NatsServer) -> None:
    async def test() -> None:
        async with listening(nats, "listener") as inbox, client(nats, "publisher") as publisher:
            assert inbox.client is not None
            await inbox.client.subscribe("a")
            publisher._last_id = 65_530
            for payload in numbers(20):
                await publisher.publish("a", payload)
            await publisher.drain()
            await inbox.until(lambda: len(inbox.messages) == 20)
            assert inbox.payloads == numbers(20)
            assert publisher._last_id < 65_000

    run(test())


def test_what_cannot_be_published_is_refused_at_once(nats: NatsServer) -> None:
    async def test() -> None:
        async with client(nats, "publisher") as publisher:
            for topic, payload, qos in (("a/#", b"", 1), ("a", b"", 2), ("a", b"x" * 1_000_001, 1)):
                with pytest.raises(MqttError):
                    await publisher.publish(topic, payload, qos)
            await (await publisher.publish("a", b"the connection is well"))
            assert publisher.connections == 1

    run(test())


def test_the_will_is_published_when_we_vanish_and_not_when_we_leave(mqtt_server: Server) -> None:
    async def test() -> None:
        async with listening(mqtt_server, "listener") as inbox:
            assert inbox.client is not None
            await inbox.client.subscribe("will/#")
            async with client(mqtt_server, "leaves", clean=True, will=Will("will/left", b"x")):
                pass
            async with client(mqtt_server, "vanishes", clean=True, will=Will("will/gone", b"y")) as vanishing:
                vanishing.abort()
                await inbox.until(lambda: bool(inbox.messages))
            assert {(message.topic, message.payload) for message in inbox.messages} == {("will/gone", b"y")}

    run(test())


# ---- Who may connect, and over what -----------------------------------------------------------------------------


def with_users(kind: type[Server], folder: Path) -> Server:
    """Both servers know `gateway` with the password `right`."""
    if kind is NatsServer:
        users = '{user: "gateway", password: "right", permissions: {subscribe: {deny: ["secret.>"]}}}'
        return NatsServer(folder, extra=f"authorization {{ users: [{users}] }}")
    folder.mkdir(parents=True)
    subprocess.run(["mosquitto_passwd", "-b", "-c", folder / "users", "gateway", "right"], check=True)
    if os.geteuid() == 0:
        (folder / "users").chmod(0o600)
    return MosquittoServer(folder, anonymous=False, extra=f"password_file {folder}/users")


@BOTH
def test_a_bad_password_is_said_at_start(kind: type[Server], tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        async with client(server, "gateway", user="gateway", password="right"):
            pass
        wrong = MqttClient(HOST, server.mqtt_port, "gateway", user="gateway", password="wrong")
        with pytest.raises(MqttRefused, match=r"password|authorised") as refused:
            await wrong.start()
        assert refused.value.for_good

    with with_users(kind, tmp_path / "server") as server:
        run(test(server))


def test_a_filter_that_is_not_granted_has_the_code_of_refusal(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        async with client(server, "gateway", user="gateway", password="right") as gateway:
            assert await gateway.subscribe(["open", "secret/#"]) == (1, REFUSED)
            assert gateway.refused == {"secret/#"}

    with with_users(NatsServer, tmp_path / "server") as server:
        run(test(server))


def over_tls(kind: type[Server], folder: Path, certificates: Certificates) -> Server:
    shown, key = certificates.path("server"), certificates.key_path("server")
    if kind is NatsServer:
        return NatsServer(folder, mqtt=f', tls {{ cert_file: "{shown}", key_file: "{key}" }}')
    return MosquittoServer(folder, listener=f"certfile {shown}\nkeyfile {key}")


@BOTH
def test_over_tls_the_servers_certificate_is_checked(kind: type[Server], tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.make_ca()
    certificates.make_server(["localhost", HOST])

    async def test(server: Server) -> None:
        ours = ssl.create_default_context(cafile=certificates.path("ca"))
        async with client(server, "c", host="localhost", tls=ours) as one:
            await (await one.publish("a", b"x" * 500_000))
        stranger = MqttClient("localhost", server.mqtt_port, "c", tls=ssl.create_default_context())
        waiting = asyncio.create_task(stranger.start())
        async with asyncio.timeout(5):
            while stranger.trouble is None:
                await asyncio.sleep(0.01)
        assert "CERTIFICATE_VERIFY_FAILED" in stranger.trouble
        waiting.cancel()
        await asyncio.wait({waiting})

    with over_tls(kind, tmp_path / "server", certificates) as server:
        run(test(server))


# ---- Hostile servers --------------------------------------------------------------------------------------------

ACCEPTED = b"\x20\x02\x00\x00"


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
        pytest.param(b"\x40\x02\x00\x01", id="something before CONNACK"),
        pytest.param(ACCEPTED + ACCEPTED, id="two CONNACKs"),
        pytest.param(ACCEPTED + b"\x30\xff\xff\xff\x7f", id="a packet of 256 MB"),
        pytest.param(ACCEPTED + bytes(range(256)) * 20, id="rubbish"),
        pytest.param(ACCEPTED + b"\x40\x02\xff\x00\x90\x03\xff\x00\x01", id="answers to nothing, then the end"),
    ],
)
def test_a_hostile_server_is_left_and_tried_again(reply: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        visits: asyncio.Queue[None] = asyncio.Queue()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(reply)
            visits.put_nowait(None)
            writer.close()

        (port,) = free_ports(1)
        async with await asyncio.start_server(serve, HOST, port):
            made = MqttClient(HOST, port, "c")
            waiting = asyncio.create_task(made.start())
            for _ in range(3):
                await visits.get()
            assert made.in_flight == 0
            waiting.cancel()
            await asyncio.wait({waiting})
            await made.close()

    run(test())
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_start_waits_for_a_server_that_comes_later(tmp_path: Path) -> None:
    async def test(server: NatsServer) -> None:
        made = MqttClient(HOST, server.mqtt_port, "c")
        waiting = asyncio.create_task(made.start())
        await asyncio.wait({waiting}, timeout=0.1)
        assert not waiting.done()
        await asyncio.to_thread(server.start)
        await waiting
        await made.close()

    server = NatsServer(tmp_path / "nats")
    try:
        run(test(server))
    finally:
        server.kill()
