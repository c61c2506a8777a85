"""What is known of the publications of one mobile broker: of all its sources together, and of each kind of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from spinney import Knowledge, Known, overlaps
from spinney.boxes import Range
from spinney.covers import Prepared
from spinney.domain import NULL, Domain, any_of
from spinney.intervals import everything, from_to, hull
from spinney.mask_index import Possible
from spinney.ranges import Environment

from .announcements import Announcement

MAX_GROUPS: Final = 16
"""Kinds of sources looked at apart; beyond that all are taken as one, which only finds more filters to be wanted."""
MAX_POSSIBLE: Final = 64
"""Strings of one attribute that the index of filters is asked for one by one."""
MAX_POINTS: Final = 2_000
"""At which what is known of one attribute changes; what has more is made coarser. 1,000 names stay names."""


class Group(NamedTuple):
    """Sources of which the same is known, but for their names."""

    names: frozenset[str]
    environment: Environment


class BrokerKnowledge:
    """Made from an announcement; never changed."""

    def __init__(self, announcement: Announcement) -> None:
        self.groups = groups_of(announcement)
        joined = _joined([group.environment.domains for group in self.groups])
        self.known = Known({name: Knowledge(domain) for name, domain in joined.items()}, closed=True)
        """Of all its sources together."""
        self.environment = self.known.environment
        self.possible: Mapping[str, Possible] = {
            name: _possible(domain) for name, domain in joined.items() if domain != NULL
        }
        self.names = frozenset(announcement.sources)
        if len(self.groups) > MAX_GROUPS:
            self.groups = [Group(self.names, self.known.environment)]

    def serving(self, condition: Prepared) -> list[Group]:
        """The sources with publications that may match."""
        return [group for group in self.groups if overlaps(condition, group.environment)]

    def serves(self, condition: Prepared) -> bool:
        """Whether any has."""
        return any(overlaps(condition, group.environment) for group in self.groups)

    def changed_since(self, before: BrokerKnowledge | None) -> frozenset[str] | None:
        """The attributes of which something else is known now; None for all."""
        if before is None or len(before.groups) != len(self.groups):
            return None
        pairs = zip(self.groups, before.groups, strict=True)
        return frozenset(
            name
            for new, old in pairs
            for name in new.environment.domains.keys() | old.environment.domains.keys()
            if new.environment.attribute(name) != old.environment.attribute(name)
        )


def groups_of(announcement: Announcement) -> list[Group]:
    found: dict[int, tuple[Known, list[str]]] = {}
    for source in announcement.sources.values():
        found.setdefault(id(source.known), (source.known, []))[1].append(source.name)
    return [_group(known, names) for known, names in found.values()]


def _group(known: Known, names: list[str]) -> Group:
    environment = known.environment
    domains = {**environment.domains, "source": _coarse(any_of(names))}
    return Group(frozenset(names), Environment(domains, environment.others))


def _joined(groups: list[Mapping[str, Domain]]) -> dict[str, Domain]:
    """Of each attribute what any of them allows. Thousands of kinds with attributes of their own are read once."""
    found: dict[str, list[Domain]] = {}
    for domains in groups:
        for name, domain in domains.items():
            found.setdefault(name, []).append(domain)
    return {name: _join(some if len(some) == len(groups) else [*some, NULL]) for name, some in found.items()}


def _join(domains: list[Domain]) -> Domain:
    """What any of them allows; in pairs, so that thousands are joined in a moment."""
    while len(domains) > 1:
        pairs = zip(domains[::2], domains[1::2], strict=False)
        domains = [a if a == b else _coarse(a.join(b)) for a, b in pairs] + domains[len(domains) & ~1 :]
    return domains[0]


def _coarse(domain: Domain) -> Domain:
    """At least as much, in few points."""
    if len(domain.numbers) > MAX_POINTS:
        domain = replace(domain, numbers=from_to(*hull(domain.numbers)))
    if len(domain.strings) > MAX_POINTS:
        domain = replace(domain, strings=everything(str))
    return domain


def _possible(domain: Domain) -> Possible:
    numbers = None
    if domain.numbers:
        numbers = Range(*hull(domain.numbers))
    texts = Domain(strings=domain.strings, booleans=domain.booleans).members(MAX_POSSIBLE)
    values = None if texts is None else frozenset(one for one in texts if isinstance(one, str | bool))
    return Possible(numbers, values)
