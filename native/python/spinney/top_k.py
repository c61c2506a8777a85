"""Top-k over sliding windows: which publications are among the k best, told once each (rules T1 to T4)."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Any

from .evaluate import value
from .feed import feed
from .identity import PublicationId
from .notification import Notification, scope_key
from .publication import attribute
from .snapshots import check_snapshot
from .subscription import TopKSubscription
from .window import Candidate, Rank, Scope

MAX_SCOPES = 100_000
"""EACH values at most; beyond it the one unheard of for longest is forgotten, and counted."""

MIN_COMPACTED = 64
"""Entries of the wakes that are not worth looking for dead ones."""


class TopK:
    """One top-k subscription. It starts empty, and has no clock: log times never decrease.

    After each record of the log (a publication of the feed, or a tick) it notifies what has come to be among the k best
    of the window as it is then: expiries, the arrival, then promotions, best first (rule T3).
    """

    def __init__(self, subscription: TopKSubscription) -> None:
        self.subscription = subscription
        self.dropped = 0
        """Candidates that there was no room for."""
        self.forgotten = 0
        """EACH values that there was no room for."""
        self._feed = feed(subscription)
        self._arrived = 0
        self._scopes: dict[str, Scope] = {}  # the one unheard of for longest first
        self._wakes: list[tuple[float, str]] = []  # heap; what is no longer its scope's next wake is skipped

    def feed(
        self, publication_id: PublicationId, publication: Mapping[str, Any], log_time: float
    ) -> list[Notification]:
        """A publication from the log. One outside the feed is no record at all."""
        if self._feed.evaluate(publication) is not True:
            return []
        changed = self._expire(log_time)
        self._arrived += 1
        scope = self._scope(publication)
        rank = self._rank(publication)
        candidate = rank and Candidate(rank, scope.seen + 1, log_time, publication_id, publication)
        if scope.arrive(candidate) or candidate is None:
            changed[scope.key] = scope
        self.dropped += scope.prune(log_time)
        return self._promote(changed, log_time)

    def _rank(self, publication: Mapping[str, Any]) -> Rank | None:
        """None where the score is a string or a boolean: the publication then only counts in a window of the last n."""
        score = value(self.subscription.score, publication)
        if not isinstance(score, float):
            return None
        return (-score if self.subscription.descending else score), -self._arrived

    def tick(self, log_time: float) -> list[Notification]:
        """Let expire what has fallen due; the promotions that this brings."""
        return self._promote(self._expire(log_time), log_time)

    def next_wake(self) -> float | None:
        """The log time from which a tick would do something; None while nothing can fall due."""
        while self._wakes and not self._is_due(*self._wakes[0]):
            heappop(self._wakes)
        return self._wakes[0][0] if self._wakes else None

    def _is_due(self, wake: float, key: str) -> bool:
        return key in self._scopes and self._scopes[key].wake == wake

    def _expire(self, log_time: float) -> dict[str, Scope]:
        """Drop what has left the windows; the scopes in which this was one of the k best."""
        changed = {}
        while (wake := self.next_wake()) is not None and wake <= log_time:
            key = heappop(self._wakes)[1]
            self._scopes[key].expire(log_time)
            changed[key] = self._scopes[key]
        return changed

    def _scope(self, publication: Mapping[str, Any]) -> Scope:
        """The scope of a publication, made if it is new, and now the last to be forgotten."""
        each = None if self.subscription.each is None else attribute(publication, self.subscription.each)
        key = scope_key(each)
        scope = self._scopes.pop(key, None) or Scope(self.subscription, each)
        self._scopes[key] = scope
        if len(self._scopes) > MAX_SCOPES:
            del self._scopes[next(iter(self._scopes))]
            self.forgotten += 1
        return scope

    def _promote(self, changed: Mapping[str, Scope], log_time: float) -> list[Notification]:
        """Tell those among the k best that have not been told, best first (rule T3)."""
        promoted = [(*found, scope.value) for scope in changed.values() for found in scope.promote()]
        promoted.sort(key=lambda found: found[0].rank)
        for scope in changed.values():
            self._schedule(scope)
        return [
            Notification(
                subscription=self.subscription.id,
                publication_id=candidate.publication_id,
                why="top",
                scope=each,
                time=log_time,
                publication=candidate.publication,
                rank=place,
            )
            for candidate, place, each in promoted
        ]

    def _schedule(self, scope: Scope) -> None:
        """See to it that a scope is woken when the next of its k best expires; an empty window needs no scope."""
        if scope.wake is not None:
            heappush(self._wakes, (scope.wake, scope.key))
        elif self.subscription.seconds is not None:
            self._scopes.pop(scope.key, None)
        if len(self._wakes) > 2 * len(self._scopes) + MIN_COMPACTED:
            self._wakes = [(one.wake, one.key) for one in self._scopes.values() if one.wake is not None]
            heapify(self._wakes)

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects that json.dumps takes."""
        return {
            "format": "top-k",
            "version": 1,
            "arrived": self._arrived,
            "scopes": [scope.to_json() for scope in self._scopes.values()],
            "counts": [self.dropped, self.forgotten],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the subscription is the same."""
        check_snapshot(snapshot, "top-k", 1)
        self._arrived = snapshot["arrived"]
        scopes = [Scope.from_json(self.subscription, item) for item in snapshot["scopes"]]
        self._scopes = {scope.key: scope for scope in scopes}
        self._wakes = []
        for scope in scopes:
            self._schedule(scope)
        self.dropped, self.forgotten = snapshot["counts"]
