"""A matcher process for tests: started as the supervisor does it, killed at will; and a log to feed it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
from servers import NatsServer

from spinney_cloud import notes, records
from spinney_cloud.engine import Engine
from spinney_cloud.failpoints import VARIABLE
from spinney_cloud.log_errors import LogError
from spinney_cloud.names import LOG, NOTES, log_subject
from spinney_cloud.nats_log import NatsLog, read_range
from spinney_cloud.notes import Notes
from spinney_cloud.records import Record
from spinney_cloud.service import READY, write_run
from spinney_cloud.settings import Settings

SECONDS = 30.0


class MatcherProcess:
    """Use it in a `with`; it is killed at the end."""

    def __init__(self, folder: Path, nats: NatsServer, settings: Settings) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.settings = settings.model_copy(update={"data": folder})
        self.run_file = folder / "run.json"
        write_run(self.run_file, self.settings, nats.endpoints())
        self.process: subprocess.Popen[str] | None = None

    def start(self, *, failpoint: str | None = None, wait: bool = True) -> Self:
        """Start it; with `wait`, until it is ready."""
        environment = dict(os.environ) | ({VARIABLE: failpoint} if failpoint else {})
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spinney_cloud.service", "matcher", str(self.run_file)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == READY, self.log()

    def kill(self) -> None:
        """As kill -9 does; nothing if it has died already."""
        if self.process is not None:
            self.process.kill()
            self.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Until it has ended; its exit code."""
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(SECONDS)
        self.process.stdout.close()
        self.process = None
        return code

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


@asynccontextmanager
async def feeding(nats: NatsServer, settings: Settings) -> AsyncIterator[Feed]:
    async with await NatsLog.connect(nats.endpoints(), name="test") as log:
        await log.ensure(settings)
        yield Feed(log)


class Feed:
    """Writes records, and looks at what has been told."""

    def __init__(self, log: NatsLog) -> None:
        self.log = log
        self._writer = log.writer(LOG)

    async def put(self, *all_records: Record) -> int:
        """Store records; the sequence of the last one."""
        futures = []
        for record in all_records:
            subject = log_subject(records.kind_of(record), record.tenant)
            futures.append(await self._writer.put(subject, records.encode(record)))
        return max([(await future).sequence for future in futures])

    async def notes(self) -> list[Notes]:
        """All messages of the notification log."""
        last = (await self.log.state(NOTES)).last
        found = [one async for messages in read_range(self.log, NOTES, 1, last) for one in messages]
        return [notes.decode(message.data) for message in found]

    async def what_the_log_says(self, settings: Settings, first: int = 1) -> list[Notes]:
        """What an engine makes of the whole log that is never interrupted."""
        engine = Engine(settings)
        out: list[Notes] = []
        last = (await self.log.state(LOG)).last
        async for messages in read_range(self.log, LOG, first, last):
            for message in messages:
                out += engine.apply(records.decode(message.data), message.sequence, message.time)
        return out

    async def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = orjson.loads(await self.log.ask("matcher", "health"))
        return answer

    async def metrics(self) -> dict[str, float]:
        """The matcher's samples by name and labels."""
        lines = (await self.log.ask("matcher", "metrics")).decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if line.startswith("spinney_matcher"))
        return {name: float(value) for name, value in samples}

    async def read_up_to(self, sequence: int) -> dict[str, Any]:
        """Wait until the matcher has read so far and told all of it; its health then."""
        deadline = asyncio.get_running_loop().time() + SECONDS
        while asyncio.get_running_loop().time() < deadline:
            try:
                health = await self.health()
            except LogError:
                health = {}
            if health.get("stored", 0) >= sequence:
                return health
            await asyncio.sleep(0.01)
        raise AssertionError(f"the matcher has not read up to {sequence} in {SECONDS} s: {health}")

    async def snapshot_beyond(self, sequence: int) -> int:
        """Wait until there is a snapshot of a record at or beyond this."""
        deadline = asyncio.get_running_loop().time() + SECONDS
        found: int | None = None
        while asyncio.get_running_loop().time() < deadline:
            found = (await self.health())["snapshot"]
            if found is not None and found >= sequence:
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(f"no snapshot at or beyond {sequence} in {SECONDS} s, but at {found}")
