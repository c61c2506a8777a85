"""Malformed and hostile input, clients without number, and one that never acknowledges: nobody else notices."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

import httpx
import orjson
import psutil
import pytest
from fault_kit import ACK_PENDING, SECONDS, Listener, Source, Stand, run, seed_of_today, until
from servers import HOST

from spinney import mqtt_codec as codec
from spinney_cloud.mqtt import MqttClient, Publish

pytestmark = pytest.mark.slow

CONNECTIONS = 1_000
AT_ONCE = 50
CONNECT = codec.connect("eve-raw", clean=True, keepalive_seconds=20)
PROMPT_SECONDS = 2.0
"""In which a well-behaved client hears what it is owed, whatever the others do."""


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """One for all tests here: that it is unharmed afterwards is what they are about."""
    stand = Stand(tmp_path_factory.mktemp("hostile"))
    stand.start()
    try:
        yield stand
        assert "killed" not in stand.cloud.said
        assert "Traceback" not in stand.cloud.said
        assert "starts again" not in stand.cloud.said
    finally:
        print(stand.tails())
        stand.stop()


class Good:
    """A publisher and a subscriber of good manners, whom it is looked after all the while."""

    def __init__(self, stand: Stand, name: str) -> None:
        self.source = Source(stand.nats.mqtt_port, f"{name}-kit", 1)
        self.listener = Listener(stand.nats.mqtt_port, f"{name}-ana")
        self.slowest = 0.0
        self._name = name
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Good:
        await self.listener.start()
        await self.listener.subscribe("all", f"room IN ('a', 'b', 'c', 'd') AND source LIKE '{self._name}-kit%'")
        await self.source.start()
        self._watch = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, kind: object, *_error: object) -> None:
        assert self._watch is not None
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        await self.source.finish()
        expected = sum(self.source.published.values())
        await until(lambda: len(self.listener.got) == expected, "all that the good subscriber is owed", 20.0)
        assert self.listener.repeated == 0
        assert self.source.refused == []
        await self.listener.mqtt.close()
        print(f"the slowest notification took {self.slowest:.2f} s")
        if kind is None:
            assert self.slowest < PROMPT_SECONDS

    async def _look(self) -> None:
        while True:
            began, goal = monotonic(), sum(self.source.published.values()) + 1
            while len(self.listener.got) < goal:
                await asyncio.sleep(0.005)
                self.slowest = max(self.slowest, monotonic() - began)


# ---- MQTT -------------------------------------------------------------------------------------------------------


def hostile_bytes(random_: random.Random) -> bytes:
    """What is no MQTT, or not quite."""
    good = [
        CONNECT,
        codec.publish(b"spinney/eve/pub", b'{"x":1}', 7, qos=1),
        codec.subscribe(3, {"spinney/eve/note/+": 1}),
        codec.puback(9),
    ]
    data = bytearray(b"".join([CONNECT, *random_.choices(good, k=random_.randrange(4))]))
    match random_.randrange(5):
        case 0:
            return random_.randbytes(random_.randrange(1, 300))
        case 1:
            del data[random_.randrange(len(data)) :]
        case 2:
            for _ in range(random_.randrange(1, 6)):
                data[random_.randrange(len(data))] = random_.randrange(256)
        case 3:
            data += bytes([random_.randrange(256), 0xFF, 0xFF, 0xFF, 0x7F]) + random_.randbytes(200)
        case 4:
            at = random_.randrange(len(data))
            data[at:at] = random_.randbytes(random_.randrange(1, 20))
    return bytes(data)


async def throw(port: int, data: bytes, wait_seconds: float = 0.02) -> None:
    """Open, send, perhaps listen a little, and be gone."""
    with suppress(OSError):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(data)
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1000), wait_seconds)
        finally:
            writer.transport.abort()


def hostile_payload(random_: random.Random) -> bytes:
    """What may look like a publication, a subscription or an announcement."""
    pieces: list[Any] = [
        {"x": 1},
        [{"x": 1}, 5, None],
        {"x": 1e308, "time": -1e308, "valid_for": -1},
        {"id": "eve:1:99999999999999999999", "source": "mallory"},
        {"source": "\u0000", "lat": 1e9, "type": "x" * 5_000},
        {"batch": {}, "publications": "x", "labels": [[1, 2]], "epochs": []},
        [{"bn": "eve", "bt": 1e300, "n": "x", "v": 1}, {"n": "\u20ac", "vs": 5}],
        {"session": "s", "sources": [{"name": "m", "attributes": {"x": {"min": 9, "max": -9}}}]},
        {"session": "s", "validity": 0, "lease": ["m"], "have": -1},
        {"filter": {"op": "and", "args": [{"op": "<", "args": [{"property": "x"}, "y"]}] * 50}},
        {"text": "WHEN x > 1 UNTIL", "reorder": -5, "density": {"per_cell": 0}},
        {"op": "s_within", "args": []},
    ]
    texts = [
        b"",
        b"[" * 50_000,
        b'{"a":' * 5_000,
        b"(" * 20_000 + b"x > 1",
        b"NOT " * 5_000 + b"x > 1",
        b"x > 1 AND " * 3_000 + b"x > 2",
        b"x LIKE '" + b"%_" * 2_000 + b"'",
        b'{"x": NaN}',
        b'{"x": 1e999}',
        b'{"x":"\\ud800"}',
        b"\xff\xfe\x00",
        b"\xbf" * 100,
        b"\x9f" * 3_000,
        b"ARROW1\x00\x00" + b"\xff" * 64,
        b"\xff\xff\xff\xff" + struct.pack("<i", 2**31 - 1) + b"\x00" * 64,
    ]
    data = bytearray(random_.choice(texts) if random_.random() < 0.5 else orjson.dumps(random_.choice(pieces)))
    if data and random_.random() < 0.5:
        for _ in range(random_.randrange(1, 4)):
            data[random_.randrange(len(data))] = random_.randrange(256)
    return bytes(data)


NAMES = ("eve", "eve", "eve", "x" * 65, "e$v")
LEAVES = ("pub", "pub", "unpub", "ann", "sub/s1", "sub/s2", "sub", "reply", "act", "note/s1", "pub/x")
ILLEGAL = ("eve/sub/a b", "eve/sub/*", "eve/sub/>", "eve/sub/", "/pub", "e.v/pub", "#", "eve/+", "\u0000/pub", "")
"""nats-server ends the connection of who publishes to some of these, or does not take it."""


async def send_hostile_payloads(stand: Stand, random_: random.Random, count: int) -> None:
    """All of them are taken by the MQTT server, and acknowledged: it is the gateway that must cope."""
    eve = MqttClient(HOST, stand.nats.mqtt_port, "eve-id", clean=True)
    await eve.start()
    for _ in range(count):
        await eve.publish(f"spinney/{random_.choice(NAMES)}/{random_.choice(LEAVES)}", hostile_payload(random_))
    await asyncio.wait_for(eve.drain(), SECONDS)
    assert eve.connections == 1
    await eve.close()


def to_illegal_topic(random_: random.Random) -> bytes:
    """A client's packets that name a topic which it may not."""
    where = f"spinney/{random_.choice(ILLEGAL)}".encode()
    return CONNECT + codec.publish(where, hostile_payload(random_)[:2_000], 7, qos=1)


async def attack_mqtt(stand: Stand, count: int) -> None:
    seed = seed_of_today()
    print(f"seed {seed}")
    random_ = random.Random(seed)
    async with Good(stand, "m"):
        packets = [random_.choice([hostile_bytes, hostile_bytes, to_illegal_topic])(random_) for _ in range(count)]
        await asyncio.gather(send_hostile_payloads(stand, random_, count), throw_all(stand.nats.mqtt_port, packets))


async def throw_all(port: int, payloads: list[bytes]) -> None:
    for first in range(0, len(payloads), AT_ONCE):
        await asyncio.gather(*(throw(port, data) for data in payloads[first : first + AT_ONCE]))


def test_malformed_and_hostile_mqtt_harms_nobody(stand: Stand) -> None:
    run(attack_mqtt(stand, 2_000))


@pytest.mark.soak
def test_malformed_and_hostile_mqtt_harms_nobody_for_long(stand: Stand) -> None:
    run(attack_mqtt(stand, 10_000), 900.0)


# ---- HTTP -------------------------------------------------------------------------------------------------------


def hostile_request(random_: random.Random) -> bytes:
    """What is no HTTP, or not quite, or asks for what is not to be had."""
    body = hostile_payload(random_)[:20_000]
    paths = [
        "/v1/publications",
        "/v1/subscriptions",
        "/v1/subscriptions/../../etc/passwd",
        "/v1/explain",
        "/v1/notifications?after=" + "9" * 500,
        "/v1/sources?near=1e9,x&within=-1km",
        "/%00%ff",
        "/" + "a" * 20_000,
        "*",
        "http://elsewhere/",
    ]
    method = random_.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "BREW", "\x00"])
    headers = random_.choice(
        [
            f"Content-Length: {len(body)}",
            f"Content-Length: {len(body) + 5}",
            "Content-Length: -1",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "X: " + "y" * 100_000,
            "\r\n".join(f"X{n}: y" for n in range(500)),
            "Authorization: Bearer \x01\r\nAuthorization: Basic ////",
            "Content-Type: application/cbor",
        ]
    )
    head = (
        f"{method} {random_.choice(paths)} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}\r\n\r\n"
    )
    data = head.encode("latin-1") + body
    return random_.randbytes(500) if random_.random() < 0.1 else data[: random_.choice([len(data), len(data) // 2])]


async def attack_http(stand: Stand, count: int) -> None:
    seed = seed_of_today()
    print(f"seed {seed}")
    random_ = random.Random(seed)
    port = int(stand.http.rpartition(":")[2])
    async with Good(stand, "h"), httpx.AsyncClient(timeout=PROMPT_SECONDS) as client:
        for _ in range(count // AT_ONCE):
            await asyncio.gather(*(throw(port, hostile_request(random_), 0.2) for _ in range(AT_ONCE)))
            assert (await client.get(f"{stand.http}/healthz")).is_success
        found = await client.post(f"{stand.http}/v1/publications", json={"source": "w", "x": 1})
        assert found.status_code < 300, found.text


def test_malformed_and_hostile_http_harms_nobody(stand: Stand) -> None:
    run(attack_http(stand, 300))


@pytest.mark.soak
def test_malformed_and_hostile_http_harms_nobody_for_long(stand: Stand) -> None:
    run(attack_http(stand, 10_000), 900.0)


def test_a_request_that_turns_into_garbage_is_refused_and_is_no_fault_of_ours(stand: Stand) -> None:
    """Head and broken body come at once: the refusal goes out before the answer to the head could."""

    async def test() -> None:
        reader, writer = await asyncio.open_connection(HOST, int(stand.http.rpartition(":")[2]))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1") == 1
        writer.close()
        async with httpx.AsyncClient() as client:  # by then it would have been logged
            assert (await client.get(f"{stand.http}/healthz")).is_success
        assert "Traceback" not in stand.cloud.said

    run(test())


# ---- Large ------------------------------------------------------------------------------------------------------


def large_requests() -> dict[str, bytes]:
    """By topic what is well-formed, as large as may be or larger, and costs the most where it is read."""
    constants = {f"{number:x}": 1 for number in range(256)}
    swelling = [{"name": f"m{number}", "constants": constants} for number in range(520)]
    many = [{"name": f"m{number}", "attributes": {f"a{number}": {}}} for number in range(10_000)]
    return {
        "large-1/ann": orjson.dumps({"session": "s1", "sources": swelling}),
        "large-2/ann": orjson.dumps({"session": "s1", "sources": many}),
        "large-1/sub/values": f"a IN ({', '.join(map(str, range(36_000)))})".encode(),
        "large-1/sub/any": " OR ".join(f"a = {number}" for number in range(5_000)).encode(),
        "large-1/sub/text": b"a = '" + b"x" * 60_000 + b"'",
        "large-1/sub/most": b"a = '" + b"x" * 1_000_000 + b"'",
        "large-2/sub/all": " AND ".join(f"(a{number} > 1 OR b{number} > 1)" for number in range(400)).encode(),
        "large-2/sub/beyond": b"a = '" + b"x" * 3_500_000 + b"'",
        "large-2/pub": orjson.dumps({"x": 1, "text": "y" * 1_000_000}),
        "large-3/pub": orjson.dumps([{"x": number} for number in range(30_000)]),
        "large-4/pub": orjson.dumps({"x": 1, "text": "y" * 3_500_000}),
    }


def test_large_messages_are_answered_and_nobody_waits_for_them(stand: Stand) -> None:
    async def test() -> None:
        told: list[tuple[str, dict[str, Any]]] = []

        def hear(message: Publish) -> None:
            mqtt.ack(message)
            told.append((message.topic.split("/")[1], orjson.loads(message.payload)))

        port, most = stand.nats.mqtt_port, 4_000_000
        mqtt = MqttClient(HOST, port, "large", clean=True, on_message=hear, max_payload_bytes=most)
        await mqtt.start()
        await mqtt.subscribe("spinney/+/reply")
        requests = large_requests()
        async with Good(stand, "l") as good:
            before = len(good.listener.got)
            for topic, payload in requests.items():
                await (await mqtt.publish(f"spinney/{topic}", payload))
            asked = {(one[0], one[2]) for topic in requests if len(one := topic.split("/")) == 3}

            def answers() -> dict[tuple[str, str], bool]:
                return {(who, one["sid"]): one["ok"] for who, one in told if one.get("request") == "sub"}

            await until(lambda: answers().keys() >= asked, "an answer to each", SECONDS)
            assert {sid for (_, sid), ok in answers().items() if ok} == {"text", "all"}
            announced = {who: one["ok"] for who, one in told if one.get("request") == "ann"}
            assert announced == {"large-1": False, "large-2": True}
            await until(lambda: len(good.listener.got) > before + 20, "notifications beside them")
            await good.listener.subscribe("after", "room = 'nowhere'")
        await mqtt.publish("spinney/large-2/ann", b'{"session":"s1","over":true}')
        await mqtt.drain()
        await mqtt.close()

    run(test())


# ---- Connections ------------------------------------------------------------------------------------------------


def test_a_thousand_connections_that_open_and_close_leave_nothing_behind(stand: Stand) -> None:
    """By MQTT and by HTTP, with a word and without, all of one moment at once."""

    async def test() -> None:
        http = stand.cloud.child("http")
        assert http is not None
        servers = [http, psutil.Process(stand.nats.pid)]
        before = [each.num_fds() for each in servers]
        ports = (stand.nats.mqtt_port, int(stand.http.rpartition(":")[2]))
        words = (CONNECT, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        async with Good(stand, "c"):
            for port, word in zip(ports, words, strict=True):
                for first in range(0, CONNECTIONS, 4 * AT_ONCE):
                    several = range(first, first + 4 * AT_ONCE)
                    await asyncio.gather(*(throw(port, word[: number % (len(word) + 1)], 0.1) for number in several))
        await until(
            lambda: all(each.num_fds() <= had + 3 for each, had in zip(servers, before, strict=True)),
            f"open files to be {before} again, not {[each.num_fds() for each in servers]}",
        )

    run(test())


def test_a_subscriber_that_never_acknowledges_delays_nobody_and_gets_all_of_it_later(stand: Stand) -> None:
    async def test() -> None:
        port = stand.nats.mqtt_port
        mute = Listener(port, "mute")
        await mute.start()
        await mute.subscribe("all", "source LIKE 'q-kit%'")
        mute.deaf = True
        async with Good(stand, "q") as good:
            await until(lambda: len(good.listener.got) > 4 * ACK_PENDING, "hundreds of notifications to the other")
            assert len(mute.got) <= ACK_PENDING
        await mute.mqtt.close()
        back = Listener(port, "mute")
        await back.start()
        expected = sum(good.source.published.values())
        await until(lambda: len(back.got) == expected, "all of it when it is back and acknowledges")
        await back.mqtt.close()

    run(test())
