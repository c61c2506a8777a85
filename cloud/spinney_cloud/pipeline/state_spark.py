"""State in Spark: shards (state.py) in a transformWithState, each with a map of its units in the state store.

The state store is part of the query's checkpoint: what a batch changes is there if and only if the batch is done.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import orjson
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle, TimerValues

from ..log_errors import LogError
from ..names import LOG
from ..records import Record, RecordError, decode
from .direct_get import DirectGet, connection
from .matching import FOR_STATE, LOG_HAS_COME, MATCHED
from .state import Happening, Limits, Moment, Offer, Row, Said, Shard, run
from .subscriptions import Subscriptions, Where, at

TOLD, WAKE = "told", "wake"
"""Kinds of rows, beside those that go through: what a shard tells, and when it must be woken."""

OUT = "kind string, at bigint, time double, data binary"

_UNITS, _WAKES = "units", "wakes"


_TALKATIVE = "pyspark.sql.streaming.transform_with_state_driver_worker"
"""A process of Spark's that prints what it does, at every start of a query."""


def _say_nothing(*_: object, **__: object) -> None:
    """Instead of print."""


class Shards(StatefulProcessor):
    """Keyed by shard."""

    def __init__(self, where: Where, limits: Limits) -> None:
        self._where = where
        self._limits = limits

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        main = sys.modules["__main__"]
        if getattr(main.__spec__, "name", "") == _TALKATIVE:
            vars(main)["print"] = _say_nothing

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._units = handle.getMapState(_UNITS, "name string", "data binary")
        self._wakes = handle.getValueState(_WAKES, "data binary")

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[SparkRow]:
        """A batch: its rows may come in any order."""
        logs: list[SparkRow] = []
        events: list[tuple[int, float, bytes]] = []
        for row in rows:
            if row.kind == FOR_STATE:
                events.append((row.at, row.time, row.data))
            elif row.kind == MATCHED:
                yield SparkRow(kind=MATCHED, at=row.at, time=row.time, data=row.data)
            elif row.kind == LOG_HAS_COME:
                logs.append(row)
        if key[0] == 0:
            for row in logs:
                yield SparkRow(kind=LOG_HAS_COME, at=row.at, time=row.time, data=row.data)
        yield from self._run(key[0], sorted(logs, key=lambda row: row.at), events)

    def _run(self, number: int, logs: list[SparkRow], events: list[tuple[int, float, bytes]]) -> Iterator[SparkRow]:
        said = [orjson.loads(row.data) for row in logs]
        control = [(sequence, time) for each in said for sequence, time in each["control"]]
        before = self._wakes.get()
        wakes: dict[str, float] = {} if before is None else orjson.loads(before[0])
        if events or control or (wakes and min(wakes.values()) <= logs[-1].time):
            shard = self._shard(number, said[0]["after"], wakes, moving=bool(control))
            happenings = [Happening(at, time, rows_of(data)) for at, time, data in events]
            happenings += [Happening(sequence, time, None) for sequence, time in control]
            log = connection(self._where.server)
            run(shard, happenings, lambda sequence: _record_at(log, sequence), Moment(logs[-1].at, logs[-1].time))
            for one in shard.said:
                yield SparkRow(kind=TOLD, at=one.at, time=one.time, data=encode_said(one))
        after = orjson.dumps(wakes)
        if before is None or before[0] != after:
            self._wakes.update((after,))
        if wakes:
            yield SparkRow(kind=WAKE, at=logs[-1].at, time=min(wakes.values()), data=b"")

    def _shard(self, number: int, after: int, wakes: dict[str, float], *, moving: bool) -> Shard:
        where = self._where
        standing: Subscriptions = at(where, after)
        if moving:  # the other shards of this process begin there, too
            standing = standing.copy()
        log, kept = connection(where.server), _Kept(self._units)
        return Shard(number, kept, wakes, after, standing, lambda time: _first_at(log, time), self._limits)

    def close(self) -> None:
        """The connection stays for the next batch."""


class _Kept:
    """The state store's map."""

    def __init__(self, units: MapState) -> None:
        self._units = units

    def get(self, name: str) -> bytes | None:
        found = self._units.getValue((name,))
        return None if found is None else bytes(found[0])

    def put(self, name: str, data: bytes) -> None:
        self._units.updateValue((name,), (data,))

    def remove(self, name: str) -> None:
        self._units.removeKey((name,))


def _record_at(log: DirectGet, sequence: int) -> Record | None:
    message = log.first_from(LOG, sequence)
    if message is None or message.sequence != sequence:
        raise LogError(f"record {sequence} of the log was purged before the pipeline was done with it")
    try:
        return decode(message.data)
    except RecordError:
        return None  # counted by who has matched it


def _first_at(log: DirectGet, time: float) -> Moment:
    found = log.first_at(LOG, time)
    return Moment(0, 0.0) if found is None else Moment(found.sequence, found.time)


def rows_of(data: bytes) -> tuple[Row, ...]:
    """The rows of a record, as matching has written them."""
    return tuple(_row(item) for item in orjson.loads(data))


def _row(item: list[Any]) -> Row:
    row = Row(*item)
    return row._replace(offers=tuple(Offer(*offer) for offer in row.offers))


def encode_said(one: Said) -> bytes:
    """For the driver."""
    return orjson.dumps([one.tenant, one.place, one.told], default=tuple)
