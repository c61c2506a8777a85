"""The source `spinney` of Spark: the log's publications, as a batch or as a stream, in the schema of schema.py.

    from spinney_cloud.pipeline.source import register
    register(spark)
    spark.readStream.format("spinney").option("url", "nats://127.0.0.1:4222").load()

| option | meaning | default |
| --- | --- | --- |
| url, user, password_file, ca, certificate, key | the log's server; several URLs with commas | |
| run | instead: the run file of a cloud on this machine | |
| after | begin after this record: a number, earliest, latest | earliest |
| upto | batch: the last record | latest |
| max_rows, max_bytes | of a micro-batch | 200000, 64 MiB |
| partitions | at most, of a batch: a cluster has use for more | 2 |
| give | publications; all: with dead letters; records: raw, of all kinds; matches: see matching.py | publications |
| | files: the ingest's own; tasks write them into the lake, and what is read is which (lake_write) | |
| lake | for matches: the lake, where it is kept which subscriptions there are; for files: which is written | |
| lake_options | for matches and files: of the lake's object store, a JSON object | |
| token, have | for files: see lake_write/place.py | |
| duplicate_window, content_window | seconds, as the cloud's settings of these names | 3600, 60 |
| on_trimmed | fail or skip, if records were purged unread | fail |

Offsets are `{"seq": n, "subs": v}`: read up to the record n, under the subscriptions of the record v. What a range of
offsets gives is a pure function of the log; duplicates are left out by the engine's rule (duplicates.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..log_errors import LogError
from ..log_reader import Message
from ..names import LOG
from ..records import Record
from .decode import ROWS, Decoder
from .direct_get import DirectGet, LogServer, connection
from .duplicates import DEFAULT_WINDOWS, Windows
from .lake_write.files import write
from .lake_write.place import Place
from .scan import DEFAULT_LIMITS, MAX_BYTES, MAX_ROWS, NO_END, Limits, LogTrimmed, Scan, Slice
from .schema import FORMS, ddl
from .spans import Span, spans
from .subscriptions import Where

NAME = "spinney"
PARTITIONS = 2


class OptionError(ValueError):
    """An option of the source that will not do."""

    def __init__(self, name: str, value: str, expected: str) -> None:
        super().__init__(f"the source `{NAME}`: option {name}: {value!r:.80} will not do; expected: {expected}")


class RecordsMissing(LogError):
    """Records were purged between planning and reading."""


class Options(NamedTuple):
    """What the source was told. It goes to Spark's workers."""

    server: LogServer
    after: str | int = "earliest"
    upto: int = NO_END
    limits: Limits = DEFAULT_LIMITS
    partitions: int = PARTITIONS
    give: str = "publications"
    windows: Windows = DEFAULT_WINDOWS
    skip_trimmed: bool = False
    lake: str = ""
    storage: tuple[tuple[str, str], ...] = ()
    token: str = ""
    have: tuple[tuple[str, int], ...] = ()

    @property
    def place(self) -> Place:
        """For tasks that write the lake's files."""
        if not (self.lake and self.token):
            raise OptionError(
                "token", self.token, "with give=files, a lake and its token; this is for the ingest alone"
            )
        return Place(self.lake, self.storage, self.token, self.have)

    @property
    def where(self) -> Where:
        """For matching."""
        if not self.lake:
            raise OptionError("lake", "", "with give=matches, the lake's folder or URL")
        return Where(self.server, self.lake, self.storage)

    @property
    def all_kinds(self) -> bool:
        """Whether records without publications make a batch, too."""
        return self.give in ("records", "matches")

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        """The options as Spark has them; OptionError for what will not do."""
        after = given.get("after") or "earliest"
        return cls(
            LogServer.from_options(given),
            after if after in ("earliest", "latest") else _whole(given, "after", 0, least=0),
            NO_END if (given.get("upto") or "latest") == "latest" else _whole(given, "upto", 0, least=0),
            Limits(_whole(given, "max_rows", MAX_ROWS), _whole(given, "max_bytes", MAX_BYTES)),
            _whole(given, "partitions", PARTITIONS),
            _one_of(given, "give", tuple(FORMS)),
            Windows(_seconds(given, "duplicate_window", 3600.0), _seconds(given, "content_window", 60.0)),
            _one_of(given, "on_trimmed", ("fail", "skip")) == "skip",
            given.get("lake") or "",
            _pairs(given, "lake_options"),
            given.get("token") or "",
            _pairs(given, "have"),
        )


def _whole(given: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = given.get(name) or str(default)
    if not text.isdecimal() or int(text) < least:
        raise OptionError(name, text, f"a whole number from {least}")
    return int(text)


def _pairs(given: Mapping[str, str], name: str) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(orjson.loads(given.get(name) or "{}").items()))


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise OptionError(name, text, "seconds above 0")
    return seconds


def _one_of(given: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    text = given.get(name) or choices[0]
    if text not in choices:
        raise OptionError(name, text, "one of " + ", ".join(choices))
    return text


class Reading(NamedTuple):
    """A record as a task meets it."""

    message: Message
    arrival: float
    """The log's time (rule I3)."""
    repeated: Sequence[int]
    """The rows that are duplicates."""
    late: Sequence[int]
    """The rows that are older than the newest of their source."""
    record: Record | None = None
    """What it says, where that is known."""


def readings(log: DirectGet, part: Slice | Span) -> Iterator[Reading]:
    """The records of a part of the log, of all kinds; RecordsMissing if it is no more whole.

    This is also where matching joins in without a hop: see matching.py.
    """
    return _of_span(log, part) if isinstance(part, Span) else _of_slice(log, part)


def _of_span(log: DirectGet, span: Span) -> Iterator[Reading]:
    scan = Scan(log, span.windows, skip_trimmed=span.skip_trimmed)
    try:
        scan.seek(span.after)
        for message, seen in scan.walk(span.upto):
            yield Reading(message, scan.arrival, seen.repeated, seen.late, seen.record)
        if scan.at < span.upto:
            scan.check(scan.at)
    except LogTrimmed as gone:
        raise RecordsMissing(
            f"records {gone.after + 1} to {gone.first - 1} were purged before they were read"
        ) from gone


def _of_slice(log: DirectGet, part: Slice) -> Iterator[Reading]:
    arrival, found = part.arrival, 0
    for message in log.range(LOG, part.after + 1, part.upto):
        arrival = max(arrival, message.time)
        found += 1
        sequence = message.sequence
        yield Reading(message, arrival, part.repeated.get(sequence, ()), part.late.get(sequence, ()))
    if found != part.records:
        raise RecordsMissing(
            f"of the {part.records} records from {part.after + 1} to {part.upto} the log has {found} only: "
            f"the others were purged after the batch was planned"
        )


def batches(log: DirectGet, part: Slice | Span, give: str) -> Iterator[pa.RecordBatch]:
    """A part of the log in Arrow batches."""
    decoder = Decoder(give)
    for message, arrival, repeated, _, record in readings(log, part):
        decoder.take(message.data, message.sequence, arrival, repeated, record)
        if decoder.rows >= ROWS:
            yield from decoder.give()
    yield from decoder.give()


def _read(options: Options, part: Slice | Span) -> Iterator[pa.RecordBatch]:
    if options.give == "matches":
        from .matching import matches  # which reads by what is here

        assert isinstance(part, Slice)
        return matches(options.where, part)
    if options.give == "files":
        place = options.place
        return write(batches(connection(options.server), part, "lake"), part.after, part.upto, place)
    return batches(connection(options.server), part, options.give)


class _Planner:
    """What batch and stream share: it lives in one process."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._log = connection(options.server)
        self._scan: Scan | None = None

    @property
    def scan(self) -> Scan:
        """Made when it is first needed: tasks read without one."""
        if self._scan is None:
            self._scan = Scan(self._log, self.options.windows, skip_trimmed=self.options.skip_trimmed)
        return self._scan

    def begin(self) -> int:
        """The record after which to begin."""
        after = self.options.after
        if isinstance(after, int):
            return after
        bounds = self._log.bounds(LOG)
        return bounds.last if after == "latest" else bounds.first - 1

    def last(self) -> int:
        """The newest record that is to be read, as of now."""
        return min(self._log.bounds(LOG).last, self.options.upto)

    def partitions(self, after: int, upto: int) -> list[InputPartition]:
        """Of the records with after < sequence <= upto."""
        if after >= upto:
            return []
        return [InputPartition(part) for part in self.scan.slices(after, upto, self.options.partitions)]

    def all_partitions(self) -> list[InputPartition]:
        """Of all that is to be read. Matching needs a plan: which readings are late only that says for sure."""
        after, upto = self.begin(), self.last()
        options = self.options
        if after < upto and options.give != "matches":
            skip = options.skip_trimmed
            found = spans(self._log, after, upto, options.partitions, options.windows, skip_trimmed=skip)
            if found is not None:
                return [InputPartition(span) for span in found]
        return self._planned(after, upto)

    def _planned(self, after: int, upto: int) -> list[InputPartition]:
        """Planned piece by piece: the log may be longer than what is remembered of it."""
        found: list[InputPartition] = []
        while (end := self.scan.forward(after, Limits(NO_END, NO_END), upto=upto, all_kinds=True)) > after:
            found += self.partitions(after, end)
            after = end
        return found


class LogBatchReader(DataSourceReader):
    """A part of the log, read once."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        return _Planner(self.options).all_partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition.value)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log from an offset on."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._planner: _Planner | None = None
        self._end = NO_END

    @property
    def planner(self) -> _Planner:
        """Of the process that plans; it does not go to the tasks."""
        if self._planner is None:
            self._planner = _Planner(self.options)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_planner": None, "_end": NO_END}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        after = self.planner.begin()
        self.planner.scan.seek(after)
        return {"seq": after, "subs": self.planner.scan.subscriptions}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.options.limits.rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._end = self.planner.last()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        everything = isinstance(limit, ReadAllAvailable)
        upto = min(self._end, self.options.upto)
        if everything:
            upto = min(upto, self.planner.last())
        limits = Limits(NO_END, NO_END) if everything else self.options.limits
        after = start["seq"]
        end = self.planner.scan.forward(after, limits, upto=upto, all_kinds=self.options.all_kinds)
        # a new version of the subscriptions alone makes no batch
        return start if end == after else {"seq": end, "subs": self.planner.scan.subscriptions}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"seq": self.planner.last(), "subs": self.planner.scan.subscriptions}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self.planner.partitions(start["seq"], end["seq"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition.value)

    def commit(self, end: dict[str, int]) -> None:
        """The floor is what the lake has, which is not Spark's to say (see ingest.py)."""

    def stop(self) -> None:
        """Nothing is kept on the server."""


class LogSource(DataSource):
    """The Python data source."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return ddl(FORMS[Options.read(self.options).give])

    def reader(self, schema: StructType) -> LogBatchReader:  # noqa: ARG002  # there is but one
        return LogBatchReader(Options.read(self.options))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: ARG002, N802
        return LogStreamReader(Options.read(self.options))


def register(spark: SparkSession) -> None:
    """Make the format `spinney` known to a session."""
    spark.dataSource.register(LogSource)
