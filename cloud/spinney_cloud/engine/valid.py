"""Publications with `valid_for`, kept for the content subscriptions to come (rules L1, L2)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any

import orjson

from spinney import Matcher
from spinney.filter_bytes import FilterBytes

MAX_UNPUBLISHED = 100_000
"""Unpublished ids that have not come yet; beyond it the oldest are forgotten, and counted."""

_ROWS_AT_ONCE = 1_000


class Valid:
    """One tenant's. Validity runs from arrival, and is never longer than the log keeps a publication."""

    def __init__(self, limit: int, longest_seconds: float) -> None:
        self.dropped = 0
        """Publications, and ids unpublished, that there was no room for."""
        self._limit = limit
        self._longest = longest_seconds
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()  # in the log's order
        self._ends: list[tuple[float, str]] = []  # heap; what is no longer kept is skipped
        self._unpublished: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, id: str, row: Mapping[str, Any], time: float) -> None:
        """A publication that has arrived, unless it has been unpublished before."""
        self._expire(time)
        if self._unpublished.pop(id, None) is not None:
            return
        end = time + min(float(row["valid_for"]), self._longest)
        self._kept.pop(id, None)
        if end <= time:
            return
        self._kept[id] = (end, orjson.dumps(row))
        heappush(self._ends, (end, id))
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)
            self.dropped += 1

    def unpublish(self, id: str, time: float) -> None:
        """A publication is no longer valid; one that has not come yet will not be."""
        self._expire(time)
        if self._kept.pop(id, None) is not None:
            return
        self._unpublished[id] = time
        self._unpublished.move_to_end(id)
        if len(self._unpublished) > MAX_UNPUBLISHED:
            self._unpublished.popitem(last=False)
            self.dropped += 1

    def matching(self, compiled: FilterBytes | str, time: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """What is valid now and matches a feed, in the log's order."""
        self._expire(time)
        if not self._kept:
            return
        matcher = Matcher()
        if isinstance(compiled, str):
            matcher.add("", compiled)
        else:
            matcher.add_compiled("", compiled)
        kept = ((id, row) for id, (_, row) in self._kept.items())
        while chunk := list(islice(kept, _ROWS_AT_ONCE)):
            found = matcher.match_rows(b"[" + b",".join(row for _, row in chunk) + b"]")
            for place, _ in found.matches:
                id, row = chunk[place]
                yield id, orjson.loads(row)

    def _expire(self, time: float) -> None:
        while self._ends and self._ends[0][0] <= time:
            end, id = heappop(self._ends)
            if id in self._kept and self._kept[id][0] == end:
                del self._kept[id]
        while self._unpublished and next(iter(self._unpublished.values())) + self._longest <= time:
            self._unpublished.popitem(last=False)

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects for JSON."""
        return {
            "kept": [[id, end, row.decode()] for id, (end, row) in self._kept.items()],
            "unpublished": list(self._unpublished.items()),
            "dropped": self.dropped,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the limits may be others now."""
        self._kept = OrderedDict((id, (end, row.encode())) for id, end, row in snapshot["kept"])
        self._ends = [(end, id) for id, (end, _) in self._kept.items()]
        heapify(self._ends)
        self._unpublished = OrderedDict(_pairs(snapshot["unpublished"]))
        self.dropped = snapshot["dropped"]


def _pairs(items: Iterable[Any]) -> Iterator[tuple[str, float]]:
    return ((id, time) for id, time in items)
