"""Logs for tests of the engine: records made from few words, and what a naive reader of them says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from spinney import (
    ContentSubscription,
    Duplicates,
    Label,
    Lateness,
    Notification,
    PublicationId,
    StateFilter,
    StateSubscription,
    Subscription,
    TopK,
    TopKSubscription,
    disjoint,
    feed,
    parse,
)
from spinney_cloud.names import subscription_key
from spinney_cloud.notes import Notes
from spinney_cloud.records import (
    Announced,
    Publications,
    Record,
    RowLabel,
    Run,
    SubscriptionChange,
    Tick,
    Unpublish,
    decode,
    encode,
)
from spinney_cloud.settings import Log, Settings
from spinney_cloud.subscriptions import StoredSubscription, form_of

SETTINGS = Settings(log=Log(duplicate_window=30.0, content_window=6.0, max_age=100.0))


def wanted(
    sid: str, source: str | dict[str, Any], *, owner: str = "ana", tenant: str = "default", enabled: bool = True
) -> StoredSubscription:
    """A subscription as the coordinator writes it."""
    form = form_of(parse(source))
    return StoredSubscription(
        tenant=tenant,
        owner=owner,
        sid=sid,
        source=source,
        start=0,
        created=0.0,
        kind=form.kind,
        normal=form.normal,
        digest=form.digest,
        program=form.program,
        enabled=enabled,
    )


def begins(sid: str, source: str | dict[str, Any], **others: Any) -> SubscriptionChange:
    """The record by which a subscription begins or changes."""
    stored = wanted(sid, source, **others)
    return SubscriptionChange(stored.tenant, stored.key, stored.to_json())


def ends(sid: str, *, owner: str = "ana", tenant: str = "default") -> SubscriptionChange:
    """The record by which it ends."""
    return SubscriptionChange(tenant, subscription_key(tenant, owner, sid), None)


def readings(
    source: str,
    first: int,
    *rows: Mapping[str, Any],
    boot: int = 1,
    epoch: int | None = None,
    numbered: int = 1,
    labels: Iterable[RowLabel] = (),
    tenant: str = "default",
) -> Publications:
    """A run of one source as a record."""
    full = [{"id": f"{source}:{boot}:{first + i}", "source": source, **row} for i, row in enumerate(rows)]
    runs = (Run(source, boot, first, len(rows), source, epoch, numbered),)
    return Publications(tenant, 0.0, runs, orjson.dumps(full), tuple(labels))


def joined(*parts: Publications) -> Publications:
    """Several as one record."""
    rows: list[Any] = []
    labels: list[RowLabel] = []
    for part in parts:
        labels += [one if one.row is None else one._replace(row=one.row + len(rows)) for one in part.labels]
        rows += orjson.loads(part.rows)
    runs = tuple(run for part in parts for run in part.runs)
    return Publications(parts[0].tenant, 0.0, runs, orjson.dumps(rows), tuple(labels))


def brief(messages: Iterable[Notes]) -> list[tuple[str, str, Any, str]]:
    """(sid, why, scope, publication) of each notification."""
    return [(note.sid, note.why, note.scope, note.publication_id) for notes in messages for note in notes.notes]


def whole(messages: Iterable[Notes]) -> list[tuple[Any, ...]]:
    """All of each notification, with its publication in place of the row."""
    return [
        (notes.tenant, notes.at, notes.time, *note._replace(row=_publication(notes, note.row)))
        for notes in messages
        for note in notes.notes
    ]


def _publication(notes: Notes, row: int | None) -> Any:
    return None if row is None else json.dumps(notes.publications[row], sort_keys=True)


def through_bytes(record: Record) -> Record:
    """As it comes out of the log."""
    return decode(encode(record))


@dataclass
class _One:
    tenant: str
    owner: str
    sid: str
    digest: str
    subscription: Subscription
    running: StateFilter | TopK | None = None


@dataclass
class _Tenant:
    duplicates: Duplicates
    lateness: Lateness = field(default_factory=Lateness)
    valid: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    unpublished: dict[str, float] = field(default_factory=dict)
    away: dict[str, float] = field(default_factory=dict)
    labelled: dict[tuple[str, str, int], None] = field(default_factory=dict)


class NaiveReader:
    """What the log says, row by row and subscription by subscription, with the core alone: no index, nothing shared.

    Times are the records'; labels make their filter's owner the evaluator from then on, for the source and epoch.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._arrival = 0.0
        self._ones: dict[str, _One] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._out: list[tuple[Any, ...]] = []
        self._at = 0

    def apply(self, record: Record, at: int, time: float) -> list[tuple[Any, ...]]:
        self._arrival = max(self._arrival, time)
        self._at, self._out = at, []
        due = [(one.running.next_wake(), key) for key, one in self._ones.items() if one.running is not None]
        for wake, key in sorted((wake, key) for wake, key in due if wake is not None and wake <= self._arrival):
            del wake
            one = self._ones[key]
            assert one.running is not None
            self._say(one, one.running.tick(self._arrival))
        match record:
            case SubscriptionChange():
                self._change(record)
            case Publications():
                self._publications(record)
            case Unpublish():
                tenant = self._tenant(record.tenant)
                end, _ = tenant.valid.pop(record.id, (0.0, {}))
                if end <= self._arrival:
                    tenant.unpublished[record.id] = self._arrival
            case Announced():
                self._announced(record)
            case Tick():
                pass
        return sorted(self._out, key=str)

    def _tenant(self, name: str) -> _Tenant:
        log = self._settings.log
        return self._tenants.setdefault(
            name, _Tenant(Duplicates(log.duplicate_window, content_seconds=log.content_window))
        )

    def _of(self, tenant: str) -> list[_One]:
        return [one for _, one in sorted(self._ones.items()) if one.tenant == tenant]

    def _change(self, record: SubscriptionChange) -> None:
        stored = None if record.value is None else StoredSubscription.from_json(record.value)
        if stored is None or not stored.enabled:
            self._ones.pop(record.key, None)
            return
        old = self._ones.get(record.key)
        if old is not None and old.digest == stored.digest:
            return
        subscription = parse(stored.normal)
        one = _One(stored.tenant, stored.owner, stored.sid, stored.digest, subscription)
        self._ones[record.key] = one
        tenant = self._tenant(stored.tenant)
        if isinstance(subscription, StateSubscription):
            one.running = StateFilter(subscription, disjoint=disjoint(subscription.enter, subscription.exit))
            for source, since in tenant.away.items():
                if since + subscription.lost > self._arrival:
                    one.running.announcement_over(source, since)
        elif isinstance(subscription, TopKSubscription):
            one.running = TopK(subscription)
        elif isinstance(subscription, ContentSubscription):
            for id, (end, row) in tenant.valid.items():
                if end > self._arrival and subscription.filter.evaluate(row) is True:
                    self._match(one, id, row)

    def _match(self, one: _One, id: str, row: Mapping[str, Any]) -> None:
        publication = json.dumps(row, sort_keys=True)
        self._out.append(
            (one.tenant, self._at, self._arrival, one.owner, one.sid, "match", None, publication, id, None, None, None)
        )

    def _say(self, one: _One, notifications: Iterable[Notification]) -> None:
        for told in notifications:
            publication = None if told.publication is None else json.dumps(told.publication, sort_keys=True)
            where = (one.tenant, self._at, self._arrival, one.owner, one.sid)
            what = (told.why, told.scope, publication, str(told.publication_id))
            self._out.append((*where, *what, told.since, told.rank, told.reason))

    def _publications(self, record: Publications) -> None:
        tenant = self._tenant(record.tenant)
        rows = orjson.loads(record.rows)
        runs = [run for run in record.runs for _ in range(run.length)]
        for place, (id, run, row) in enumerate(zip(record.ids(), runs, rows, strict=True)):
            bare = {name: value for name, value in row.items() if name != "id"}
            if run.numbered:
                repeated = tenant.duplicates.repeats(id, self._arrival)
            else:
                repeated = tenant.duplicates.repeats_content(id.source, bare, self._arrival)
            if repeated:
                continue
            late = tenant.lateness.examine(id)
            if "valid_for" in row:
                longest = self._settings.log.max_age
                if tenant.unpublished.pop(str(id), -1e9) + longest <= self._arrival:
                    tenant.valid[str(id)] = (self._arrival + min(row["valid_for"], longest), row)
            labels = {one.filter: one.label for one in record.labels if one.row == place}
            for one in self._of(record.tenant):
                self._row(tenant, one, id, run, row, late=late, label=labels.get(one.digest))
        for one_label in record.labels:
            if one_label.row is None:
                for one in self._of(record.tenant):
                    if one.digest == one_label.filter and isinstance(one.subscription, StateSubscription):
                        self._take(tenant, one, one_label.label, None)

    def _row(
        self,
        tenant: _Tenant,
        one: _One,
        id: PublicationId,
        run: Run,
        row: Mapping[str, Any],
        *,
        late: bool,
        label: Label | None,
    ) -> None:
        match one.subscription:
            case ContentSubscription() as content:
                if content.filter.evaluate(row) is True:
                    self._match(one, str(id), row)
            case TopKSubscription():
                assert isinstance(one.running, TopK)
                self._say(one, one.running.feed(id, row, self._arrival))
            case StateSubscription() as state:
                assert isinstance(one.running, StateFilter)
                is_disjoint = disjoint(state.enter, state.exit)
                if label is not None and is_disjoint:
                    self._take(tenant, one, label, row)
                    return
                if feed(state).evaluate(row) is not True or (late and not state.reorder):
                    return
                upstream = run.epoch is not None and (
                    state.debounce > 0 or (one.digest + one.sid, id.source, run.epoch) in tenant.labelled
                )
                if not (upstream and is_disjoint):
                    epoch = one.running.epoch(id.source) if run.epoch is None else run.epoch
                    self._say(one, one.running.feed(id, row, self._arrival, epoch))

    def _take(self, tenant: _Tenant, one: _One, label: Label, row: Mapping[str, Any] | None) -> None:
        assert isinstance(one.running, StateFilter)
        assert isinstance(one.subscription, StateSubscription)
        if disjoint(one.subscription.enter, one.subscription.exit):
            for mark in label.marks():
                for epoch in range(mark.order[0] + 1):
                    tenant.labelled[one.digest + one.sid, mark.source, epoch] = None
            self._say(one, one.running.take(label, row, self._arrival))

    def _announced(self, record: Announced) -> None:
        tenant = self._tenant(record.tenant)
        for source in record.sources:
            if record.over and source in tenant.away:
                continue
            if record.over:
                tenant.away[source] = self._arrival
            else:
                tenant.away.pop(source, None)
            for one in self._of(record.tenant):
                if isinstance(one.running, StateFilter):
                    if record.over:
                        one.running.announcement_over(source, self._arrival)
                    else:
                        one.running.announced(source)
