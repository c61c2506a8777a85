"""The cloud's processes, started for tests of the API as the supervisor starts them."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from servers import HOST, NatsServer, free_ports

from spinney_cloud.nats_log import NatsLog
from spinney_cloud.service import READY, Endpoints, write_run
from spinney_cloud.settings import Settings

READY_SECONDS = 60.0
STOP_SECONDS = 15.0
SERVICE = ("-m", "spinney_cloud.service")


class Process:
    """One process of the cloud."""

    def __init__(self, name: str, run_file: Path, folder: Path, program: Sequence[str] = SERVICE) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        with self.log_file.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, *program, name, str(run_file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )

    def wait_ready(self) -> None:
        """Until it says so."""
        assert self.popen.stdout is not None
        found, _, _ = select.select([self.popen.stdout], [], [], READY_SECONDS)
        line = self.popen.stdout.readline().decode().strip() if found else ""
        assert line == READY, f"{self.name} is not ready ({line!r}):\n{self.log()}"

    def log(self) -> str:
        """All that it has said."""
        return self.log_file.read_text(errors="replace")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end, and wait; its exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(how)
        try:
            return self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise AssertionError(f"{self.name} did not stop:\n{self.log()}") from None
        finally:
            if self.popen.stdout is not None:
                self.popen.stdout.close()


class Cloud:
    """Some processes on one nats-server. `start` and `stop` them one by one, too."""

    def __init__(self, nats: NatsServer, folder: Path, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.nats = nats
        (self.http_port,) = free_ports(1)
        self.settings = Settings.model_validate({"data": folder / "data", **settings})
        self.settings.data.mkdir(exist_ok=True)
        self.run_file = folder / "run.json"
        self.endpoints: Endpoints = nats.endpoints(http_port=self.http_port)
        write_run(self.run_file, self.settings, self.endpoints)
        self.processes: dict[str, Process] = {}
        self.url = f"http://{HOST}:{self.http_port}"

    def ensure(self) -> None:
        """Streams and buckets are there."""

        async def ensured() -> None:
            async with await NatsLog.connect(self.endpoints, name="test") as log:
                await log.ensure(self.settings)

        asyncio.run(ensured())

    def start(self, *names: str, program: Sequence[str] = SERVICE) -> None:
        """Start processes, and wait until all are ready."""
        for name in names:
            self.processes[name] = Process(name, self.run_file, self.folder, program)
        for name in names:
            self.processes[name].wait_ready()

    def stop(self, *names: str) -> None:
        """Stop these, or all."""
        for name in names or tuple(self.processes):
            self.processes.pop(name).stop()

    def client(self, **options: Any) -> httpx.Client:
        """Of the API."""
        return httpx.Client(base_url=self.url, timeout=20, **options)


@contextmanager
def cloud(folder: Path, *names: str, **settings: Any) -> Iterator[Cloud]:
    """A nats-server of its own and these processes."""
    with NatsServer(folder / "nats") as nats:
        running = Cloud(nats, folder, **settings)
        running.ensure()
        try:
            running.start(*names)
            yield running
        finally:
            running.stop()


def wait_for(condition: Any, *, seconds: float = 60.0) -> Any:
    """What the condition gives once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        select.select([], [], [], 0.02)
    return found
