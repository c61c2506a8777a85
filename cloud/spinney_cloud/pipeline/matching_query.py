"""Subscriptions marked `"on": "pipeline"`, answered by one streaming query: exactly once, whatever is killed when.

    the log -> source, matched in its read -> shards with their state (transformWithState) -> the notification log

Its checkpoint holds the place in the log and the state, as of the same batch; keep it on storage that survives, beside
the lake. What a batch tells is a function of the log, and what is told already is not told again (notify.py).
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships without types
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ..log_clock import LogClock
from ..log_errors import LogError
from ..names import LOG, log_subject
from ..records import Tick, encode
from .direct_get import DirectGet, Outgoing
from .duplicates import DEFAULT_WINDOWS, Windows
from .ingest import RETRY_SECONDS, IngestError, JavaGoneError, reason_of
from .lake import LakeError
from .matching import LOG_HAS_COME
from .notify import Notifier, notes_of
from .scan import DEFAULT_LIMITS, Limits
from .session import SMALL_BATCHES, configured
from .source import NAME, PARTITIONS, register
from .state import DEFAULT_LIMITS as DEFAULT_STATE_LIMITS
from .state import Limits as StateLimits
from .state_spark import OUT, WAKE, Shards
from .subscriptions import APP, TABLE, Where, forward, initial, save, saved

logger = logging.getLogger(__name__)

TRIGGER_SECONDS = 1.0
LOOK_SECONDS = 0.2
"""How often it is looked whether something is due."""
SAVE_SECONDS = 60.0
"""How often the lake learns which subscriptions there are."""

STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""The only one that has maps; only what has changed is written at each batch."""


@dataclass(frozen=True)
class MatchingPlan:
    """What matching is told."""

    where: Where
    checkpoint: str
    """A folder or URL, kept from start to start."""
    limits: Limits = DEFAULT_LIMITS
    partitions: int = PARTITIONS
    windows: Windows = DEFAULT_WINDOWS
    state: StateLimits = DEFAULT_STATE_LIMITS
    trigger_seconds: float = TRIGGER_SECONDS
    """0: one batch after the other."""
    skip_missing: bool = False
    """Go on where the log begins, if records were purged unread."""
    once: bool = False
    """End when all is answered that the log had at the start."""


@dataclass
class MatchingStatus:
    """How it goes."""

    sequence: int = 0
    """Answered up to here."""
    time: float = 0.0
    """Of the log, there."""
    standing: int = 0
    """Subscriptions."""
    readings: int = 0
    notes: int = 0
    damaged: int = 0
    """Records that tell nobody anything, for they cannot be read."""
    batches: int = 0
    batch_seconds: float = 0.0
    """What the last batch took."""
    units: int = 0
    """Entries in the state store."""
    state_bytes: int = 0


class Matching:
    """One streaming query. `start`, then `wait` until it ends or `stop` is called, from anywhere."""

    def __init__(self, spark: SparkSession, plan: MatchingPlan) -> None:
        self.status = MatchingStatus()
        self.floor = (0, 0.0)
        """The record, with its time, up to which a start needs the log no more, but for duplicates of its last W."""
        self._spark = spark
        self._plan = plan
        self._lake = plan.where.open()
        self._log = DirectGet(plan.where.server.endpoints(), retry_seconds=RETRY_SECONDS)
        self._asking = DirectGet(plan.where.server.endpoints(), retry_seconds=RETRY_SECONDS)
        self._notifier = Notifier(self._log)
        self._failure: Exception | None = None
        self._query: StreamingQuery | None = None
        self._clock = LogClock()
        self._wake: float | None = 0.0
        """When something is due next; at the start nobody knows."""
        self._ticked = -1.0
        self._saved_at = time.monotonic()

    # ---- starting and stopping

    def start(self) -> StreamingQuery:
        """Go on from the checkpoint; without one, from the log's beginning."""
        try:
            return self._start()
        except Exception:
            self._close()
            raise

    def _start(self) -> StreamingQuery:
        after = self._begin()
        self._notifier.start()
        register(self._spark)
        plan = self._plan
        stream = self._spark.readStream.format(NAME).options(**self._options(after)).load()
        shards = Shards(plan.where, plan.state)
        told = stream.groupBy("shard").transformWithState(shards, OUT, "Update", "None")
        writer = told.writeStream.queryName("matching").outputMode("update").foreachBatch(self._take)
        writer = writer.option("checkpointLocation", plan.checkpoint)
        if plan.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{plan.trigger_seconds:g} seconds")
        with configured(self._spark, SMALL_BATCHES | STATE_STORE):
            self._query = writer.start()
        return self._query

    def _begin(self) -> int:
        """The lake says which subscriptions there are; the record from which on the log says the rest."""
        kept, first = saved(self._lake), self._log.bounds(LOG).first
        if kept is None or (self._plan.skip_missing and kept.at + 1 < first):
            kept = initial(self._log, first - 1)
            save(self._lake, kept)
        self._saved(kept.at)
        return kept.at

    def _options(self, after: int) -> dict[str, Any]:
        plan = self._plan
        return {
            **plan.where.server.options(),
            "give": "matches",
            "lake": plan.where.lake,
            "lake_options": orjson.dumps(dict(plan.where.storage)).decode(),
            "after": after,
            "max_rows": plan.limits.rows,
            "max_bytes": plan.limits.bytes,
            "partitions": plan.partitions,
            "duplicate_window": plan.windows.numbers,
            "content_window": plan.windows.contents,
            "on_trimmed": "skip" if plan.skip_missing else "fail",
        }

    def wait(self) -> None:
        """Say in the log what time it is when something is due, until the query ends; IngestError if it failed."""
        query = self._query
        assert query is not None
        try:
            while not query.awaitTermination(LOOK_SECONDS):  # type: ignore[arg-type]  # it takes fractions
                self._hear(query)
                self._look()
        except StreamingQueryException as error:
            raise IngestError(reason_of(error, self._failure)) from (self._failure or error)
        except (Py4JError, ConnectionError) as error:
            raise JavaGoneError from error
        finally:
            self._close()

    def stop(self) -> None:
        """Finish the batch that goes on, and end."""
        if self._query is not None:
            with suppress(Py4JError, ConnectionError):  # Java may be gone already
                self._query.stop()

    def _close(self) -> None:
        self._log.close()
        self._asking.close()

    # ---- batches

    def _take(self, batch: DataFrame, _number: int) -> None:
        """Called by Spark for each batch."""
        began = time.perf_counter()
        try:
            self._answer(batch.toArrow())
        except (LakeError, LogError) as error:
            self._failure = error
            raise
        self.status.batches += 1
        self.status.batch_seconds = time.perf_counter() - began

    def _answer(self, rows: pa.Table) -> None:
        log = rows.filter(pc.equal(rows["kind"], LOG_HAS_COME)).sort_by("at")
        if not log.num_rows:
            return
        said = [orjson.loads(data) for data in log["data"].to_pylist()]
        self._save(said[0]["after"])
        self._notifier.store(notes_of(rows))
        status = self.status
        status.sequence, status.time = log["at"][-1].as_py(), log["time"][-1].as_py()
        status.standing = said[-1]["standing"]
        status.readings += sum(each["readings"] for each in said)
        status.damaged += sum(each["damaged"] for each in said)
        status.notes = self._notifier.notes
        wakes = rows.filter(pc.equal(rows["kind"], WAKE))
        self._wake = pc.min(wakes["time"]).as_py()

    def _save(self, after: int) -> None:
        """Have the lake say which subscriptions there were where this batch began: it may be begun again from there."""
        if time.monotonic() - self._saved_at < SAVE_SECONDS:
            return
        self._saved_at = time.monotonic()
        kept = saved(self._lake)
        if kept is None or kept.at >= after:
            return
        if forward(self._log, kept, after):
            save(self._lake, kept)
        else:
            self._lake.advance(TABLE, after, APP)
        self._saved(after)

    def _saved(self, at: int) -> None:
        newest = self._log.first_from(LOG, at) if at else None
        self.floor = (at, newest.time if newest is not None else 0.0)

    # ---- time

    def _look(self) -> None:
        """What is due happens when a record comes; if none does, it is ours."""
        wake, now = self._wake, time.monotonic()
        if wake is None or self._ticked >= wake or self._clock.seconds_until(wake, now) > 0:
            return
        self._clock.ask()
        try:
            subject = log_subject("tick", "all")
            sequence = self._asking.publish_all([Outgoing(subject, encode(Tick()), f"tick-{time.time_ns()}")])
            tick = self._asking.first_from(LOG, sequence)
        except LogError as error:
            logger.warning("what is due must wait: %s", error)
            return
        if tick is not None:
            self._ticked = tick.time
            self._clock.read(tick.time, time.monotonic(), own=True)

    def _hear(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        if progress is not None and progress.stateOperators:
            state = progress.stateOperators[0]
            self.status.units, self.status.state_bytes = state.numRowsTotal, state.memoryUsedBytes
