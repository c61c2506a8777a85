"""Real servers for tests: nats-server and mosquitto on free ports of loopback, killed and started again at will."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import pytest

from spinney_cloud.service import Endpoints

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 10.0
_IP_LOCAL_PORT_RANGE = 51
"""Of Linux, for one socket; Python does not name it."""


def take_any_of(port: int) -> None:
    """Ask for any free port where this is the only one that the system may give; OSError if it does not, and let go."""
    with socket.socket() as asking:
        try:
            asking.setsockopt(socket.IPPROTO_IP, _IP_LOCAL_PORT_RANGE, struct.pack("=I", port << 16 | port))
        except OSError:
            pytest.skip("a kernel before 6.3")
        asking.bind(("127.0.0.1", 0))


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on at this moment."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection((HOST, port), 0.5).close()
    except OSError:
        return False
    return True


class Server:
    """A server process that keeps its folder and ports from one start to the next. Use it in a `with`."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder = folder
        self.ports = ports
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> list[str]:
        """What to run."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start it and wait until it accepts connections."""
        assert self.process is None
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not all(answers(port) for port in self.ports):
            ended = self.process.poll()
            if ended is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self.command()[0]} did not start: {self.log()[-2000:]}")
            time.sleep(0.01)
        return self

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """As kill -9 does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """On the same ports with the same folder, after `kill` or `stop` or a stop now."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """It keeps its connections and says nothing: a half-open link."""
        os.kill(self.pid, signal.SIGSTOP)
        while not all(psutil.Process(thread.id).status() == psutil.STATUS_STOPPED for thread in self._threads()):
            time.sleep(0.001)

    def resume(self) -> None:
        """After `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def _threads(self) -> list[Any]:
        """A stopped process stops thread by thread; Linux shows each as a process of its own."""
        return psutil.Process(self.pid).threads() if sys.platform == "linux" else []

    def cpu_seconds(self) -> float:
        """User and system time that it has used."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def log(self) -> str:
        """All it has said so far."""
        return (self.folder / "log").read_text(errors="replace")

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


class NatsServer(Server):
    """nats-server with JetStream and an MQTT listener. `extra`, `jetstream`, `mqtt` go into those blocks.

    What an MQTT client does not acknowledge comes again `ack_wait` after it was sent, be the client new or not.
    """

    kind = "nats"

    def __init__(
        self, folder: Path, *, extra: str = "", jetstream: str = "", mqtt: str = "", ack_wait: str = "10s"
    ) -> None:
        super().__init__(folder, free_ports(2))
        self.port, self.mqtt_port = self.ports
        self.url = f"nats://{HOST}:{self.port}"
        (folder / "nats.conf").write_text(
            f"""server_name: test
listen: "{HOST}:{self.port}"
max_payload: 4MB
max_pending: 64MB
jetstream {{
  store_dir: "{folder}/store"
  max_file_store: 64GB
  limits {{ default_max_consumers: 100000 }}
  {jetstream}
}}
mqtt {{ listen: "{HOST}:{self.mqtt_port}", max_ack_pending: 1000, ack_wait: "{ack_wait}" {mqtt} }}
{extra}
"""
        )

    def command(self) -> list[str]:
        own = Path(sysconfig.get_path("scripts")) / "nats-server"
        program = str(own) if own.exists() else shutil.which("nats-server") or "nats-server"
        return [program, "-c", str(self.folder / "nats.conf")]

    def endpoints(self, mqtt: MosquittoServer | None = None, **more: object) -> Endpoints:
        """What a process of the cloud is told; with another server's MQTT if there is one."""
        given: dict[str, object] = {
            "nats_url": self.url,
            "mqtt_host": HOST,
            "mqtt_port": mqtt.mqtt_port if mqtt else self.mqtt_port,
            "mqtt_kind": mqtt.kind if mqtt else self.kind,
            "http_port": 0,
            **more,
        }
        return Endpoints(**given)  # type: ignore[arg-type]  # the caller names real fields


class MosquittoServer(Server):
    """mosquitto with persistence (saved each second: a kill may lose what it acknowledged) and ample queues."""

    kind = "mosquitto"

    def __init__(self, folder: Path, *, extra: str = "", listener: str = "", anonymous: bool = True) -> None:
        super().__init__(folder, free_ports(1))
        (self.mqtt_port,) = self.ports
        self.port = self.mqtt_port
        (folder / "mosquitto.conf").write_text(
            f"""per_listener_settings false
listener {self.port} {HOST}
{listener}
allow_anonymous {str(anonymous).lower()}
persistence true
persistence_location {folder}/
autosave_interval 1
max_inflight_messages 1000
max_queued_messages 0
set_tcp_nodelay true
{"user root" if os.geteuid() == 0 else ""}
{extra}
"""
        )

    def configure(self, text: str) -> None:
        """By another text than ours, which need not say where its data is. Before a start."""
        ours = f"persistence_location {self.folder}/\n" + ("user root\n" if os.geteuid() == 0 else "")
        (self.folder / "mosquitto.conf").write_text(text + ours)

    def command(self) -> list[str]:
        return [shutil.which("mosquitto") or "mosquitto", "-c", str(self.folder / "mosquitto.conf")]
