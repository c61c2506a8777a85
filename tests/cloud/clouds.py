"""A running `spinney cloud` for tests: started as people start it, with real or with small processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

SMALL = [sys.executable, str(Path(__file__).parent / "small_cloud.py")]
FEW = [*SMALL, "--few"]
ANY_PORTS = ("--mqtt-port", "0", "--http-port", "0", "--nats-port", "0")
START_SECONDS = 60.0
WAIT_SECONDS = 60.0


def wait_until(holds: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait for a condition; an error that names it if it does not come."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for: {what}")
        time.sleep(0.01)


class Cloud:
    """`spinney cloud` on a data directory, in a session of its own. A `with` starts it, and leaves nothing behind;
    `with cloud.begin():` does not wait until it is ready."""

    def __init__(
        self, data: Path, *arguments: str, program: Sequence[str] = FEW, ports: Sequence[str] = ANY_PORTS
    ) -> None:
        self.data = data
        self.command = [*program, "--data", str(data), *ports, *arguments]
        self.process: subprocess.Popen[str] | None = None
        self._said: list[str] = []
        self._readers: list[threading.Thread] = []
        self.ready_line = ""

    # ---- starting and stopping

    def begin(self, **more: Any) -> Self:
        """Start it; `more` goes to Popen."""
        self.ready_line = ""
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **more
        )
        self._readers = [
            threading.Thread(target=self._listen, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()
        return self

    def start(self) -> Self:
        """Start it and wait until it is ready."""
        self.begin()
        try:
            wait_until(lambda: self.ready_line or self.ended, "the ready line", START_SECONDS)
            assert self.ready_line, "it did not start"
        except AssertionError:
            self._end()
            print(self.said)
            raise
        return self

    def send(self, number: signal.Signals) -> None:
        """Send the supervisor a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop; the exit code."""
        self.send(number)
        return self.wait()

    def wait(self) -> int:
        """Until it ends; the exit code."""
        assert self.process is not None
        code = self.process.wait(WAIT_SECONDS)
        for reader in self._readers:
            reader.join(WAIT_SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream
            stream.close()
        return code

    def __enter__(self) -> Self:
        return self.start() if self.ended else self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        if error is not None:
            print(self.said)

    def _end(self) -> None:
        assert self.process is not None
        if not self.ended:
            family = self.family()
            self.process.kill()
            for each in family:
                with suppress(psutil.NoSuchProcess):  # they end by themselves, too
                    each.kill()
        self.wait()

    # ---- looking at it

    def _listen(self, stream: object) -> None:
        for line in stream:
            self._said.append(line)
            if line.startswith(("ready: ", '{"ready"')):
                self.ready_line = line.strip()

    @property
    def said(self) -> str:
        """All output so far."""
        return "".join(self._said)

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.process is None or self.process.poll() is not None

    @property
    def pid(self) -> int:
        """The supervisor's."""
        assert self.process is not None
        return self.process.pid

    def family(self) -> list[psutil.Process]:
        """The processes that it started, and theirs."""
        return psutil.Process(self.pid).children(recursive=True)

    def child(self, name: str) -> psutil.Process | None:
        """Its process of that name, if it runs."""
        for process in self.family():
            try:
                if name in process.cmdline() or process.name() == name:
                    return process
            except psutil.Error:
                continue
        return None

    def addresses(self) -> dict[str, str]:
        """What the ready line says."""
        if self.ready_line.startswith("{"):
            return dict(json.loads(self.ready_line))
        return dict(re.findall(r"(\w+) (\S+?)(?:,|$)", self.ready_line.removeprefix("ready: ")))

    def port(self, name: str) -> int:
        """Of one of its addresses."""
        found = re.search(r":(\d+)(/|$)", self.addresses()[name])
        assert found
        return int(found[1])

    def events(self) -> list[tuple[str, str, int]]:
        """What happened to small processes: name, event, pid."""
        try:
            lines = (self.data / "events").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(name, event, int(pid)) for name, event, pid in (line.split() for line in lines)]


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(pid: int) -> None:
    """As kill -9 does."""
    os.kill(pid, signal.SIGKILL)
