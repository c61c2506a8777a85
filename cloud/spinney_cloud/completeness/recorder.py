"""Writes the history: what the coordinator's brokers announce, are told, own and report, in the log, as it happens.

What a broker is about to be told is in the log before it is told. All of it is written again now and then, so that a
reader need not go back further, nor anything be kept that the log's retention would take.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .. import records
from ..announcement_table import Change
from ..announcements import Announcement
from ..log_errors import TooLarge
from ..log_writer import Writer
from ..names import log_subject
from . import entries

AGAIN_SECONDS: Final = 3600.0
"""After which all that holds is written again, and that history is being kept."""
EVERYBODY: Final = "all"
"""The tenant of what concerns all of them."""

log = logging.getLogger(__name__)


def entry_of(client: str, change: Change) -> dict[str, Any] | None:
    """What the history says of a change; None for an announcement that merely goes on."""
    before, after = change.before, change.after
    if after is None:
        return entries.over(client)
    if after.away is not None:
        return entries.away(client)
    if before is None or before.sources != after.sources or before.place != after.place:
        return entries.announced(after)
    if before.session != after.session or before.away is not None:
        return entries.present(client, after.session)
    return None


def state_of(
    announcement: Announcement,
    messages: Iterable[Mapping[str, Any]],
    chosen: frozenset[str],
    held: Mapping[str, int],
    report: Mapping[str, Any] | None,
) -> Iterator[dict[str, Any]]:
    """All that holds of a broker, again. `messages`: an activation with all that it was told, in parts."""
    client = announcement.client
    yield entries.announced(announcement, again=True)
    if announcement.away is not None:
        yield entries.away(client)
    yield entries.leased(client, None, held)
    for message in messages:
        yield entries.activated(client, message, chosen, again=True)
    if report is not None and announcement.away is None:
        yield entries.reported(client, report, again=True)


class Recorder:
    """Of one coordinator."""

    def __init__(self, writer: Writer) -> None:
        self.failures = 0
        """Entries that were too large for the log."""
        self._writer = writer

    async def write(self, tenant: str, *said: Mapping[str, Any]) -> None:
        """These are in the log when this returns; what is too large is said to be missing."""
        stored = [await self._put(tenant, value) for value in said]
        for value, one in zip(said, stored, strict=True):
            try:
                await one
            except TooLarge as error:
                self.failures += 1
                log.error("the history of %s has a gap: %s", value.get("client"), error)
                await (await self._put(tenant, entries.broken(str(value["client"]))))

    async def _put(self, tenant: str, value: Mapping[str, Any]) -> Any:
        return await self._writer.put(
            log_subject("history", tenant), records.encode(records.History(tenant, dict(value)))
        )
