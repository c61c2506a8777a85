"""The coordinator's part: which mobile brokers may have held back what a filter matches, and whose a source is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from spinney import Prepared, parse_filter

from ..announcements import Announcement
from ..broker_service import BrokerService

MAX_ASKED: Final = 100
"""Brokers, for one question."""
MAX_NAMED: Final = 1_000
"""Brokers that are not asked and are named; of more only the number is told."""
SLICE_SECONDS: Final = 0.004
"""For so long it may look before others have their turn."""

_OLDER: Final = "it is older than this cloud"
_AWAY: Final = "it is not connected"
_MANY: Final = f"{MAX_ASKED} others are asked; that is the limit"


async def askable(brokers: BrokerService, tenant: str, text: str) -> dict[str, Any]:
    """By client the session of those to be asked, and why others are not that may have something."""
    condition = Prepared(parse_filter(text))
    asked: dict[str, str] = {}
    not_asked: dict[str, str] = {}
    end = time.perf_counter() + SLICE_SECONDS
    for one in sorted(brokers.announcements.of(tenant), key=lambda one: one.client):
        if time.perf_counter() > end:
            await asyncio.sleep(0)
            end = time.perf_counter() + SLICE_SECONDS
        if not _serves(brokers, one, condition):
            continue
        why = _OLDER if not one.fetch else _AWAY if one.away is not None else _MANY if len(asked) >= MAX_ASKED else None
        if why is None:
            asked[one.client] = one.session
        else:
            not_asked[one.client] = why
    named = dict(list(not_asked.items())[:MAX_NAMED])
    return {"asked": asked, "not_asked": named, "not_named": len(not_asked) - len(named)}


def _serves(brokers: BrokerService, one: Announcement, condition: Prepared) -> bool:
    """Whether anything that it announces can match."""
    activations = brokers.activations.get(one.tenant)
    broker = None if activations is None else activations.brokers.get(one.client)
    return broker is None or broker.knowledge.serves(condition)


def owned(brokers: BrokerService, tenant: str, sources: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Of each client's sources those that it announces, and that nobody else owns."""
    return {client: [one for one in names if _owns(brokers, tenant, client, one)] for client, names in sources.items()}


def _owns(brokers: BrokerService, tenant: str, client: str, source: str) -> bool:
    announcement = brokers.announcements.get(tenant, client)
    if announcement is None or source not in announcement.sources:
        return False
    leases = brokers.leases.get(tenant)
    owner = None if leases is None else leases.owner(source)
    return owner is None or owner.client == client
