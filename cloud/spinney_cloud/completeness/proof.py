"""Whether a set of active filters lets through all that a question needs: proven, or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spinney import (
    FALSE,
    TRUE,
    UNKNOWN,
    ContentSubscription,
    Filter,
    Prepared,
    SyntaxError,
    covers,
    feed,
    overlaps,
    parse,
)
from spinney.domain import any_of
from spinney.expression import And, Between, IsNull, Literal, Or, Property, conjunction, properties
from spinney.intervals import hull
from spinney.ranges import Environment
from spinney.simplify import simplify

from ..announcements import Announcement
from ..broker_knowledge import Group, groups_of

MAX_PROOFS: Final = 200_000
"""Pairs of filters that one answer may compare."""

MAX_PARTS: Final = 16
"""Of a question that is joined by OR, proven one by one."""
MAX_LIMITS: Final = 3
"""Attributes of which a comparison takes the limits into account: each doubles its cases."""


class TooMuchError(Exception):
    """The bound is reached."""


@dataclass(frozen=True, eq=False, slots=True)
class Wanted:
    """A filter that was active."""

    digest: str
    feed: Filter | None
    """What it lets through; None for a state filter, which lets labels through only."""
    chosen: bool
    names_sources: bool = False


def wanted(item: Mapping[str, Any]) -> Wanted | None:
    """As an activation has it; None for what this version does not read: it proves nothing."""
    try:
        subscription = parse(item["subscription"])
    except SyntaxError:
        return None
    is_content = isinstance(subscription, ContentSubscription) and "state" not in item
    lets = feed(subscription) if is_content else None
    names_sources = lets is not None and "source" in properties(lets)
    return Wanted(item["filter"], lets, bool(item.get("chosen")), names_sources)


@dataclass(frozen=True, eq=False, slots=True)
class WantedSet:
    """What was active together. Its identity is what proofs are remembered by."""

    epoch: int
    filters: Mapping[str, Wanted]

    def names_sources(self) -> bool:
        """Whether any of its filters is for some sources."""
        return any(one.names_sources for one in self.filters.values())


class Proofs:
    """Of one question: its feed, and the digest under which labels would tell it, if any."""

    def __init__(self, condition: Filter, digest: str | None) -> None:
        self.condition = condition
        self.digest = digest
        self._prepared = Prepared(condition)
        self._names = properties(condition)
        self._left = MAX_PROOFS
        self._needed: dict[int, Prepared | None] = {}
        self._sent: dict[tuple[int, int], bool] = {}
        self._parts: dict[int, list[Prepared]] = {}
        self._bits: dict[tuple[int, int], int] = {}
        self._by_name: dict[tuple[str, int], Environment] = {}
        self._kept: list[object] = []
        """What the keys of the others are the identities of."""

    def places(self, announcement: Announcement) -> dict[str, Environment]:
        """What is known of each source's readings: one object for all of which the same is known."""
        found: dict[str, Environment] = {}
        for group in groups_of(announcement):
            found |= self._environments(group)
        return found

    def _environments(self, group: Group) -> dict[str, Environment]:
        known = group.environment
        if "source" not in self._names:  # filters that name sources are looked at source by source, where there are any
            return dict.fromkeys(group.names, known)
        return {name: Environment({**known.domains, "source": any_of([name])}, known.others) for name in group.names}

    def names_sources(self) -> bool:
        """Whether the question is about some sources."""
        return "source" in self._names

    def concerns(self, source: str) -> bool:
        """Whether a source of this name may match at all."""
        if "source" not in self._names:
            return True
        return overlaps(self._prepared, Environment({"source": any_of([source])}))

    def may_match(self, environment: Environment) -> bool:
        """Whether anything that agrees with what was announced may match the question."""
        return self._need(environment) is not None

    def _need(self, environment: Environment) -> Prepared | None:
        key = id(environment)
        if key not in self._needed:
            self._kept.append(environment)
            left = simplify(self.condition, environment) if overlaps(self._prepared, environment) else FALSE
            self._needed[key] = None if left in (FALSE, UNKNOWN) else Prepared(left)
        return self._needed[key]

    def sends(self, active: WantedSet, source: str, environment: Environment) -> bool:
        """Whether all that the question needs of such readings is let through."""
        if self._need(environment) is None:
            return True
        key = (id(active), id(environment))
        found = self._sent.get(key)
        if found is None:
            self._kept.append(active)
            found = self._sent[key] = self._is_sent(active.filters.values(), environment)
        if found:
            return True
        named = [one for one in active.filters.values() if one.names_sources]
        if not named:
            return False
        return self._is_sent(named, self._known_of(source, environment))

    def _known_of(self, source: str, environment: Environment) -> Environment:
        found = self._by_name.get((source, id(environment)))
        if found is None:
            found = Environment({**environment.domains, "source": any_of([source])}, environment.others)
            self._kept.append(environment)
            self._by_name[source, id(environment)] = found
        return found

    def _is_sent(self, filters: Iterable[Wanted], environment: Environment) -> bool:
        """Whether these together let through each part of what is needed."""
        need = self._need(environment)
        if need is None:
            return True
        left = (1 << len(self._parts_of(environment))) - 1
        for one in filters:
            left &= ~self._parts_sent(one, environment)
            if not left:
                return True
        return False

    def _parts_of(self, environment: Environment) -> list[Prepared]:
        """What is needed, in parts that are joined by OR; with what is known of numbers."""
        found = self._parts.get(id(environment))
        if found is None:
            need = self._need(environment)
            condition = FALSE if need is None else need.filter
            parts = condition.operands if isinstance(condition, Or) else (condition,)
            found = [Prepared(_within_limits(part, environment)) for part in parts[:MAX_PARTS]]
            if len(parts) > MAX_PARTS:
                found = [Prepared(_within_limits(condition, environment))]
            self._parts[id(environment)] = found
        return found

    def _parts_sent(self, one: Wanted, environment: Environment) -> int:
        """The parts that a filter lets through, as bits. It is worked out once, in however many sets the filter is."""
        key = (id(one), id(environment))
        found = self._bits.get(key)
        if found is None:
            self._kept += (one, environment)
            found = self._bits[key] = self._compare(one.feed, environment)
        return found

    def _compare(self, feed: Filter | None, environment: Environment) -> int:
        need, parts = self._need(environment), self._parts_of(environment)
        if feed is None or need is None:
            return 0
        self._left -= 1 + len(parts)
        if self._left < 0:
            raise TooMuchError
        lets = simplify(feed, environment)
        if self._covers(lets, need):
            return (1 << len(parts)) - 1
        return sum(1 << at for at, part in enumerate(parts) if self._covers(lets, part))

    @staticmethod
    def _covers(lets: Filter, need: Prepared) -> bool:
        return lets == TRUE or (lets not in (FALSE, UNKNOWN) and covers(Prepared(lets), need))

    def has_label(self, active: WantedSet) -> bool:
        """Whether the question's own state filter was active."""
        return self.digest is not None and self.digest in active.filters

    def is_chosen(self, active: WantedSet, environment: Environment) -> bool:
        """Whether the same is let through of other sources, which a density chose."""
        need = self._need(environment)
        chosen = [one.feed for one in active.filters.values() if one.chosen and one.feed is not None]
        if need is None or not chosen:
            return False
        return any(self._covers(simplify(_without_choice(one), environment), need) for one in chosen)


def _within_limits(condition: Filter, environment: Environment) -> Filter:
    """The same for readings that agree with what is known, and says of its numbers what that is."""
    known: list[Filter] = []
    for name in sorted(properties(condition))[:MAX_LIMITS]:
        domain = environment.attribute(name)
        if domain.numbers and not domain.strings and not domain.booleans:
            low, high = hull(domain.numbers)
            known.append(Or((IsNull(Property(name)), Between(Property(name), Literal(low), Literal(high)))))
    return conjunction(condition, *known)


def _without_choice(condition: Filter) -> Filter:
    parts = condition.operands if isinstance(condition, And) else (condition,)
    return conjunction(*(part for part in parts if properties(part) != {"source"}))
