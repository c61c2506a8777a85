"""What a running pipeline is: parts that work side by side in one Spark session, until one fails or all are told to
stop. Everything here blocks, and is for a thread; running_loop.py waits for it, answers questions, and tries again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyspark
from py4j.protocol import Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]  # ships without types
from pyspark.sql import SparkSession

from ..data_dir import HeldError, hold
from ..settings import Log, Settings
from .direct_get import LogServer
from .duplicates import Windows
from .ingest import Ingest, JavaGoneError, Plan, check_start
from .lake import Lake
from .maintenance import Maintenance, Policy
from .matching_query import Matching, MatchingPlan
from .scan import Limits
from .session import CORES, HEAP, is_local, is_submitted, prepare, session
from .state import Limits as StateLimits
from .subscriptions import Where
from .windows import LENGTHS
from .windows_part import WindowsPart
from .windows_wanted import Densities

logger = logging.getLogger(__name__)

APP = "spinney pipeline"
ROOM = 2
"""Of a nearly full disk the log has the last part: the lake stops at so many times the floor of the log."""
CHECKPOINTS = "checkpoints"
LOCK = "lock"
"""A lake's file that a running pipeline holds."""


class PlaceError(Exception):
    """A lake cannot be where it was said to be; the text says what to do."""


class Part(Protocol):
    """What works in a pipeline. `start`, then `wait` until it ends or `stop` is called, from any thread."""

    def start(self) -> object:
        """Begin; raises what keeps it from beginning."""

    def wait(self) -> None:
        """Until it has ended; raises what ended it."""

    def stop(self) -> None:
        """End after what is under way; also when it has ended already."""


@dataclass(frozen=True)
class Spark:
    """Where Spark runs."""

    folder: Path
    """For its own files."""
    master: str | None = None
    """None: within this machine."""
    cores: int = CORES
    heap: str = HEAP
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """What a pipeline is to do."""

    lake: str
    plan: Plan
    matching: MatchingPlan | None
    """None: nothing is matched."""
    policy: Policy
    spark: Spark
    free_floor: int = 0
    """Bytes of the lake's disk that are left alone."""
    windows: bool = False

    def open_lake(self) -> Lake:
        """The lake as this job writes it."""
        return Lake(self.lake, free_floor=self.free_floor)


def job_of(settings: Settings, log: Log, server: LogServer) -> Job:
    """What settings say. `log`: those of the cloud whose log it is."""
    own = settings.pipeline
    plan = Plan(
        server,
        limits=Limits(own.max_rows),
        partitions=own.cores,
        windows=Windows(log.duplicate_window, log.content_window),
        trigger_seconds=own.trigger,
        skip_missing=own.skip_missing,
    )
    lengths = LENGTHS if own.windows else ()
    policy = Policy(own.compact, own.retain_days, own.retain_windows_days, own.vacuum_after, lengths)
    spark = Spark(settings.data / "run" / "spark", cores=own.cores, heap=f"{own.heap >> 20}m")
    matching = _matching_plan(settings, plan) if own.matching else None
    return Job(settings.lake, plan, matching, policy, spark, ROOM * log.free_disk_floor, windows=own.windows)


def _matching_plan(settings: Settings, plan: Plan) -> MatchingPlan:
    return MatchingPlan(
        Where(plan.server, settings.lake),
        f"{settings.checkpoints}/matching",
        limits=plan.limits,
        partitions=plan.partitions,
        windows=plan.windows,
        state=StateLimits(settings.matching.valid_kept, settings.log.max_age),
        trigger_seconds=settings.pipeline.matching_trigger,
        skip_missing=plan.skip_missing,
    )


@contextmanager
def held(place: str) -> Iterator[None]:
    """Have a lake to ourselves, and make its folder if need be; PlaceError if that cannot be.

    In an object store nobody can be kept out; there, of two who write, one fails at its next batch.
    """
    if "://" in place:
        yield
        return
    folder = Path(place)
    try:
        _make(folder)
        lock = hold(folder / LOCK)
    except HeldError as error:
        raise PlaceError(
            f"the lake {folder} is in use by process {error.pid}, another pipeline: there is one for a lake"
        ) from error
    except OSError as error:
        raise PlaceError(f"the lake {folder} cannot be used: {error.strerror or error}") from error
    with lock:
        yield


def _make(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise PlaceError(f"the lake {folder} is a file: choose a folder with --lake")
    folder.mkdir(parents=True, exist_ok=True)
    names = {entry.name for entry in folder.iterdir()} - {LOCK, CHECKPOINTS, "lost+found"}
    if names and not any(folder.glob("*/_delta_log")):
        raise PlaceError(f"{folder} holds other things ({min(names)}): choose another folder with --lake")


def check_checkpoint(spark: SparkSession, place: str) -> None:
    """PlaceError if Spark cannot write there: it, and not deltalake, keeps the checkpoints of matching."""
    scheme, is_url, _ = place.partition("://")
    if not is_url:
        return
    jvm: Any = spark._jvm
    java: Any = spark._jsc
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, java.hadoopConfiguration())
    except Py4JJavaError as error:
        raise PlaceError(
            f"the checkpoints cannot be in {place}: this Spark has no file system for {scheme}://. Choose a folder "
            f"with --checkpoints, one that all machines of the cluster share, or give Spark the file system by --conf "
            f"(for S3: hadoop-aws in spark.jars.packages, and s3a://)"
        ) from error


class Run:
    """One life of a pipeline's parts. `session` gives the session, and may have to start Java for it."""

    def __init__(self, job: Job, session: Callable[[], SparkSession]) -> None:
        self.ingest: Ingest | None = None
        self.matching: Matching | None = None
        self.windows: WindowsPart | None = None
        self.maintenance: Maintenance | None = None
        self.told_to_stop = False
        self.lake = job.lake
        self._job = job
        self._session = session
        self._started: list[Part] = []
        self._starting = threading.Lock()
        self._expected = 0
        self._ending = False

    def run(self) -> None:
        """Until all has ended; raises what ended it, if it was not `stop` or the end of what was to be read."""
        try:
            self._run()
        except (Py4JNetworkError, ConnectionError) as error:
            raise JavaGoneError from error

    def _run(self) -> None:
        job = self._job
        with held(job.lake):
            check_start(job.open_lake(), job.plan)  # before Java is started, which takes a while
            spark = self._session()
            if job.matching is not None:
                check_checkpoint(spark, job.matching.checkpoint)
            self.ingest = Ingest(spark, job.open_lake(), job.plan)
            self.maintenance = Maintenance(job.open_lake(), job.policy)
            parts: list[Part] = [self.ingest]
            if job.matching is not None:
                self.matching = matching = Matching(spark, job.matching)
                self.ingest.beside = lambda: matching.floor  # it needs more than what it has answered
                parts.append(matching)
            helpers: list[Part] = [self.maintenance]
            if job.windows:
                self.windows = WindowsPart(spark, job.open_lake(), wanted=Densities(job.plan.server).read)
                helpers.append(self.windows)
            self._live_all(parts, helpers)
            if job.plan.once and not self.told_to_stop:
                if self.windows is not None:
                    self.windows.step()
                self.maintenance.round()

    @property
    def working(self) -> bool:
        """Whether all have begun, and none is told to end."""
        return 0 < self._expected == len(self._started) and not self._ending

    def stop(self) -> None:
        """End all parts, each after what it has under way; waits for that."""
        self.told_to_stop = True
        self._end()

    def _end(self) -> None:
        self._ending = True
        with self._starting:
            started = tuple(self._started)
        for part in started:
            part.stop()

    def _live_all(self, parts: Sequence[Part], helpers: Sequence[Part]) -> None:
        """The helpers go on as long as the parts do; the trouble of one ends all."""
        self._expected = len(parts) + len(helpers)
        with ThreadPoolExecutor(self._expected, "part") as pool:
            lives = [pool.submit(self._live, part) for part in (*parts, *helpers)]
            pending = set(lives)
            while not pending.isdisjoint(lives[: len(parts)]):
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                if any(life.exception() is not None for life in done):
                    break
            self._end()
        for life in lives:
            life.result()

    def _live(self, part: Part) -> None:
        with self._starting:
            if self._ending:
                return
            part.start()
            self._started.append(part)
        part.wait()


def quiet_py4j() -> None:
    """It tells its own workings, and on the root logger, with a traceback each, what becomes our error."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def open_session(spark: Spark) -> SparkSession:
    """A session; says on which Java it runs."""
    quiet_py4j()
    if not is_submitted():
        java = prepare(spark.folder, spark.master)
        where = f"{spark.cores} cores, heap {spark.heap}" if is_local(spark.master) else spark.master
        logger.info("starting Spark %s on Java %d (%s), %s", pyspark.__version__, java.version, java.real, where)
    return session(APP, spark.folder, master=spark.master, cores=spark.cores, heap=spark.heap, conf=dict(spark.conf))
