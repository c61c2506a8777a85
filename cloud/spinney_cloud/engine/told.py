"""What a record told subscribers, and how that becomes messages of the notification log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from spinney import Notification

from ..notes import Note, Notes

PART_BYTES = 256 * 1024
"""Of one message, about; a single larger publication makes a larger one."""

_OVERHEAD = 256
"""Bytes of a message around its notes."""


class Told(NamedTuple):
    """One notification, with its publication."""

    owner: str
    sid: str
    why: str
    scope: Any
    publication_id: str
    publication: Mapping[str, Any] | None
    since: float | None = None
    rank: int | None = None
    reason: str | None = None


def owner_and_sid(key: str) -> tuple[str, str]:
    """Of a subscription, by its key in the bucket."""
    _, _, owner, sid = key.split(".")
    return owner, sid


def told(key: str, notifications: Iterable[Notification]) -> list[Told]:
    """What the core says to the subscription under this key."""
    owner, sid = owner_and_sid(key)
    return [
        Told(owner, sid, one.why, one.scope, str(one.publication_id), one.publication, one.since, one.rank, one.reason)
        for one in notifications
    ]


class _Part:
    """A message in the making."""

    def __init__(self) -> None:
        self.publications: list[dict[str, Any]] = []
        self.notes: list[Note] = []
        self.size = _OVERHEAD
        self._places: dict[str, int] = {}

    def add(self, one: Told) -> None:
        row = None if one.publication is None else self._place(one.publication_id, one.publication)
        note = Note(one.owner, one.sid, one.why, one.scope, row, one.publication_id, one.since, one.rank, one.reason)
        self.size += len(orjson.dumps(tuple(note)))
        self.notes.append(note)

    def _place(self, id: str, publication: Mapping[str, Any]) -> int:
        """One row for a publication, however many hear of it; another for what somebody else sent under its id."""
        row = self._places.get(id)
        if row is not None and self.publications[row] == publication:
            return row
        self._places[id] = len(self.publications)
        self.publications.append(dict(publication))
        self.size += len(orjson.dumps(publication))
        return self._places[id]


def _parts(all_told: list[Told]) -> Iterator[_Part]:
    part = _Part()
    for one in all_told:
        part.add(one)
        if part.size >= PART_BYTES:
            yield part
            part = _Part()
    if part.notes:
        yield part


def pack(by_tenant: Mapping[str, list[Told]], at: int, time: float) -> list[Notes]:
    """The messages of one record: parts are numbered over all tenants, and the very last is marked."""
    parts = [(tenant, part) for tenant, all_told in sorted(by_tenant.items()) for part in _parts(all_told)]
    return [
        Notes(tenant, at, time, number, number == len(parts) - 1, tuple(part.publications), tuple(part.notes))
        for number, (tenant, part) in enumerate(parts)
    ]
