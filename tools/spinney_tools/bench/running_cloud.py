"""A cloud broker for a benchmark, and the MQTT server alone to compare it with: both started, both stopped here."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from .stuck import Stuck

START_SECONDS = 60.0
STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class RunningCloud:
    """Where it is, and what its processes have used."""

    mqtt_port: int
    http_port: int
    pid: int

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time of each process so far, by name."""
        times = {name: process.cpu_times() for name, process in self._processes().items()}
        return {name: used.user + used.system for name, used in times.items()}

    def own_bytes(self) -> dict[str, int]:
        """Memory that is each process's alone, by name."""
        return {name: process.memory_full_info().uss for name, process in self._processes().items()}

    def _processes(self) -> dict[str, psutil.Process]:
        found = {}
        for child in psutil.Process(self.pid).children(recursive=True):
            words = child.cmdline()
            name = words[words.index("spinney_cloud.service") + 1] if "spinney_cloud.service" in words else child.name()
            found[name] = child
        return found


@contextlib.contextmanager
def running_cloud(*arguments: str) -> Iterator[RunningCloud]:
    """A cloud broker with a new data directory and free ports."""
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder:
        ports = [word for name in ("mqtt", "http", "nats") for word in (f"--{name}-port", "0")]
        command = [sys.executable, "-m", "spinney_tools", "cloud", "--data", f"{folder}/data", "--log", "json"]
        errors = Path(folder) / "errors"
        with (
            errors.open("wb") as out,
            ended(subprocess.Popen([*command, *ports, *arguments], stdout=subprocess.PIPE, stderr=out)) as process,
        ):
            assert process.stdout
            waited = select.select([process.stdout], [], [], START_SECONDS)[0]
            line = process.stdout.readline() if waited else b""
            if not line:
                raise Stuck(errors.read_text(errors="replace")[-2000:])
            ready = json.loads(line)
            yield RunningCloud(_port(ready["mqtt"]), _port(ready["http"]), process.pid)


def _port(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


@contextlib.contextmanager
def bare_nats_server(max_ack_pending: int = 100) -> Iterator[int]:
    """nats-server with its MQTT listener and nothing else; its MQTT port."""
    from spinney_cloud.nats_server import find

    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        nats, mqtt = one.getsockname()[1], other.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder:
        (Path(folder) / "conf").write_text(
            f'server_name: bare\nlisten: "127.0.0.1:{nats}"\njetstream {{ store_dir: "{folder}/store" }}\n'
            f'mqtt {{ listen: "127.0.0.1:{mqtt}", max_ack_pending: {max_ack_pending}, ack_wait: "30s" }}\n'
        )
        command = [str(find()), "-c", f"{folder}/conf", "-l", f"{folder}/log"]
        with ended(subprocess.Popen(command)):
            wait_for_port(mqtt)
            yield mqtt


def wait_for_port(port: int) -> None:
    """Until somebody accepts connections there; Stuck if nobody does."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.02)
    raise Stuck(f"nothing listens on port {port}")


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is stopped at the end, if need be by force."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
