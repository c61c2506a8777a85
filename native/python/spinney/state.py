"""State filters in the cloud: readings or labels in, notifications out (rules S1 to S8).

    sources that evaluate themselves, or whose owner does:  label    -> StateFilter.take
    all others:                                             reading  -> StateFilter.feed = Evaluator, then take

A label is all that the second way has more to do, so it makes no difference where a bit is evaluated. A label that is
undecided is fed here with its reading.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from .evaluator import Evaluator, Setting, same
from .feed import as_content
from .identity import PublicationId
from .label import Label, Mark
from .late_readings import LateReadings, Marked, Reading
from .notification import Notification, Reason
from .publication import attribute
from .reorder import Held, Reorder
from .scopes import Change, Scopes
from .snapshots import check_snapshot
from .subscription import StateSubscription

MAX_SOURCES = 1_000_000
"""Sources that a state filter keeps; beyond it the one unheard of for longest ends, with reason `forgotten`."""


class StateFilter:
    """One state subscription in the cloud: it knows which scopes hold, and notifies when that changes.

    It has no clock: log times never decrease, and what falls due happens at the first `tick` at or after `next_wake()`,
    never at a reading or label, since other tiers may not see the same ones (rule I3). `disjoint` says that enter and
    exit are proven never to be TRUE of one reading: where a bit comes from does not matter then (rule S2).
    """

    def __init__(self, subscription: StateSubscription, *, disjoint: bool = False, limit: int = MAX_SOURCES) -> None:
        self.subscription = subscription
        self.ignored = 0
        """Labels that were not newer than what was known of their source (rule S2)."""
        self.late = 0
        """Readings that came too late to be examined."""
        self.forgotten = 0
        """Sources that there was no room for."""
        self.evaluator = Evaluator(subscription, recorded=None if disjoint else self._recorded, limit=limit)
        self._learns = not disjoint
        self.reorder = Reorder(subscription.reorder) if subscription.reorder else None
        self._readings = LateReadings(self.evaluator, subscription.reorder)
        self._content = as_content(subscription)
        self._scopes = Scopes(subscription)
        self._away: OrderedDict[str, float] = OrderedDict()  # since when, the longest first
        self._limit = limit

    def feed(
        self, publication_id: PublicationId, publication: Mapping[str, Any], log_time: float, epoch: int = 0
    ) -> list[Notification]:
        """Evaluate a reading of a source that nobody evaluates upstream."""
        if self._content is not None:
            return self._match(publication_id, publication, log_time)
        if self.reorder is not None:
            return self._feed_in_order(self.reorder, publication_id, publication, log_time, epoch)
        mark = self.evaluator.observe(publication_id, publication, epoch)
        return [] if mark is None else self._hold([_held(Label(mark), publication, log_time)], log_time)

    def take(self, label: Label, publication: Mapping[str, Any] | None, log_time: float) -> list[Notification]:
        """A label, with the publication that it came with; silent labels have none."""
        if label.mark.bit is None:
            return [] if publication is None else self.feed(label.mark.id, publication, log_time, label.mark.order[0])
        if self._learns and not self._learn(label.mark):
            return []
        return self._hold([_held(label, publication, log_time)], log_time)

    def _learn(self, mark: Mark) -> bool:
        """What another evaluator has set is where ours goes on from; whether that changes the bit."""
        state = self.evaluator.state(mark.source)
        if state is not None and mark.order < state.newest:
            self.ignored += 1
            return False
        before = self._recorded(mark.source)
        self.evaluator.learn(mark)
        return not same(Setting(bool(mark.bit), mark.value), before)

    def announcement_over(self, source: str, log_time: float) -> None:
        """A source is no longer announced: `lost` seconds from now it is gone, unless announced again (rule S4)."""
        since_last = next(reversed(self._away.values()), log_time)
        self._away[source] = log_time
        self._away.move_to_end(source)
        if log_time < since_last:  # told after the event
            self._away = OrderedDict(sorted(self._away.items(), key=itemgetter(1)))

    def announced(self, source: str) -> None:
        """A source is announced (again)."""
        self._away.pop(source, None)

    def knows(self, source: str) -> bool:
        """Whether there is anything to give up of a source; of others it need not hear that they are away."""
        if self._scopes.mark(source) is not None or self.evaluator.state(source) is not None:
            return True
        return self.reorder is not None and self.reorder.holds(source)

    def epoch(self, source: str) -> int:
        """The newest owner epoch known of a source; what comes of it without an owner comes under this one, too."""
        mark, state = self._scopes.mark(source), self.evaluator.state(source)
        return max(mark.order[0] if mark else 0, state.newest[0] if state else 0)

    def is_away(self, source: str) -> bool:
        """Whether it has been told that a source is no longer announced."""
        return source in self._away

    def next_wake(self) -> float | None:
        """The log time from which a tick would do something; None while nothing can fall due."""
        dues = (self._reorder_due(), self._lost_due())
        return min((due for due in dues if due is not None), default=None)

    def tick(self, log_time: float) -> list[Notification]:
        """Let happen what has fallen due, in the order in which it did."""
        notifications: list[Notification] = []
        while (due := self.next_wake()) is not None and due <= log_time:
            if self.reorder is not None and self._reorder_due() == due:
                notifications += self._apply(self.reorder.pop(), log_time)
            else:
                notifications += self._give_up(next(iter(self._away)), log_time, "lost")
        return notifications

    def _reorder_due(self) -> float | None:
        return None if self.reorder is None else self.reorder.next_wake()

    def _lost_due(self) -> float | None:
        return next(iter(self._away.values())) + self.subscription.lost if self._away else None

    def _recorded(self, source: str) -> Setting:
        mark = self._scopes.mark(source)
        return Setting(False) if mark is None else Setting(bool(mark.bit), mark.value)

    def _match(
        self, publication_id: PublicationId, publication: Mapping[str, Any], log_time: float
    ) -> list[Notification]:
        """With enter and exit the same, every reading is news (rule S7)."""
        assert self._content is not None
        if self._content.filter.evaluate(publication) is not True:
            return []
        return [
            Notification(
                subscription=self.subscription.id,
                publication_id=publication_id,
                why="match",
                scope=None,
                time=log_time,
                publication=publication,
            )
        ]

    def _feed_in_order(
        self,
        reorder: Reorder,
        publication_id: PublicationId,
        publication: Mapping[str, Any],
        log_time: float,
        epoch: int,
    ) -> list[Notification]:
        """With `reorder`, a late reading is put in where it belongs, as long as no later one has taken effect."""
        order = (epoch, publication_id.boot, publication_id.sequence)
        reading = Reading(order, publication, log_time, self.evaluator.state(publication_id.source))
        if reading.found is None or order > reading.found.newest:
            return self._hold_marked(self._readings.observe(publication_id.source, reading), log_time)
        place = self._readings.place(publication_id.source, order)
        mark = self._scopes.mark(publication_id.source)
        if place is None or (mark is not None and mark.order > order):
            self.late += 1
            return []
        reorder.withdraw(publication_id.source, order)
        return self._hold_marked(self._readings.admit(publication_id, reading, place), log_time)

    def _hold_marked(self, marked: list[Marked], log_time: float) -> list[Notification]:
        return self._hold(
            [_held(Label(one.mark), one.reading.publication, one.reading.arrival) for one in marked], log_time
        )

    def _hold(self, arrived: list[Held], log_time: float) -> list[Notification]:
        """Labels take effect as they come, or with `reorder` when they are let go."""
        notifications: list[Notification] = []
        for one in arrived:
            going = [one] if self.reorder is None or one.label.silent else self.reorder.hold(one)
            for held in going:
                notifications += self._apply(held, log_time)
        return notifications

    def _apply(self, held: Held, log_time: float) -> list[Notification]:
        """A label takes effect: it sets, and the subscriber hears only of what that changes (rule S2)."""
        label = held.label
        self.ignored += not label.silent and not self._scopes.is_news(label.mark)
        changes = self._scopes.take(label.marks(), log_time)
        reason: Reason | None = "repaired" if label.silent else None
        notifications = self._notify(changes, label.mark.id, held.publication, log_time, reason)
        while len(self._scopes) > self._limit:
            notifications += self._forget(log_time)
        return notifications

    def _give_up(self, source: str, log_time: float, reason: Reason) -> list[Notification]:
        """A source's bit becomes 0 without a publication; the scope that it empties exits (rule S4)."""
        self._away.pop(source, None)
        self._readings.forget(source)
        mark = self._scopes.mark(source)
        if mark is None:
            return []
        return self._notify(self._scopes.clear(source, log_time), mark.id, None, log_time, reason)

    def _forget(self, log_time: float) -> list[Notification]:
        source = self._scopes.quietest()
        notifications = self._give_up(source, log_time, "forgotten")
        self._scopes.drop(source)
        self.forgotten += 1
        return notifications

    def _notify(
        self,
        changes: list[Change],
        publication_id: PublicationId,
        publication: Mapping[str, Any] | None,
        log_time: float,
        reason: Reason | None,
    ) -> list[Notification]:
        return [
            Notification(
                subscription=self.subscription.id,
                publication_id=publication_id,
                why=change.why,
                scope=change.scope,
                time=log_time,
                publication=publication,
                reason=reason,
                since=change.since,
            )
            for change in changes
        ]

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects that json.dumps takes."""
        return {
            "format": "state filter",
            "version": 1,
            "evaluator": self.evaluator.snapshot(),
            "scopes": self._scopes.snapshot(),
            "reorder": None if self.reorder is None else self.reorder.snapshot(),
            "readings": self._readings.snapshot(),
            "away": list(self._away.items()),
            "counts": [self.ignored, self.late, self.forgotten],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the subscription is the same."""
        check_snapshot(snapshot, "state filter", 1)
        self.evaluator.restore(snapshot["evaluator"])
        self._scopes.restore(snapshot["scopes"])
        if self.reorder is not None:
            self.reorder.restore(snapshot["reorder"])
        self._readings.restore(snapshot["readings"])
        self._away = OrderedDict((source, since) for source, since in snapshot["away"])
        self.ignored, self.late, self.forgotten = snapshot["counts"]


def _held(label: Label, publication: Mapping[str, Any] | None, arrival: float) -> Held:
    time = None if publication is None else attribute(publication, "time")
    return Held(label, publication, time if isinstance(time, float) else arrival, arrival)
