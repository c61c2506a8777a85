"""The engine: a pure function of the log. Records in, notifications out; no clock, no input or output.

Time is the log's: arrival = max(previous arrival, the record's time), and what is due by then happens before the record
does anything (rule I3). So whoever reads the same records from the same snapshot says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spinney import MatcherError, PublicationError

from ..notes import Notes
from ..records import Announced, Publications, Record, RecordError, SubscriptionChange, Unpublish
from ..settings import Settings
from ..subscriptions import StoredSubscription, StoredSubscriptionError
from .tenant import Tenant, is_answered
from .told import Told, pack
from .wakes import Wakes

SNAPSHOT_VERSION = 1


class SnapshotError(ValueError):
    """A snapshot that this version cannot read."""


class Engine:
    """All tenants. What differs between two engines that have read the same is only how quickly they answer."""

    def __init__(self, settings: Settings) -> None:
        self.sequence = 0
        """Of the record applied last."""
        self.arrival = 0.0
        self.damaged = 0
        """Records, or subscriptions, that could not be applied: they have told nobody anything."""
        self.damage = ""
        """What was wrong with the last of them."""
        self.tenants: dict[str, Tenant] = {}
        self._settings = settings
        self._wakes = Wakes()

    def apply(self, record: Record, sequence: int, time: float) -> list[Notes]:
        """What a record tells, as messages of the notification log. Sequences ascend; times may step back."""
        self.arrival = max(self.arrival, time)
        self.sequence = sequence
        by_tenant: dict[str, list[Told]] = {}
        for sleeper in self._wakes.due(self.arrival):
            name = sleeper.key.split(".")[1]
            by_tenant.setdefault(name, []).extend(self._tenant(name).tick(sleeper.key, self.arrival))
        try:
            found = self._apply(record)
        except (RecordError, StoredSubscriptionError, PublicationError, MatcherError) as error:
            self.damaged += 1
            self.damage = f"record {sequence}: {error}"
            found = []
        if found:
            by_tenant.setdefault(record.tenant, []).extend(found)
        return pack(by_tenant, sequence, self.arrival) if by_tenant else []

    def _apply(self, record: Record) -> list[Told]:
        match record:
            case Publications():
                return self._tenant(record.tenant).publications(record, self.arrival)
            case SubscriptionChange():
                tenant = _tenant_of(record.key)
                if tenant != record.tenant:
                    raise RecordError(f"a subscription's key of another tenant: {record.key!r:.200}")
                return self._tenant(tenant).change(record.key, record.value, self.arrival)
            case Unpublish():
                self._tenant(record.tenant).valid.unpublish(record.id, self.arrival)
            case Announced():
                self._tenant(record.tenant).announced(record.sources, record.over, self.arrival)
        return []

    def next_wake(self) -> float | None:
        """The log time from which a tick would do something; None while nothing can fall due."""
        return self._wakes.next()

    def _tenant(self, name: str) -> Tenant:
        tenant = self.tenants.get(name)
        if tenant is None:
            tenant = self.tenants[name] = Tenant(self._settings, self._wakes)
        return tenant

    def begin(self, key: str, value: Mapping[str, Any]) -> None:
        """A subscription that was there before the first record; before `restore`."""
        try:
            stored = StoredSubscription.from_json(value)
            if is_answered(stored):
                self._tenant(_tenant_of(key)).begin(key, stored)
        except (StoredSubscriptionError, RecordError, MatcherError) as error:
            self.damaged += 1
            self.damage = f"subscription {key}: {error}"

    def become(self, entries: Mapping[str, Mapping[str, Any]], sequence: int) -> None:
        """Go on after a gap in the log, with these subscriptions and no others; one that means the same stays as it is.

        Nobody is told anything: who hears of what is valid is a matter of records.
        """
        for tenant in self.tenants.values():
            for key in tenant.all_keys():
                if key not in entries:
                    tenant.change(key, None, self.arrival)
        for key, value in entries.items():
            try:
                self._tenant(_tenant_of(key)).change(key, value, self.arrival)
            except (StoredSubscriptionError, RecordError, MatcherError) as error:
                self.damaged += 1
                self.damage = f"subscription {key}: {error}"
        self.sequence = sequence

    def snapshot(self) -> dict[str, Any]:
        """All that it remembers but its subscriptions, as objects that orjson takes (tuples by `default=tuple`)."""
        return {
            "format": "engine",
            "version": SNAPSHOT_VERSION,
            "sequence": self.sequence,
            "arrival": self.arrival,
            "damaged": self.damaged,
            "tenants": {name: tenant.snapshot() for name, tenant in self.tenants.items()},
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the subscriptions that there were have been begun."""
        if (snapshot["format"], snapshot["version"]) != ("engine", SNAPSHOT_VERSION):
            found = f"{snapshot['format']}, version {snapshot['version']}"
            raise SnapshotError(f"expected a snapshot of the engine, version {SNAPSHOT_VERSION}, not of {found}")
        self.sequence, self.arrival = snapshot["sequence"], snapshot["arrival"]
        self.damaged = snapshot["damaged"]
        for name, item in snapshot["tenants"].items():
            self._tenant(name).restore(item)


def _tenant_of(key: str) -> str:
    parts = key.split(".")
    if len(parts) != 4:
        raise RecordError(f"not a subscription's key: {key!r:.200}")
    return parts[1]
