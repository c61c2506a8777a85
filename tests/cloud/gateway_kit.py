"""What tests of the gateway share: a gateway in this process or in one of its own, and clients that listen."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from servers import HOST, MosquittoServer, NatsServer

from spinney_cloud import gateway, names, records
from spinney_cloud.log_reader import Message
from spinney_cloud.mqtt import MqttClient, Publish
from spinney_cloud.nats_log import NatsLog, read_range
from spinney_cloud.records import Publications, Record
from spinney_cloud.service import READY, Endpoints, Service, write_run
from spinney_cloud.settings import Settings
from spinney_mobile.packing import unpacked

WAIT_SECONDS = 60.0


def run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test, 180))


async def until(holds: Callable[[], Any], what: str) -> Any:
    """Wait for a condition, which may be a coroutine function; what it gives."""
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while True:
        found = holds()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"waited for: {what}"
        await asyncio.sleep(0.005)


class Client:
    """An MQTT client that keeps what it is told on `reply`."""

    def __init__(self, port: int, name: str, **options: Any) -> None:
        self.name = name
        self.told: list[dict[str, Any]] = []
        self.acts: list[bytes] = []
        self.mqtt = MqttClient(HOST, port, name, clean=True, on_message=self._take, **options)

    def _take(self, message: Publish) -> None:
        self.mqtt.ack(message)
        if message.topic.endswith("/act"):
            self.acts.append(message.payload)
        else:
            self.told.append(orjson.loads(unpacked(message.payload)))

    async def publish(self, payload: Any, leaf: str = "pub", sid: str | None = None, **how: Any) -> None:
        """Publish, and wait for the PUBACK."""
        data = payload if isinstance(payload, bytes) else orjson.dumps(payload)
        await (await self.mqtt.publish(names.topic(self.name, leaf, sid), data, **how))

    async def hears(self, *keys: str) -> dict[str, Any]:
        """The first reply with all these keys, now or later."""
        return await until(lambda: next((told for told in self.told if told.keys() >= set(keys)), None), str(keys))

    def stored(self) -> dict[str, tuple[int, int]]:
        """Of each source the newest that this client was told is stored."""
        newest: dict[str, tuple[int, int]] = {}
        for told in self.told:
            for source, (boot, number) in told.get("stored", {}).items():
                newest[source] = max(newest.get(source, (-1, -1)), (boot, number))
        return newest

    def stored_batches(self) -> set[Any]:
        batches = [told["batch"] for told in self.told if "stored" in told and "batch" in told]
        return {name for batch in batches for name in (batch if isinstance(batch, list) else [batch])}


class Ground:
    """Servers, an open log and settings; makes gateways and clients."""

    def __init__(self, log: NatsLog, endpoints: Endpoints, settings: Settings) -> None:
        self.log = log
        self.endpoints = endpoints
        self.settings = settings
        self.service = Service("gateway", settings, endpoints)

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[Service]:
        """A gateway in this process; stops as SIGTERM has it."""
        self.service = service = Service("gateway", self.settings, self.endpoints)
        task = asyncio.create_task(gateway.serve(service))
        try:
            await until(lambda: service.was_ready or task.done(), "the gateway to be ready")
            yield service
        finally:
            service.stopping.set()
            await task

    @asynccontextmanager
    async def client(self, name: str = "kit", **options: Any) -> AsyncIterator[Client]:
        made = Client(self.endpoints.mqtt_port, name, **options)
        await made.mqtt.start()
        await made.mqtt.subscribe([names.topic(name, "reply"), names.topic(name, "act")])
        try:
            yield made
        finally:
            await made.mqtt.close()

    async def messages(self, stream: str = names.LOG) -> list[Message]:
        """All that a stream has now."""
        state = await self.log.state(stream)
        return [each async for found in read_range(self.log, stream, state.first, state.last) for each in found]

    async def requests(self) -> list[tuple[str, dict[str, Any]]]:
        """Subject of its message, and content, of each; the stream is a work queue, which no reader may simply read."""
        state = await self.log.state(names.REQUESTS)
        found = [await self.log.js.get_msg(names.REQUESTS, number) for number in range(state.first, state.last + 1)]
        lines = [(str(message.subject), line) for message in found for line in (message.data or b"").split(b"\n")]
        return [(subject, orjson.loads(line)) for subject, line in lines]

    async def records(self) -> list[Record]:
        return [records.decode(message.data) for message in await self.messages()]

    async def rows(self) -> list[dict[str, Any]]:
        """Of all publications in the log."""
        found = [record for record in await self.records() if isinstance(record, Publications)]
        for record in found:
            assert [str(id) for id in record.ids()] == [row["id"] for row in orjson.loads(record.rows)]
        return [row for record in found for row in orjson.loads(record.rows)]

    async def dead(self) -> list[dict[str, Any]]:
        return [orjson.loads(message.data) for message in await self.messages(names.DEAD)]

    async def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = orjson.loads(await self.log.ask("gateway", "health"))
        return answer

    async def metric(self, name: str) -> float:
        """A sample by its name and labels, as they are written."""
        text = (await self.log.ask("gateway", "metrics")).decode()
        values = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"spinney_gateway_{name} ")]
        return float(values[0]) if values else 0.0


@asynccontextmanager
async def ground(
    nats: NatsServer, data: Path, *, mqtt: MosquittoServer | None = None, **settings: Any
) -> AsyncIterator[Ground]:
    """Streams on a server, with settings of any section."""
    given = Settings.model_validate({"data": data, **settings})
    data.mkdir(parents=True, exist_ok=True)
    endpoints = nats.endpoints(mqtt, mqtt_client_prefix="secret")
    async with await NatsLog.connect(endpoints, name="test") as log:
        await log.ensure(given)
        yield Ground(log, endpoints, given)


class GatewayProcess:
    """A gateway in a process of its own, to be killed."""

    def __init__(self, made: Ground, folder: Path) -> None:
        self._run_file = folder / "gateway-run.json"
        write_run(self._run_file, made.settings, made.endpoints)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "spinney_cloud.service",
            "gateway",
            str(self._run_file),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), WAIT_SECONDS)
        assert line.decode().strip() == READY

    async def kill(self) -> None:
        """As kill -9 does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> int:
        """As SIGTERM has it; the exit status."""
        assert self._process is not None
        self._process.terminate()
        return await asyncio.wait_for(self._process.wait(), WAIT_SECONDS)
