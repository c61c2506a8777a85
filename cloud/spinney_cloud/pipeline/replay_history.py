"""What the lake knows of how complete a part of it is: the history of brokers, and whose readings lack numbers."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..completeness import Judge
from ..completeness.reading import Saying
from ..completeness.recorder import EVERYBODY
from .lake import LOG_RECORDS, TABLES, Lake
from .replay_rows import Wanted, days, within

_NUMBERS = ("source", "client", "boot", "sequence", "arrival")
_OF_RUNS = ["source", "client", "boot"]


def sayings(lake: Lake, wanted: Wanted, lookback_seconds: float) -> Iterator[Saying]:
    """The history of a time and of so long before it, in the log's order."""
    wider = replace(wanted, since=wanted.since - lookback_seconds)
    data = lake.dataset(LOG_RECORDS)
    for day in days(lake, wider, LOG_RECORDS):
        mine = pc.is_in(ds.field("tenant"), pa.array([wanted.tenant, EVERYBODY]))
        where = within(wider, day.date) & mine & pc.match_substring(ds.field("record"), '"kind":"history"')
        columns = ["log_seq", "arrival", "tenant", "record"]
        for row in data.to_table(columns=columns, filter=where).sort_by("log_seq").to_pylist():
            said = orjson.loads(row["record"])
            if said.get("kind") == "history":
                yield Saying(row["log_seq"], row["arrival"], row["tenant"], said.get("value"))


def begins(lake: Lake) -> float | None:
    """The log's time of its very first record, if the lake has that."""
    actions = [pa.table(lake.table(name).get_add_actions(flatten=True)) for name in TABLES]
    firsts = [
        (min(found["min.log_seq"].to_pylist()), min(found["min.arrival"].to_pylist()))
        for found in actions
        if found.num_rows
    ]
    sequence, arrival = min(firsts, default=(0, 0.0))
    return float(arrival) if sequence == 1 else None


def numbers(lake: Lake, wanted: Wanted, judge: Judge) -> None:
    """Tell the judge who sent which source, and of which of its boots numbers are missing.

    The lake has no duplicates, so as many rows as there are numbers from the first to the last are all of them.
    """
    data = lake.dataset()
    found: list[pa.Table] = []
    for day in days(lake, wanted):
        where = within(wanted, day.date) & (ds.field("tenant") == wanted.tenant)
        batches = data.to_batches(columns=list(_NUMBERS), filter=where)
        found += [_summed(pa.Table.from_batches([batch])) for batch in batches if batch.num_rows]
    if not found:
        return
    both = (
        pa.concat_tables(found)
        .group_by(_OF_RUNS)
        .aggregate(
            [
                ("sequence_min", "min"),
                ("sequence_max", "max"),
                ("count_all", "sum"),
                ("arrival_min", "min"),
                ("arrival_max", "max"),
            ]
        )
    )
    for row in both.sort_by([("source", "ascending"), ("boot", "ascending")]).to_pylist():
        first, end = row["sequence_min_min"], row["sequence_max_max"] + 1
        since, until = row["arrival_min_min"], row["arrival_max_max"]
        missing = end - first - row["count_all_sum"]
        judge.counted(row["source"], row["client"], row["boot"], end, since, until, missing)


def _summed(rows: pa.Table) -> pa.Table:
    sums = [("sequence", "min"), ("sequence", "max"), ([], "count_all"), ("arrival", "min"), ("arrival", "max")]
    return rows.group_by(_OF_RUNS).aggregate(sums)
