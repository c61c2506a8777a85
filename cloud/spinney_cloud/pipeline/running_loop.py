"""A pipeline's process: waits for the log, runs the parts in a thread, answers for them, and goes on after trouble.

What somebody has to mend (a log that was trimmed, a full disk, a lake in use) ends a pipeline that was started by hand.
Beside a broker it is said once, shown in /readyz, and tried again: the broker needs no pipeline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ..data_dir import RUN_FILE
from ..log_errors import LogError, Refused
from ..names import LOG
from ..nats_log import NatsLog
from ..retention import PIPELINE
from ..service import Service
from .direct_get import DirectGet, LogServer
from .ingest import IngestError, JavaGoneError, Status
from .java import NoJavaError
from .lake import LakeError
from .metrics import PipelineMetrics, Seen
from .progress import Look, Progress, look_at_log, look_at_state
from .running import Job, PlaceError, Run, Spark, job_of, open_session
from .scan import LogReplaced, LogTrimmed
from .session import leave
from .session import stop as stop_session

logger = logging.getLogger(__name__)

NAME = PIPELINE
"""Its process, and its key in the bucket of readers."""
LOOK_SECONDS = 5.0
PROGRESS_SECONDS = 10.0
WAIT_SECONDS = 1.0
"""Between attempts to reach the log."""
AGAIN_SECONDS = 15.0
"""Between attempts, where somebody has to mend something."""
NEEDS_HELP = (IngestError, LakeError, LogTrimmed, LogReplaced, NoJavaError, PlaceError, PySparkException)


async def serve(service: Service) -> None:
    """Beside a broker, as one of its processes."""
    server = LogServer(run=str(service.settings.data / RUN_FILE))
    pipeline = Pipeline(
        server,
        lambda: job_of(service.settings, service.settings.log, server),
        service.stopping,
        persistent=True,
        where=service.endpoints.nats_url,
        metrics=service.metrics,
        on_ready=service.ready,
    )
    service.health = pipeline.health
    try:
        await pipeline.run()
    except JavaGoneError as error:  # who started us starts us again
        logger.error("%s", error)
        leave(1)


@dataclass
class Pipeline:
    """One process's pipeline. `job` is asked once the log is there, each time.

    With `persistent` it tries again whatever stops it, but the end of Java.
    """

    server: LogServer
    job: Callable[[], Job]
    stopping: asyncio.Event
    persistent: bool = False
    where: str = ""
    """The log, for people."""
    metrics: CollectorRegistry = field(default_factory=CollectorRegistry)
    on_ready: Callable[[], None] = lambda: None
    """Called each time that it has begun its work."""
    session: SparkSession | None = None
    """One that there is already, and that is left open."""
    why: str | None = "starting"
    """Why it does not do its work."""
    _run: Run | None = None
    _look: Look = field(default_factory=Look)
    _opened: SparkSession | None = None

    def __post_init__(self) -> None:
        self.metrics.register(PipelineMetrics(self._seen))

    async def run(self) -> None:
        """Until told to stop, or until all that was asked for is done. Raises one of NEEDS_HELP or Refused."""
        try:
            while not self.stopping.is_set():
                if (log := await self._reach()) is None:
                    return
                async with log:
                    await self._answer(log)
                    if await self._live():
                        return
        finally:
            if self._opened is not None:
                await asyncio.to_thread(stop_session, self._opened)

    # ---- waiting for the log

    async def _reach(self) -> NatsLog | None:
        """A connection to the log, once there is one; None when told to stop before."""
        said = ""
        while not self.stopping.is_set():
            try:
                await asyncio.to_thread(_probe, self.server)
                return await NatsLog.connect(self.server.endpoints(), name=NAME)
            except Refused:
                raise
            except (LogError, OSError, ValueError) as error:  # a run file may be missing, or of another time
                self.why = f"waiting for {self.where}: {'it has not run yet' if _is_new(error) else error}"
                if self.why != said:
                    said = self.why
                    logger.info("%s", said)
            await self._pause(WAIT_SECONDS)
        return None

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    # ---- working

    async def _live(self) -> bool:
        """One run; whether it was the last."""
        job = self.job()
        self._run = run = Run(job, lambda: self._spark(job.spark))
        watching = asyncio.create_task(self._watch(run))
        working = asyncio.create_task(asyncio.to_thread(run.run))
        asked = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                logger.info("stopping, after the batch that is under way")
                await asyncio.to_thread(run.stop)
            await working
        except JavaGoneError:
            raise
        except LogError as error:
            logger.warning("%s", error)
            return False
        except NEEDS_HELP as error:
            await self._hold(error)
            return False
        finally:
            asked.cancel()
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        return True

    async def _hold(self, error: Exception) -> None:
        """Who can mend it is told; then it is tried again. It may be the log alone that is away: that is waited for."""
        text = str(error)
        if isinstance(error, IngestError) and not await self._log_is_there():
            logger.warning("%s", text)
            return
        if not self.persistent:
            raise error
        if text != self.why:
            logger.error("%s. It is tried again every %g s", text.rstrip("."), AGAIN_SECONDS)
        self.why = text
        await self._pause(AGAIN_SECONDS)

    async def _log_is_there(self) -> bool:
        try:
            await asyncio.to_thread(_probe, self.server)
        except (LogError, OSError, ValueError):
            return False
        return True

    def _spark(self, spark: Spark) -> SparkSession:
        if self.session is None:
            self.session = self._opened = open_session(spark)
        return self.session

    # ---- looking at it

    async def _watch(self, run: Run) -> None:
        """Whether it works, how far it is, and a line of it now and then."""
        progress, said = Progress(time.monotonic), time.monotonic()
        with DirectGet(self.server.endpoints(), retry_seconds=0.0) as log:
            while True:
                await asyncio.sleep(min(WAIT_SECONDS, LOOK_SECONDS) if self.why else LOOK_SECONDS)
                if run.ingest is None or not run.working:
                    continue
                if self.why:
                    self.why = None
                    logger.info("the log of %s goes into the lake %s", self.where, run.lake)
                    self.on_ready()
                    said = time.monotonic()
                await asyncio.to_thread(self._look_at, log, run.ingest.status)
                if time.monotonic() - said >= PROGRESS_SECONDS:
                    said = time.monotonic()
                    if line := progress.line(run.ingest.status, self._look):
                        logger.info("%s", line)

    def _look_at(self, log: DirectGet, status: Status) -> None:
        with suppress(LogError):  # it is away: what was seen last is told
            look_at_log(log, self._look, status, time.monotonic())
        if self.session is not None:
            look_at_state(self.session, self._look)

    def _seen(self) -> Seen | None:
        run = self._run
        if run is None or run.ingest is None or run.maintenance is None:
            return None
        matching = run.matching.status if run.matching else None
        windows = run.windows.done if run.windows else None
        return Seen(run.ingest.status, self._look, run.maintenance.done, matching, windows)

    def health(self) -> dict[str, Any]:
        """For /readyz."""
        seen = self._seen()
        status = seen.status if seen else Status()
        told = {"sequence": status.sequence, "behind": self._look.behind(status), "rows": status.rows}
        return {"ready": self.why is None, **({"why": self.why} if self.why else {}), **told}

    async def _answer(self, log: NatsLog) -> None:
        async def tell_metrics(_: bytes) -> bytes:
            return generate_latest(self.metrics)

        async def tell_health(_: bytes) -> bytes:
            return orjson.dumps(self.health())

        answers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {"metrics": tell_metrics, "health": tell_health}
        for what, answer in answers.items():
            await log.answer(NAME, what, answer)


def _is_new(error: Exception) -> bool:
    """Whether a cloud of this machine has not written its run file yet."""
    return isinstance(error, FileNotFoundError)


def _probe(server: LogServer) -> None:
    """LogError or OSError if there is no log at this moment."""
    with DirectGet(server.endpoints(), retry_seconds=0.0) as log:
        log.bounds(LOG)
