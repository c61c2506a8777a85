"""Delivery with real servers: in this process, or in one of its own that can be killed; and its subscribers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import time as now
from typing import Any

import orjson
from servers import HOST, MosquittoServer, NatsServer

from spinney_cloud.delivery import Delivery
from spinney_cloud.mqtt import MqttClient, Publish
from spinney_cloud.names import NOTES, SUBSCRIPTIONS, notes_subject, subscription_key
from spinney_cloud.nats_log import NatsLog, Writer
from spinney_cloud.notes import Note, Notes, encode
from spinney_cloud.service import Endpoints, Service, write_run
from spinney_cloud.settings import Settings

SECONDS = 40.0


async def until(holds: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


def match(owner: str, sid: str = "air", number: int = 1, **more: Any) -> Note:
    return Note(owner, sid, "match", None, 0, f"m7:1:{number}", **more)


class Bench:
    """The log with its streams, a pen for the notification log, and the endpoints."""

    def __init__(self, log: NatsLog, endpoints: Endpoints, settings: Settings) -> None:
        self.log = log
        self.endpoints = endpoints
        self.settings = settings
        self.writer: Writer = log.writer(NOTES)
        self.told = 0

    async def subscribe(self, owner: str, sid: str = "air", **options: Any) -> None:
        """As far as delivery is concerned."""
        value = orjson.dumps({"v": 1, "options": options})
        await self.log.bucket(SUBSCRIPTIONS).put(subscription_key("default", owner, sid), value)

    async def unsubscribe(self, owner: str, sid: str = "air") -> None:
        await self.log.bucket(SUBSCRIPTIONS).delete(subscription_key("default", owner, sid))

    async def tell(self, *notes: Note, size: int = 1, time: float | None = None, **more: Any) -> None:
        """One message of the notification log; `size`: of its publication, which may have more."""
        self.told += 1
        at = now() if time is None else time
        publication = {"id": "m7:1:1", "NO2": 57, "text": "x" * size, **more}
        message = Notes("default", self.told, at, 0, True, (publication,), notes)
        await self.writer.put(notes_subject("default"), encode(message))

    @asynccontextmanager
    async def delivery(self) -> AsyncIterator[Delivery]:
        """In this process; stopped as SIGTERM stops it."""
        service = Service("delivery", self.settings, self.endpoints)
        async with await NatsLog.connect(self.endpoints, name="delivery") as log:
            delivery = Delivery(service, log)
            await delivery.start()
            running = asyncio.create_task(delivery.run_until(service.stopping))
            try:
                yield delivery
            finally:
                service.stopping.set()
                await running


@asynccontextmanager
async def bench(
    tmp_path: Path,
    log_server: NatsServer,
    mqtt_server: MosquittoServer | NatsServer | ForgetfulServer | None = None,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """Everything but delivery itself."""
    given = Settings(data=tmp_path, delivery=settings.pop("delivery", {}), **settings)
    endpoints = log_server.endpoints(mqtt_server)  # type: ignore[arg-type]  # any server of MQTT will do
    async with await NatsLog.connect(endpoints, name="test") as log:
        await log.ensure(given)
        yield Bench(log, endpoints, given)


class Subscriber:
    """One MQTT client that remembers what it got."""

    def __init__(self, port: int, owner: str, *, acknowledge: bool = True) -> None:
        self.owner = owner
        self.got: list[dict[str, Any]] = []
        self.topics: list[str] = []
        self.qos: list[int] = []
        self._acknowledge = acknowledge
        self.client = MqttClient(HOST, port, owner, on_message=self._take)

    async def start(self) -> Subscriber:
        await self.client.start()
        assert await self.client.subscribe(f"spinney/{self.owner}/note/+") == (1,)
        return self

    def _take(self, message: Publish) -> None:
        self.got.append(orjson.loads(message.payload))
        self.topics.append(message.topic)
        self.qos.append(message.qos)
        if self._acknowledge:
            self.client.ack(message)

    def ids(self) -> list[str]:
        return [note["id"] for note in self.got]

    async def close(self) -> None:
        await self.client.close()


class Process:
    """`python -m spinney_cloud.service delivery`."""

    def __init__(self, bench: Bench) -> None:
        self._run_file = bench.settings.data / "run.json"
        write_run(self._run_file, bench.settings, bench.endpoints)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "spinney_cloud.service",
            "delivery",
            str(self._run_file),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            assert (await self._process.stdout.readline()).strip() == b"ready"

    async def end(self, how: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        async with asyncio.timeout(SECONDS):
            return await self._process.wait()


class ForgetfulServer:
    """An MQTT server that acknowledges everything but what holds `forgets`, and keeps all it was sent."""

    def __init__(self, forgets: bytes) -> None:
        self.packets: list[bytes] = []
        """PUBLISH packets, without their first two to five bytes."""
        self.connections = 0
        self.mqtt_port = 0
        self.kind = "other"
        self._forgets = forgets
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> ForgetfulServer:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.mqtt_port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind = (await reader.readexactly(1))[0] >> 4
                body = await reader.readexactly(await _length(reader))
                if kind == 1:
                    writer.write(b"\x20\x02\x00\x00")
                elif kind == 3:
                    self.packets.append(body)
                    if self._forgets not in body:
                        at = 2 + int.from_bytes(body[:2], "big")
                        writer.write(b"\x40\x02" + body[at : at + 2])
        writer.close()


async def _length(reader: asyncio.StreamReader) -> int:
    value = 0
    for shift in range(0, 28, 7):
        byte = (await reader.readexactly(1))[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value
