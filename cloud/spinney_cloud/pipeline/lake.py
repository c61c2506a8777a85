"""The lake: Delta tables in a folder (or an object store), committed by deltalake, readable by whatever reads Delta.

Every append carries the sequence of the log's newest record in it, as the table's transaction version: so a batch that
comes again, whole or in part, adds nothing that is there, and the lake itself says how far it has come.

    observations   publications without duplicates; partitioned by the log's date and type, past days z-ordered by place
    dead_letters   what could not be decoded, with the reason; partitioned by date
    log_records    what else the log says, for replays (see decode): announcements, silent labels, ticks
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from .lake_compact import Compacted, compact
from .lake_spark import folder_frame, remote_frame
from .lake_table import TableState, commit_nothing, state_of
from .schema import DEAD, LABELS, PUBLICATIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OBSERVATIONS, DEAD_LETTERS, LOG_RECORDS = "observations", "dead_letters", "log_records"
INGEST = "spinney-ingest"
"""The application whose transaction version is the log's sequence."""
REMOVED = "spinney-removed"
"""Its version is the day, as an ordinal, before which everything was removed."""

ORDER = ("cell",)
"""H3's cells are an order of places along a curve. (The bits of doubles are none: where longitudes pass from 15 to 16,
they order by little else.)"""
ROW_GROUP = 10_000
"""Rows of an ordered file that are read or passed over together: small, since a replay is of a place."""
KEPT_HOURS = 24
"""A file that is no longer part of a table stays so long for those who read an older version."""
MERGE_ATTEMPTS = 5
LOG_KEPT = {"delta.logRetentionDuration": "interval 7 days", "delta.checkpointInterval": "100"}

_DATE = pa.field("date", pa.date32())
_PROPERTIES = WriterProperties(compression="ZSTD", max_row_group_size=ROW_GROUP)


class LakeError(Exception):
    """The lake cannot be read or written; the text says what to do."""


class LakeFull(LakeError):
    """The disk has too little room left."""

    def __init__(self, place: str, free: int, floor: int) -> None:
        super().__init__(
            f"{free:,} bytes are free on the disk of the lake {place}, below its floor of {floor:,}: nothing is "
            f"written until there is more. Make room, or have it keep fewer days (pipeline.retain_days)"
        )


class TableSpec(NamedTuple):
    """How a table is laid out."""

    schema: pa.Schema
    partition_by: tuple[str, ...]
    order: tuple[str, ...] = ()
    """Columns by which closed days are z-ordered."""


TABLES: dict[str, TableSpec] = {
    OBSERVATIONS: TableSpec(pa.schema([*PUBLICATIONS, pa.field(LABELS, pa.string()), _DATE]), ("date", "type"), ORDER),
    DEAD_LETTERS: TableSpec(
        pa.schema(
            [
                *(PUBLICATIONS.field(name) for name in ("log_seq", "arrival", "log_time")),
                *(pa.field(name, kind) for name, kind in DEAD),
                _DATE,
            ]
        ),
        ("date",),
    ),
    LOG_RECORDS: TableSpec(
        pa.schema(
            [
                *(PUBLICATIONS.field(name) for name in ("log_seq", "arrival", "log_time", "tenant")),
                pa.field("record", pa.string()),
                _DATE,
            ]
        ),
        ("date",),
    ),
}
"""Those that every lake has; others are added by who writes them (`Lake.table` with a spec)."""
OTHERS = ("subscriptions", "windows")
"""These, that is."""


class Lake:
    """The tables below one folder or URL. One process writes a table's data; any may read, compact and vacuum."""

    def __init__(
        self, place: str | Path, storage_options: Mapping[str, str] | None = None, *, free_floor: int = 0
    ) -> None:
        self.place = str(place)
        self._options = dict(storage_options or {}) or None
        self._free_floor = free_floor
        """With less free disk than this nothing is written."""
        self._tables: dict[str, DeltaTable] = {}

    @property
    def storage(self) -> Mapping[str, str]:
        """Options of its object store."""
        return self._options or {}

    def again(self) -> Lake:
        """The same place, for another thread."""
        return Lake(self.place, self._options, free_floor=self._free_floor)

    @property
    def is_folder(self) -> bool:
        """Else it is in an object store."""
        return "://" not in self.place

    def path(self, name: str) -> str:
        """Of a table."""
        return f"{self.place.rstrip('/')}/{name}"

    def names(self) -> list[str]:
        """Of the tables that exist."""
        if self.is_folder:
            return sorted(each.parent.name for each in Path(self.place).glob("*/_delta_log"))
        return sorted(name for name in (*TABLES, *OTHERS) if self._is_there(name))

    def _is_there(self, name: str) -> bool:
        """(deltalake's own question stops all threads until it is answered.)"""
        try:
            DeltaTable(self.path(name), storage_options=self._options)
        except TableNotFoundError:
            return False
        except (DeltaError, OSError) as error:
            raise LakeError(f"the lake {self.place}: {error}") from error
        return True

    def table(self, name: str, spec: TableSpec | None = None) -> DeltaTable:
        """A table as it is now; it is made if it is not there and how is known."""
        table = self._tables.get(name)
        try:
            if table is not None:
                table.update_incremental()
                return table
            table = self._open(name, spec or TABLES.get(name))
        except (DeltaError, OSError) as error:
            raise LakeError(f"the lake's table {self.path(name)}: {error}") from error
        self._tables[name] = table
        return table

    def _open(self, name: str, spec: TableSpec | None) -> DeltaTable:
        try:
            return DeltaTable(self.path(name), storage_options=self._options)
        except TableNotFoundError:
            if spec is None:
                raise
            return DeltaTable.create(
                self.path(name),
                schema=spec.schema,
                mode="ignore",
                partition_by=list(spec.partition_by),
                configuration=LOG_KEPT,
                storage_options=self._options,
            )

    # ---- writing

    def sequence(self, name: str = OBSERVATIONS, app: str = INGEST) -> int:
        """How far the log is in this table; 0: nothing is."""
        return self.table(name).transaction_version(app) or 0

    def append(self, name: str, rows: pa.Table, sequence: int, app: str = INGEST) -> bool:
        """Add rows that come from the log up to a sequence; False if the table has come so far already."""
        self.check_room()

        def write(table: DeltaTable, done: CommitProperties) -> None:
            write_deltalake(table, rows, mode="append", commit_properties=done, writer_properties=_PROPERTIES)

        return self._once(name, write, sequence, app)

    def add(self, name: str, files: list[AddAction], first: int, sequence: int, app: str = INGEST) -> bool:
        """Add files that lie in the table's folder already, with what the log has from `first` up to a sequence; False
        if the table has come so far already."""

        def commit(table: DeltaTable, done: CommitProperties) -> None:
            if first <= (has := table.transaction_version(app) or 0):
                raise LakeError(
                    f"the lake's table {self.path(name)} has the log up to {has} already, and not by this pipeline, "
                    f"which was about to add records from {first} on: there is one pipeline for a lake. Stop the other"
                )
            columns = table.metadata().partition_columns
            table.create_write_transaction([*files], "append", table.schema(), columns, commit_properties=done)

        return self._once(name, commit, sequence, app)

    def _once(self, name: str, write: Callable[[DeltaTable, CommitProperties], None], sequence: int, app: str) -> bool:
        """Write what goes up to a sequence, in one commit that says so; False if the table has come so far already."""
        table = self.table(name)
        if sequence <= (table.transaction_version(app) or 0):
            return False
        try:
            write(table, CommitProperties(app_transactions=[Transaction(app, sequence)]))
        except (DeltaError, OSError) as error:
            self._tables.pop(name, None)
            raise LakeError(
                f"the lake's table {self.path(name)} cannot be written: {error}. Nothing of this batch is in it; "
                f"is the disk full? Once there is room, start again: it goes on where it was"
            ) from error
        return True

    def put(self, name: str, rows: pa.Table, versions: Mapping[str, int], key: Sequence[str] = ()) -> None:
        """Add rows, or with a key replace those that have the same (of its date, too), in one commit with these
        transaction versions."""
        self.check_room()
        done = CommitProperties(app_transactions=[Transaction(app, version) for app, version in versions.items()])
        try:
            if not rows.num_rows:
                commit_nothing(self.table(name), done)
            elif not key:
                table = self.table(name)
                write_deltalake(table, rows, mode="append", commit_properties=done, writer_properties=_PROPERTIES)
            else:
                self._merge(name, rows, key, done)
        except (DeltaError, OSError) as error:
            self._tables.pop(name, None)
            raise LakeError(
                f"the lake's table {self.path(name)} cannot be written: {error}. Nothing of this is in it; "
                f"is the disk full? Once there is room, it goes on where it was"
            ) from error

    def _merge(self, name: str, rows: pa.Table, key: Sequence[str], properties: CommitProperties) -> None:
        """Again, if a compaction has replaced meanwhile what is to be changed."""
        for attempt in range(1, MERGE_ATTEMPTS + 1):
            try:
                _merge(self.table(name), rows, key, properties)
            except CommitFailedError:
                if attempt == MERGE_ATTEMPTS:
                    raise
            else:
                return

    def check_room(self) -> None:
        """LakeFull if its disk has less room than is to be left alone."""
        if self._free_floor and self.is_folder:
            free = shutil.disk_usage(self.place).free
            if free < self._free_floor:
                raise LakeFull(self.place, free, self._free_floor)

    def advance(self, name: str, sequence: int, app: str = INGEST) -> bool:
        """There is nothing for this table in the log up to a sequence; False if it has come so far already."""
        table = self.table(name)
        if sequence <= (table.transaction_version(app) or 0):
            return False
        try:
            commit_nothing(table, CommitProperties(app_transactions=[Transaction(app, sequence)]))
        except (DeltaError, OSError) as error:
            raise LakeError(f"the lake's table {self.path(name)} cannot be written: {error}") from error
        return True

    # ---- keeping

    def compact(self, name: str = OBSERVATIONS) -> Compacted:
        """Join small files, and order by place what lies in days that are over."""
        self.check_room()
        table, order = self.table(name), TABLES[name].order if name in TABLES else ()
        try:
            return compact(table, name, order, _PROPERTIES)
        except (DeltaError, OSError) as error:
            raise LakeError(f"the lake's table {self.path(name)} cannot be compacted: {error}") from error

    def vacuum(self, name: str = OBSERVATIONS, hours: int = KEPT_HOURS) -> int:
        """Delete files that no version of the last hours has; how many. `hours` are by this machine's clock."""
        try:
            return len(self.table(name).vacuum(hours, dry_run=False, enforce_retention_duration=False))
        except (DeltaError, OSError) as error:
            raise LakeError(f"the lake's table {self.path(name)} cannot be vacuumed: {error}") from error

    def retain(
        self, days: int, name: str = OBSERVATIONS, today: dt.date = dt.date.max, spared: dt.date = dt.date.max
    ) -> int:
        """Remove whole days, so that so many are left up to the newest; how many rows went. Vacuum frees the disk.

        The newest is the table's, or `today` if that is before it: a clock of the log that went astray removes
        nothing. From the day `spared` on nothing is removed. A table without dates keeps all.
        """
        table = self.table(name)
        dates = [dt.date.fromisoformat(each["date"]) for each in table.partitions() if "date" in each]
        if not dates:
            return 0
        oldest = min(min(max(dates), today) - dt.timedelta(days=days - 1), spared)
        if min(dates) >= oldest:
            return 0
        removed = CommitProperties(app_transactions=[Transaction(REMOVED, oldest.toordinal())])
        try:
            done = table.delete(f"date < '{oldest.isoformat()}'", commit_properties=removed)
        except (DeltaError, OSError) as error:
            raise LakeError(f"the lake's table {self.path(name)}: days before {oldest} stay: {error}") from error
        return int(done["num_deleted_rows"] or 0)

    def removed_before(self, name: str = OBSERVATIONS) -> dt.date | None:
        """The day before which everything was removed; None if nothing ever was."""
        day = self.table(name).transaction_version(REMOVED)
        return None if day is None else dt.date.fromordinal(day)

    # ---- reading

    def files(self, name: str, partitions: Sequence[tuple[str, str, Any]] | None = None) -> list[str]:
        """Paths or URLs of a table's files, perhaps of some partitions only: ("date", "=", "2026-11-18")."""
        return self.table(name).file_uris(file_pruning_predicate=list(partitions) if partitions else None)

    def dataset(self, name: str = OBSERVATIONS) -> Any:
        """A pyarrow dataset; filters on date, type, lat, long and times leave out files and row groups."""
        table = self.table(name)
        if "://" in self.place:
            return table.to_pyarrow_dataset()
        # deltalake's own are read through Python, by threads that still read ahead when the process ends: it then hangs
        # or crashes
        files = pa.fs.SubTreeFileSystem(self.path(name), pa.fs.LocalFileSystem())
        return table.to_pyarrow_dataset(filesystem=files)

    def frame(
        self, spark: SparkSession, name: str = OBSERVATIONS, columns: Sequence[str] = (), where: Any = None
    ) -> DataFrame:
        """The table as it is now, for Spark. What of it is needed Spark finds out by itself, but where it is in an
        object store: there `columns` and `where`, a condition of pyarrow, say it."""
        table = self.table(name)
        if self.is_folder:
            return folder_frame(spark, table, Path(self.path(name)))
        columns = columns or [field.name for field in table.schema().fields]
        return remote_frame(spark, table, self._options, list(columns), where)

    def state(self, name: str) -> TableState:
        """What a table holds."""
        return state_of(self.table(name), name, INGEST)


def _merge(table: DeltaTable, rows: pa.Table, key: Sequence[str], properties: CommitProperties) -> None:
    first, last = pc.min(rows["date"]).as_py(), pc.max(rows["date"]).as_py()
    same = " and ".join(f"t.{name} = s.{name}" for name in ("date", *key))
    merger = table.merge(
        rows,
        f"t.date >= '{first}' and t.date <= '{last}' and {same}",
        source_alias="s",
        target_alias="t",
        commit_properties=properties,
        writer_properties=_PROPERTIES,
    )
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def by_table(rows: pa.Table) -> dict[str, pa.Table]:
    """Rows as decoded for the lake, by the table that they belong to."""
    is_dead, is_good = pc.is_valid(rows["reason"]), pc.is_null(rows["raw"])
    others = pc.invert(pc.or_(is_dead, is_good))
    return {
        DEAD_LETTERS: rows.filter(is_dead),
        LOG_RECORDS: rows.filter(others).rename_columns({"raw": "record"}),
        OBSERVATIONS: rows.filter(is_good),
    }


def with_date(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """The columns of a table, the date of the log's time among them; null where there are none."""
    dated = rows.append_column(_DATE, pc.cast(rows["log_time"], pa.timestamp("us")).cast(pa.date32()))
    for name in set(spec.schema.names) - set(dated.schema.names):
        dated = dated.append_column(name, pa.nulls(dated.num_rows, spec.schema.field(name).type))
    return dated.select(spec.schema.names).cast(spec.schema)
