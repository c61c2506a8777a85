"""Which density of sources subscriptions ask for, by type: what coverage is measured against."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from spinney import feed
from spinney.cases import cases_of
from spinney.expression import Filter

from ..bucket import stream_of
from ..density import Density, read_density
from ..log_errors import LogError
from ..names import SUBSCRIPTIONS
from ..subscriptions import StoredSubscription, StoredSubscriptionError
from .direct_get import DirectGet, LogServer

logger = logging.getLogger(__name__)

MAX_TYPES = 100
"""That one filter names."""
RETRY_SECONDS = 10.0
"""How long the log's server may be away before windows are written without having asked it again."""


class Densities:
    """What is asked for now, as the bucket of subscriptions has it; of a change only what is new is read."""

    def __init__(self, server: LogServer) -> None:
        self._server = server
        self._at = 0
        self._asking: dict[str, StoredSubscription] = {}

    def read(self) -> dict[str | None, Density]:
        """By type. What was known last, if the server does not answer."""
        try:
            with DirectGet(self._server.endpoints(), retry_seconds=RETRY_SECONDS) as log:
                self._follow(log)
        except LogError as error:
            logger.warning("what subscriptions ask for is as it was: %s", error)
        return wanted_densities(self._asking.values())

    def _follow(self, log: DirectGet) -> None:
        stream = stream_of(SUBSCRIPTIONS)
        last = log.bounds(stream).last
        for message in log.range(stream, self._at + 1, last):
            self._take(message.subject, message.data)
        self._at = last

    def _take(self, key: str, data: bytes) -> None:
        """A value, or nothing for a key that was deleted."""
        self._asking.pop(key, None)
        try:
            one = StoredSubscription.decode(data) if data else None
        except StoredSubscriptionError:  # the coordinator's to say
            return
        if one is not None and one.options.get("density") is not None:
            self._asking[key] = one


def wanted_densities(subscriptions: Iterable[StoredSubscription]) -> dict[str | None, Density]:
    """The highest that anybody asks for; under None what is asked for whatever the type."""
    found: dict[str | None, Density] = {}
    for one in subscriptions:
        option = one.options.get("density") if one.enabled else None
        density = None if option is None else read_density(option)
        if density is not None:
            for kind in types_of(feed(one.subscription())):
                if kind not in found or _readings(density) > _readings(found[kind]):
                    found[kind] = density
    return found


def types_of(condition: Filter) -> list[str | None]:
    """The types that a filter names; None if others may match, too."""
    found: set[str] = set()
    for case in cases_of(condition):
        domain = case.follows.get("type")
        names = None if domain is None or domain.null else domain.members(MAX_TYPES)
        if names is None:
            return [None]
        found.update(name for name in names if isinstance(name, str))
    return [*sorted(found)]


def _readings(density: Density) -> float:
    """In a second, on a place as large as H3's largest cell."""
    return density.per_cell * 7.0**density.cell / density.every_seconds
