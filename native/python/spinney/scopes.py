"""The subscription's own bits: which scopes hold, by the newest marks of all sources (rules S2, S3)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Literal as OneOf

from .expression import Value
from .label import Mark, scope_of, scope_value
from .snapshots import check_snapshot
from .subscription import StateSubscription


@dataclass(frozen=True, slots=True)
class Change:
    """A scope that began or ceased to hold."""

    why: OneOf["enter", "exit"]
    scope: Value | None
    since: float | None = None
    """For an exit: when the scope was entered."""


@dataclass(slots=True)
class _Scope:
    value: Value | None
    since: float
    sources: set[str] = field(default_factory=set)


class Scopes:
    """Holds the newest mark of each source. A scope holds while any source's bit is 1 in it."""

    def __init__(self, subscription: StateSubscription) -> None:
        self._subscription = subscription
        self._marks: OrderedDict[str, Mark] = OrderedDict()  # the one unheard for longest first
        self._scopes: dict[str, _Scope] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def mark(self, source: str) -> Mark | None:
        """The newest mark of a source."""
        return self._marks.get(source)

    def quietest(self) -> str:
        """The source unheard of for longest."""
        return next(iter(self._marks))

    def take(self, marks: Iterable[Mark], time: float) -> list[Change]:
        """Take those marks that are newer than what is known, all at once; what this changes, exits first."""
        return self._replace([mark for mark in marks if self.is_news(mark)], time)

    def clear(self, source: str, time: float) -> list[Change]:
        """Set a source's bit to 0 without a newer mark, so that what is older stays ignored."""
        mark = self._marks.get(source)
        return [] if mark is None else self._replace([replace(mark, bit=False, value=None)], time)

    def drop(self, source: str) -> None:
        """Forget a source whose bit is 0."""
        del self._marks[source]

    def is_news(self, mark: Mark) -> bool:
        """Whether the mark is newer than what is known of its source."""
        known = self._marks.get(mark.source)
        return known is None or mark.order > known.order

    def _replace(self, marks: list[Mark], time: float) -> list[Change]:
        held: dict[str, bool] = {}
        for mark in marks:
            self._leave(mark.source, held)
            self._enter(mark, time, held)
        changes = [self._change(key, was) for key, was in sorted(held.items())]
        return sorted((change for change in changes if change), key=lambda change: change.why != "exit")

    def _leave(self, source: str, held: dict[str, bool]) -> None:
        mark = self._marks.pop(source, None)
        key = None if mark is None else scope_of(self._subscription, mark)
        if key is not None:
            held.setdefault(key, True)
            self._scopes[key].sources.remove(source)

    def _enter(self, mark: Mark, time: float, held: dict[str, bool]) -> None:
        self._marks[mark.source] = mark
        key = scope_of(self._subscription, mark)
        if key is not None:
            held.setdefault(key, key in self._scopes)
            scope = self._scopes.setdefault(key, _Scope(scope_value(self._subscription, mark), time))
            scope.sources.add(mark.source)

    def _change(self, key: str, held: bool) -> Change | None:
        """What became of a scope that marks have touched; an empty one is dropped."""
        scope = self._scopes[key]
        if scope.sources:
            return None if held else Change("enter", scope.value)
        del self._scopes[key]
        return Change("exit", scope.value, scope.since) if held else None

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects that json.dumps takes."""
        return {
            "format": "scopes",
            "version": 1,
            "marks": [mark.to_json() for mark in self._marks.values()],
            "since": {key: scope.since for key, scope in self._scopes.items()},
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the subscription is the same."""
        check_snapshot(snapshot, "scopes", 1)
        self._marks, self._scopes = OrderedDict(), {}
        self.take((Mark.from_json(mark) for mark in snapshot["marks"]), 0.0)
        for key, since in snapshot["since"].items():
            self._scopes[key].since = since
