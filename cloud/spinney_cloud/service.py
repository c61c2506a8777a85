"""What every process of the cloud is given, and how it starts, reports and stops.

A process is a module `spinney_cloud.<name>` with `async def serve(service: Service) -> None`: it calls
`service.ready()` once it does its work, goes on until `service.stopping` is set, then finishes what it has begun and
returns. The supervisor starts it as `python -m spinney_cloud.service <name> <run file> --tethered`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from spinney.logs import set_up_logging

from .settings import Settings

logger = logging.getLogger(__name__)

READY = "ready"
"""The line on stdout by which a process tells the supervisor that it does its work."""
TETHERED = "--tethered"
"""Our stdin ends when the supervisor does, and then we end, too."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the servers are that this run uses, found out by the supervisor: addresses, and files with secrets."""

    nats_url: str
    mqtt_host: str
    mqtt_port: int
    mqtt_kind: str
    """nats or mosquitto or other."""
    http_port: int
    nats_user: str | None = None
    nats_password: str | None = None
    mqtt_user: str | None = None
    mqtt_password: str | None = None
    mqtt_client_prefix: str = "spinney"
    """Server-side client ids begin so: a random secret of the data directory."""
    nats_ca: str | None = None
    mqtt_tls: bool = False
    mqtt_ca: str | None = None
    nats_certificate: str | None = None
    """What we show to a server that asks for a certificate; the key is in a file, too."""
    nats_key: str | None = None
    mqtt_certificate: str | None = None
    mqtt_key: str | None = None

    def nats_context(self) -> ssl.SSLContext | None:
        """How we connect to the log by TLS; None: we do not."""
        if self.nats_ca is None and not self.nats_url.startswith("tls://"):
            return None
        return _context(self.nats_ca, self.nats_certificate, self.nats_key)

    def mqtt_context(self) -> ssl.SSLContext | None:
        """How we connect to the MQTT server by TLS; None: we do not."""
        return _context(self.mqtt_ca, self.mqtt_certificate, self.mqtt_key) if self.mqtt_tls else None


def _context(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


@dataclass
class Service:
    """One process's surroundings."""

    name: str
    settings: Settings
    endpoints: Endpoints
    metrics: CollectorRegistry = field(default_factory=CollectorRegistry)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    on_reload: Callable[[Settings], None] | None = None
    """Called with the new settings on SIGHUP, after the supervisor has checked them."""
    health: Callable[[], dict[str, Any]] = dict
    """What /readyz shows of this process: at least `ready` and, if not, `why`."""
    was_ready: bool = False

    def ready(self) -> None:
        """Tell the supervisor, once."""
        if not self.was_ready:
            self.was_ready = True
            print(READY, flush=True)


def read_run(path: Path) -> tuple[Settings, Endpoints]:
    """The file that the supervisor wrote for its processes; it holds secrets and is readable by the owner only."""
    run = json.loads(path.read_text())
    return Settings.model_validate(run["settings"]), Endpoints(**run["endpoints"])


def write_run(path: Path, settings: Settings, endpoints: Endpoints) -> None:
    """Write that file, whole."""
    part = path.with_suffix(".part")
    part.touch(mode=0o600)
    part.write_text(
        json.dumps(
            {
                "settings": settings.model_dump(mode="json"),
                "endpoints": {name: getattr(endpoints, name) for name in Endpoints.__slots__},
            }
        )
    )
    part.replace(path)


async def run(service: Service, run_file: Path, serve: Callable[[Service], Any], *, tethered: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, or until the supervisor is gone."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stopping.set)

    def reload() -> None:
        service.settings, _ = read_run(run_file)
        set_up_logging(service.name, service.settings.logging)
        if service.on_reload:
            service.on_reload(service.settings)

    loop.add_signal_handler(signal.SIGHUP, reload)
    if tethered:
        loop.add_reader(sys.stdin.fileno(), _end_with_supervisor)
    await serve(service)


def _end_with_supervisor() -> None:
    if not os.read(sys.stdin.fileno(), 1):
        logger.error("the supervisor is gone")
        os._exit(1)


def main(arguments: list[str]) -> int:
    """`python -m spinney_cloud.service NAME RUN_FILE [--tethered]`."""
    name, run_file = arguments[0], Path(arguments[1])
    settings, endpoints = read_run(run_file)
    set_up_logging(name, settings.logging)
    module = importlib.import_module(f"spinney_cloud.{name}")
    service = Service(name, settings, endpoints)
    asyncio.run(run(service, run_file, module.serve, tethered=TETHERED in arguments))
    return 0


if __name__ == "__main__":
    # the module that others import, not a second copy of it by the name of __main__
    sys.exit(importlib.import_module("spinney_cloud.service").main(sys.argv[1:]))
