"""How long it takes from a mobile broker's having a sample to the cloud's `stored`: measured, packed and in JSON.

Two uplinks with their outboxes on disk and a cloud with its own nats-server, all on this machine, at the same time: one
packs, one is as with a cloud that names no formats. Readings come at random, seldom (each is alone, as in the
footprint) or often (they go together while others are under way). Lingering is as it is by default.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spinney.client.address import Access, Server
from spinney.client.outbox import Entry
from spinney_mobile.activations import Activations
from spinney_mobile.dead_letters import DeadLetters
from spinney_mobile.leases import Leases
from spinney_mobile.outbox import Outbox, OutRecord
from spinney_mobile.packing import Packing
from spinney_mobile.uplink import Uplink

from .running_cloud import running_cloud
from .stuck import Stuck

SELDOM_S: Final = 0.25
OFTEN_S: Final = 0.01
"""Between two readings, on average."""
SECONDS: Final = 20.0
"""Of each load."""
WAIT_SECONDS: Final = 60.0
PACKED, JSON = "packed", "JSON"


@dataclass(frozen=True, slots=True)
class Delay:
    """Of some readings, in milliseconds."""

    p50: float
    p99: float
    readings: int
    messages: int

    @classmethod
    def of(cls, seconds: Sequence[float], messages: int) -> Delay:
        """From each reading's own."""
        ordered = sorted(seconds)
        return cls(statistics.median(ordered) * 1000, ordered[int(len(ordered) * 0.99)] * 1000, len(ordered), messages)


@dataclass(frozen=True, slots=True)
class Delays:
    """By form."""

    seldom: Mapping[str, Delay]
    often: Mapping[str, Delay]


class _OnlyJson(Packing):
    """As with a cloud that names no formats."""

    def told(self, reply: Mapping[str, Any]) -> None:
        del reply


class _TimedOutbox(Outbox):
    """Knows how long each record was in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.seconds: list[float] = []
        self._since: dict[int, float] = {}

    def put(self, record: OutRecord) -> None:
        """Append it now."""
        self._since[self.log.end] = time.perf_counter()
        self.append([record])

    def leave(self, entries: Iterable[Entry]) -> list[Entry]:
        """As an outbox does."""
        left = super().leave(entries)
        now = time.perf_counter()
        self.seconds += [now - self._since.pop(entry.place) for entry in left]
        return left


class _Phone:
    """A mobile broker's uplink, without what gathers."""

    def __init__(self, name: str, folder: Path, port: int, packing: Packing) -> None:
        self.outbox = _TimedOutbox(folder)
        self.outbox.open()
        leases = Leases(name)
        activations = Activations(leases, self.outbox, lambda *_: None)
        activations.start(self.outbox.state())
        access = Access(name, Server.parse(f"mqtt://127.0.0.1:{port}"), None)
        self.uplink = Uplink(access, self.outbox, activations, leases, DeadLetters(folder))
        self.uplink.packing = packing
        self._source = f"{name}-mote"
        self._number = 0
        self._task = asyncio.create_task(self.uplink.run())
        self.uplink.announce({"sources": [{"name": self._source, "attributes": {"n": {"type": "number"}}}]})

    def sample(self) -> None:
        """One reading."""
        self._number += 1
        row = {"id": f"{self._source}:1:{self._number}", "n": 20.0, "source": self._source, "time": time.time()}
        self.outbox.put(OutRecord(row, 0))

    async def drained(self) -> None:
        """All is stored."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.outbox.log.count:
            if time.monotonic() > deadline:
                raise Stuck(f"waited {WAIT_SECONDS:g} s for {self.outbox.log.count} readings to be stored")
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """As SIGTERM does."""
        await self.uplink.stop()
        await self._task
        self.outbox.close()


def measure(seconds: float = SECONDS) -> Delays:
    """Starts a cloud."""
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder, running_cloud() as cloud:
        return asyncio.run(_measure(Path(folder), cloud.mqtt_port, seconds))


async def _measure(folder: Path, port: int, seconds: float) -> Delays:
    forms = {PACKED: Packing(), JSON: _OnlyJson()}
    phones = {form: _Phone(f"phone-{form}", folder / form, port, packing) for form, packing in forms.items()}
    try:
        for phone in phones.values():
            phone.sample()
            await phone.drained()
        seldom = await _load(phones, SELDOM_S, seconds)
        often = await _load(phones, OFTEN_S, seconds)
        if not forms[PACKED].packed or forms[JSON].packed:
            raise Stuck("the cloud does not name the packed format")
    finally:
        for phone in phones.values():
            await phone.close()
    return Delays(seldom, often)


async def _load(phones: Mapping[str, _Phone], interval_s: float, seconds: float) -> dict[str, Delay]:
    """Both at once."""
    before = {form: phone.uplink.counts.batches for form, phone in phones.items()}
    for phone in phones.values():
        phone.outbox.seconds.clear()
    await asyncio.gather(*(_samples(phone, form, interval_s, seconds) for form, phone in phones.items()))
    return {
        form: Delay.of(phone.outbox.seconds, phone.uplink.counts.batches - before[form])
        for form, phone in phones.items()
    }


async def _samples(phone: _Phone, form: str, interval_s: float, seconds: float) -> None:
    chance = random.Random(form)  # noqa: S311  # repeatable on purpose
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(chance.expovariate(1 / interval_s))
        phone.sample()
    await phone.drained()
