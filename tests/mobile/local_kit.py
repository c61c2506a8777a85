"""A local MQTT port with the device table behind it, in a loop on a thread of its own; clients are real ones."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spinney.identity import PublicationId
from spinney_mobile.decode.registry import Registry
from spinney_mobile.devices import DeviceTable
from spinney_mobile.listening import Taken
from spinney_mobile.local import LocalPort
from spinney_mobile.samples import Heard, Sample

WAIT_SECONDS = 60.0


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait for a condition; an error that names it if it does not come."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {WAIT_SECONDS:g} s for: {what}")
        time.sleep(0.005)


class Sink:
    """As the broker does it: what is heard goes through the device table, and is told to listeners."""

    def __init__(self) -> None:
        self.devices = DeviceTable(Registry())
        self.port: LocalPort | None = None
        self.samples: list[Sample] = []

    def heard(self, heard: Heard) -> str | None:
        sample = self.devices.take(heard)
        if sample is None:
            return self.devices.why_refused(heard.address)
        self.sampled(sample)
        return None

    def sampled(self, sample: Sample) -> None:
        self.samples.append(sample)
        sequence = len(self.samples) if sample.sequence is None else sample.sequence
        id = PublicationId(sample.source, sample.boot or 0, sequence)
        publication: dict[str, Any] = {"id": str(id), "source": sample.source, "time": sample.time, **sample.values}
        if sample.valid_for is not None:
            publication["valid_for"] = sample.valid_for
        assert self.port is not None
        self.port.taken(Taken(id, publication, sample, wanted=False))


class RunningPort:
    """A LocalPort that serves on a free port; a `with` stops it."""

    def __init__(self, folder: Path, *, passwords: Mapping[str, str] | None = None, subscriptions: int = 100) -> None:
        self.sink = Sink()
        self.unpublished: list[str] = []
        self.folder = folder
        self._given = {"passwords": passwords, "subscriptions": subscriptions}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.number: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.number}"

    @property
    def port(self) -> LocalPort:
        assert self.sink.port is not None
        return self.sink.port

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        given: Any = self._given
        self.sink.port = LocalPort(self.sink, self.folder, unpublish=self.unpublished.append, **given)
        self._serving = asyncio.create_task(self.port.run(self._listener))
        self._ready.set()
        with suppress(asyncio.CancelledError):
            await self._serving
        self._listener.close()

    def call(self, function: Callable[[], Any]) -> Any:
        """Have it called in the loop; what it gives."""

        async def called() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(WAIT_SECONDS)

    def hear(self, source: str, values: Mapping[str, Any]) -> None:
        """As if a sensor had been heard."""
        self.call(lambda: self.sink.heard(Heard("test", source, time.time(), values={**values, "source": source})))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WAIT_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join(WAIT_SECONDS)
