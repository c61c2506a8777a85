"""Publications with `valid_for` that nobody wanted yet, kept for those who subscribe while they are valid (rule L1),
and for those who ask for what was held back (fetching.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from spinney.compiled import compile_filter

from .active import ActiveFilter

MAX_KEPT: Final = 1_000
"""Of more, the oldest go, and are counted."""


class Kept(NamedTuple):
    """A publication that was stopped, under which epoch and when, and until when it is valid."""

    publication: Mapping[str, Any]
    epoch: int
    taken: float
    end: float
    budgets: tuple[str, ...] = ()
    """Rules that count it if it goes up."""


class Valid:
    """Pure: time is handed in. It is gone after a restart, as what was stopped without `valid_for` is."""

    def __init__(
        self,
        limit: int = MAX_KEPT,
        on_gone: Callable[[str, float], object] = lambda _source, _taken: None,
    ) -> None:
        """`on_gone` is told of what is not kept, or not any longer: its source, and when it was taken."""
        self.dropped = 0
        """Valid publications that there was no room for."""
        self._limit = limit
        self._on_gone = on_gone
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def stop(self, publication: Mapping[str, Any], epoch: int, now: float, budgets: tuple[str, ...] = ()) -> None:
        """A publication does not go up; it is kept while it is valid, if it ever is."""
        seconds = publication.get("valid_for")
        if not isinstance(seconds, float) or seconds <= 0:
            self._on_gone(publication["source"], now)
            return
        self._kept[publication["id"]] = Kept(publication, epoch, now, now + seconds, budgets)
        if len(self._kept) > self._limit:
            self._expire(now)
        if len(self._kept) > self._limit:
            self._leave(next(iter(self._kept)))
            self.dropped += 1

    def unpublish(self, id: str) -> None:
        """It is not valid any more."""
        if id in self._kept:
            self._leave(id)

    def forget(self, source: str) -> None:
        """Nothing of this source is to be told any more."""
        for id in [id for id, one in self._kept.items() if one.publication["source"] == source]:
            self._leave(id)

    def _leave(self, id: str) -> Kept:
        one = self._kept.pop(id)
        self._on_gone(one.publication["source"], one.taken)
        return one

    def wanted_by(self, added: Iterable[ActiveFilter], now: float) -> list[Kept]:
        """What newly active content feeds want of it, which goes up now."""
        tests = [compile_filter(one.feed) for one in added if one.kind == "content"]
        self._expire(now)
        found = [id for id, one in self._kept.items() if any(test(one.publication) for test in tests)]
        return [self._leave(id) for id in found]

    def matching(self, test: Callable[[Mapping[str, Any]], bool], now: float) -> Iterator[Kept]:
        """What is kept and valid, the oldest first. It stays."""
        self._expire(now)
        yield from [one for one in self._kept.values() if test(one.publication)]

    def spent(self, id: str) -> None:
        """The rules that count a publication have counted it: it has been told to somebody."""
        self._kept[id] = self._kept[id]._replace(budgets=())

    def _expire(self, now: float) -> None:
        for id in [id for id, one in self._kept.items() if one.end <= now]:
            self._leave(id)
