"""Matching in Spark's executors: the C core finds which of the pipeline's subscriptions want which readings.

*Fused into the source's read* (`matches`; the source's option `give=matches`): records are matched as they come from
the log, by the JSON that is in them, and only what matches is decoded and goes to the JVM. This is the quickest, and
the way of the running pipeline (matching_query.py). A content subscription's matches are told as they stand; what
matches the feed of a state or top-k subscription goes to the shard that keeps its state (state.py).

*On Arrow batches of any frame* (`match_frame`): by mapInArrow, with no more columns than the filters name.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from spinney import Label, Matcher, MatcherError, PublicationError
from spinney.filter_bytes import FilterBytes, types

from ..engine.batch import Batch
from ..engine.batch import Reading as EngineReading
from ..records import Announced, Publications, Record, RecordError, SubscriptionChange, Unpublish, decode
from .direct_get import connection
from .scan import Slice
from .schema import COLUMNS, MATCHES
from .source import Reading, readings
from .state import NOT_A_ROW, SHARDS, Offer, Row, shard_of, units_of, valid_unit
from .subscriptions import VALID, Standing, Subscriptions, Where, at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LOG_HAS_COME, MATCHED, FOR_STATE = "log", "matched", "state"
"""Kinds of rows: how far the slice goes, for each shard; what content subscriptions are told; what is for a shard."""

ROWS = 1_000
"""Of a batch, about; each is of a record."""

_FROM_SOURCE = ("id", "source", *COLUMNS)
_MAPS: Mapping[str, type] = {"numbers": float, "texts": str, "flags": bool}


# ---- fused into the source's read


def matches(where: Where, part: Slice) -> Iterator[pa.RecordBatch]:
    """What the records of a slice tell, in the columns of schema.MATCHES."""
    found = MatchedSlice(at(where, part.after, part.subscriptions), part)
    for reading in readings(connection(where.server), part):
        found.take(reading)
        if len(found.out) >= ROWS:
            yield found.give()
    found.end()
    yield found.give()


class MatchedSlice:
    """The records of a slice, one after the other."""

    def __init__(self, subscriptions: Subscriptions, part: Slice) -> None:
        self.out: list[tuple[int, int, float, str, bytes]] = []
        self._subscriptions = subscriptions
        self._part = part
        self._time = part.arrival
        self._control: list[tuple[int, float]] = []
        self._readings = self._damaged = 0

    def take(self, reading: Reading) -> None:
        """The next record."""
        message, self._time = reading.message, reading.arrival
        try:
            record = decode(message.data)
            if isinstance(record, Publications):
                self._publications(record, reading)
            else:
                self._changes(record, message.sequence)
        except (RecordError, PublicationError, MatcherError):
            self._damaged += 1

    def _changes(self, record: Record, sequence: int) -> None:
        if isinstance(record, SubscriptionChange):
            self._subscriptions.apply(record, sequence, self._time)
        if isinstance(record, SubscriptionChange | Announced | Unpublish):
            self._control.append((sequence, self._time))

    def end(self) -> None:
        """Every shard hears how far the log has come, and which records it must look at itself."""
        self._subscriptions.at = self._part.upto
        said = {"after": self._part.after, "control": self._control}
        counts = {"readings": self._readings, "damaged": self._damaged, "standing": len(self._subscriptions)}
        for shard in range(SHARDS):
            data = orjson.dumps({**said, **(counts if shard == 0 else {})})
            self.out.append((shard, self._part.upto, self._time, LOG_HAS_COME, data))

    def give(self) -> pa.RecordBatch:
        """All since the last time."""
        columns = list(zip(*self.out, strict=True)) or [()] * len(MATCHES)
        self.out.clear()
        arrays = [pa.array(column, field.type) for column, field in zip(columns, MATCHES, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=MATCHES)

    # ---- publications

    def _publications(self, record: Publications, reading: Reading) -> None:
        tenant = self._subscriptions.tenant(record.tenant)
        found = tenant.matcher().match_rows(record.rows)
        batch = Batch(record, found)
        self._readings += found.objects - len(reading.repeated)
        if not found.matches and not record.labels:
            return
        told: list[tuple[int, str, list[str], Any]] = []
        states: dict[int, list[Row]] = {}
        labels, silent = batch.labels() if record.labels else ({}, [])
        keys_of: dict[int, list[str]] = {row: [] for row in labels} | dict(found.matches)
        for row in sorted(keys_of):
            if row in reading.repeated:
                continue
            keys = keys_of[row]
            one = batch.reading(row, row in reading.late)
            plain = [key for key in keys if key not in tenant.running and key != VALID]
            if plain:
                told.append((row, str(one.id), sorted(plain), one.publication))
            if len(plain) < len(keys) or row in labels:
                self._for_state(states, record.tenant, one, row, keys, labels.get(row, {}))
        for digest, label in silent:
            self._silent(states, record.tenant, digest, label)
        self._put(reading, record.tenant, told, states)

    def _for_state(
        self,
        states: dict[int, list[Row]],
        tenant: str,
        one: EngineReading,
        row: int,
        keys: list[str],
        labels: Mapping[str, Label],
    ) -> None:
        kept = self._subscriptions.tenant(tenant)
        of_key = {key: label for digest, label in labels.items() for key in kept.by_digest.get(digest, ())}
        offers: dict[int, list[Offer]] = {}
        for key in sorted({*keys, *of_key} & kept.running):
            label = of_key.get(key)
            written = None if label is None else label.to_json()
            for unit in units_of(kept.standing[key], one.id.source, one.publication, label):
                offers.setdefault(shard_of(unit), []).append(Offer(unit, key, written))
        valid = shard_of(valid_unit(tenant)) if VALID in keys else None
        for shard in {*offers} | ({valid} if valid is not None else set()):
            mine = tuple(offers.get(shard, ()))
            made = Row(row, tenant, *one.id, one.epoch, one.late, one.publication, mine, shard == valid)
            states.setdefault(shard, []).append(made)

    def _silent(self, states: dict[int, list[Row]], tenant: str, digest: str, label: Label) -> None:
        kept = self._subscriptions.tenant(tenant)
        mark = label.mark.id
        for key in sorted(kept.by_digest.get(digest, ())):
            for unit in units_of(kept.standing[key], mark.source, None, label):
                offer = Offer(unit, key, label.to_json())
                row = Row(NOT_A_ROW, tenant, *mark, None, False, None, (offer,), False)
                states.setdefault(shard_of(unit), []).append(row)

    def _put(self, reading: Reading, tenant: str, told: list[Any], states: dict[int, list[Row]]) -> None:
        sequence = reading.message.sequence
        if told:
            data = orjson.dumps([tenant, told])
            self.out.append((sequence % SHARDS, sequence, self._time, MATCHED, data))
        for shard, rows in states.items():
            data = orjson.dumps(rows, default=tuple)
            self.out.append((shard, sequence, self._time, FOR_STATE, data))


# ---- on Arrow batches


def match_frame(
    frame: DataFrame, filters: Mapping[str, FilterBytes], place: Iterable[str] = ("log_seq", "log_row")
) -> DataFrame:
    """For each match of a frame in the lake's schema its subscription, and the columns that say which reading it is."""
    place = tuple(place)
    pruned = pruned_columns(filters)
    kept = frame.select(*place, *pruned)
    fields = ", ".join(f"{name} {kind}" for name, kind in frame.select(*place).dtypes)
    given = {id: (each.data, each.names) for id, each in filters.items()}

    def match(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _match(batches, given, place)

    return kept.mapInArrow(match, f"{fields}, subscription string")


def pruned_columns(filters: Mapping[str, FilterBytes]) -> list[Column]:
    """What filters look at, and no more: columns, and single entries of the maps, `numbers:NO2`."""
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    looked_at: dict[str, frozenset[type]] = {}
    for each in filters.values():
        for name, kinds in types(each).items():
            looked_at[name] = looked_at.get(name, frozenset()) | kinds
    found = [F.col(name) for name in _FROM_SOURCE if name in looked_at]
    for name in sorted(looked_at.keys() - set(_FROM_SOURCE)):
        maps = [kind for kind, of in _MAPS.items() if of in looked_at[name]]
        found += [F.try_element_at(kind, F.lit(name)).alias(f"{kind}:{name}") for kind in maps]
    return found


_matchers: dict[int, Matcher] = {}
"""This process's, by what its filters are: a worker lives for many tasks."""


def _match(
    batches: Iterable[pa.RecordBatch], given: Mapping[str, tuple[bytes, tuple[str, ...]]], place: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    matcher = _matcher_of(given)
    for batch in batches:
        found = matcher.match_batch(attributes_of(batch, place))
        columns = [batch.column(name).take(found["row"]) for name in place]
        subscription = found["id"].cast(pa.string())
        yield pa.RecordBatch.from_arrays([*columns, subscription], names=[*place, "subscription"])


def attributes_of(batch: pa.RecordBatch, place: Iterable[str]) -> pa.RecordBatch:
    """Pruned columns as the core takes them: an attribute is a column, or maps if its type is not always one."""
    columns: dict[str, pa.Array] = {}
    kinds: dict[str, dict[str, pa.Array]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind, colon, attribute = name.partition(":")
        if colon and kind in _MAPS:
            if column.null_count < len(column):
                kinds.setdefault(attribute, {})[kind] = column
        elif name not in place:
            columns[name] = column
    for attribute, found in kinds.items():
        if len(found) == 1:
            columns[attribute] = next(iter(found.values()))
        else:
            columns |= {f"{kind}:{attribute}": _as_map(attribute, column) for kind, column in found.items()}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)) if columns else _bare(batch)


def _bare(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows without any attribute, for filters that name none, or none that is there."""
    return pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows)], names=[""])


def _as_map(attribute: str, column: pa.Array) -> pa.Array:
    """The same as a column of maps with one entry, or none."""
    items = column.drop_null()
    offsets = pc.cumulative_sum(pc.cast(column.is_valid(), pa.int32()))
    begin = pa.concat_arrays([pa.array([0], pa.int32()), offsets])
    return pa.MapArray.from_arrays(begin, pa.repeat(pa.scalar(attribute), len(items)), items)


def _matcher_of(given: Mapping[str, tuple[bytes, tuple[str, ...]]]) -> Matcher:
    key = hash(frozenset(given.items()))
    if key not in _matchers:
        _matchers.clear()
        matcher = _matchers[key] = Matcher()
        for id, (data, names) in given.items():
            matcher.add_compiled(id, FilterBytes(data, names))
    return _matchers[key]


def standing_filters(subscriptions: Subscriptions, tenant: str) -> dict[str, FilterBytes]:
    """For `match_frame`: the feeds of a tenant's subscriptions, by key."""
    standing: Mapping[str, Standing] = subscriptions.tenant(tenant).standing
    return {key: one.stored.compiled_feed() for key, one in standing.items()}
