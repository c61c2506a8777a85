"""One window of a top-k query: the k best in it, and those that could still come to be (rules T2, T4)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heappushpop, nsmallest
from operator import attrgetter
from typing import Any

from .expression import Value
from .identity import PublicationId
from .notification import scope_key
from .subscription import TopKSubscription

MAX_CANDIDATES = 100_000
"""Candidates behind the k best at most; beyond it the worst are dropped, and counted."""

MIN_PRUNED = 64
"""Candidates that are not worth pruning."""

Rank = tuple[float, int]
"""(score, minus the place in the log), least first: lower is better, and of equals the later (rule T1)."""


@dataclass(eq=False, slots=True)
class Candidate:
    """A publication in a window that is or could come to be among the k best."""

    rank: Rank
    place: int
    """In the feed of its scope, from 1."""
    arrival: float
    publication_id: PublicationId
    publication: Mapping[str, Any]
    told: bool = False

    def __lt__(self, other: Candidate) -> bool:
        return self.rank < other.rank

    def to_json(self) -> list[Any]:
        """As a list that json.dumps takes."""
        return [self.rank, self.place, self.arrival, self.publication_id, self.publication, self.told]

    @classmethod
    def from_json(cls, item: list[Any]) -> Candidate:
        """What gave this list."""
        rank, place, arrival, publication_id, publication, told = item
        return cls((rank[0], rank[1]), place, arrival, PublicationId(*publication_id), publication, told)


class Scope:
    """The window of one EACH value, or of all.

    An arrival costs about log of the candidates, and k where it is among the best: the k best are a sorted list, the
    others a heap, in which the expired stay until they come up, and the dominated until they are half of it.
    """

    def __init__(self, subscription: TopKSubscription, value: Value | None) -> None:
        self.value = value
        self.key = scope_key(value)
        self.seen = 0
        """Publications of the feed so far."""
        self.wake: float | None = None
        """When the first of the k best leaves a window of time."""
        self._subscription = subscription
        self._best: list[Candidate] = []
        self._others: list[Candidate] = []  # heap
        self._pruned = 0

    def arrive(self, candidate: Candidate | None) -> bool:
        """A publication of the feed, None if its score is no number; whether the k best are others now.

        In a window of time, what has expired by then must have been expired before.
        """
        self.seen += 1
        changed = self._subscription.last is not None and self._drop_expired(0.0)
        if candidate is None:
            return changed
        if len(self._best) == self._subscription.k and self._best[-1] < candidate:
            heappush(self._others, candidate)
            return changed
        insort(self._best, candidate)
        if len(self._best) > self._subscription.k:
            heappush(self._others, self._best.pop())
        self._set_wake()
        return True

    def expire(self, log_time: float) -> None:
        """Time has come to this; the places that become free are filled."""
        self._drop_expired(log_time)

    def promote(self) -> list[tuple[Candidate, int]]:
        """Those of the k best that have not been told, with their places, as told from now on."""
        found = [(candidate, place) for place, candidate in enumerate(self._best, 1) if not candidate.told]
        for candidate, _ in found:
            candidate.told = True
        return found

    def _drop_expired(self, log_time: float) -> bool:
        staying = [candidate for candidate in self._best if not self._is_expired(candidate, log_time)]
        if len(staying) == len(self._best):
            return False
        self._best = staying
        while self._others and len(self._best) < self._subscription.k:
            candidate = heappop(self._others)
            if not self._is_expired(candidate, log_time):
                insort(self._best, candidate)
        self._set_wake()
        return True

    def _is_expired(self, candidate: Candidate, log_time: float) -> bool:
        """Whether it has left (t-w, t], or the last n (rule T2)."""
        seconds, last = self._subscription.seconds, self._subscription.last
        if last is not None:
            return candidate.place <= self.seen - last
        return seconds is not None and candidate.arrival + seconds <= log_time

    def _set_wake(self) -> None:
        seconds = self._subscription.seconds
        if seconds is not None:
            self.wake = min((candidate.arrival + seconds for candidate in self._best), default=None)

    def prune(self, log_time: float) -> int:
        """Once they have doubled, forget the candidates that can never be among the k best; how many others went too.

        Those are behind k later ones, which will be there for longer (the k-skyband, rule T4).
        """
        if len(self._others) <= 2 * self._pruned + MIN_PRUNED:
            return 0
        kept = self._skyband(log_time)
        self._others = nsmallest(MAX_CANDIDATES, kept) if len(kept) > MAX_CANDIDATES else kept
        heapify(self._others)
        self._pruned = len(self._others)
        return len(kept) - self._pruned

    def _skyband(self, log_time: float) -> list[Candidate]:
        best = set(self._best)
        kept = []
        later: list[Rank] = []  # the k best of those seen, negated: a heap with the worst of them on top
        for candidate in sorted([*best, *self._others], key=attrgetter("place"), reverse=True):
            rank = (-candidate.rank[0], -candidate.rank[1])
            if len(later) < self._subscription.k:
                heappush(later, rank)
            elif later[0] < rank:
                heappushpop(later, rank)
            elif candidate not in best:
                continue
            if candidate not in best and not self._is_expired(candidate, log_time):
                kept.append(candidate)
        return kept

    def to_json(self) -> dict[str, Any]:
        """As objects that json.dumps takes."""
        return {
            "value": self.value,
            "seen": self.seen,
            "best": [candidate.to_json() for candidate in self._best],
            "others": [candidate.to_json() for candidate in self._others],
            "pruned": self._pruned,
        }

    @classmethod
    def from_json(cls, subscription: TopKSubscription, item: Mapping[str, Any]) -> Scope:
        """What gave these objects."""
        self = cls(subscription, item["value"])
        self.seen, self._pruned = item["seen"], item["pruned"]
        self._best = [Candidate.from_json(one) for one in item["best"]]
        self._others = [Candidate.from_json(one) for one in item["others"]]
        self._set_wake()
        return self
