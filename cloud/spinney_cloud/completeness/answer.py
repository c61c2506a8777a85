"""How complete an answer is, in one word, and why: by source and interval, in words for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

Verdict = Literal["complete", "at least", "unknown"]
Why = Literal[
    "filters", "changing", "density", "labels", "private", "lost", "gap", "away", "unowned", "cut",
    "lake", "before", "retention", "silent", "broken", "effort",
]  # fmt: skip

MAX_REASONS: Final = 10_000
"""Kept of one answer; of more only the number is told."""
MAX_PAGE: Final = 1_000
PAGE: Final = 100
TOLD_IN_TEXT: Final = 3
"""Reasons that a summary names."""

UNKNOWN: Final = frozenset({"before", "retention", "silent", "broken", "effort"})
"""Reasons for which nobody can say whether anything is missing; with all others something may be."""

_WORDS: Final[Mapping[Why, str]] = {
    "filters": "{broker} held back what no active subscription wanted",
    "changing": "{broker} had not acknowledged what it was asked for, or a mote had not committed it",
    "density": "a density had chosen other sources",
    "labels": "{broker} evaluated the state itself, and withheld labels that changed nothing",
    "private": "{broker} may hold back readings",
    "lost": "{broker} lost readings: it had no room for them, or they were refused",
    "gap": "numbers are missing between its readings",
    "away": "{broker} was away: it has not said that all it heard then has come",
    "unowned": "no broker owned it",
    "cut": "the answer was cut short",
    "lake": "the lake does not have it yet",
    "before": "nothing was written down then of what brokers were asked for",
    "retention": "this part of the log is no longer kept",
    "silent": "{broker} does not say what it evaluates; is it older than the cloud?",
    "broken": "what {broker} was asked for is not known",
    "effort": "there was too much history to prove it",
}


class Reason(NamedTuple):
    """Why something may be missing: of a source (None: of all of them), from when to when in the log's time."""

    why: Why
    source: str | None
    broker: str | None
    since: float
    until: float

    @property
    def verdict(self) -> Verdict:
        """What it alone would make of the answer."""
        return "unknown" if self.why in UNKNOWN else "at least"

    @property
    def text(self) -> str:
        """In words."""
        return _WORDS[self.why].format(broker=self.broker or "a broker")

    def to_json(self) -> dict[str, Any]:
        """As the API tells it."""
        return {
            "reason": self.why,
            "verdict": self.verdict,
            "source": self.source,
            "broker": self.broker,
            "since": self.since,
            "until": self.until,
            "text": self.text,
        }


@dataclass(slots=True)
class Answer:
    """The verdict with its reasons."""

    kind: str
    """Of the subscription."""
    sources: int = 0
    """That were looked at."""
    reasons: list[Reason] = field(default_factory=list)
    count: int = 0
    """Of all reasons, those that are not kept included."""
    _worst_unknown: bool = False

    def add(self, reason: Reason) -> None:
        """One more reason."""
        self.count += 1
        self._worst_unknown = self._worst_unknown or reason.why in UNKNOWN
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(reason)

    @property
    def verdict(self) -> Verdict:
        """Of a state or top-k subscription nothing can be said where readings are missing: they might change it all."""
        if not self.count:
            return "complete"
        return "unknown" if self._worst_unknown or self.kind != "content" else "at least"

    @property
    def text(self) -> str:
        """In a sentence or two."""
        if not self.count:
            return (
                f"Complete: nothing that it would have been told of was held back ({_counted(self.sources, 'source')})."
            )
        why = "; ".join(self._summary())
        match self.verdict:
            case "at least":
                return f"At least so many: {why}."
            case _ if self._worst_unknown:
                return f"It is not known how many are missing: {why}."
            case _:
                return f"It is not known: readings may be missing, and they might change what is told: {why}."

    def _summary(self) -> list[str]:
        groups: Counter[tuple[Why, str | None]] = Counter((one.why, one.broker) for one in self.reasons)
        named: list[str] = []
        for (why, broker), _ in groups.most_common(TOLD_IN_TEXT):
            sources = {one.source for one in self.reasons if (one.why, one.broker) == (why, broker)} - {None}
            words = _WORDS[why].format(broker=broker or "a broker")
            named.append(f"{words} ({_counted(len(sources), 'source')})" if sources else words)
        left = len(groups) - len(named)
        return [*named, f"and {_counted(left, 'other reason')}"] if left > 0 else named

    def to_json(self, after: int = 0, limit: int = PAGE) -> dict[str, Any]:
        """A page of it."""
        shown = self.reasons[after : after + limit]
        following = after + limit if after + limit < len(self.reasons) else None
        return {
            "verdict": self.verdict,
            "text": self.text,
            "sources": self.sources,
            "count": self.count,
            "reasons": [one.to_json() for one in shown],
            "next": following,
        }

    def lines(self, limit: int) -> list[str]:
        """For a terminal: the sentence, and the first reasons."""
        shown = (
            f"  {one.source or 'all sources'}, {_moment(one.since)} to {_moment(one.until)}: {one.text}"
            for one in self.reasons[:limit]
        )
        found = [self.text, *shown]
        if self.count > limit:
            found.append(f"  and {_counted(self.count - limit, 'more reason')}")
        return found


def merged(reasons: Sequence[Reason]) -> list[Reason]:
    """In order of source and time; what follows on what is the same but for its time becomes one."""
    found: list[Reason] = []
    for one in sorted(reasons, key=lambda one: (one.source or "", one.why, one.broker or "", one.since)):
        last = found[-1] if found else None
        if last is not None and last[:3] == one[:3] and one.since <= last.until:
            found[-1] = last._replace(until=max(last.until, one.until))
        else:
            found.append(one)
    return sorted(found, key=lambda one: (one.source or "", one.since, one.why))


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
