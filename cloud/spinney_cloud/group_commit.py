"""Group commit: what arrives while a record is being stored goes into the next record, so that many small messages
cost the log little, and one alone waits for nobody.

Everything is stored in the order of `add`, save that tenants do not wait for one another within a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from . import records
from .failpoints import failpoint
from .intake import Part
from .log_errors import LogError
from .log_writer import Stored, Writer
from .names import log_subject
from .records import Publications, Record, RowLabel, Run

MAX_RECORD_BYTES = 512 * 1024
"""In one record, unless a single part has more."""
FULL_BYTES = 64 * 1024
"""So much does not wait for the record before it."""
MAX_UNDER_WAY = 4
"""Records that are being stored at once."""

Done = Callable[[LogError | None], None]
"""Called once everything of one `add` is stored, or the first of it that never will be has failed."""


class _Ticket:
    """One `add`."""

    __slots__ = ("done", "left")

    def __init__(self, left: int, done: Done) -> None:
        self.left = left
        self.done: Done | None = done

    def settle(self, error: LogError | None) -> None:
        self.left -= 1
        if self.done is not None and (error is not None or not self.left):
            done, self.done = self.done, None
            done(error)


class _Entry(NamedTuple):
    tenant: str
    what: Part | Record
    size: int
    ticket: _Ticket


@dataclass(slots=True)
class _Group:
    """What becomes one record."""

    tenant: str
    parts: list[Part] = field(default_factory=list)
    tickets: list[_Ticket] = field(default_factory=list)
    size: int = 0
    record: Record | None = None

    def encode(self, received: float) -> tuple[str, bytes]:
        """Subject and bytes."""
        record = self.record or Publications(self.tenant, received, *_merged(self.parts))
        return log_subject(records.kind_of(record), self.tenant), records.encode(record)


def _merged(parts: list[Part]) -> tuple[tuple[Run, ...], bytes, tuple[RowLabel, ...]]:
    runs: list[Run] = []
    labels: list[RowLabel] = []
    at = 0
    for part in parts:
        for run in part.runs:
            if runs and _goes_on(runs[-1], run):
                runs[-1] = runs[-1]._replace(length=runs[-1].length + run.length)
            else:
                runs.append(run)
        labels += [one if one.row is None else one._replace(row=one.row + at) for one in part.labels]
        at += part.rows
    return tuple(runs), b"[" + b",".join([part.body for part in parts if part.rows]) + b"]", tuple(labels)


def _goes_on(run: Run, next_run: Run) -> bool:
    return next_run.first == run.first + run.length and next_run._replace(first=run.first, length=run.length) == run


class GroupCommit:
    """Between intake and the log's writer. `run` does the work."""

    def __init__(self, writer: Writer, clock: Callable[[], float], max_record_bytes: int = MAX_RECORD_BYTES) -> None:
        self.max_record_bytes = max_record_bytes
        self.pending = 0
        """Parts and records that were taken, and are not known to be stored."""
        self.pending_bytes = 0
        self.records = 0
        self._writer = writer
        self._clock = clock
        self._queue: deque[_Entry] = deque()
        self._queued_bytes = 0
        self._under_way = 0
        self._wake = asyncio.Event()

    def add(self, tenant: str, parts: Iterable[Part], done: Done) -> None:
        """Store these parts, in their order and after all that came before."""
        self._add(tenant, [(part, part.size) for part in parts], done)

    def add_record(self, record: Record, done: Done) -> None:
        """Store a record of another kind, after all that came before."""
        self._add(record.tenant, [(record, 0)], done)

    def _add(self, tenant: str, items: list[tuple[Part | Record, int]], done: Done) -> None:
        ticket = _Ticket(len(items), done)
        self.pending += len(items)
        for what, size in items:
            self._queue.append(_Entry(tenant, what, size, ticket))
            self._queued_bytes += size
            self.pending_bytes += size
        self._wake.set()

    async def run(self) -> None:
        """Store what is added, until cancelled."""
        while True:
            await self._until(self._is_due)
            for group in self._groups():
                await self._until(self._has_room)
                await self._store(group)

    async def drain(self) -> None:
        """Wait until all is stored; `run` must be running."""
        await self._until(lambda: not self.pending)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._wake.clear()
            await self._wake.wait()

    def _has_room(self) -> bool:
        return self._under_way < MAX_UNDER_WAY

    def _is_due(self) -> bool:
        if not self._queue:
            return False
        return not self._under_way or (self._queued_bytes >= FULL_BYTES and self._has_room())

    def _groups(self) -> list[_Group]:
        """All that is queued, as records."""
        queue, self._queue, self._queued_bytes = self._queue, deque(), 0
        groups: list[_Group] = []
        growing: dict[str, _Group] = {}
        for tenant, what, size, ticket in queue:
            group = growing.get(tenant)
            if not isinstance(what, Part):
                groups.append(_Group(tenant, tickets=[ticket], record=what))
                growing.pop(tenant, None)
                continue
            if group is None or group.size + size > self.max_record_bytes:
                group = growing[tenant] = _Group(tenant)
                groups.append(group)
            group.parts.append(what)
            group.tickets.append(ticket)
            group.size += size
        return groups

    async def _store(self, group: _Group) -> None:
        failpoint("gateway.storing")
        subject, data = group.encode(self._clock())
        self._under_way += 1
        self.records += 1
        future = await self._writer.put(subject, data)
        future.add_done_callback(partial(self._stored, group))

    def _stored(self, group: _Group, future: asyncio.Future[Stored]) -> None:
        self._under_way -= 1
        self.pending -= len(group.tickets)
        self.pending_bytes -= group.size
        self._wake.set()
        if future.cancelled():
            return  # the writer is closed: nobody is told, and the clients' messages come again
        error = future.exception()
        if error is not None and not isinstance(error, LogError):
            raise error
        failpoint("gateway.stored")
        for ticket in group.tickets:
            ticket.settle(error)
