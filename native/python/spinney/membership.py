"""What a mobile broker has told of the scopes that its sources are in, and what it may keep to itself (rule S3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .covers import disjoint
from .evaluator import Evaluator, state_from_json, state_to_json
from .identity import PublicationId
from .label import Label, Mark, scope_of
from .snapshots import check_snapshot
from .subscription import StateSubscription

MAX_SOURCES = 10_000
"""Sources that a mobile broker withholds labels for; those of any further source all go up, and are counted."""


class OwnerFilter:
    """One state subscription at the mobile broker that owns its sources: readings and marks of motes in, labels out.

    What it withholds must survive a restart: store its snapshot together with the outbox.
    """

    def __init__(self, subscription: StateSubscription, *, limit: int = MAX_SOURCES) -> None:
        self.subscription = subscription
        self.evaluator = Evaluator(subscription)
        self.membership = Membership(subscription, limit=limit)

    def feed(self, publication_id: PublicationId, publication: Mapping[str, Any], epoch: int = 0) -> Label | None:
        """Evaluate a reading of a source that has no bit of its own; the label to send up with it, if any."""
        decides = self.evaluator.decides(publication_id, publication, epoch)
        mark = self.evaluator.observe(publication_id, publication, epoch)
        if not decides:
            order = (epoch, publication_id.boot, publication_id.sequence)
            return Label(Mark(publication_id.source, order, None))
        return None if mark is None else self.membership.take(mark)

    def take(self, mark: Mark, epoch: int = 0) -> Label | None:
        """A mark that a mote set, with its reading; the label to send up with it, if any.

        A mote that was in doubt says again what is known here.
        """
        owned = mark.owned(epoch)
        is_known = self.evaluator.knows(owned)
        self.evaluator.learn(owned)
        return None if is_known else self.membership.take(owned)

    def join(self, source: str) -> None:
        """A source has come, with a new epoch: nothing is known of its bit (rule S2)."""
        self.evaluator.forget(source)

    def begin_again(self) -> None:
        """One more subscription shares it from now on: no bit is known, and of each source the next mark goes up."""
        for source in list(self.evaluator.sources()):
            self.evaluator.forget(source)
        self.membership.begin_again()

    def release(self, source: str) -> Label | None:
        """Give a source up; the silent label to send before that, if something was withheld."""
        self.evaluator.forget(source)
        return self.membership.release(source)

    def mark(self, source: str) -> Mark | None:
        """The newest mark that is known of a source."""
        return self.membership.mark(source)

    def sources(self) -> set[str]:
        """All that anything is remembered of."""
        return {*self.evaluator.sources(), *self.membership.sources()}

    def source_snapshot(self, source: str) -> list[Any] | None:
        """What is remembered of one source, for those who store only what has changed; None for nothing."""
        state = self.evaluator.state(source)
        marks = self.membership.source_snapshot(source)
        if state is None and marks is None:
            return None
        return [None if state is None else state_to_json(state), marks]

    def restore_source(self, source: str, snapshot: list[Any]) -> None:
        """Of this source, remember what gave this snapshot; the subscription is the same."""
        state, marks = snapshot
        self.evaluator.put_back(source, None if state is None else state_from_json(*state))
        if marks is not None:
            self.membership.restore_source(*marks)

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects that json.dumps takes."""
        return {
            "format": "owner filter",
            "version": 1,
            "evaluator": self.evaluator.snapshot(),
            "membership": self.membership.snapshot(),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the subscription is the same."""
        check_snapshot(snapshot, "owner filter", 1)
        self.evaluator.restore(snapshot["evaluator"])
        self.membership.restore(snapshot["membership"])


class Membership:
    """Which of an owner's sources are in which scope now, and which of them the cloud has been told to be.

    Invariant, after every call, for each scope: some source is in it now exactly if some source has been told to be.
    That is all that the cloud needs to give the scope's enter and exit at the right publication.
    """

    def __init__(self, subscription: StateSubscription, *, limit: int = MAX_SOURCES) -> None:
        self.withheld = 0
        """Marks that changed a bit, but nothing that the cloud needs to hear of now."""
        self.ignored = 0
        """Marks that were not newer than what was known."""
        self.beyond = 0
        """Marks of sources that there was no room for; they all went up."""
        self._now = _View(subscription)
        self._told = _View(subscription)
        self._unheard: set[str] = set()
        """Sources of which a subscription that began later has heard nothing."""
        # Reordering is by the time of every label (rule S5), and what is undecided is decided by every bit (rule S2).
        has_scopes = subscription.once or subscription.each is not None
        self._withholds = has_scopes and not subscription.reorder and disjoint(subscription.enter, subscription.exit)
        self._limit = limit

    def take(self, mark: Mark) -> Label | None:
        """Take a mark; the label to send up, unless it can be withheld."""
        known = self._now.marks.get(mark.source)
        if known is not None and mark.order <= known.order:
            self.ignored += 1
            return None
        if known is None and len(self._now.marks) >= self._limit:
            self.beyond += 1
            return Label(mark)
        left = self._now.scopes(mark.source)
        scopes = left | self._now.put(mark)
        is_heard = known is not None and not self._has_unheard(mark.source, scopes)
        if is_heard and self._withholds and all(self._now.holds(s) == self._told.holds(s) for s in scopes):
            self.withheld += 1
            return None
        self._unheard.discard(mark.source)
        return self._tell(mark, scopes, silent=False)

    def _has_unheard(self, source: str, scopes: Iterable[str]) -> bool:
        """Whether some subscription may know less of these scopes than what was told."""
        if not self._unheard:
            return False
        return not self._unheard.isdisjoint({source}.union(*(self._in(scope) for scope in scopes)))

    def _in(self, scope: str) -> set[str]:
        return self._now.sources(scope) | self._told.sources(scope)

    def begin_again(self) -> None:
        """Of each source the next mark goes up, and until then all marks of the scopes that it is in."""
        self._unheard = set(self._now.marks)

    def release(self, source: str) -> Label | None:
        """Forget a source; the silent label to send first, if the cloud would otherwise go on from what is not so."""
        mark = self._now.marks.get(source)
        if mark is None:
            return None
        label = None
        if self._withholds and (mark != self._told.marks[source] or self._is_relied_on(mark)):
            label = self._tell(mark, self._now.scopes(source), silent=True)
        self._now.drop(source)
        self._told.drop(source)
        self._unheard.discard(source)
        return label

    def _is_relied_on(self, mark: Mark) -> bool:
        """Whether the cloud, once it stops hearing of the mark's source, would be wrong about the rest of its scope."""
        return any(self._now.sources(scope) != self._told.sources(scope) for scope in self._now.scopes(mark.source))

    def _tell(self, mark: Mark, scopes: Iterable[str], *, silent: bool) -> Label:
        """A label with everything that has to be told for `scopes` to be exactly as they are."""
        sources = self._concerned(mark.source, scopes) - {mark.source} if self._withholds else set()
        membership = tuple(self._now.marks[source] for source in sorted(sources))
        label = Label(mark, membership, silent)
        for one in label.marks():
            self._told.put(one)
        return label

    def _concerned(self, source: str, scopes: Iterable[str]) -> set[str]:
        """The sources that are in these scopes or told to be, and so on for scopes that telling this could empty."""
        sources = {source}
        waiting = [*scopes, *self._told.scopes(source)]
        seen: set[str] = set()
        while waiting:
            scope = waiting.pop()
            if scope in seen:
                continue
            seen.add(scope)
            for found in self._in(scope) - sources:
                sources.add(found)
                waiting.extend(self._told.scopes(found))
        return sources

    def mark(self, source: str) -> Mark | None:
        """The newest mark that is known of a source."""
        return self._now.marks.get(source)

    def sources(self) -> Iterable[str]:
        """All that there are marks of."""
        return self._now.marks

    def source_snapshot(self, source: str) -> list[Any] | None:
        """What is known of one source, and what has been told of it; None for nothing."""
        now, told = self._now.marks.get(source), self._told.marks.get(source)
        if now is None or told is None:
            return None
        return [now.to_json(), told.to_json(), *([False] if source in self._unheard else [])]

    def restore_source(self, now: Any, told: Any, is_heard: bool = True) -> None:
        """Know of a source, and have told of it, what gave this snapshot."""
        self._now.put(Mark.from_json(now))
        self._told.put(Mark.from_json(told))
        if not is_heard:
            self._unheard.add(Mark.from_json(now).source)

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects that json.dumps takes."""
        return {
            "format": "membership",
            "version": 1,
            "now": self._now.to_json(),
            "told": self._told.to_json(),
            "unheard": sorted(self._unheard),
            "counts": [self.withheld, self.ignored, self.beyond],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the subscription is the same."""
        check_snapshot(snapshot, "membership", 1)
        self._now.become(snapshot["now"])
        self._told.become(snapshot["told"])
        self._unheard = set(snapshot.get("unheard", ()))
        self.withheld, self.ignored, self.beyond = snapshot["counts"]


class _View:
    """The newest mark of each source, and the sources in each scope."""

    def __init__(self, subscription: StateSubscription) -> None:
        self.marks: dict[str, Mark] = {}
        self._subscription = subscription
        self._sources: dict[str, set[str]] = {}

    def scopes(self, source: str) -> set[str]:
        """The scope that a source is in: one or none."""
        mark = self.marks.get(source)
        scope = None if mark is None else scope_of(self._subscription, mark)
        return set() if scope is None else {scope}

    def sources(self, scope: str) -> set[str]:
        """The sources in a scope."""
        return self._sources.get(scope, set())

    def holds(self, scope: str) -> bool:
        """Whether any source is in it."""
        return scope in self._sources

    def put(self, mark: Mark) -> set[str]:
        """Take a source's mark; the scope that it is in then: one or none."""
        self.drop(mark.source)
        self.marks[mark.source] = mark
        scopes = self.scopes(mark.source)
        for scope in scopes:
            self._sources.setdefault(scope, set()).add(mark.source)
        return scopes

    def drop(self, source: str) -> None:
        """Forget a source."""
        for scope in self.scopes(source):
            self._sources[scope].discard(source)
            if not self._sources[scope]:
                del self._sources[scope]
        self.marks.pop(source, None)

    def to_json(self) -> list[Any]:
        return [mark.to_json() for mark in self.marks.values()]

    def become(self, marks: Iterable[Any]) -> None:
        """Forget everything but these."""
        self.marks, self._sources = {}, {}
        for mark in marks:
            self.put(Mark.from_json(mark))
