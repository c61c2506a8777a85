"""What the lake knows of how complete a part of it is: the history of brokers, and whose readings lack numbers."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..completeness import Answer, Judge
from ..completeness.reading import LOOKBACK_SECONDS, Saying, judge_of, tell
from ..completeness.recorder import EVERYBODY
from ..fetch.result import Claim
from .lake import LOG_RECORDS, TABLES, Lake
from .replay_rows import Wanted, days, newest_arrival, within

LAG_SECONDS: Final = 120.0
"""By so much a lake may be behind without its being said: it is read up to its end."""
MAX_PARTS: Final = 64
"""Sums of parts of the lake that are in memory before they are joined."""
_COLUMNS = ["source", "client", "boot", "sequence", "arrival"]
_OF_RUNS = ["source", "client", "boot"]
_SUMS = ["first", "last", "count", "since", "until"]


def completeness_of(lake: Lake, wanted: Wanted, claims: Iterable[Claim] = ()) -> Answer:
    """Of a replay: what the lake has of the time, what it knows of the rest, and what was fetched of it."""
    begun, ends = begins(lake), max(wanted.since, newest_arrival(lake))
    until = wanted.until if wanted.until > ends + LAG_SECONDS else min(wanted.until, ends)
    judge = judge_of(wanted.form, wanted.since, until)
    for claim in claims:
        judge.fetched(*claim)
    if begun is not None:
        judge.nothing_before(begun)
    elif (first := _first_arrival(lake)) > wanted.since:
        judge.note("retention", wanted.since, first)
    if until > ends:
        judge.note("lake", ends, until)
    later = replace(wanted, until=max(wanted.until, math.nextafter(ends, math.inf)))
    tell(judge, sayings(lake, later, LOOKBACK_SECONDS))
    numbers(lake, wanted, judge)
    return judge.answer()


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
    return _first_arrival(lake) if min(_least(lake, "min.log_seq"), default=0) == 1 else None


def _first_arrival(lake: Lake) -> float:
    """The log's time from which on the lake has anything."""
    return float(min(_least(lake, "min.arrival"), default=0.0))


def _least(lake: Lake, column: str) -> list[float]:
    """Of each table, the least that its files have in a column."""
    actions = [pa.table(lake.table(name).get_add_actions(flatten=True)) for name in TABLES]
    return [min(found[column].to_pylist()) for found in actions if found.num_rows]


def numbers(lake: Lake, wanted: Wanted, judge: Judge) -> None:
    """Tell the judge who sent which source, and of which of its boots numbers are missing.

    The lake has no duplicates, so as many rows as there are numbers from the first to the last are all of them.
    """
    data = lake.dataset()
    parts: list[pa.Table] = []
    for day in days(lake, wanted):
        where = within(wanted, day.date) & (ds.field("tenant") == wanted.tenant)
        for batch in data.to_batches(columns=_COLUMNS, filter=where):
            if batch.num_rows:
                parts.append(_summed(pa.Table.from_batches([batch])))
            if len(parts) >= MAX_PARTS:
                parts = [_joined(parts)]
    for row in _joined(parts).sort_by([("source", "ascending"), ("boot", "ascending")]).to_pylist() if parts else ():
        end = row["last"] + 1
        missing = end - row["first"] - row["count"]
        judge.counted(row["source"], row["client"], row["boot"], end, row["since"], row["until"], missing)


def _summed(rows: pa.Table) -> pa.Table:
    """For each boot of a source, its numbers and times."""
    sums = [("sequence", "min"), ("sequence", "max"), ([], "count_all"), ("arrival", "min"), ("arrival", "max")]
    return rows.group_by(_OF_RUNS).aggregate(sums).rename_columns([*_OF_RUNS, *_SUMS])


def _joined(parts: list[pa.Table]) -> pa.Table:
    sums = [("first", "min"), ("last", "max"), ("count", "sum"), ("since", "min"), ("until", "max")]
    return pa.concat_tables(parts).group_by(_OF_RUNS).aggregate(sums).rename_columns([*_OF_RUNS, *_SUMS])
