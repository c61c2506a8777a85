"""Logs with everything that a replay must get right, the lake that holds them, and what the engine says of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from kit import TENANT, publications

from spinney import Label, Mark, StateSubscription, disjoint, parse
from spinney_cloud.engine import Engine
from spinney_cloud.log_reader import Message
from spinney_cloud.names import log_subject
from spinney_cloud.notes import Notes
from spinney_cloud.pipeline.decode import Decoder
from spinney_cloud.pipeline.duplicates import Duplicates, Windows
from spinney_cloud.pipeline.lake import TABLES, Lake, by_table, with_date
from spinney_cloud.pipeline.replay import stored
from spinney_cloud.pipeline.replay_rows import Wanted
from spinney_cloud.records import Announced, Publications, Record, RowLabel, Tick, decode, encode
from spinney_cloud.settings import Settings
from spinney_cloud.subscriptions import form_of

SETTINGS = Settings()
WINDOWS = Windows(SETTINGS.log.duplicate_window, SETTINGS.log.content_window)
BEGIN = 20_000 * 86_400.0 - 7_200.0
"""Two hours before midnight: a replay goes over days."""


class Entry(NamedTuple):
    """A record of the log."""

    time: float
    record: Record


def lake_of(place: str | Path, log: Sequence[Entry], *, batch: int = 25, first: int = 1) -> Lake:
    """As an ingest writes it, in batches of so many records."""
    lake = Lake(place)
    duplicates, decoder = Duplicates(WINDOWS), Decoder("lake")
    for sequence, (time, record) in enumerate(log, first):
        data = encode(record)
        seen = duplicates.apply(Message(sequence, time, log_subject("any", TENANT), data))
        decoder.take(data, sequence, duplicates.arrival, seen.repeated)
        if sequence % batch == 0 or sequence == first + len(log) - 1:
            write(lake, pa.Table.from_batches(decoder.give(), decoder.schema), sequence)
    return lake


def write(lake: Lake, rows: pa.Table, sequence: int) -> None:
    """All tables of one batch."""
    for name, part in by_table(rows).items():
        lake.append(name, with_date(part, TABLES[name]), sequence)


def wanted(text: str | dict[str, Any], since: float, until: float, tenant: str = TENANT) -> Wanted:
    """For a subscription in text or JSON."""
    subscription = parse(text)
    return Wanted(subscription, form_of(subscription), tenant, since, until)


def by_engine(log: Iterable[Entry], what: Wanted, first: int = 1) -> list[tuple[Any, ...]]:
    """What the engine tells of a part of the log, with a subscription that begins there."""
    engine = Engine(SETTINGS)
    one = stored(what.form, what.tenant)
    engine.begin(one.key, one.to_json())
    found: list[Notes] = []
    arrival = 0.0
    for sequence, (time, record) in enumerate(log, first):
        arrival = max(arrival, time)
        if what.since <= arrival < what.until:
            found += engine.apply(decode(encode(record)), sequence, arrival)
    if what.until <= arrival:
        found += engine.apply(Tick(), engine.sequence + 1, what.until)
    return told(found)


def told(found: Iterable[Notes]) -> list[tuple[Any, ...]]:
    """In order: when, of what, why and of which scope, and all else that a note says."""
    return [
        (notes.time, note.publication_id, note.why, note.scope, note.since, note.rank, note.reason)
        for notes in found
        for note in notes.notes
    ]


class LogMaker:
    """A log of rooms and their temperatures, by chance: sources that repeat themselves, come late, restart, change
    owners, are labelled, go away and are lost; other tenants; damaged records; times that step back."""

    def __init__(self, seed: int, labels_for: str | None = None, *, repeats: bool = True) -> None:
        self._repeats = repeats
        self.chance = random.Random(seed)
        self.time = BEGIN
        self._numbers: dict[str, list[int]] = {f"m{at}": [1, 0] for at in range(6)}
        self._owed: dict[str, tuple[int, int]] = {}
        self._sent: list[Publications] = []
        self._digest, self._label_each = None, None
        if labels_for is not None:
            subscription = parse(labels_for)
            assert isinstance(subscription, StateSubscription)
            assert disjoint(subscription.enter, subscription.exit)
            self._digest, self._label_each = form_of(subscription).digest, subscription.each

    def make(self, records: int) -> list[Entry]:
        return [self._entry() for _ in range(records)]

    def _entry(self) -> Entry:
        self.time += self.chance.choice((0.0, 1.0, 20.0, 90.0)) * self.chance.random()
        time = self.time - (3.0 if self.chance.random() < 0.05 else 0.0)
        return Entry(time, self._record())

    def _record(self) -> Record:
        dice = self.chance.random()
        if dice < 0.04:
            return Tick()
        if dice < 0.10:
            sources = tuple(self.chance.sample(sorted(self._numbers), 2))
            return Announced(TENANT, sources, self.chance.random() < 0.6)
        if dice < 0.16 and self._sent and self._repeats:
            return self.chance.choice(self._sent[-20:])  # a repeat
        if dice < 0.22:
            return publications("x", self.chance.randrange(99), [self._row()], tenant="other")
        return self._publications()

    def _publications(self) -> Publications:
        source = self.chance.choice(sorted(self._numbers))
        numbers = self._numbers[source]
        if self.chance.random() < 0.03:
            numbers[:] = [numbers[0] + 1, 0]
            self._owed.pop(source, None)
        first, count = self._owed.pop(source, (numbers[1], self.chance.choice((1, 1, 3, 8))))
        if first == numbers[1] and self.chance.random() < 0.15:  # the next ones will be late
            self._owed[source] = (first, 2)
            first += 2
        rows = [self._row() for _ in range(count)]
        epoch = self.chance.choice((None, None, 1)) if self._digest is None else self.chance.choice((1, 1, 2))
        record = publications(source, first, rows, boot=numbers[0], epoch=epoch)
        numbers[1] = max(numbers[1], first + count)
        if self._digest is not None and self.chance.random() < 0.6:
            record = replace(record, labels=self._labels(record, rows, first, epoch or 0))
        self._sent.append(record)
        return record

    def _labels(
        self, record: Publications, rows: Sequence[dict[str, Any]], first: int, epoch: int
    ) -> tuple[RowLabel, ...]:
        assert self._digest is not None
        run, found = record.runs[0], []
        for place, row in enumerate(rows):
            bit = row.get("temp", 23) > 25
            if bit or row.get("temp", 23) <= 22:
                value = row.get(self._label_each) if bit and self._label_each else None
                mark = Mark(run.source, (epoch, run.boot, first + place), bit, value)
                found.append(RowLabel(place, self._digest, Label(mark)))
        if self.chance.random() < 0.1:
            mark = Mark(run.source, (epoch, run.boot, first + len(rows)), False)
            found.append(RowLabel(None, self._digest, Label(mark, (), silent=True)))
        return tuple(found)

    def _row(self) -> dict[str, Any]:
        row: dict[str, Any] = {"type": self.chance.choice(("room", "room", "street")), "time": round(self.time, 1)}
        if self.chance.random() < 0.9:
            row["temp"] = self.chance.choice((20, 21.5, 22, 23.25, 24, 25, 25.5, 27))
        if self.chance.random() < 0.8:
            row["room"] = self.chance.choice(("kitchen", "hall", "čaj", 7))
        if self.chance.random() < 0.7:
            row |= {"lat": 45.75 + self.chance.random() / 10, "long": 15.9 + self.chance.random() / 10}
        if self.chance.random() < 0.1:
            row["valid_for"] = 60
        return row
