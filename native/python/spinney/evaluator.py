"""The evaluator of a state filter: one bit for each source, wherever the readings are seen first (rules S1, S2, S6).

It is the same on a mote, on the mobile broker that owns a source, and in the cloud; that is why edge = centre.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .expression import Value
from .feed import as_content
from .identity import PublicationId
from .label import Mark, Order
from .publication import attribute
from .snapshots import check_snapshot
from .subscription import StateSubscription

MAX_SOURCES = 100_000
"""Sources whose bits an evaluator keeps; beyond it the one unheard for longest is forgotten: its bit is unknown."""


class Setting(NamedTuple):
    """What a bit can be set to: 0, or 1 in an EACH value."""

    bit: bool
    value: Value | None = None


class Run(NamedTuple):
    """Readings on end that would all set the bit to `goal`, since a sample time."""

    goal: Setting
    since: float


@dataclass(frozen=True, slots=True)
class SourceState:
    """What is remembered of one source. Immutable, so that a late reading can be put in where it belongs (rule S5)."""

    newest: Order
    setting: Setting | None = None
    """None while the bit is unknown."""
    run: Run | None = None
    flipped_at: float | None = None
    """The dead band's attribute when the bit last flipped."""


class Evaluator:
    """Keeps the bit of each source for one state subscription, and marks each reading that sets it.

    A bit is unknown at first, and again from a source's next boot or owner epoch on: the first reading with enter or
    exit TRUE then passes (rule S2), and debounce and dead band start anew. A reading with both TRUE does not decide an
    unknown bit, which stays unknown. The cloud's bits are never unknown: they start from what is `recorded`.
    """

    def __init__(
        self,
        subscription: StateSubscription,
        *,
        recorded: Callable[[str], Setting] | None = None,
        limit: int = MAX_SOURCES,
    ) -> None:
        self.subscription = subscription
        self.ignored = 0
        """Readings that were not newer than the newest examined of their source."""
        self.forgotten = 0
        self._recorded = recorded
        self._limit = limit
        self._sources: OrderedDict[str, SourceState] = OrderedDict()

    def observe(self, publication_id: PublicationId, publication: Mapping[str, Any], epoch: int = 0) -> Mark | None:
        """Examine a reading; the mark if it sets the bit. Outside FOR a source keeps its bit (rule S1)."""
        if not self._examines(publication):
            return None
        order = (epoch, publication_id.boot, publication_id.sequence)
        state = self._sources.get(publication_id.source)
        if state is not None and order <= state.newest:
            self.ignored += 1
            return None
        before = self._begin(publication_id.source, state, order)
        after = self._settle(before, publication)
        self._keep(publication_id.source, after)
        if after.setting is None or after.setting is before.setting:
            return None
        return Mark(publication_id.source, order, *after.setting)

    def decides(self, publication_id: PublicationId, publication: Mapping[str, Any], epoch: int = 0) -> bool:
        """Whether `observe` can tell what a reading does. It cannot where the bit is unknown, and both are TRUE."""
        order = (epoch, publication_id.boot, publication_id.sequence)
        state = self._sources.get(publication_id.source)
        if state is not None and (order <= state.newest or (state.setting and order[:2] == state.newest[:2])):
            return True
        if self._begin(publication_id.source, state, order).setting is not None or not self._examines(publication):
            return True
        subscription = self.subscription
        return (
            subscription.exit.evaluate(publication) is not True or subscription.enter.evaluate(publication) is not True
        )

    def knows(self, mark: Mark) -> bool:
        """Whether a mark says nothing new: the bit is known from the same boot and epoch, and was set so before."""
        state = self._sources.get(mark.source)
        if state is None or state.newest[:2] != mark.order[:2] or state.newest > mark.order:
            return False
        return same(Setting(bool(mark.bit), mark.value), state.setting)

    def learn(self, mark: Mark) -> None:
        """Another evaluator has set the bit. An older mark says nothing."""
        state = self._sources.get(mark.source)
        if mark.bit is not None and (state is None or mark.order >= state.newest):
            self._keep(mark.source, SourceState(mark.order, Setting(mark.bit, mark.value)))

    def forget(self, source: str) -> None:
        """Before a source is given up, and when it joins: its bit is unknown again."""
        self._sources.pop(source, None)

    def sources(self) -> Iterable[str]:
        """All that anything is remembered of."""
        return self._sources

    def state(self, source: str) -> SourceState | None:
        """What is remembered of a source; None if nothing is."""
        return self._sources.get(source)

    def put_back(self, source: str, state: SourceState | None) -> None:
        """Make a source what it was when `state` gave this."""
        if state is None:
            self.forget(source)
        else:
            self._keep(source, state)

    def _examines(self, publication: Mapping[str, Any]) -> bool:
        """Whether the reading is within FOR, and has an EACH value if one is needed."""
        only, each = self.subscription.only, self.subscription.each
        if each is not None and attribute(publication, each) is None:
            return False
        return only is None or only.evaluate(publication) is True

    def _begin(self, source: str, state: SourceState | None, order: Order) -> SourceState:
        """The state that a reading finds: a new start for a new boot or epoch (rule S2)."""
        if self._recorded is not None and state is None:
            return SourceState(order, self._recorded(source))
        if state is None or (self._recorded is None and order[:2] > state.newest[:2]):
            return SourceState(order)
        return replace(state, newest=order)

    def _goal(self, setting: Setting | None, publication: Mapping[str, Any]) -> Setting | None:
        """What the reading would set the bit to; None where rule S1 suppresses it, or an unknown bit stays so."""
        subscription = self.subscription
        if (setting is None or setting.bit) and subscription.exit.evaluate(publication) is True:
            is_undecided = setting is None and subscription.enter.evaluate(publication) is True
            return None if is_undecided else Setting(False)
        value = None if subscription.each is None else attribute(publication, subscription.each)
        goal = Setting(True, value)
        if same(goal, setting) or subscription.enter.evaluate(publication) is not True:
            return None
        return goal

    def _settle(self, state: SourceState, publication: Mapping[str, Any]) -> SourceState:
        """The state that a reading leaves; its setting is another object if the reading set the bit."""
        goal = self._goal(state.setting, publication)
        run, held = self._run(state.run, goal, attribute(publication, "time"))
        if goal is None or not held or not self._has_moved(state, publication):
            return replace(state, run=run)
        return replace(state, setting=goal, run=None, flipped_at=self._dead_band_value(publication))

    def _run(self, run: Run | None, goal: Setting | None, time: Value | None) -> tuple[Run | None, bool]:
        """The run that a reading continues, begins or ends, and whether it has held for `debounce` (rule S6).

        A reading without a sample time can end a run, but begins none and proves nothing.
        """
        debounce = self.subscription.debounce
        if goal is None or not debounce:
            return None, goal is not None
        continued = run is not None and same(goal, run.goal)
        if not isinstance(time, float):
            return (run if continued else None), False
        if run is None or not continued:
            run = Run(goal, time)
        return run, time - run.since >= debounce

    def _has_moved(self, state: SourceState, publication: Mapping[str, Any]) -> bool:
        """Whether the dead band lets the bit flip: its attribute is away from where it last flipped (rule S6)."""
        band = self.subscription.dead_band
        if band is None or state.flipped_at is None:
            return True
        now = self._dead_band_value(publication)
        return now is not None and abs(now - state.flipped_at) >= band.by

    def _dead_band_value(self, publication: Mapping[str, Any]) -> float | None:
        band = self.subscription.dead_band
        number = None if band is None else attribute(publication, band.attribute)
        return number if isinstance(number, float) else None

    def _keep(self, source: str, state: SourceState) -> None:
        self._sources[source] = state
        self._sources.move_to_end(source)
        if len(self._sources) > self._limit:
            self._sources.popitem(last=False)
            self.forgotten += 1

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects that json.dumps takes."""
        return {
            "format": "evaluator",
            "version": 1,
            "ignored": self.ignored,
            "forgotten": self.forgotten,
            "sources": [[source, *state_to_json(state)] for source, state in self._sources.items()],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the subscription is the same."""
        check_snapshot(snapshot, "evaluator", 1)
        self.ignored, self.forgotten = snapshot["ignored"], snapshot["forgotten"]
        self._sources = OrderedDict((source, state_from_json(*state)) for source, *state in snapshot["sources"])


def may_overlap_upstream(subscription: StateSubscription) -> bool:
    """Whether motes and owners may keep its bits although enter and exit are not proven disjoint (rule S2).

    Else they are the cloud's, which needs its whole feed.
    """
    return not (subscription.debounce or subscription.dead_band or subscription.reorder or as_content(subscription))


def same(one: Setting, other: Setting | None) -> bool:
    """Whether they set the same, where 1 and true are two values."""
    return other is not None and one == other and type(one.value) is type(other.value)


def state_to_json(state: SourceState) -> list[Any]:
    """As a list that json.dumps takes."""
    return [state.newest, state.setting, state.run, state.flipped_at]


def state_from_json(newest: Any, setting: Any, run: Any, flipped_at: float | None) -> SourceState:
    """What gave this list."""
    return SourceState(
        newest=(newest[0], newest[1], newest[2]),
        setting=None if setting is None else Setting(*setting),
        run=None if run is None else Run(Setting(*run[0]), run[1]),
        flipped_at=flipped_at,
    )
