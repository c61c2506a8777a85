"""All processes of `spinney up`: started in order, kept running, stopped in order."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from spinney_cloud.child import Child, ChildError

from .city import adapter_address
from .folder import Folder, UpError
from .plan import Plan

STOP_SECONDS: Final = 20.0
"""For each stage; what has not ended by then is killed."""
MAX_LOG_BYTES: Final = 2 * 1024**2
LAST_LINES: Final = 40
START_SECONDS: Final = 120.0
"""For one process to be ready."""
SILENT_SECONDS: Final = 10.0
"""Who waits longer is told for what."""
logger = logging.getLogger(__name__)

_ADDRESS = re.compile(r"\b(MQTT|HTTP) (\S+?)(?:,|$)")


class Part:
    """One process, and what it has said."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.ready_line = ""
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._log = RotatingFileHandler(log / f"{name}.log", maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8")
        self.child = Child(name, lambda: command, self._said, must_start=True, own_stderr=False)

    def _said(self, line: str) -> bool:
        self._last.append(line)
        self._log.emit(logging.makeLogRecord({"msg": "%s", "args": (line,)}))
        if not line.startswith("ready: "):
            return False
        self.ready_line = line
        return True

    async def ready(self, seconds: float | None = START_SECONDS) -> None:
        """Until it does its work; UpError with its own words if it does not, or not in time."""
        try:
            async with asyncio.timeout(seconds):
                await self.child.wait_ready()
        except ChildError as error:
            raise UpError(self._why() or f"{error}; {self.last_words}") from None
        except TimeoutError:
            raise UpError(f"{self.name} is not ready after {START_SECONDS:.0f} s; {self.last_words}") from None

    @property
    def last_words(self) -> str:
        """What it said last, and where the rest is."""
        said = f"it said last: {self._last[-1]}; " if self._last else ""
        return f"{said}its log is {self._log.baseFilename}"

    def _why(self) -> str:
        """What it has said of it, as commands do: `spinney cloud: ...`."""
        said = (line for line in self._last if re.match(r"spinney [a-z]+: ", line))
        return "\n".join(line.split(": ", 1)[1] for line in said)

    def close(self) -> None:
        """Its log."""
        self._log.close()


class Stack:
    """The processes. Without a plan: a mobile broker on a real adapter. `python`: that of the cloud broker."""

    def __init__(self, folder: Folder, plan: Plan | None, cloud: Sequence[str], python: Path) -> None:
        self._folder = folder
        self._plan = plan
        self._cloud = self._part("cloud", "spinney_tools", "cloud", *cloud, python=python)
        self._stages: list[list[Part]] = [[self._cloud]]
        self._mobile: list[Part] = []
        self._is_killing = False

    async def start(self) -> None:
        """Until everything is ready."""
        telling = asyncio.create_task(self._tell_waiting())
        try:
            await self._start()
        finally:
            telling.cancel()

    async def _tell_waiting(self) -> None:
        while True:
            await asyncio.sleep(SILENT_SECONDS)
            names = [part.name for stage in self._stages for part in stage if not part.child.ready.is_set()]
            if names:
                logger.warning("waiting for %s; logs are in %s", ", ".join(names), self._folder.part("log"))

    async def _start(self) -> None:
        self._cloud.child.start()
        city = self._start_city()
        await self._cloud.ready()
        self._mobile = self._brokers()
        self._stages.append(self._mobile)
        if city is not None:
            await city.ready()
        for part in self._mobile:
            part.child.start()
        await asyncio.gather(*(part.ready() for part in self._mobile))

    def _start_city(self) -> Part | None:
        if self._plan is None:
            return None
        plan = self._plan
        numbers = {"motes": plan.motes, "brokers": plan.brokers, "seed": plan.seed, "every": plan.every_s}
        options = [word for name, number in numbers.items() for word in (f"--{name}", str(number))]
        paths = [str(self._folder.part("city")), str(self._folder.part("run"))]
        city = self._part("city", "spinney_tools.up.city", *paths, *options)
        self._stages.append([city])
        city.child.start()
        return city

    def _brokers(self) -> list[Part]:
        if self._plan is None:
            config = self._folder.write_own_broker(self.address("MQTT"))
            return [self._part("here", "spinney_mobile", "run", "--config", str(config))]
        parts = []
        for number, square in enumerate(self._plan.squares):
            config = self._folder.write_broker(square, self._plan, self.address("MQTT"))
            given = [
                str(self._folder.part("run")),
                square.name,
                adapter_address(number),
                "run",
                "--config",
                str(config),
            ]
            parts.append(self._part(square.name, "spinney_tools.up.mobile", *given))
        return parts

    def _part(self, name: str, module: str, *arguments: str, python: Path = Path(sys.executable)) -> Part:
        return Part(name, [str(python), "-P", "-m", module, *arguments], self._folder.part("log"))

    async def join_pipeline(self, python: Path, data: Path) -> None:
        """Start the pipeline beside what runs, until it does its work: Spark takes its time. It stops with what brings
        in readings."""
        part = self._part("pipeline", "spinney_tools", "pipeline", "--data", str(data), python=python)
        self._stages[-1].append(part)
        part.child.start()
        await part.ready(None)

    def address(self, what: str) -> str:
        """MQTT or HTTP, as the cloud broker says it."""
        addresses: dict[str, str] = dict(_ADDRESS.findall(self._cloud.ready_line))
        return addresses[what]

    async def stop(self) -> None:
        """In order: what brings in readings first."""
        for stage in reversed(self._stages):
            await asyncio.gather(*(part.child.stop(STOP_SECONDS) for part in stage))
            for part in stage:
                part.close()

    def kill(self) -> None:
        """At once."""
        for stage in self._stages:
            for part in stage:
                part.child.kill()


class Signals:
    """Ctrl-C and SIGTERM: the first asks to stop, the second calls `again`."""

    def __init__(self, again: Callable[[], None]) -> None:
        self.stopping = asyncio.Event()
        self._again = again
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._came)

    def _came(self) -> None:
        if self.stopping.is_set():
            self._again()
        self.stopping.set()

    async def unless(self, work: asyncio.Task[None]) -> bool:
        """Waits for the work, or for a signal, which cancels it; whether the work is done."""
        asked = asyncio.create_task(self.stopping.wait())
        await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if work.done():
            work.result()
            return True
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        return False
