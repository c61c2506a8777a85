"""Subscriptions: what somebody wants to be told. Content, state or top-k (design: the language and its meaning).

`spinney.parse` makes them from text or JSON; `StateFilter` and `TopK` run the latter two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .expression import Expression, Filter


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What all kinds have. None of it takes part in the normal form (rule R3)."""

    id: str | None = None
    owner: str | None = None
    valid_until: float | None = None
    """Epoch seconds; None for no end."""

    def to_text(self) -> str:
        """The one-line form. Options that only JSON can say (debounce, dead band, reorder, id...) are left out."""
        from .text_writer import subscription_text

        return subscription_text(self)

    def to_json(self) -> dict[str, Any]:
        """The whole subscription as the objects that json.dumps takes, filters in CQL2 JSON."""
        from .subscription_json import subscription_to_json

        return subscription_to_json(self)

    def to_short_json(self) -> dict[str, Any]:
        """The same with the one-line form in it, which is shorter: {"text": ...} and what only JSON can say."""
        from .subscription_json import subscription_to_short_json

        return subscription_to_short_json(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentSubscription(Subscription):
    """Every publication that the filter matches."""

    filter: Filter


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadBand:
    """A bit flips only after `attribute` has moved by at least `by` since the bit last flipped (rule S6)."""

    attribute: str
    by: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSubscription(Subscription):
    """WHEN enter UNTIL exit [FOR only] [EACH each | ONCE] (rules S1 to S8)."""

    enter: Filter
    exit: Filter
    only: Filter | None = None
    each: str | None = None
    once: bool = False
    debounce: float = 0.0
    """Seconds of sample time for which enter, or exit, must have held on end before the bit flips (S6)."""
    dead_band: DeadBand | None = None
    reorder: float = 0.0
    """Seconds that labels wait in the cloud, so that they are ordered by time (S5)."""
    lost: float = 3600.0
    """Seconds after the end of a source's announcement before its bit is given up (S4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKSubscription(Subscription):
    """TOP k OVER window BY score [DESC] [WHERE where] [EACH each] (rules T1 to T4)."""

    k: int
    score: Expression
    seconds: float | None = None
    """The window as a time..."""
    last: int | None = None
    """...or as a number of publications. One of the two is set."""
    descending: bool = False
    where: Filter | None = None
    each: str | None = None
