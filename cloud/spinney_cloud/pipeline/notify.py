"""What the pipeline tells subscribers, into the notification log: once, whatever is killed when.

The notifications of a record are the same whenever they are worked out, and are stored in the log's order. So our last
message says what is there already; where it is, is noted in the bucket of readers, and looked up from there on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from ..bucket import stream_of
from ..engine.told import Told, owner_and_sid, pack
from ..names import NOTES, READERS, notes_subject
from ..notes import PIPELINE, Notes, NotesError, decode, encode
from ..positions import Position
from .direct_get import DirectGet, Outgoing
from .matching import MATCHED
from .state import ROW, Place
from .state_spark import TOLD

READER = "pipeline-notes"
"""Our key in the bucket of readers."""
_KEY = f"$KV.{READERS}.{READER}"
_MARK = b'"by":"' + PIPELINE.encode() + b'"'


class Said(NamedTuple):
    """A notification, and where among those of its record."""

    tenant: str
    place: Place
    told: Told


def notes_of(rows: pa.Table) -> list[Notes]:
    """The messages that a batch makes, in the log's order; each record's notifications as the engine orders them."""
    found: dict[int, tuple[float, list[Said]]] = {}
    for kind, at, time, data in zip(*(rows[name].to_pylist() for name in rows.schema.names), strict=True):
        if kind == MATCHED:
            found.setdefault(at, (time, []))[1].extend(_matched(*orjson.loads(data)))
        elif kind == TOLD:
            found.setdefault(at, (time, []))[1].append(_said(*orjson.loads(data)))
    messages: list[Notes] = []
    for at, (time, all_said) in sorted(found.items()):
        all_said.sort(key=lambda said: said.place)  # of one place they come in order, from one shard
        by_tenant: dict[str, list[Told]] = {}
        for said in all_said:
            by_tenant.setdefault(said.tenant, []).append(said.told)
        messages += (replace(each, by=PIPELINE) for each in pack(by_tenant, at, time))
    return messages


def _matched(tenant: str, rows: list[tuple[int, str, list[str], Mapping[str, Any]]]) -> Iterable[Said]:
    for row, id, keys, publication in rows:
        for key in keys:
            told = Told(*owner_and_sid(key), "match", None, id, publication)
            yield Said(tenant, Place(ROW, row, 0.0, key), told)


def _said(tenant: str, place: list[Any], told: list[Any]) -> Said:
    return Said(tenant, Place(*place), Told(*told))


class Notifier:
    """The one writer of the pipeline's messages."""

    def __init__(self, log: DirectGet) -> None:
        self.messages = self.notes = self.repeated = 0
        """Stored, and those that were there already."""
        self._log = log
        self._stored = (0, 0)

    def start(self) -> None:
        """Find what is there."""
        value = self._log.newest_in_bucket(stream_of(READERS), _KEY)
        bounds = self._log.bounds(NOTES)
        noted = 0 if value is None else Position.decode(value).sequence
        first = max(bounds.first, noted if noted <= bounds.last else 0)
        for message in self._log.range(NOTES, first, bounds.last):
            if _MARK in message.data:
                self._remember(message.data)

    def _remember(self, data: bytes) -> None:
        try:
            told = decode(data)
        except NotesError:
            return  # whoever delivers it says so
        if told.by == PIPELINE:
            self._stored = (told.at, told.part)

    def store(self, messages: list[Notes]) -> None:
        """Store what is not there."""
        fresh = [each for each in messages if (each.at, each.part) > self._stored]
        self.repeated += len(messages) - len(fresh)
        if not fresh:
            return
        sequence = self._log.publish_all([_outgoing(each) for each in fresh])
        self._stored = (fresh[-1].at, fresh[-1].part)
        self.messages += len(fresh)
        self.notes += sum(len(each.notes) for each in fresh)
        self._log.publish(_KEY, Position(NOTES, sequence, sequence, fresh[-1].time).encode())


def _outgoing(each: Notes) -> Outgoing:
    return Outgoing(notes_subject(each.tenant), encode(each), f"p{each.at}.{each.part}.{each.time * 1e6:.0f}")
