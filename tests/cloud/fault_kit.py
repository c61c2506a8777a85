"""A whole cloud under load that loses processes, and the oracle: what is owed is computed from the log."""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import orjson
import psutil
from clouds import Cloud, alive, kill
from engine_logs import NaiveReader, whole
from servers import HOST, MosquittoServer, NatsServer, free_ports

from spinney import Publisher
from spinney_cloud import notes, records
from spinney_cloud.conf_command import open_mosquitto
from spinney_cloud.configuration import PREFIX
from spinney_cloud.engine import Engine
from spinney_cloud.failpoints import VARIABLE
from spinney_cloud.log_errors import LogError
from spinney_cloud.mqtt import MqttClient, Publish
from spinney_cloud.names import LOG, NOTES, topic
from spinney_cloud.nats_log import Message, NatsLog, read_range
from spinney_cloud.notes import notification_id
from spinney_cloud.records import Publications
from spinney_cloud.settings import Settings

_START = """
import sys
from spinney_cloud import child
from spinney_cloud.command import main

child.BACK_OFF_MOST_SECONDS = 0.4
sys.exit(main(sys.argv[1:]))
"""
REAL = [sys.executable, "-c", _START]
"""What is killed again and again starts again without much delay, which would only make the log longer."""
PROCESSES = ("gateway", "matcher", "coordinator", "delivery", "http")
SECONDS = 60.0
"""For anything that is waited for."""
IN_FLIGHT = 50
"""Notifications that delivery may have sent without an acknowledgement."""
ACK_PENDING = 100
"""The same of nats-server, for one subscription."""
RESEND_SECONDS = 2.0

SUBSCRIPTIONS: dict[str, str] = {
    "high": "x > 7",
    "kitchen": "x = 5 AND room = 'a'",
    "on": "WHEN x > 7 UNTIL x < 3",
    "rooms": "WHEN x > 8 UNTIL x < 5 EACH room",
    "late": '{"text": "WHEN x > 8 UNTIL x < 2", "reorder": 0.2}',
    "best": "TOP 3 OVER LAST 50 BY x DESC",
    "recent": "TOP 2 OVER 0.5s BY x DESC EACH room",
}


async def until(holds: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """Wait for a condition, which may be a coroutine function; what it gives."""
    deadline = monotonic() + seconds
    while True:
        found = holds()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        assert monotonic() < deadline, f"waited {seconds:g} s for: {what}"
        await asyncio.sleep(0.01)


# ---- The cloud --------------------------------------------------------------------------------------------------


class Stand:
    """A cloud and its servers, on ports that stay, with failpoints that can be set while it runs.

    `mosquitto`: that is the MQTT server, as `spinney cloud conf mosquitto` has it; else nats-server is.
    """

    def __init__(
        self, folder: Path, *, program: list[str] | None = None, mosquitto: bool = False, **settings: object
    ) -> None:
        self.folder = folder
        self.nats = NatsServer(folder / "nats", ack_wait="5s")
        text = (self.nats.folder / "nats.conf").read_text()
        text = text.replace("max_ack_pending: 1000", f"max_ack_pending: {ACK_PENDING}")
        (self.nats.folder / "nats.conf").write_text(text)
        self.mqtt = _mosquitto(folder / "mosquitto") if mosquitto else self.nats
        (http,) = free_ports(1)
        self.http = f"http://{HOST}:{http}"
        self._failpoint = folder / "failpoint"
        given = {"delivery__in_flight": IN_FLIGHT, "matching__snapshot_interval": 0.5, **settings}
        variables = {f"{PREFIX}{name.upper()}": value for name, value in given.items()}
        variables[VARIABLE] = f"@{self._failpoint}"
        command = ["env", *(f"{name}={value}" for name, value in variables.items()), *(program or REAL)]
        servers = ("--nats", self.nats.url, "--mqtt", f"mqtt://{HOST}:{self.mqtt.mqtt_port}")
        self.cloud = Cloud(folder / "data", program=command, ports=("--http-port", str(http), *servers))

    def reach_by(self, nats: Wire, mqtt: Wire) -> None:
        """The processes, not the clients, reach nats-server and its MQTT by these from the next start on."""
        ports = {f":{self.nats.port}": f":{nats.port}", f":{self.nats.mqtt_port}": f":{mqtt.port}"}
        for old, new in ports.items():
            self.cloud.command = [re.sub(f"{old}$", new, each) for each in self.cloud.command]

    def start(self) -> None:
        self.nats.start()
        if self.mqtt.process is None:
            self.mqtt.start()
        self.cloud.start()

    def stop(self) -> None:
        """Whatever the state is in."""
        if self.cloud.process is not None:
            with suppress(psutil.NoSuchProcess):
                self.cloud._end()
        for server in {self.nats, self.mqtt}:
            server.kill()

    def kill_all(self) -> None:
        """The supervisor, all its processes and nats-server; and start again. A mosquitto is not ours."""
        family = self.cloud.family()
        kill(self.cloud.pid)
        self.nats.kill()
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.cloud.wait()
        deadline = monotonic() + SECONDS
        while any(alive(each.pid) for each in family):
            assert monotonic() < deadline, f"waited {SECONDS:g} s for the end of all processes"
        self.start()

    def strike(self, victim: str) -> None:
        """Kill it as kill -9 does; nats-server is started again, and all else starts again by itself."""
        if victim == "all":
            self.kill_all()
        elif victim == "nats-server":
            self.nats.kill()
            self.nats.start()
        elif (process := self.cloud.child(victim)) is not None:  # else it is on its way back already
            kill(process.pid)

    async def die_at(self, failpoint: str) -> None:
        """Set a failpoint, and wait until somebody has died of it."""
        self._failpoint.write_text(failpoint)
        await until(lambda: not self._failpoint.exists(), f"somebody to come by {failpoint}")

    def tails(self) -> str:
        """The last words of all processes, for whoever must understand a failure."""
        said = self.cloud.said.splitlines()[-80:]
        return "\n".join(["---- cloud", *said, "---- nats-server", *self.nats.log().splitlines()[-15:]])


def _mosquitto(folder: Path) -> MosquittoServer:
    server = MosquittoServer(folder)
    text = open_mosquitto(f"{HOST}:{server.mqtt_port}")
    assert "max_inflight_messages 1000" in text
    server.configure(text.replace("max_inflight_messages 1000", f"max_inflight_messages {ACK_PENDING}"))
    return server


@asynccontextmanager
async def standing(folder: Path, wires: Sequence[Wire] = (), **settings: Any) -> AsyncIterator[Stand]:
    """A running one; the blocking parts in a thread, so that load goes on meanwhile."""
    stand = Stand(folder, **settings)
    if wires:
        for wire, port in zip(wires, stand.nats.ports, strict=True):
            wire.target = port
        stand.reach_by(*wires)
    try:
        await asyncio.to_thread(stand.start)
        yield stand
    except BaseException:
        print(stand.tails())
        raise
    finally:
        await asyncio.to_thread(stand.stop)


class Wire:
    """Forwards connections to a port of loopback, until it falls silent: nobody is told, nothing gets through."""

    def __init__(self, target: int = 0) -> None:
        self.connections = 0
        self.target = target
        self._server: asyncio.Server | None = None
        self._silent: set[asyncio.Task[None]] = set()
        self._live: dict[asyncio.Task[None], asyncio.Event] = {}

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._connect, HOST, 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in [*self._live, *self._silent]:
            task.cancel()
        await asyncio.gather(*self._live, *self._silent, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """Where to connect."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def fall_silent(self) -> None:
        """All connections of now; new ones work."""
        for task, silent in self._live.items():
            silent.set()
            self._silent.add(task)
        self._live.clear()

    def refuse(self) -> None:
        """No new connections."""
        assert self._server is not None
        self._server.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        silent = self._live[task] = asyncio.Event()
        self.connections += 1
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target)
            writers.append(far_writer)
            there = asyncio.create_task(_pump(reader, far_writer, silent))
            back = asyncio.create_task(_pump(far_reader, writer, silent))
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            if silent.is_set():
                await asyncio.gather(there, back)
            for each in (there, back):
                each.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._live.pop(task, None)
            self._silent.discard(task)
            for each in writers:
                each.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silent: asyncio.Event) -> None:
    """To the end of the connection. What a silent one gets is lost, and its end is not passed on before both have."""
    with suppress(OSError):
        while data := await reader.read(65536):
            if not silent.is_set():
                writer.write(data)
                await writer.drain()


# ---- Clients ----------------------------------------------------------------------------------------------------


class Source:
    """A publisher of two sources: numbers its readings, and sends again what it was not told is stored."""

    def __init__(self, port: int, name: str, seed: int, **options: Any) -> None:
        self.name = name
        self.published: dict[str, int] = {}
        """Of each source the newest number."""
        self.told: dict[str, int] = {}
        """Of each source the newest number that is stored."""
        self.refused: list[Any] = []
        self._random = random.Random(seed)
        self._waiting: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        self.mqtt = MqttClient(HOST, port, f"{name}-id", on_message=self._take, **options)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.mqtt.start()
        await self.mqtt.subscribe(topic(self.name, "reply"))
        self._task = asyncio.create_task(self._run())

    def drop(self) -> None:
        """End its connection without a word."""
        self.mqtt.abort()

    async def _run(self) -> None:
        while True:
            source = f"{self.name}-{self._random.randrange(2)}"
            rows = [self._reading(source) for _ in range(self._random.randrange(1, 5))]
            await self.send(rows)
            overdue = [row for sent, row in self._waiting.values() if monotonic() - sent > RESEND_SECONDS]
            for first in range(0, len(overdue), 100):
                await self.send(overdue[first : first + 100])
            await asyncio.sleep(self._random.uniform(0.005, 0.03))

    def _reading(self, source: str) -> dict[str, Any]:
        number = self.published[source] = self.published.get(source, 0) + 1
        values = {"x": self._random.randrange(10), "room": self._random.choice("abcd")}
        return {"id": f"{source}:1:{number}", "source": source, **values}

    async def send(self, rows: list[dict[str, Any]]) -> None:
        """Publish them, again or for the first time."""
        for row in rows:
            self._waiting[row["id"]] = monotonic(), row
        await self.mqtt.publish(topic(self.name, "pub"), orjson.dumps(rows))

    def _take(self, message: Publish) -> None:
        reply = orjson.loads(message.payload)
        self.refused += reply.get("refused", [])
        for source, (_, number) in reply.get("stored", {}).items():
            for each in range(self.told.get(source, 0) + 1, number + 1):
                self._waiting.pop(f"{source}:1:{each}", None)
            self.told[source] = max(self.told.get(source, 0), number)
        self.mqtt.ack(message)

    async def finish(self) -> None:
        """Publish no more, and wait until all is stored."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await until(self._all_told, f"all of {self.name} to be stored; {len(self._waiting)} are not")
        await self.mqtt.close()

    async def _all_told(self) -> bool:
        overdue = [row for sent, row in self._waiting.values() if monotonic() - sent > RESEND_SECONDS]
        for first in range(0, len(overdue), 100):
            await self.send(overdue[first : first + 100])
        return not self._waiting


class Listener:
    """A subscriber with a persistent session that counts what comes."""

    def __init__(self, port: int, name: str, **options: Any) -> None:
        self.name = name
        self.got: Counter[str] = Counter()
        self.order: list[dict[str, Any]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.deaf = False
        """Nothing is acknowledged."""
        self.mqtt = MqttClient(HOST, port, f"{name}-id", on_message=self._take, **options)

    async def start(self) -> None:
        await self.mqtt.start()
        await self.mqtt.subscribe([topic(self.name, "reply"), topic(self.name, "note", "+")])

    async def subscribe(self, sid: str, text: str) -> dict[str, Any]:
        """Ask again until it is answered, as clients do."""
        self.answers.pop(sid, None)

        async def answered() -> bool:
            await self.mqtt.publish(topic(self.name, "sub", sid), text.encode())
            with suppress(AssertionError):
                await until(lambda: sid in self.answers, "the answer", 5.0)
            return sid in self.answers

        await until(answered, f"an answer to {self.name}/{sid}")
        assert self.answers[sid]["ok"], self.answers[sid]
        return self.answers[sid]

    def _take(self, message: Publish) -> None:
        item = orjson.loads(message.payload)
        if message.topic.endswith("/reply"):
            if item.get("request") == "sub":
                self.answers[item["sid"]] = item
        else:
            self.got[item["id"]] += 1
            self.order.append(item)
            if self.deaf:
                return
        self.mqtt.ack(message)

    @property
    def repeated(self) -> int:
        """How many notifications came that had come before."""
        return self.got.total() - len(self.got)


class EventReader:
    """Reads one owner's notifications by HTTP, and goes on after the last one whenever it is cut off."""

    def __init__(self, http: str, owner: str) -> None:
        self.got: Counter[str] = Counter()
        self._url = f"{http}/v1/notifications?owner={owner}"
        self._last = ""
        self._task: asyncio.Task[None] | None = None

    def start(self, after: str) -> None:
        self._last = after
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        async with httpx.AsyncClient(timeout=SECONDS) as client:
            while True:
                with suppress(httpx.HTTPError):
                    await self._read(client)
                await asyncio.sleep(0.1)

    async def _read(self, client: httpx.AsyncClient) -> None:
        async with client.stream("GET", self._url, headers={"Last-Event-ID": self._last}) as answer:
            name = ""
            async for line in answer.aiter_lines():
                key, _, value = line.partition(": ")
                if key == "id":
                    name = value
                elif key == "data" and "id" in (item := orjson.loads(value)):
                    self.got[item["id"]] += 1
                    self._last = name


class Program:
    """One of `fault_client`, which can be killed and started again."""

    def __init__(self, folder: Path, what: str, name: str, port: int, *more: str) -> None:
        self.name = name
        self._done = folder / f"{name}.done"
        self._log = folder / f"{name}.log"
        script = Path(__file__).with_name("fault_client.py")
        self._command = [sys.executable, str(script), what, name, f"mqtt://{HOST}:{port}", str(self._done), *more]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._done.touch()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=_environment())

    def kill(self) -> None:
        """As kill -9 does; nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def done(self) -> list[str]:
        """The ids that it has written down. A line that is half written does not count."""
        return [line for line in self._done.read_text().split("\n")[:-1] if line != "begun"]

    @property
    def begun(self) -> bool:
        """Whether it has done anything at all."""
        return self._done.stat().st_size > 0

    def said(self) -> str:
        return self._log.read_text()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


class Load:
    """Publishers, subscribers and a reader of events, all the while."""

    def __init__(self, stand: Stand, seed: int) -> None:
        port = stand.mqtt.mqtt_port
        self.stand = stand
        self.sources = [Source(port, name, seed + place) for place, name in enumerate(("kit", "lab"))]
        self.listeners = [Listener(port, name) for name in ("ana", "ben")]
        self.events = EventReader(stand.http, "ana")
        folder = stand.folder
        self.publisher = Program(folder, "publish", "pam", port, str(folder / "outbox"))
        self.subscriber = Program(folder, "subscribe", "sue", port, "own", "source = 'pam'")
        self._asked = 0

    async def start(self) -> None:
        self.events.start("0.0")
        for listener in self.listeners:
            await listener.start()
            for sid, text in SUBSCRIPTIONS.items():
                await listener.subscribe(sid, text)
        self.subscriber.start()
        await until(lambda: self.subscriber.begun, "sue to subscribe")
        self.publisher.start()
        for source in self.sources:
            await source.start()

    def kill_program(self, program: Program) -> None:
        """Kill it, and start it again."""
        program.kill()
        program.start()

    def stop(self) -> None:
        """Whatever the state is in."""
        for program in (self.publisher, self.subscriber):
            program.kill()

    def tails(self) -> str:
        """The last words of the programs."""
        return "\n".join(f"---- {each.name}\n{each.said()[-2000:]}" for each in (self.publisher, self.subscriber))

    async def goes_on(self) -> None:
        """What is published from now on is stored and notified, and a subscription is answered."""
        told = [dict(source.published) for source in self.sources]
        await self.listeners[0].subscribe(f"more{self._asked}", f"x = 9 AND room = 'a' AND x < {100 + self._asked}")
        self._asked += 1
        for source, published in zip(self.sources, told, strict=True):
            await until(
                lambda source=source, published=published: all(
                    source.told.get(name, 0) > number for name, number in published.items()
                ),
                f"something new of {source.name} to be stored",
            )
        for listener in self.listeners:
            seen = len(listener.got)
            await until(lambda listener=listener, seen=seen: len(listener.got) > seen, f"a word to {listener.name}")
        for program in (self.publisher, self.subscriber):
            size = len(program.done())
            await until(lambda program=program, size=size: len(program.done()) > size, f"more of {program.name}")
        async with httpx.AsyncClient(timeout=SECONDS) as client:
            await until(lambda: _is_well(client, self.stand.http), "an answer by HTTP")

    async def finish(self) -> Judgement:
        """Wait until all is stored and delivered; what the log says about it."""
        self.publisher.kill()
        await self._empty_the_outbox()
        for source in self.sources:
            await source.finish()
        log, told = await self._read()
        owed = await owed_by(told)
        for listener in self.listeners:
            await until(
                lambda listener=listener: owed[listener.name] <= listener.got.keys(),
                f"all that is owed to {listener.name}",
            )
        await until(lambda: owed["ana"] <= self.events.got.keys(), "all that is owed by HTTP")
        await until(lambda: owed["sue"] <= set(self.subscriber.done()), "all that is owed to sue")
        for listener in self.listeners:
            await listener.mqtt.close()
        await self.events.close()
        self.stop()
        return await asyncio.to_thread(Judgement, log, told, owed)

    async def _read(self) -> tuple[list[Message], list[Message]]:
        """Log and notification log, once the matcher has read all, and nothing falls due any more."""
        async with await NatsLog.connect(self.stand.nats.endpoints(), name="judge") as log:
            engine = Engine(Settings())
            await until(
                lambda: at_rest(log, engine), "the matcher to have read all of the log, and nothing to fall due"
            )
            return await all_of(log, LOG), await all_of(log, NOTES)

    async def _empty_the_outbox(self) -> None:
        """What the killed publisher has left behind goes out with the next one of its name."""

        def send() -> None:
            server = f"mqtt://{HOST}:{self.stand.mqtt.mqtt_port}"
            with Publisher("pam", server=server, outbox=self.stand.folder / "outbox", resend_seconds=2.0) as pam:
                pam.flush(SECONDS)

        await asyncio.to_thread(send)


@asynccontextmanager
async def loading(stand: Stand, seed: int) -> AsyncIterator[Load]:
    """Load on it, which has begun."""
    load = Load(stand, seed)
    try:
        await load.start()
        yield load
    except BaseException:
        print(load.tails())
        raise
    finally:
        await asyncio.to_thread(load.stop)


# ---- The oracle -------------------------------------------------------------------------------------------------


async def all_of(log: NatsLog, stream: str) -> list[Message]:
    """All messages that a stream has now."""
    state = await log.state(stream)
    return [each async for found in read_range(log, stream, state.first, state.last) for each in found]


async def owed_by(told: list[Message]) -> dict[str, set[str]]:
    """The ids of what each owner is owed by the notification log."""
    owed: dict[str, set[str]] = {}
    for each in told:
        message = notes.decode(each.data)
        for note in message.notes:
            owed.setdefault(note.owner, set()).add(notification_id(message.tenant, note))
        if not each.sequence % 50:
            await asyncio.sleep(0)  # the listeners must acknowledge in time
    return owed


class Judgement:
    """What the log says, against what was told."""

    def __init__(self, log: list[Message], told: list[Message], owed: dict[str, set[str]]) -> None:
        self.owed = owed
        decoded = [(records.decode(each.data), each.sequence, each.time) for each in log]
        self.stored: Counter[str] = Counter()
        for record, _, _ in decoded:
            if isinstance(record, Publications):
                self.stored.update(str(id) for id in record.ids())
        naive = NaiveReader(Settings())
        self.right = [line for record, at, time in decoded for line in naive.apply(record, at, time)]
        self.told = whole(notes.decode(each.data) for each in told)

    def check(self, load: Load, most_repeated: int) -> None:
        """Nothing stored is lost, everything owed came, in the right words, and little of it twice."""
        for source in load.sources:
            assert source.refused == []
            missing = {
                f"{name}:1:{n}" for name, last in source.told.items() for n in range(1, last + 1)
            } - self.stored.keys()
            assert not missing, f"told as stored, and not in the log: {sorted(missing)[:10]}"
            assert source.told == source.published
        wrong = Counter(map(str, self.told))
        wrong.subtract(map(str, self.right))
        differing = [(line, count) for line, count in wrong.items() if count]
        assert not differing, f"told once too often (or not: negative): {differing[:5]}, {len(differing)} in all"
        lost = set(load.publisher.done()) - self.stored.keys()
        assert not lost, f"handed over, and not in the log: {sorted(lost)[:10]}"
        self._check_told(load, most_repeated)

    def _check_told(self, load: Load, most_repeated: int) -> None:
        got = load.subscriber.done()
        assert set(got) == self.owed["sue"]
        print(f"sue: {len(got)} notifications, {len(got) - len(set(got))} came again")
        assert len(got) - len(set(got)) <= most_repeated
        for listener in load.listeners:
            strange = listener.got.keys() - self.owed[listener.name]
            assert not strange, f"{listener.name} was told what nobody owes: {sorted(strange)[:5]}"
            print(f"{listener.name}: {len(listener.got)} notifications, {listener.repeated} came again")
            assert listener.repeated <= most_repeated
        assert load.events.got.keys() == self.owed["ana"]
        assert load.events.got.total() == len(load.events.got), "an event came twice"


async def at_rest(log: NatsLog, engine: Engine) -> bool:
    """`engine` has read as much of the log as it had when this was called last."""
    last = (await log.state(LOG)).last
    async for messages in read_range(log, LOG, engine.sequence + 1, last):
        for each in messages:
            engine.apply(records.decode(each.data), each.sequence, each.time)
            if not each.sequence % 50:
                await asyncio.sleep(0)  # the listeners must acknowledge in time
    try:
        health = orjson.loads(await log.ask("matcher", "health"))
    except LogError:  # it is on its way back
        return False
    return engine.next_wake() is None and bool(health.get("stored", 0) >= last)


async def _is_well(client: httpx.AsyncClient, http: str) -> bool:
    try:
        return (await client.get(f"{http}/healthz")).is_success
    except httpx.HTTPError:
        return False


def run(test: Awaitable[None], seconds: float = 300.0) -> None:
    """A test that is a coroutine, with a deadline."""

    async def main() -> None:
        async with asyncio.timeout(seconds):
            await test

    asyncio.run(main())


def seed_of_today() -> int:
    """Printed by who uses it; SPINNEY_SEED repeats a run."""
    return int(os.environ.get("SPINNEY_SEED") or random.randrange(10**6))
