"""covers and disjoint: relations between two filters, true only when proven.

Filters become cases (cases.py), at most 16 each, so no question looks at more than 256 pairs of them, and in a pair at
each term once. What cannot be compared so is settled by verdicts.py, whose proofs have bounds of their own.
"""

from __future__ import annotations

from collections import OrderedDict

from .cases import Case, cases_of, meet, satisfiable
from .expression import Filter
from .feed import feed
from .normal_form import normal_form
from .ranges import EVERYTHING, Environment, domain_of
from .subscription import StateSubscription, Subscription
from .verdicts import T, possible

MAX_PREPARED = 20_000
"""Filters whose cases are remembered, the newest."""


class Prepared:
    """A filter in the form in which relations are asked. Whoever asks often keeps it."""

    __slots__ = ("_environments", "cases", "filter")

    def __init__(self, condition: Filter) -> None:
        self.filter = condition
        self.cases = [case for case in cases_of(condition) if satisfiable(case, EVERYTHING)]
        self._environments: list[Environment | None] = [None] * len(self.cases)

    def environment(self, index: int) -> Environment:
        """What is known where a case holds."""
        found = self._environments[index]
        if found is None:
            found = self._environments[index] = self.cases[index].environment()
        return found


_prepared: OrderedDict[int, Prepared] = OrderedDict()


def prepared(condition: Filter | Prepared) -> Prepared:
    """The prepared form, remembered by the filter's identity: it keeps the filter, so the identity is not reused."""
    if isinstance(condition, Prepared):
        return condition
    found = _prepared.get(id(condition))
    if found is None:
        found = _prepared[id(condition)] = Prepared(condition)
        while len(_prepared) > MAX_PREPARED:
            _prepared.popitem(last=False)
    return found


def covers(a: Filter | Prepared, b: Filter | Prepared) -> bool:
    """Whether every publication that matches b is proven to match a."""
    outer, inner = prepared(a), prepared(b)
    if outer is inner:
        return True
    for index, case in enumerate(inner.cases):
        for candidate in outer.cases:
            if _case_covers(candidate, case, inner, index):
                break
        else:
            return False
    return True


def _case_covers(outer: Case, inner: Case, owner: Prepared, index: int) -> bool:
    follows = inner.follows
    for key, domain in outer.own.items():
        found = follows.get(key)
        if found is None or not found.is_within(domain):
            term = outer.terms.get(key)
            if term is None or not domain_of(term, owner.environment(index)).is_within(domain):
                return False
    return not outer.rest or all(possible(condition, owner.environment(index)) == T for condition in outer.rest)


def disjoint(a: Filter | Prepared, b: Filter | Prepared) -> bool:
    """Whether no publication is proven to match both (rule S2: enter and exit)."""
    return not any(_may_meet(first, second) for first in prepared(a).cases for second in prepared(b).cases)


def _may_meet(first: Case, second: Case) -> bool:
    both = meet(first, second)
    return both is not None and satisfiable(both, EVERYTHING)


def covers_feed(a: Subscription, b: Subscription) -> bool:
    """Whether whoever sends what a needs also sends all that b needs (rule R2).

    Content and top-k send their whole feeds. A state filter sends flips alone: it covers only one of its own kind.
    """
    sender = normal_form(a)
    if isinstance(sender, StateSubscription):
        return sender == normal_form(b)
    return covers(feed(sender), feed(b))
