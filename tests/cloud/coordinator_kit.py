"""A coordinator in the loop of the test, at a real nats-server, and a gateway of a few lines that hears all."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

import orjson
from servers import NatsServer

from spinney_cloud import coordinator, names, records
from spinney_cloud.nats_log import NatsLog, read_range
from spinney_cloud.service import Service
from spinney_cloud.settings import Settings
from spinney_cloud.way_out import apart

WAIT_SECONDS = 60.0


async def until(condition: Callable[[], Any], what: str = "the condition", seconds: float = WAIT_SECONDS) -> Any:
    """Look again and again until it holds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        await asyncio.sleep(0.003)
    return found


async def until_so(condition: Callable[[], Awaitable[Any]], what: str = "the condition") -> Any:
    """The same for a condition that has to ask."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := await condition()):
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_SECONDS:g} s"
        await asyncio.sleep(0.003)
    return found


class Kit:
    """`async with Kit(nats) as kit`: streams, a gateway, and a coordinator that can be killed and started."""

    def __init__(self, nats: NatsServer, settings: Settings | None = None, *, coordinator: bool = True) -> None:
        self.nats = nats
        self.settings = settings or Settings()
        self.out: list[tuple[str, str, dict[str, Any], float]] = []
        """Client, leaf, message, and when it came."""
        self._gateway: int | None = None
        self._with_coordinator = coordinator
        self._task: asyncio.Task[None] | None = None
        self.service: Service | None = None

    async def __aenter__(self) -> Self:
        self.log = await NatsLog.connect(self.nats.endpoints(), name="test")
        await self.log.ensure(self.settings)
        self._requests = self.log.writer(names.REQUESTS)
        await self.gateway(True)
        if self._with_coordinator:
            await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()
        await self.log.close()

    async def start(self) -> None:
        """A coordinator, ready."""
        self.service = Service("coordinator", self.settings, self.nats.endpoints())
        self._task = asyncio.create_task(coordinator.serve(self.service))
        while not self.service.was_ready:
            assert not self._task.done(), self._task.result()
            await asyncio.sleep(0.003)

    async def stop(self) -> None:
        """As SIGTERM does."""
        if self._task is not None and self.service is not None:
            self.service.stopping.set()
            await self._task
            self._task = None

    async def ended(self) -> None:
        """Until it ends by itself; raises what it ended with."""
        assert self._task is not None
        task, self._task = self._task, None
        await asyncio.wait_for(task, WAIT_SECONDS)

    async def kill(self) -> None:
        """As kill -9 does: nothing is finished."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    def _on_out(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        _, _, client, leaf = subject.decode().split(".")
        for one in apart(data, headers):
            self.out.append((client, leaf, orjson.loads(one), time.monotonic()))
        self.log.connection.send(reply, b"")

    async def gateway(self, there: bool) -> None:
        """Whether there is one."""
        if there:
            self._gateway = await self.log.connection.listen(names.OUT, self._on_out)
        elif self._gateway is not None:
            await self.log.connection.unlisten(self._gateway)
        await self.log.connection.flush()

    # ---- What clients do

    async def request(
        self, client: str, leaf: str, payload: Any, sid: str | None = None, tenant: str = "default", **more: Any
    ) -> None:
        """Put a request into the queue, as the gateway does."""
        line = self.line(client, leaf, payload, sid, tenant, **more)
        await (await self._requests.put(names.request_subject(client), line))

    def line(
        self, client: str, leaf: str, payload: Any, sid: str | None = None, tenant: str = "default", **more: Any
    ) -> bytes:
        """A request as it stands in a message of the queue."""
        text = payload if isinstance(payload, str) or payload is None else json.dumps(payload)
        item = {"v": 1, "client": client, "tenant": tenant, "leaf": leaf, "sid": sid, "payload": text}
        return orjson.dumps({**item, "received": time.time(), **more})

    async def together(self, lines: Sequence[bytes]) -> None:
        """Put several requests into the queue as one message."""
        await (await self._requests.put(names.request_subject("several"), b"\n".join(lines)))

    def heard(self, client: str, leaf: str) -> list[dict[str, Any]]:
        """What has gone out to a client."""
        return [message for to, what, message, _ in self.out if (to, what) == (client, leaf)]

    async def subscribe(self, client: str, sid: str, payload: Any, **more: Any) -> dict[str, Any]:
        """Ask for a subscription; the reply."""
        before = len(self.replies(client, sid))
        await self.request(client, "sub", payload, sid, **more)
        await until(lambda: len(self.replies(client, sid)) > before, f"a reply to {client}/{sid}")
        return self.replies(client, sid)[before]

    def replies(self, client: str, sid: str) -> list[dict[str, Any]]:
        """Those to one subscription."""
        return [one for one in self.heard(client, "reply") if one.get("sid") == sid]

    async def announce(self, client: str, item: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Announce, and wait for the reply."""
        before = len(self.heard(client, "reply"))
        await self.request(client, "ann", item, **more)
        await until(lambda: len(self.heard(client, "reply")) > before, f"a reply to {client}")
        return self.heard(client, "reply")[before]

    def active(self, client: str) -> dict[str, dict[str, Any]]:
        """What a broker that obeys all it hears has, by digest; parts of what is not whole count already."""
        found: dict[str, dict[str, Any]] = {}
        epoch = None
        for message in self.heard(client, "act"):
            if message["full"]:
                found = {}
            else:
                assert message["epoch"] == epoch + 1, "a gap between epochs"
            found |= {one["filter"]: one for one in message["add"]}
            found = {digest: one for digest, one in found.items() if digest not in message["drop"]}
            epoch = message["epoch"]
        return found

    async def ask(self, what: str, **question: Any) -> dict[str, Any]:
        """What the coordinator answers."""
        answer: dict[str, Any] = orjson.loads(
            await self.log.ask("coordinator", what, orjson.dumps({"tenant": "default", **question}))
        )
        return answer

    # ---- What is kept

    async def records(self) -> list[tuple[int, records.Record]]:
        """The log."""
        state = await self.log.state(names.LOG)
        return [
            (message.sequence, records.decode(message.data))
            async for messages in read_range(self.log, names.LOG, 1, state.last)
            for message in messages
        ]

    async def has_no_requests(self) -> bool:
        """Whether all have been dealt with."""
        return (await self.log.state(names.REQUESTS)).messages == 0

    async def has_kept(self, bucket: str, count: int) -> bool:
        """Whether a bucket has so many values."""
        return len(await self.kept(bucket)) == count

    async def kept(self, bucket: str) -> dict[str, dict[str, Any]]:
        """A bucket's values."""
        return {key: orjson.loads(entry.value) for key, entry in (await self.log.bucket(bucket).load()).items()}
