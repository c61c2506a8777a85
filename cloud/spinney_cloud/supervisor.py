"""Starts everything on one machine, keeps it running, and stops it in order."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from spinney.configuring import ConfigurationError
from spinney.logs import set_up_logging

from .child import Child
from .configuration import Configuration, reload
from .data_dir import DataDir
from .endpoints import OurPorts, addresses, mqtt_endpoints, nats_endpoints, our_ports
from .log_errors import LogError, Unavailable
from .nats_log import NatsLog
from .nats_server import NatsServer, NatsServerError
from .service import READY, TETHERED, Endpoints, write_run
from .users import UsersError

logger = logging.getLogger(__name__)

NAME = "supervisor"
STAGES = (("http", "gateway"), ("coordinator",), ("matcher",), ("delivery",))
"""Its processes, in the order in which they stop: first what brings in more."""
PIPELINE = "pipeline"
"""Runs beside the others if it is asked for: it is started last, and nobody waits for it, nor for its Java."""
STOP_SECONDS = 15.0
"""For each stage; what has not ended by then is killed."""
SILENT_SECONDS = 2.0
"""Who waits longer is told for what."""
PROGRESS_SECONDS = 10.0
WATCH_SECONDS = 0.5
CLOSE_SECONDS = 2.0
"""For the connection to the log: its server may be gone."""
RETRY_SECONDS = 1.0
OPEN_FILES = 65_536
KILLED = 130

Command = Callable[[str, Path], Sequence[str]]


class Started(NamedTuple):
    """What is there once everything is."""

    run_file: Path
    endpoints: Endpoints


def service_command(name: str, run_file: Path) -> list[str]:
    """How a process is started. -P: what lies in the working directory is none of its modules."""
    return [sys.executable, "-P", "-m", "spinney_cloud.service", name, str(run_file), TETHERED]


class Processes(NamedTuple):
    """What the supervisor keeps running beside nats-server."""

    stages: Sequence[Sequence[str]] = STAGES
    command: Command = service_command


class Supervisor:
    """One run of the cloud. `reread` gives the configuration as it is on SIGHUP."""

    def __init__(
        self,
        configuration: Configuration,
        reread: Callable[[], Configuration],
        processes: Processes,
    ) -> None:
        self.settings = configuration.settings
        self._reread = reread
        stages, self._command = processes
        self._pipeline = configuration.settings.pipeline.run
        # it reads what the others bring in, and stops with the first: the rest is in the log for it
        self._stages = [(*stages[0], PIPELINE), *stages[1:]] if self._pipeline else stages
        self._stopping = asyncio.Event()
        self._waiting_for: list[str] = []
        self._nats: NatsServer | None = None
        self._log: NatsLog | None = None
        self._started: Started | None = None
        self._children: dict[str, Child] = {}
        self._told: dict[str, int] = {}
        self._generation = 0
        self._has_new_limits = False
        """Which the log's streams have not got yet."""
        self._limiting = asyncio.Lock()
        self._held = ExitStack()
        """Our ports, so that a process that starts again finds its own still free."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._kill_at_once = False
        self._began = time.monotonic()
        # SIGHUP means a closed terminal, too, unless we were started with nohup
        self._ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        self._metrics = CollectorRegistry()
        self._metrics.register(_Metrics(self._all_children))

    async def run(self) -> int:
        """Start, run until told to stop, stop. StartError and its like if it cannot start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ask_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        allow_open_files()
        with DataDir(self.settings.data) as data:
            try:
                await self._unless_stopped(self._start(data))
                await self._stopping.wait()
            finally:
                await self._stop()
        return KILLED if self._kill_at_once else 0

    # ---- Starting ----------------------------------------------------------------------------------------------

    async def _unless_stopped(self, start: Any) -> None:
        """Wait for the start, or leave it when told to stop."""
        starting = asyncio.create_task(start)
        asked = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not starting.done():
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
            return
        starting.result()

    async def _start(self, data: DataDir) -> None:
        ports = self._held.enter_context(our_ports(self.settings))
        self._task(self._say_progress())
        endpoints = await self._start_servers(data, ports)
        async with self._wait_for(f"the log at {endpoints.nats_url}"):
            self._log = await NatsLog.connect(endpoints, name=NAME)
            await self._ensure(self._log)
        write_run(data.run_file, self.settings, endpoints)
        for name in self._start_order():
            self._children[name] = self._child(name, data.run_file)
            self._children[name].start()
        for name, child in self._children.items():
            async with self._wait_for(name):
                await child.wait_ready()
        await self._log.answer(NAME, "metrics", self._answer_metrics)
        await self._log.answer(NAME, "health", self._answer_health)
        if self._nats:
            self._task(self._watch_users(self._nats))
        if self._pipeline:
            self._children[PIPELINE] = self._child(PIPELINE, data.run_file)
            self._children[PIPELINE].start()
        self._started = Started(data.run_file, endpoints)
        self._announce(addresses(self.settings, endpoints, ports, data.path))

    async def _start_servers(self, data: DataDir, ports: OurPorts) -> Endpoints:
        """Our own nats-server, unless there are others; where they all are."""
        settings = self.settings
        if ports.nats:
            self._nats = NatsServer(settings, data, ports.nats)
            async with self._wait_for("nats-server"):
                await self._nats.start()
        async with self._wait_for(f"the MQTT server {settings.mqtt.url}"):
            mqtt = await mqtt_endpoints(settings.mqtt, ports.nats, data)
        return Endpoints(
            http_port=ports.http,
            mqtt_client_prefix=data.secrets.client_prefix,
            **nats_endpoints(settings.nats, ports.nats, data),
            **mqtt,
        )

    async def _ensure(self, log: NatsLog) -> None:
        while True:
            try:
                await log.ensure(self.settings)
            except Unavailable as error:
                logger.warning("the log cannot be used yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _start_order(self) -> Iterable[str]:
        """What brings in more comes last."""
        return [name for stage in reversed(self._stages) for name in stage if name != PIPELINE]

    def _child(self, name: str, run_file: Path) -> Child:
        def command() -> Sequence[str]:
            self._told[name] = self._generation
            return self._command(name, run_file)

        child = Child(name, command, lambda line: line == READY)
        child.on_ready = lambda: self._tell(name)
        return child

    def _announce(self, found: dict[str, str]) -> None:
        """The line for whoever started us."""
        if self.settings.logging.format == "json":
            line = json.dumps({"ready": True, **{name.lower(): address for name, address in found.items()}})
        else:
            line = "ready: " + ", ".join(f"{name} {address}" for name, address in found.items())
        print(line, flush=True)
        logger.info("ready", extra={"seconds": round(time.monotonic() - self._began, 2)})

    # ---- Waiting -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _wait_for(self, what: str) -> AsyncIterator[None]:
        self._waiting_for.append(what)
        try:
            yield
        finally:
            self._waiting_for.remove(what)

    async def _say_progress(self) -> None:
        """What is waited for, after a while and then now and again."""
        await asyncio.sleep(SILENT_SECONDS)
        while True:
            if self._waiting_for:
                seconds = time.monotonic() - self._began
                logger.info("waiting for %s (%.0f s)", ", ".join(self._not_there_yet()), seconds)
            await asyncio.sleep(PROGRESS_SECONDS)

    def _not_there_yet(self) -> list[str]:
        children = [name for name, child in self._children.items() if not child.ready.is_set()]
        return children or self._waiting_for

    # ---- While it runs -----------------------------------------------------------------------------------------

    def _task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the supervisor has a fault: %s", error, exc_info=error)

    async def _watch_users(self, nats: NatsServer) -> None:
        """Users take effect at once."""
        while True:
            if nats.has_other_users:
                await self._reload_nats(nats)
            await asyncio.sleep(WATCH_SECONDS)

    async def _reload_nats(self, nats: NatsServer) -> None:
        try:
            await nats.reload()
        except (NatsServerError, UsersError, OSError) as error:
            logger.error("users and certificates are not taken over: %s", error)
        else:
            logger.info("nats-server has taken users and certificates anew")

    def _hang_up(self) -> None:
        if self._ends_with_terminal and not _has_terminal():
            self._ask_to_stop()
        elif self._started is not None:
            self._task(self._reload(*self._started))

    async def _reload(self, run_file: Path, endpoints: Endpoints) -> None:
        """Take over what can be, say what cannot."""
        try:
            new = self._reread().settings
        except ConfigurationError as error:
            for problem in error.problems:
                logger.error("configuration: %s", problem)
            logger.error("the configuration stays as it was")
            return
        settings, changed, needs_restart = reload(self.settings, new)
        try:
            write_run(run_file, settings, endpoints)
        except OSError as error:
            logger.error("the configuration stays as it was: %s", error)
            return
        self.settings = settings
        set_up_logging(NAME, self.settings.logging)
        self._has_new_limits = self._has_new_limits or any(name.startswith("log.") for name in changed)
        if self._log and self._has_new_limits:
            self._task(self._limit(self._log))
        if self._nats:
            self._nats.settings = self.settings
            await self._reload_nats(self._nats)
        self._generation += 1
        for name in self._children:
            self._tell(name)
        logger.info("configuration read again; changed: %s", ", ".join(changed) or "nothing")
        if needs_restart:
            logger.warning("needs a restart to take effect: %s", ", ".join(needs_restart))

    async def _limit(self, log: NatsLog) -> None:
        """Give the streams their new limits, as soon as the log's server is there; nothing else waits for it."""
        async with self._limiting:
            if not self._has_new_limits:
                return
            try:
                await self._ensure(log)
            except LogError as error:
                logger.error("the log's limits stay as they were, until the next SIGHUP: %s", error)
            else:
                self._has_new_limits = False
                logger.info("the log has its new limits")

    def _tell(self, name: str) -> None:
        """Have a process read the run file again, if it has not read this one."""
        child = self._children[name]
        if child.ready.is_set() and self._told.get(name) != self._generation:
            self._told[name] = self._generation
            child.signal(signal.SIGHUP)

    async def _answer_metrics(self, _question: bytes) -> bytes:
        return generate_latest(self._metrics)

    async def _answer_health(self, _question: bytes) -> bytes:
        needed = {name: child for name, child in self._all_children().items() if name != PIPELINE}
        missing = [name for name, child in needed.items() if not child.ready.is_set()]
        restarts = {name: child.restarts for name, child in self._all_children().items()}
        why = {"why": f"not running: {', '.join(missing)}"} if missing else {}
        return json.dumps({"ready": not missing, **why, "restarts": restarts}).encode()

    def _all_children(self) -> dict[str, Child]:
        return {**({"nats-server": self._nats.child} if self._nats else {}), **self._children}

    # ---- Stopping ----------------------------------------------------------------------------------------------

    def _ask_to_stop(self) -> None:
        """Stop in order; asked again, at once."""
        if self._stopping.is_set():
            self._kill_at_once = True
            for child in self._all_children().values():
                child.kill()
        self._stopping.set()

    async def _stop(self) -> None:
        began = time.monotonic()
        logger.info("stopping")
        for task in tuple(self._tasks):
            task.cancel()
        if self._log:
            with suppress(LogError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._log.close()
        for stage in self._stages:
            children = [self._children[name] for name in stage if name in self._children]
            await asyncio.gather(*(child.stop(STOP_SECONDS) for child in children))
        if self._nats:
            await self._nats.stop()
        self._held.close()
        logger.info("stopped", extra={"seconds": round(time.monotonic() - began, 2)})


class _Metrics(Collector):
    """What is known of the children, when it is asked."""

    def __init__(self, children: Callable[[], dict[str, Child]]) -> None:
        self._children = children

    def collect(self) -> Iterable[Metric]:
        restarts = CounterMetricFamily(
            "spinney_supervisor_restarts", "Starts after an unexpected end", labels=["process"]
        )
        ready = GaugeMetricFamily("spinney_supervisor_ready", "Whether the process does its work", labels=["process"])
        for name, child in self._children().items():
            restarts.add_metric([name], child.restarts)
            ready.add_metric([name], child.ready.is_set())
        return [restarts, ready]


def allow_open_files() -> None:
    """As many as may be, for us and our processes: each connection of a client is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
