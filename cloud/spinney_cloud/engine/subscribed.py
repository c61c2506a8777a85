"""Subscriptions as the engine holds them. What runs a state or top-k subscription is made when its first reading comes.

Where a state filter's bit is evaluated (rule S2: one evaluator at a time; mote, else owner, else cloud):

- A filter whose enter and exit are not proven disjoint, and which has debounce, dead band or reorder, is evaluated
  here, always. Labels for it are counted, no more.
- A reading of a source that nobody owns (no epoch) is evaluated here, under the epoch of its last owner if it had one.
- A reading under an owner's epoch is evaluated here until a label says of (filter, source) under this epoch that its
  owner evaluates it, and never afterwards: its label tells, and if it has none there is nothing to tell (rule S3: the
  owner may have withheld it, and to evaluate it here would contradict what the owner says of the scope).
  Until then, evaluating here can only agree with the owner: the first reading with enter or exit TRUE comes labelled.
- A label that is undecided comes of an owner that does not know its bit: its reading is evaluated here.
- That is not so with debounce, which needs to see every reading: under an owner's epoch such a bit waits for labels.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from spinney import Label, Mark, Notification, StateFilter, StateSubscription, TopK, TopKSubscription, disjoint, parse
from spinney.evaluator import may_overlap_upstream

from .batch import Reading

MAX_UPSTREAM = 100_000
"""Sources of one filter that are known to be evaluated upstream; beyond it the one unheard of for longest is forgotten:
it is evaluated here until its next label."""

Away = Mapping[str, float]
"""Sources that are announced no longer, and since when."""


class Subscribed:
    """A content subscription: the matcher says all."""

    __slots__ = ("digest", "key")
    kind = "content"

    def __init__(self, key: str, digest: int) -> None:
        self.key: Final = key
        self.digest = digest


class TopSubscribed(Subscribed):
    """A top-k subscription."""

    __slots__ = ("normal", "top", "wake")
    kind = "top-k"

    def __init__(self, key: str, digest: int, normal: str) -> None:
        super().__init__(key, digest)
        self.normal = normal
        self.top: TopK | None = None
        self.wake: float | None = None

    def feed(self, reading: Reading, time: float) -> list[Notification]:
        """A publication that its feed matches."""
        return self._running().feed(reading.id, reading.publication, time)

    def tick(self, time: float) -> list[Notification]:
        """Let happen what is due."""
        return [] if self.top is None else self.top.tick(time)

    def next_wake(self) -> float | None:
        """When a tick would do something."""
        return None if self.top is None else self.top.next_wake()

    def _running(self) -> TopK:
        if self.top is None:
            subscription = parse(self.normal)
            assert isinstance(subscription, TopKSubscription)
            self.top = TopK(subscription)
        return self.top

    def snapshot(self) -> dict[str, Any] | None:
        """What it remembers, as objects for JSON; None while that is nothing."""
        return None if self.top is None else self.top.snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot."""
        self._running().restore(snapshot)


class StateSubscribed(Subscribed):
    """A state subscription."""

    __slots__ = ("_may_be_upstream", "_upstream", "misplaced", "normal", "state", "wake")
    kind = "state"

    def __init__(self, key: str, digest: int, normal: str) -> None:
        super().__init__(key, digest)
        self.normal = normal
        self.state: StateFilter | None = None
        self.wake: float | None = None
        self.misplaced = 0
        """Labels for a filter that is evaluated here."""
        self._may_be_upstream = False
        self._upstream: OrderedDict[str, int] = OrderedDict()
        """The newest epoch under which a label came, by source."""

    def feed(self, reading: Reading, time: float, away: Away) -> list[Notification]:
        """A reading without a label that its feed matches."""
        state = self._running()
        if (reading.late and state.reorder is None) or self._is_upstream(state, reading):
            return []
        epoch = state.epoch(reading.id.source) if reading.epoch is None else reading.epoch
        notifications = state.feed(reading.id, reading.publication, time, epoch)
        self._tell_away((reading.id.source,), time, away)
        return notifications

    def take(self, label: Label, reading: Reading | None, time: float, away: Away) -> list[Notification]:
        """A label of this filter, with its reading unless it is silent."""
        state = self._running()
        if not self._may_be_upstream:
            self.misplaced += 1
            return [] if reading is None else self.feed(reading, time, away)
        heard = self._heard(state, label)
        if heard is None:
            return []
        label = heard
        if label.mark.bit is None and (reading is None or reading.late):
            return []
        notifications = state.take(label, None if reading is None else reading.publication, time)
        self._tell_away((mark.source for mark in label.marks()), time, away)
        return notifications

    def announced(self, source: str, over: bool, time: float) -> None:
        """A source is announced (again), or no longer (rule S4)."""
        if self.state is None:
            return
        if not over:
            self.state.announced(source)
        elif self.state.knows(source):
            self.state.announcement_over(source, time)

    def tick(self, time: float) -> list[Notification]:
        """Let happen what is due."""
        return [] if self.state is None else self.state.tick(time)

    def next_wake(self) -> float | None:
        """When a tick would do something."""
        return None if self.state is None else self.state.next_wake()

    def _running(self) -> StateFilter:
        if self.state is None:
            subscription = parse(self.normal)
            assert isinstance(subscription, StateSubscription)
            is_disjoint = disjoint(subscription.enter, subscription.exit)
            self._may_be_upstream = is_disjoint or may_overlap_upstream(subscription)
            self.state = StateFilter(subscription, disjoint=is_disjoint)
        return self.state

    def _is_upstream(self, state: StateFilter, reading: Reading) -> bool:
        if reading.epoch is None or not self._may_be_upstream:
            return False
        return state.subscription.debounce > 0 or self._upstream.get(reading.id.source, -1) >= reading.epoch

    def _heard(self, state: StateFilter, label: Label) -> Label | None:
        """What of a label is of sources that have been heard of since this subscription began (rules R3, S3).

        It may share its filter with others that began earlier. The first mark of each source comes with a reading.
        """
        if not label.silent:
            self._is_labelled(label.mark.source, label.mark.order[0])
        marks = [mark for mark in label.marks() if self._has_heard(state, mark)]
        if not marks:
            return None
        return label if len(marks) == 1 + len(label.membership) else Label(marks[0], tuple(marks[1:]), label.silent)

    def _has_heard(self, state: StateFilter, mark: Mark) -> bool:
        source, epoch = mark.source, mark.order[0]
        return self._upstream.get(source, -1) >= epoch or state.evaluator.state(source) is not None

    def _is_labelled(self, source: str, epoch: int) -> None:
        self._upstream[source] = max(epoch, self._upstream.get(source, epoch))
        self._upstream.move_to_end(source)
        if len(self._upstream) > MAX_UPSTREAM:
            self._upstream.popitem(last=False)

    def _tell_away(self, sources: Iterable[str], time: float, away: Away) -> None:
        """It has not been told of sources that it did not know when their announcement ended."""
        state = self._running()
        for source in sources:
            since = away.get(source)
            if since is None or since + state.subscription.lost <= time:
                continue
            if state.knows(source) and not state.is_away(source):
                state.announcement_over(source, since)

    def snapshot(self) -> dict[str, Any] | None:
        """What it remembers, as objects for JSON; None while that is nothing."""
        if self.state is None:
            return None
        return {"state": self.state.snapshot(), "upstream": list(self._upstream.items()), "misplaced": self.misplaced}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot."""
        self._running().restore(snapshot["state"])
        self._upstream = OrderedDict((source, epoch) for source, epoch in snapshot["upstream"])
        self.misplaced = snapshot["misplaced"]


def subscribed(kind: str, key: str, digest: str, normal: str) -> Subscribed:
    """A subscription of this kind."""
    number = int(digest, 16)
    if kind == "state":
        return StateSubscribed(key, number, normal)
    return TopSubscribed(key, number, normal) if kind == "top-k" else Subscribed(key, number)
