"""The subscriptions that the pipeline answers for, as they were at any record of the log (rule I4).

Those are the ones marked `"on": "pipeline"`. The log says when each began and ended; what began before the log's
oldest record is in the lake's table `subscriptions`, which is written anew from time to time and says of which record
it is. So a set at a record is a function of the log, whoever works it out, and however often. Each process keeps the
one it needed last and moves it on: by the few records of the log that change it, without reading the others.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from spinney import Matcher, StateSubscription, TopKSubscription, parse
from spinney.subscription import Subscription

from ..bucket import stream_of
from ..log_reader import Message
from ..names import LOG, SUBSCRIPTIONS, log_subject
from ..records import Announced, Record, RecordError, SubscriptionChange, decode
from ..subscription_request import is_on_pipeline
from ..subscriptions import StoredSubscription, StoredSubscriptionError
from .direct_get import DirectGet, LogServer, connection
from .lake import Lake, LakeError, TableSpec

TABLE = "subscriptions"
APP = "spinney-matching"
"""Its version in that table is the record of the log that the table is of."""
MAX_AWAY = 100_000
"""As the engine's: sources of a tenant whose announcement is over."""
MAX_KNOWN = 4
"""Sets that a process keeps."""
MAX_PARSED = 20_000
"""Texts whose meaning a process remembers."""

VALID = ""
"""Among the ids of a matcher: finds what has `valid_for`, as the engine's does."""

_AWAY = "away"
_SPEC = TableSpec(pa.schema([("key", pa.string()), ("begun", pa.int64()), ("value", pa.string())]), ())
_KINDS = ("subscription", "announced")


class SubscriptionsUnknown(LakeError):
    """Nobody knows any more which subscriptions there were at a record."""

    def __init__(self, after: int, table: int | None, first: int) -> None:
        has = "has none" if table is None else f"has those of record {table}"
        super().__init__(
            f"the subscriptions at record {after} of the log are not known: the lake's table {TABLE} {has}, and the "
            f"log begins at record {first}. Read from a later record on, or restore the lake from a backup"
        )


class Where(NamedTuple):
    """Where the log and the lake are. It goes to Spark's workers."""

    server: LogServer
    lake: str
    storage: tuple[tuple[str, str], ...] = ()
    """Options of the lake's object store."""

    def open(self) -> Lake:
        """The lake."""
        return Lake(self.lake, dict(self.storage))


@lru_cache(MAX_PARSED)
def understood(normal: str) -> Subscription:
    """What a normal form's text means."""
    return parse(normal)


@dataclass(frozen=True, slots=True)
class Standing:
    """A subscription that stands."""

    stored: StoredSubscription
    begun: int
    """The record that began it; what was kept for an earlier one under its key is not its own."""

    @property
    def runs(self) -> bool:
        """Whether something must be remembered for it."""
        return self.stored.kind != "content"

    def of_source(self) -> bool:
        """Whether each source is a scope of its own (rule S3), and none waits for another (rule S5)."""
        meaning = understood(self.stored.normal)
        if not isinstance(meaning, StateSubscription) or meaning.reorder:
            return False
        return meaning.each is None and not meaning.once

    def each(self) -> str | None:
        """The attribute by whose values a top-k subscription is apart."""
        meaning = understood(self.stored.normal)
        return meaning.each if isinstance(meaning, TopKSubscription) else None


class _Tenant:
    """One tenant's subscriptions by key, and what finds them."""

    def __init__(self) -> None:
        self.standing: dict[str, Standing] = {}
        self.running: set[str] = set()
        """Keys of those for which something is remembered."""
        self.by_digest: dict[str, set[str]] = {}
        """Keys of the state subscriptions."""
        self.away: OrderedDict[str, float] = OrderedDict()
        self._matcher: Matcher | None = None

    def copy(self) -> _Tenant:
        """Another that changes by itself."""
        made = _Tenant()
        made.standing, made.running = dict(self.standing), set(self.running)
        made.by_digest = {digest: set(keys) for digest, keys in self.by_digest.items()}
        made.away = OrderedDict(self.away)
        return made

    def matcher(self) -> Matcher:
        """Made when it is first needed: not everybody matches."""
        if self._matcher is None:
            self._matcher = Matcher()
            self._matcher.add(VALID, "valid_for >= 0")
            for key, one in self.standing.items():
                self._add(key, one.stored)
        return self._matcher

    def _add(self, key: str, stored: StoredSubscription) -> None:
        if self._matcher is None:
            return
        if self._matcher.native:
            self._matcher.add_compiled(key, stored.compiled_feed())
        else:
            self._matcher.add(key, stored.normal)

    def begin(self, key: str, one: Standing) -> None:
        self._add(key, one.stored)
        self.standing[key] = one
        if one.runs:
            self.running.add(key)
        if one.stored.kind == "state":
            self.by_digest.setdefault(one.stored.digest, set()).add(key)

    def end(self, key: str) -> None:
        one = self.standing.pop(key, None)
        if one is None:
            return
        self.running.discard(key)
        keys = self.by_digest.get(one.stored.digest, set())
        keys.discard(key)
        if not keys:
            self.by_digest.pop(one.stored.digest, None)
        if self._matcher is not None:
            self._matcher.remove(key)

    def announced(self, sources: tuple[str, ...], over: bool, time: float) -> list[str]:
        changed = [source for source in sources if not over or source not in self.away]
        for source in changed:
            if over:
                self.away[source] = time
            else:
                self.away.pop(source, None)
        while len(self.away) > MAX_AWAY:
            self.away.popitem(last=False)
        return changed


class Subscriptions:
    """All tenants' at one record of the log; `apply` moves on."""

    def __init__(self, at: int = 0) -> None:
        self.at = self.changed = at
        """Of which record it is, and which was the newest that it applied."""
        self.damaged = 0
        """Changes that could not be applied."""
        self._tenants: dict[str, _Tenant] = {}

    def __len__(self) -> int:
        return sum(len(tenant.standing) for tenant in self._tenants.values())

    def copy(self) -> Subscriptions:
        """Another that moves on by itself."""
        made = Subscriptions(self.at)
        made.changed = self.changed
        made._tenants = {name: tenant.copy() for name, tenant in self._tenants.items()}
        return made

    def tenant(self, name: str) -> _Tenant:
        """A tenant's."""
        found = self._tenants.get(name)
        if found is None:
            found = self._tenants[name] = _Tenant()
        return found

    def find(self, key: str) -> Standing | None:
        """A subscription, if it stands."""
        tenant = self._tenants.get(key.split(".")[1])
        return None if tenant is None else tenant.standing.get(key)

    def apply(self, record: Record, sequence: int, time: float) -> list[str]:
        """A record of the log; the sources that it announces (no longer), of those that it concerns."""
        self.at = self.changed = sequence
        if isinstance(record, Announced):
            return self.tenant(record.tenant).announced(record.sources, record.over, time)
        if isinstance(record, SubscriptionChange):
            try:
                self._change(record, sequence)
            except (StoredSubscriptionError, RecordError):
                self.damaged += 1
        return []

    def _change(self, record: SubscriptionChange, sequence: int) -> None:
        if record.key.split(".")[1:2] != [record.tenant] or record.key.count(".") != 3:
            raise RecordError(f"not a key of this tenant: {record.key!r:.200}")
        new = None if record.value is None else StoredSubscription.from_json(record.value)
        tenant = self.tenant(record.tenant)
        old = tenant.standing.get(record.key)
        if new is None or not new.enabled or not is_on_pipeline(new.options):
            tenant.end(record.key)
        elif old is None or (old.stored.digest, old.stored.kind) != (new.digest, new.kind):
            tenant.end(record.key)
            tenant.begin(record.key, Standing(new, sequence))

    def begin(self, key: str, value: dict[str, Any], begun: int) -> None:
        """One that stood before the first record that is applied."""
        try:
            stored = StoredSubscription.from_json(value)
        except StoredSubscriptionError:
            self.damaged += 1
            return
        if stored.enabled and is_on_pipeline(stored.options):
            self.tenant(stored.tenant).begin(key, Standing(stored, begun))

    # ---- in the lake

    def rows(self) -> pa.Table:
        """For the lake's table."""
        found: list[tuple[str, int, str]] = []
        for name, tenant in sorted(self._tenants.items()):
            for key, one in tenant.standing.items():
                found.append((key, one.begun, orjson.dumps(one.stored.to_json()).decode()))
            for source, since in tenant.away.items():
                found.append((f"{_AWAY}.{name}.{source}", 0, orjson.dumps(since).decode()))
        columns = list(zip(*found, strict=True)) or [(), (), ()]
        return pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, _SPEC.schema, strict=True)],
            schema=_SPEC.schema,
        )

    @classmethod
    def from_rows(cls, rows: pa.Table, at: int) -> Subscriptions:
        """What gave these rows."""
        self = cls(at)
        for key, begun, value in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if key.startswith(f"{_AWAY}."):
                _, name, source = key.split(".", 2)
                self.tenant(name).away[source] = orjson.loads(value)
            else:
                self.begin(key, orjson.loads(value), begun)
        return self


# ---- at a record


def at(where: Where, after: int, version: int | None = None) -> Subscriptions:
    """The set as it was after a record: this process's own, moved on.

    `version`, the newest record that changed the subscriptions, saves a question to who does not ask for `away`.
    """
    key = (os.getpid(), where, version is None)
    found = _known.pop(key, None)
    if found is None or found.changed > after:
        found = load(where, after)
    elif found.at < after and (version is None or version > found.at):
        forward(connection(where.server), found, after)
    found.at = after
    _known[key] = found
    if len(_known) > MAX_KNOWN:
        del _known[next(iter(_known))]
    return found


_known: dict[tuple[int, Where, bool], Subscriptions] = {}


def load(where: Where, after: int) -> Subscriptions:
    """From the lake and the log, for a record that may be any; SubscriptionsUnknown if they do not go back so far."""
    kept = saved(where.open())
    first = connection(where.server).bounds(LOG).first
    after = max(after, first - 1)
    if kept is not None and kept.at <= after and first <= kept.at + 1:
        found = kept
    elif first <= 1:
        found = Subscriptions()
    else:
        raise SubscriptionsUnknown(after, None if kept is None else kept.at, first)
    forward(connection(where.server), found, after)
    return found


def forward(log: DirectGet, found: Subscriptions, upto: int) -> int:
    """Move on to a record, by those of the log that change the set; how many these were."""
    moves = changes(log, found.at, upto)
    for message, record in moves:
        found.apply(record, message.sequence, message.time)
    found.at = upto
    return len(moves)


def changes(log: DirectGet, after: int, upto: int) -> list[tuple[Message, Record]]:
    """The records that change the set, in order."""
    found: list[tuple[Message, Record]] = []
    for kind in _KINDS:
        for message in log.range(LOG, after + 1, upto, log_subject(kind, "*")):
            try:
                found.append((message, decode(message.data)))
            except RecordError:
                continue  # whoever reads all records counts it
    return sorted(found, key=lambda one: one[0].sequence)


def initial(log: DirectGet, after: int) -> Subscriptions:
    """Where matching begins for the first time: those of the bucket that no record of the log will bring."""
    found = Subscriptions(after)
    bounds, bucket = log.bounds(LOG), stream_of(SUBSCRIPTIONS)
    for key, value in _entries(log, bucket):
        if value["start"] <= after or value["start"] > bounds.last:
            found.begin(key, value, value["start"])
    return found


def _entries(log: DirectGet, bucket: str) -> Iterator[tuple[str, dict[str, Any]]]:
    prefix = f"$KV.{SUBSCRIPTIONS}."
    for message in log.range(bucket, 1, log.bounds(bucket).last):
        if message.data:  # what is deleted is empty
            yield message.subject.removeprefix(prefix), orjson.loads(message.data)


# ---- the lake's table


def saved(lake: Lake) -> Subscriptions | None:
    """What the lake has; None if it has nothing."""
    sequence = saved_at(lake)
    if sequence is None:
        return None
    return Subscriptions.from_rows(lake.table(TABLE).to_pyarrow_table(), sequence)


def saved_at(lake: Lake) -> int | None:
    """The record of the log that the lake's table is of; None if there is none."""
    try:
        return lake.table(TABLE).transaction_version(APP)
    except LakeError as error:
        if isinstance(error.__cause__, TableNotFoundError):
            return None
        raise


def save(lake: Lake, found: Subscriptions) -> None:
    """Write the table anew."""
    done = CommitProperties(app_transactions=[Transaction(APP, found.at)])
    try:
        table = lake.table(TABLE, _SPEC)
        write_deltalake(table, found.rows(), mode="overwrite", commit_properties=done)
    except (DeltaError, OSError) as error:
        raise LakeError(f"the lake's table {lake.path(TABLE)} cannot be written: {error}") from error
    lake.vacuum(TABLE)
