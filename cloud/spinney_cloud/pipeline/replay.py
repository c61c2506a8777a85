"""What a subscription would have told, from the lake: the notifications that the cloud's engine gives for the same part
of the log, had the subscription begun where the part does (rule I4). Nothing from before is known to it: state and
top-k start empty, and what was valid then is not told (rule L2).

State and top-k run in the engine itself (engine/), which is given the log's records again, made from rows of the lake
(replay_rows.py). Rows are read by pyarrow, or, where there are more than one process should read, by Spark
(replay_spark.py): both leave to the files to pass over what the filter's bounds exclude.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import orjson
import pyarrow as pa

from spinney.compiled import compile_filter

from ..engine import Engine
from ..fetch.placing import Given, Placing, joined
from ..notes import Note, Notes
from ..records import Publications, Tick
from ..settings import Settings
from ..subscriptions import Form, StoredSubscription
from .decode import flat
from .lake import Lake
from .replay_rows import Wanted, given, newest_arrival, other_records, tables

OWNER, SID = "replay", "replay"
"""Of the subscription, where it has no others."""


def stored(form: Form, tenant: str, owner: str = OWNER, sid: str = SID) -> StoredSubscription:
    """A subscription that nobody else knows."""
    return StoredSubscription(
        tenant=tenant,
        owner=owner,
        sid=sid,
        source=form.normal,
        start=0,
        created=0.0,
        kind=form.kind,
        normal=form.normal,
        digest=form.digest,
        program=form.program,
    )


def records(lake: Lake, wanted: Wanted, rows: Iterable[pa.Table]) -> Iterator[Given]:
    """For an engine with the one subscription: records that it tells the same of as of the log's own."""
    return given(rows, other_records(lake, wanted), wanted)


def replay(
    lake: Lake,
    wanted: Wanted,
    settings: Settings,
    rows: Iterable[pa.Table] | None = None,
    *,
    whole: bool = True,
    placing: Placing | None = None,
) -> Iterator[Notes]:
    """What it would have told, in order. `rows`: of the lake, if pyarrow is not to read them (see replay_spark).
    `whole`: with publications; without, content subscriptions are quicker. `placing`: what was fetched besides."""
    rows = tables(lake, wanted) if rows is None else rows
    if wanted.form.kind == "content":
        found = chain.from_iterable(_matches(table, wanted, whole=whole) for table in rows)
        yield from found if placing is None else _with_fetched(found, placing, wanted, whole=whole)
        return
    engine = Engine(settings)
    one = stored(wanted.form, wanted.tenant)
    engine.begin(one.key, one.to_json())
    items = records(lake, wanted, rows)
    for item in items if placing is None else joined(items, placing):
        if not _passes(engine, item, wanted.form.kind):
            yield from engine.apply(item.record, item.sequence, item.arrival)
    if wanted.until <= newest_arrival(lake):  # of what comes after that, nothing is known
        yield from engine.apply(Tick(), engine.sequence + 1, wanted.until)


def _passes(engine: Engine, item: Given, kind: str) -> bool:
    """Whether nothing can come of a record: no time is due, and it says nothing that is examined."""
    wake, record = engine.next_wake(), item.record
    if wake is not None and item.arrival >= wake:
        return False
    if isinstance(record, Publications):
        return kind == "top-k" and b'"' not in record.rows
    return isinstance(record, Tick)


def _matches(table: pa.Table, wanted: Wanted, *, whole: bool) -> Iterator[Notes]:
    """Each hit of a content subscription is one notification."""
    columns = table.schema.names if whole else ["log_seq", "arrival", "id"]
    rows = table.select(columns).to_pylist()
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or rows[end]["log_seq"] != rows[start]["log_seq"]:
            yield _notes(rows[start:end], wanted.tenant, whole=whole)
            start = end


def _with_fetched(found: Iterable[Notes], placing: Placing, wanted: Wanted, *, whole: bool) -> Iterator[Notes]:
    """Hits of a content subscription, and those of what was fetched between them."""
    at = 0
    for notes in found:
        yield from _fetched_notes(placing.before(notes.at, notes.time), wanted, whole=whole)
        at = notes.at
        yield notes
    yield from _fetched_notes(placing.rest(at), wanted, whole=whole)


def _fetched_notes(items: Iterable[Given], wanted: Wanted, *, whole: bool) -> Iterator[Notes]:
    test = compile_filter(wanted.feed)
    for item in items:
        assert isinstance(item.record, Publications)
        (publication,) = orjson.loads(item.record.rows)
        if test(publication):
            note = Note(OWNER, SID, "match", None, 0 if whole else None, publication["id"])
            kept = (publication,) if whole else ()
            yield Notes(wanted.tenant, item.sequence, item.arrival, 0, True, kept, (note,))


def _notes(rows: list[dict[str, Any]], tenant: str, *, whole: bool) -> Notes:
    publications = tuple(flat(row) for row in rows) if whole else ()
    notes = tuple(
        Note(OWNER, SID, "match", None, place if whole else None, row["id"]) for place, row in enumerate(rows)
    )
    return Notes(tenant, rows[0]["log_seq"], rows[0]["arrival"], 0, True, publications, notes)
