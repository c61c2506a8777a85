"""The log into the lake, as it comes: exactly once, whatever is killed when.

The lake is the checkpoint. Each batch is appended with the sequence of the log up to which it goes, in one Delta commit
with its rows; so a start goes on after what the lake has, and what is read twice is recognised by its sequence. Spark's
own checkpoint is begun anew at every start: a lake that is restored from a backup needs nothing else.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import psutil
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships without types
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ..bucket import stream_of
from ..log_errors import LogError
from ..names import LOG, READERS
from ..positions import Position
from ..retention import PIPELINE
from .direct_get import DirectGet, LogServer
from .duplicates import DEFAULT_WINDOWS, Windows
from .lake import DEAD_LETTERS, OBSERVATIONS, TABLES, Lake, LakeError, with_date
from .lake_write.commit import commit
from .lake_write.place import LakeNotShared, Place, opened
from .lake_write.probe import check_executors
from .scan import DEFAULT_LIMITS, Limits, LogTrimmed, check_place
from .session import SMALL_BATCHES, configured
from .source import NAME, PARTITIONS, register

logger = logging.getLogger(__name__)

TRIGGER_SECONDS = 10.0
"""Between batches, unless set: each makes a file for every type."""
ADVANCE_SECONDS = 60.0
"""How often the lake learns that the log goes on without anything for it."""
TELL_SECONDS = 1
"""How often the keeper is told where we are."""
RETRY_SECONDS = 3.0
"""Of what we ask the log ourselves; Spark's processes are more patient."""
MAX_MARKS = 1_000
"""Places in the log whose time is remembered, to find the floor."""
_MEMORY = Path("/dev/shm")  # noqa: S108  # Linux's disk in memory: a checkpoint that is thrown away needs no other
_OURS = re.compile(r"spinney_cloud\.[\w.]+: (.+)")


class IngestError(Exception):
    """The pipeline had to stop; the text says why, and what to do."""


class JavaGoneError(IngestError):
    """Nothing more can be done in this process."""

    def __init__(self) -> None:
        super().__init__("Spark's Java process is gone; its last words are above. Start again")


@dataclass(frozen=True)
class Plan:
    """What an ingest is told."""

    server: LogServer
    limits: Limits = DEFAULT_LIMITS
    partitions: int = PARTITIONS
    windows: Windows = DEFAULT_WINDOWS
    trigger_seconds: float = TRIGGER_SECONDS
    """0: one batch after the other."""
    skip_missing: bool = False
    """Start where the log begins, if records were purged unread, and note in the dead letters which those were."""
    once: bool = False
    """End when all is in the lake that the log had at the start."""


@dataclass
class Status:
    """How it goes."""

    sequence: int = 0
    """The log is in the lake up to here."""
    latest: int = 0
    """The newest record of the log, as last heard."""
    time: float = 0.0
    """Of the log, at `sequence`."""
    rows: int = 0
    dead: int = 0
    batches: int = 0
    batch_seconds: float = 0.0
    """What the last batch took."""
    seconds: float = 0.0
    """What all of them took."""

    @property
    def lag(self) -> int:
        """Records that the lake has not yet."""
        return max(0, self.latest - self.sequence)


class Floor:
    """Up to where the log may be purged: what is in the lake, but not its last W, where duplicates are looked for."""

    def __init__(self, lookback_seconds: float, floor: int = 0) -> None:
        self.floor = floor
        self._lookback = lookback_seconds
        self._marks: deque[tuple[int, float]] = deque()

    def reach(self, sequence: int, time: float) -> int:
        """The lake has everything up to this record, of this log time; the floor."""
        marks = self._marks
        if not marks or time >= marks[-1][1] + self._lookback / (MAX_MARKS // 2):
            marks.append((sequence, time))
        while marks and marks[0][1] < time - self._lookback:
            self.floor = max(self.floor, marks.popleft()[0])
        while len(marks) > MAX_MARKS:
            marks.popleft()
        return self.floor


class Ingest:
    """One streaming query. `start`, then `wait` until it ends or `stop` is called, from anywhere."""

    def __init__(self, spark: SparkSession, lake: Lake, plan: Plan) -> None:
        self.status = Status()
        self._spark = spark
        self._lake = lake
        self._plan = plan
        self._log = DirectGet(plan.server.endpoints(), retry_seconds=RETRY_SECONDS)
        self._failure: Exception | None = None
        self._query: StreamingQuery | None = None
        self._writing = threading.Lock()
        self._checkpoint = scratch_folder()
        self._floor = Floor(plan.windows.lookback)
        self.beside: Callable[[], tuple[int, float]] | None = None
        """How far another reader of the same process is: a record and its time. The log is kept for it, too."""

    # ---- starting and stopping

    def start(self) -> StreamingQuery:
        """Begin after what the lake has. LogTrimmed or LogReplaced if the log does not go on from there."""
        try:
            return self._start()
        except Exception:
            self._close()
            raise

    def _start(self) -> StreamingQuery:
        after = _begin(self._lake, self._log, skip_missing=self._plan.skip_missing)
        self.status.sequence = after
        if after and (newest := self._log.first_from(LOG, after)) is not None:
            self.status.time = newest.time
        self._floor.floor = min(after, self._published_floor())
        place = opened(self._lake)
        check_executors(self._spark, place)
        register(self._spark)
        stream = self._spark.readStream.format(NAME).options(**self._options(after, place)).load()
        writer = stream.writeStream.foreachBatch(self._take).option("checkpointLocation", self._checkpoint.as_uri())
        if self._plan.once:
            writer = writer.trigger(availableNow=True)
        else:
            trigger = f"{self._plan.trigger_seconds:g} seconds"
            writer = writer.trigger(processingTime=trigger)
        with configured(self._spark, SMALL_BATCHES):
            self._query = writer.start()
        return self._query

    def _options(self, after: int, place: Place) -> dict[str, Any]:
        plan = self._plan
        return {
            **plan.server.options(),
            "give": "files",
            "lake": place.lake,
            "lake_options": orjson.dumps(dict(place.storage)).decode(),
            "token": place.token,
            "have": orjson.dumps(dict(place.have)).decode(),
            "after": after,
            "max_rows": plan.limits.rows,
            "max_bytes": plan.limits.bytes,
            "partitions": plan.partitions,
            "duplicate_window": plan.windows.numbers,
            "content_window": plan.windows.contents,
            "on_trimmed": "fail",  # what is skipped is noted, which is done at a start
        }

    def wait(self) -> None:
        """Tell the keeper how far it is, until the query ends; IngestError if it failed."""
        query = self._query
        assert query is not None
        told = advanced = time.monotonic()
        try:
            while not query.awaitTermination(TELL_SECONDS):
                now = time.monotonic()
                self._hear(query)
                if now - advanced >= ADVANCE_SECONDS:
                    self._advance(query)
                    advanced = now
                if now - told >= TELL_SECONDS:
                    self._tell()
                    told = now
            self._advance(query)
        except LakeError as error:
            raise IngestError(str(error)) from error
        except StreamingQueryException as error:
            raise IngestError(reason_of(error, self._failure)) from (self._failure or error)
        except (Py4JError, ConnectionError) as error:
            raise JavaGoneError from error
        finally:
            self._tell()
            self._close()

    def _close(self) -> None:
        self._log.close()
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def stop(self) -> None:
        """Finish the batch that goes on, and end."""
        if self._query is not None:  # not while holding `_writing`: Spark waits for the batch, which needs it
            with suppress(Py4JError, ConnectionError):  # Java may be gone already
                self._query.stop()

    # ---- batches

    def _take(self, batch: DataFrame, _number: int) -> None:
        """Called by Spark for each batch."""
        began = time.perf_counter()
        try:
            self._lake.check_room()
            files = _written(batch)
            if files.num_rows:
                with self._writing:
                    self._commit(files)
        except LakeError as error:
            self._failure = error
            raise
        self.status.batches += 1
        self.status.batch_seconds = time.perf_counter() - began
        self.status.seconds += self.status.batch_seconds

    def _commit(self, files: pa.Table) -> None:
        done = commit(self._lake, files)
        self.status.dead += done.dead
        self.status.rows += done.rows
        self.status.time = done.time
        self.status.sequence = done.sequence

    # ---- keeping

    def _hear(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        if progress is not None and progress.sources:
            self.status.latest = max(_sequence(progress.sources[0].latestOffset), self.status.sequence)

    def _advance(self, query: StreamingQuery) -> None:
        """Batches without anything for the lake: say in it that they are done."""
        progress = query.lastProgress
        if progress is None or not progress.sources:
            return
        done = _sequence(progress.sources[0].endOffset)
        with self._writing:
            if done > self.status.sequence and self._lake.advance(OBSERVATIONS, done):
                self.status.sequence = done

    def _tell(self) -> None:
        """The keeper purges no further than our floor."""
        status = self.status
        place = status.sequence, status.time
        slowest = place if self.beside is None else min(place, self.beside())
        floor = self._floor.reach(*slowest) if slowest[1] else self._floor.floor
        position = Position(LOG, floor, status.sequence, status.time)
        try:
            self._log.publish(f"$KV.{READERS}.{PIPELINE}", position.encode())
        except LogError as error:
            logger.warning("the keeper cannot be told how far the lake is: %s", error)

    def _published_floor(self) -> int:
        value = self._log.newest_in_bucket(stream_of(READERS), f"$KV.{READERS}.{PIPELINE}")
        return 0 if value is None else Position.decode(value).floor


def check_start(lake: Lake, plan: Plan) -> None:
    """As a start of an ingest finds it, without one: LogTrimmed, LogReplaced, or trouble with the log or the lake."""
    with DirectGet(plan.server.endpoints(), retry_seconds=RETRY_SECONDS) as log:
        _begin(lake, log, skip_missing=plan.skip_missing)


def _begin(lake: Lake, log: DirectGet, *, skip_missing: bool) -> int:
    """The record after which to begin."""
    for name in TABLES:
        lake.table(name)
    after = lake.sequence()
    first, missing = check_place(log, after)
    if not missing:
        return after
    if after == 0:  # a new lake holds what the log still has
        return first - 1
    if not skip_missing:
        raise LogTrimmed(after, first)
    _note_gap(lake, log, after, first)
    return first - 1


def _note_gap(lake: Lake, log: DirectGet, after: int, first: int) -> None:
    """Among the dead letters, at the log's time, which is not our clock's."""
    oldest = log.first_from(LOG, first)
    at = time.time() if oldest is None else oldest.time
    reason = f"records {after + 1} to {first - 1} were purged before they were read"
    gap = {"log_seq": first - 1, "arrival": at, "log_time": datetime.fromtimestamp(at, UTC), "reason": reason}
    spec = TABLES[DEAD_LETTERS]
    rows = pa.Table.from_pylist([gap], pa.schema([field for field in spec.schema if field.name != "date"]))
    lake.append(DEAD_LETTERS, with_date(rows, spec), first - 1)
    lake.advance(OBSERVATIONS, first - 1)
    logger.warning("%s", reason)


def _written(batch: DataFrame) -> pa.Table:
    """Have the tasks write their files; which. A LakeError of a task is one here."""
    try:
        return batch.toArrow()
    except PySparkException as error:
        if LakeError.__name__ in str(error) or LakeNotShared.__name__ in str(error):
            raise LakeError(reason_of(error, None)) from error
        raise


def reason_of(error: PySparkException, ours: Exception | None) -> str:
    """Why a query failed: the text of our own exception, here or in a process of Spark, else Spark's."""
    if ours is not None:
        return str(ours)
    found = _OURS.findall(str(error))
    return found[-1].strip() if found else str(error).split("\n\n")[0].strip()


def scratch_folder() -> Path:
    """A new folder for a checkpoint; those of processes of this machine that were killed go."""
    top = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    mine = f"spinney-ingest-{platform.node()}-"
    for old in top.glob(f"{mine}*"):
        pid = old.name.removeprefix(mine).partition("-")[0]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{mine}{os.getpid()}-", dir=top))


def _sequence(offset: Any) -> int:
    """Of an offset as progress has it."""
    found = re.search(r'"seq"\s*:\s*(\d+)', str(offset).replace("'", '"'))
    return int(found[1]) if found else 0
