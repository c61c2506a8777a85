"""What tests of the uplink share: one end of it in the test's loop, and a real cloud to talk to."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from clouds import Cloud
from servers import free_ports

from spinney import Label
from spinney.client.address import Access, Server
from spinney_mobile.activations import Activations
from spinney_mobile.active import ActiveFilter
from spinney_mobile.dead_letters import DeadLetters
from spinney_mobile.leases import Lease, Leases
from spinney_mobile.outbox import Outbox, OutRecord
from spinney_mobile.settings import Outbox as Settings
from spinney_mobile.uplink import Uplink

REAL = [sys.executable, "-m", "spinney_tools", "cloud"]
WAIT_SECONDS = 60.0
TEST_SECONDS = 240.0
NUMBER = {"n": {"min": 0, "max": 1e6}}


def run(test: Coroutine[Any, Any, None]) -> None:
    """A test in a loop of its own."""
    asyncio.run(asyncio.wait_for(test, TEST_SECONDS))


async def until(holds: Callable[[], Any], what: str) -> Any:
    """Look again and again until it holds; what it gives."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAIT_SECONDS
    while not (found := holds()):
        assert loop.time() < deadline, f"waited {WAIT_SECONDS:g} s for: {what}"
        await asyncio.sleep(0.005)
    return found


def fixed_cloud(folder: Path, *arguments: str) -> Cloud:
    """A cloud that comes back on the ports that it had; to be started."""
    mqtt, http, nats = free_ports(3)
    ports = ("--mqtt-port", str(mqtt), "--http-port", str(http), "--nats-port", str(nats))
    return Cloud(folder, *arguments, program=REAL, ports=ports)


def body(*sources: str, **more: Any) -> dict[str, Any]:
    """An announcement of sources that give `n` and `room`."""
    room = {"room": {"type": "string"}}
    return {"sources": [{"name": name, "attributes": NUMBER | room} for name in sources], **more}


def reading(number: int, source: str, boot: int = 1, **more: Any) -> dict[str, Any]:
    """One publication."""
    return {"id": f"{source}:{boot}:{number}", "source": source, "n": number, **more}


class Edge:
    """An outbox and an uplink: `async with Edge(folder, "b1", port) as edge`. Leaving stops it as SIGTERM does."""

    def __init__(self, folder: Path, name: str, port: int, *, password: str | None = None, **outbox: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.outbox = Outbox(folder, Settings(**outbox))
        self.access = Access(name, Server.parse(f"mqtt://127.0.0.1:{port}"), password)
        self.leases = Leases(name)
        self.dead = DeadLetters(folder)
        self.changes: list[tuple[list[str], list[str]]] = []
        self.active: dict[str, ActiveFilter] = {}
        self.known: Mapping[str, Lease] = {}
        self.activations = Activations(self.leases, self.outbox, self._changed)
        self.task: asyncio.Task[None] | None = None

    def _changed(
        self, added: list[ActiveFilter], dropped: list[str], leases: Mapping[str, Lease], more: bool = False
    ) -> None:
        del more
        self.changes.append(([one.digest for one in added], dropped))
        self.active |= {one.digest: one for one in added}
        for digest in dropped:
            del self.active[digest]
        self.known = leases

    async def start(self) -> Self:
        """Open the outbox, and try to connect."""
        self.outbox.open()
        self.activations.start(self.outbox.state())
        self.uplink = Uplink(self.access, self.outbox, self.activations, self.leases, self.dead)
        self.task = asyncio.create_task(self.uplink.run())
        return self

    async def stop(self) -> None:
        """As SIGTERM does."""
        await self.uplink.stop()
        await self._ended()

    async def kill(self) -> None:
        """The link ends without a good-bye."""
        assert self.task is not None
        self.task.cancel()
        await self._ended()

    async def _ended(self) -> None:
        task, self.task = self.task, None
        assert task is not None
        await asyncio.gather(task, return_exceptions=task.cancelling() > 0)
        self.outbox.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self.task is not None and error is not None:
            await self.kill()
        elif self.task is not None:
            await self.stop()

    # ---- what a broker does

    def send(
        self, number: int, source: str = "m1", *, labels: Mapping[str, Label] | None = None, boot: int = 1, **more: Any
    ) -> None:
        """One publication, under the lease of now."""
        publication = reading(number, source, boot, **more)
        self.outbox.append([OutRecord(publication, self.leases.epoch(source), labels or {})])

    async def connected(self) -> None:
        await until(lambda: self.uplink.connected, f"{self.name} to be connected")

    async def drained(self) -> None:
        """All is stored, or refused."""
        await until(lambda: self.outbox.log.count == 0, f"the outbox of {self.name} to be empty")

    async def owns(self, *sources: str) -> None:
        await until(lambda: all(self.leases.epoch(source) for source in sources), f"{self.name} to own {sources}")
