"""Readings with `valid_for`, kept for the content subscriptions that come while they are valid (rules L1, L2)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from spinney.compiled import compile_filter
from spinney.expression import Filter

from ..listening import Taken

MAX_KEPT: Final = 1_000
"""Of more, the oldest go, and are counted."""
MAX_UNPUBLISHED: Final = 1_000
"""Withdrawn ids that have not come yet; of more, the oldest are forgotten, and counted."""


class LocalValid:
    """Pure: time is handed in. It is gone after a restart, as are the readings of before."""

    def __init__(self, limit: int = MAX_KEPT) -> None:
        self.dropped = 0
        """Readings, and withdrawn ids, that there was no room for."""
        self._limit = limit
        self._kept: OrderedDict[str, tuple[float, Taken]] = OrderedDict()
        """By id: when it ends, and what it is."""
        self._unpublished: OrderedDict[str, None] = OrderedDict()

    def keep(self, taken: Taken, now: float) -> None:
        """A reading has come; it is kept if it is valid for a while, and was not withdrawn before."""
        seconds = taken.publication.get("valid_for")
        if not isinstance(seconds, float) or seconds <= 0:
            return
        id = str(taken.id)
        if id in self._unpublished:
            del self._unpublished[id]
            return
        self._kept[id] = (now + seconds, taken)
        if len(self._kept) > self._limit:
            self._expire(now)
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)
            self.dropped += 1

    def unpublish(self, id: str) -> None:
        """It is no longer valid, or will not be when it comes."""
        if self._kept.pop(id, None) is not None:
            return
        self._unpublished[id] = None
        if len(self._unpublished) > MAX_UNPUBLISHED:
            self._unpublished.popitem(last=False)
            self.dropped += 1

    def matching(self, wanted: Filter, now: float) -> Iterator[Taken]:
        """What is valid now and wanted, in the order in which it came."""
        self._expire(now)
        test = compile_filter(wanted)
        yield from [taken for _, taken in self._kept.values() if test(taken.publication)]

    def _expire(self, now: float) -> None:
        for id in [id for id, (end, _) in self._kept.items() if end <= now]:
            del self._kept[id]
