"""Writes all that holds again, now and then: what brokers announce, own, were told and reported."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..announcements import Announcement
from . import entries
from .recorder import AGAIN_SECONDS, EVERYBODY, state_of

if TYPE_CHECKING:
    from ..broker_service import BrokerService

SOON_SECONDS: Final = 0.05
"""Between looks whether the coordinator knows all that is in its buckets."""


async def rewrite(brokers: BrokerService) -> None:
    """At the start, and then every so often; for ever."""
    while not brokers.is_told:
        await asyncio.sleep(SOON_SECONDS)
    for (tenant, client), sender in list(brokers.senders.items()):
        if not sender.is_recorded:
            await brokers.recorder.write(tenant, entries.broken(client))
    while True:
        for announcement in brokers.announcements:
            await _write_again(brokers, announcement)
        await brokers.recorder.write(EVERYBODY, entries.kept(AGAIN_SECONDS))
        await asyncio.sleep(AGAIN_SECONDS)


async def _write_again(brokers: BrokerService, announcement: Announcement) -> None:
    """In one go, so that nothing that is new comes in between."""
    sender = brokers.senders.get((announcement.tenant, announcement.client))
    if sender is None or brokers.announcements.get(announcement.tenant, announcement.client) is not announcement:
        return
    messages: list[dict[str, Any]] = sender.all_of_it() or []
    chosen = frozenset(digest for digest, one in (sender.sent or {}).items() if one.sources is not None)
    held: Mapping[str, int] = sender.stored_leases
    report = sender.report_in(announcement.session) if messages else None
    said = state_of(announcement, messages, chosen, held, report)
    await brokers.recorder.write(announcement.tenant, *said)
