"""Activation: what each mobile broker of a tenant must evaluate now.

A subscription's feed is active on a broker if a publication of one of its sources may match it; it is sent specialised
with what the broker has announced. Of feeds that cover one another only the outermost are sent (rule R2). A state
filter whose bits may be kept upstream is sent as it is, for the sources that the broker owns; of others, and of sources
that nobody owns, the cloud needs the feed (rule S2). Older brokers know only those state filters whose enter and exit
are proven disjoint: to them the others look like content filters of their feeds. Where a density is asked for, only
chosen sources are active.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

import orjson

from spinney import FALSE, UNKNOWN, ContentSubscription, Forest, disjoint, feed, parse
from spinney.covers import Prepared
from spinney.evaluator import may_overlap_upstream
from spinney.expression import Filter, In, Literal, Property, conjunction, properties
from spinney.simplify import simplify
from spinney.subscription import StateSubscription, Subscription

from .announcements import Announcement
from .broker_knowledge import BrokerKnowledge, Group
from .density import Candidate, Choice, Density, choose
from .source_reports import SourceReports
from .subscriptions import Kind, StoredSubscription
from .wanted_index import Wanted, WantedIndex

log = logging.getLogger(__name__)

MAX_NEEDS: Final = 20_000
"""Filters that are kept in the form in which they are compared with announcements: those asked for last."""


class Needs:
    """What a subscription needs of a broker, ready to be compared."""

    __slots__ = ("feed", "is_disjoint", "kind", "names", "prepared", "subscription")

    def __init__(self, normal: str) -> None:
        subscription = parse(normal)
        self.subscription: Subscription = subscription
        self.feed: Filter = feed(subscription)
        self.prepared = Prepared(self.feed)
        self.kind: Kind = "content"
        self.is_disjoint = True
        self.names = set(properties(self.feed))
        if isinstance(subscription, StateSubscription):
            self.is_disjoint = disjoint(subscription.enter, subscription.exit)
            if self.is_disjoint or may_overlap_upstream(subscription):
                self.kind = "state"
                for part in (subscription.enter, subscription.exit):
                    self.names |= properties(part)
        elif not isinstance(subscription, ContentSubscription):
            self.kind = "top-k"


class Active:
    """A filter that is active on a broker, as it is there."""

    __slots__ = ("_json", "digest", "feed", "is_disjoint", "kind", "mark", "sources", "start", "state")

    def __init__(
        self,
        digest: str,
        kind: Kind,
        condition: Filter,
        state: Subscription | None,
        sources: frozenset[str] | None,
        *,
        start: int | None = None,
        is_disjoint: bool = True,
    ) -> None:
        self.digest = digest
        self.kind: Kind = kind
        self.feed = condition
        self.state = state
        """Of the kind state: the whole subscription."""
        self.start = start
        """Of the kind state: when it grows one more subscription has begun, for which no bit is known (rule R3)."""
        self.is_disjoint = is_disjoint
        self.sources = sources
        """Those that were chosen; None for all."""
        self._json: dict[str, Any] | None = None
        self.mark = 0

    def is_like(self, other: Active | None) -> bool:
        """Whether a broker could not tell them apart."""
        mine = (self.kind, self.feed, self.state, self.start)
        return other is not None and mine == (other.kind, other.feed, other.state, other.start)

    def to_json(self) -> dict[str, Any]:
        """As `add` of an activation has it."""
        if self._json is None:
            content = ContentSubscription(filter=self.feed)
            if self.state is None:
                self._json = _item(self.digest, self.kind, content)
            elif self.is_disjoint:
                self._json = _item(self.digest, self.kind, self.state)
            else:
                self._json = {**_item(self.digest, "content", content), "state": self.state.to_short_json()}
            if self.start is not None:
                self._json["start"] = self.start
            mark = blake2b(orjson.dumps(self._json), digest_size=8).digest()
            self.mark = int.from_bytes(mark, "big")
        return self._json


def _item(digest: str, kind: Kind, subscription: Subscription) -> dict[str, Any]:
    return {"filter": digest, "kind": kind, "subscription": subscription.to_short_json()}


def fingerprint(active: Iterable[Active]) -> str:
    """The same for the same filters, in whatever order."""
    total = 0
    for one in active:
        one.to_json()
        total += one.mark
    return f"{total % 2**64:016x}"


class BrokerActivation:
    """One broker's."""

    def __init__(self, announcement: Announcement, knowledge: BrokerKnowledge | None = None) -> None:
        self.announcement = announcement
        self.knowledge = knowledge or BrokerKnowledge(announcement)
        self.evaluated: dict[str, Active] = {}
        """All that may match; of the feeds among them the forest says which are sent."""
        self._forest = Forest()

    def put(self, digest: str, found: Active | None) -> bool:
        """A filter is active so, or (None) not any more; whether that is a change."""
        old = self.evaluated.get(digest)
        if found is None and old is None:
            return False
        if found is not None and found.is_like(old):
            self.evaluated[digest] = found if old is None else _with_sources(old, found.sources)
            return False
        if old is not None and old.state is None:
            self._forest.remove(digest)
        if found is None:
            del self.evaluated[digest]
        else:
            self.evaluated[digest] = found
            if found.state is None:
                self._forest.add(digest, found.feed)
        return True

    def desired(self) -> dict[str, Active]:
        """What the broker is to have: state filters, and the roots of the forest."""
        states = {digest: one for digest, one in self.evaluated.items() if one.state is not None}
        return states | {digest: self.evaluated[digest] for digest in self._forest.roots}


def _with_sources(active: Active, sources: frozenset[str] | None) -> Active:
    active.sources = sources
    return active


class _Dense:
    """A filter for which just enough sources will do."""

    def __init__(self) -> None:
        self.candidates: dict[str, frozenset[str]] = {}
        """By broker."""
        self.choices: dict[Density, dict[str, Choice]] = {}

    def chosen(self) -> frozenset[str]:
        """For any of the densities."""
        return frozenset(source for choices in self.choices.values() for source in choices)


class Activations:
    """One tenant's. Changes are marked; `work` does what follows from them, bit by bit."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.index = WantedIndex()
        self.reports = SourceReports()
        self.brokers: dict[str, BrokerActivation] = {}
        self.evaluations = 0
        self.failures = 0
        """Filters that could not be compared with an announcement. All others go on."""
        self._needs: OrderedDict[str, Needs] = OrderedDict()
        self._digests: dict[str, None] = {}
        """To be looked at for all brokers."""
        self._pending: dict[str, dict[str, None]] = {}
        """Of each broker the filters that are still to be looked at."""
        self._changed: set[str] = set()
        self._dense: dict[str, _Dense] = {}
        self._to_choose: dict[str, None] = {}
        self._restored: dict[str, set[str]] = {}
        self._clock = clock

    # ---- What happens ------------------------------------------------------------------------------------------

    def subscribe(self, key: str, stored: StoredSubscription | None, parsed: Subscription | None = None) -> bool:
        """A subscription has begun, changed or ended; whether there is work."""
        touched = self.index.put(key, stored, parsed)
        self._digests.update(dict.fromkeys(sorted(touched)))
        return bool(touched)

    def announce(self, announcement: Announcement, knowledge: BrokerKnowledge | None = None) -> None:
        """A broker has announced something new; what follows from it may be at hand."""
        client = announcement.client
        broker = self.brokers.get(client)
        before = None if broker is None else broker.knowledge
        knowledge = knowledge or BrokerKnowledge(announcement)
        if broker is None:
            broker = self.brokers[client] = BrokerActivation(announcement, knowledge)
        broker.knowledge = knowledge
        self.told_health(announcement)
        pending = self._pending.setdefault(client, {})
        pending.update(dict.fromkeys(self._touched(broker, broker.knowledge.changed_since(before))))

    def _touched(self, broker: BrokerActivation, changed: frozenset[str] | None) -> Iterator[str]:
        """The filters whose place on this broker may be another now."""
        candidates = dict.fromkeys(self.index.meeting(broker.knowledge.possible))
        for digest in [digest for digest in broker.evaluated if digest not in candidates]:
            if digest in self._dense:
                yield digest
            else:
                broker.put(digest, None)
        for digest in candidates:
            needs = self._needs.get(digest)
            if changed is None or needs is None or digest in self._dense or not changed.isdisjoint(needs.names):
                yield digest

    def told_health(self, announcement: Announcement) -> bool:
        """A broker has told something new of its sources' batteries and silences; whether there is work."""
        client = announcement.client
        self.brokers[client].announcement = announcement
        if announcement.away is None:
            sources = {source: announcement.health_of(source) for source in announcement.sources}
            self.reports.told(client, sources, self._clock())
        else:
            self.reports.ended(client, self._clock())
        concerned = [digest for digest, dense in self._dense.items() if dense.candidates.get(client)]
        self._to_choose.update(dict.fromkeys(concerned))
        return bool(concerned)

    def end(self, client: str, *, was_due: bool = False) -> None:
        """A broker's announcement is over; `was_due`: without a word."""
        self.brokers.pop(client, None)
        self.reports.ended(client, self._clock(), was_due=was_due)
        self._pending.pop(client, None)
        self._changed.discard(client)
        for digest, dense in self._dense.items():
            if dense.candidates.pop(client, None):
                self._to_choose[digest] = None

    def restore_choice(self, chosen: Mapping[str, Iterable[str]]) -> None:
        """What had been chosen, by digest, when this was stored."""
        for digest, sources in chosen.items():
            self._restored.setdefault(digest, set()).update(sources)

    # ---- What follows ------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether anything is marked."""
        return bool(self._digests or self._pending or self._to_choose or self._changed)

    def work(self) -> Iterator[str | None]:
        """Does all that is marked. Gives way with None after each step, and names each broker that is to be told."""
        while self._digests or self._pending or self._to_choose:
            if self._digests:
                digest = next(iter(self._digests))
                del self._digests[digest]
                yield from self._everywhere(digest)
            elif self._pending:
                self._go_on()
            else:
                digest = next(iter(self._to_choose))
                del self._to_choose[digest]
                self._choose(digest)
            yield None
            if not self._digests:
                yield from self._ready()
        yield from self._ready()

    def tell_all(self) -> None:
        """Every broker is to be told what is new, if anything is."""
        self._changed.update(self.brokers)

    def _go_on(self) -> None:
        """One filter more on a broker that has announced something new."""
        client, pending = next(iter(self._pending.items()))
        if pending:
            self._consider(pending.popitem()[0], client)
        else:
            del self._pending[client]
            self._changed.add(client)  # told in any case: it may have lost what it had

    def _ready(self) -> Iterator[str]:
        ready = [client for client in self._changed if client not in self._pending]
        self._changed.difference_update(ready)
        yield from sorted(ready)

    def _everywhere(self, digest: str) -> Iterator[None]:
        wanted = self.index.get(digest)
        if wanted is None or not wanted.is_dense:
            self._dense.pop(digest, None)
        for client in list(self.brokers):
            if client in self.brokers:
                self._consider(digest, client)
                yield None
        if wanted is not None and wanted.is_dense:
            self._to_choose[digest] = None

    def _consider(self, digest: str, client: str) -> None:
        broker = self.brokers[client]
        try:
            if broker.put(digest, self._active(digest, client, broker)):
                self._changed.add(client)
        except Exception:
            self.failures += 1
            log.exception("internal error: the filter %s is not active on %s", digest, client)

    def _active(self, digest: str, client: str, broker: BrokerActivation) -> Active | None:
        wanted = self.index.get(digest)
        if wanted is None:
            return None
        self.evaluations += 1
        needs = self._needs_of(wanted)
        sources = None
        if wanted.is_dense:
            sources = self._chosen(digest, client, broker.knowledge.serving(needs.prepared))
        if sources == frozenset() or (sources is None and not broker.knowledge.serves(needs.prepared)):
            return None
        return specialised(digest, needs, broker.knowledge, sources, wanted.start)

    def _needs_of(self, wanted: Wanted) -> Needs:
        needs = self._needs.get(wanted.digest)
        if needs is None:
            needs = self._needs[wanted.digest] = Needs(wanted.normal)
            if len(self._needs) > MAX_NEEDS:
                self._needs.popitem(last=False)
        else:
            self._needs.move_to_end(wanted.digest)
        return needs

    # ---- Density -----------------------------------------------------------------------------------------------

    def _chosen(self, digest: str, client: str, groups: list[Group]) -> frozenset[str]:
        """The chosen ones among a broker's sources; notes which could be chosen."""
        dense = self._dense.setdefault(digest, _Dense())
        candidates = frozenset[str]().union(*(group.names for group in groups))
        dense.candidates[client] = candidates
        self._to_choose[digest] = None
        return dense.chosen() & candidates

    def _choose(self, digest: str) -> None:
        wanted, dense = self.index.get(digest), self._dense.get(digest)
        if wanted is None or dense is None or not wanted.is_dense:
            return
        before = dense.chosen()
        current = before | self._restored.pop(digest, set())
        now = self._clock()
        dense.choices = {}
        for density in sorted(set(wanted.densities.values()), key=repr):
            self.reports.watch(density.every_seconds, now)
            dense.choices[density] = choose(self._candidates(dense, density, now), current, density.per_cell)
        moved = before ^ dense.chosen()
        if moved:
            for client, sources in dense.candidates.items():
                if not moved.isdisjoint(sources):
                    self._again(digest, client)

    def _again(self, digest: str, client: str) -> None:
        """Only the choice has changed, not who could be chosen."""
        broker = self.brokers[client]
        wanted, dense = self.index.get(digest), self._dense[digest]
        assert wanted is not None
        sources = dense.chosen() & dense.candidates[client]
        needs = self._needs_of(wanted)
        found = specialised(digest, needs, broker.knowledge, sources, wanted.start) if sources else None
        if broker.put(digest, found):
            self._changed.add(client)

    def _candidates(self, dense: _Dense, density: Density, now: float) -> Iterator[Candidate]:
        seen: set[str] = set()
        for client in sorted(dense.candidates):
            announcement = self.brokers[client].announcement
            if announcement.away is not None:
                continue
            for source in dense.candidates[client] - seen:
                seen.add(source)
                battery = self.reports.battery(source)
                yield Candidate(
                    source,
                    announcement.cell_of(source, density.cell),
                    1.0 if battery is None else battery,
                    self.reports.share(source, density.every_seconds, now),
                    self.reports.has_failed(source, density.every_seconds),
                )

    # ---- What is shown -----------------------------------------------------------------------------------------

    def chosen_on(self, client: str) -> dict[str, list[str]]:
        """By digest, the sources of a broker that were chosen."""
        return {
            digest: sorted(dense.chosen() & dense.candidates[client])
            for digest, dense in self._dense.items()
            if client in dense.candidates
        }

    def choices(self, digest: str, sources: Iterable[str]) -> list[dict[str, Any]]:
        """Why these were chosen, and how reliable each is by now."""
        dense, now = self._dense.get(digest), self._clock()
        found: list[dict[str, Any]] = []
        for density, choices in dense.choices.items() if dense else ():
            for source in sorted(choices.keys() & set(sources)):
                reliability = self.reports.share(source, density.every_seconds, now)
                found.append({"source": source, **choices[source]._asdict(), "reliability": reliability})
        return found


def specialised(
    digest: str, needs: Needs, knowledge: BrokerKnowledge, sources: frozenset[str] | None, start: int | None = None
) -> Active | None:
    """What is left of it on a broker, for all its sources or only some; None if nothing."""
    known = knowledge.environment
    only = () if sources is None or sources >= knowledge.names else (_one_of(sources),)
    left = simplify(conjunction(*only, needs.feed), known)
    if left in (FALSE, UNKNOWN):
        return None
    if needs.kind != "state":
        return Active(digest, needs.kind, left, None, sources)
    subscription = needs.subscription
    assert isinstance(subscription, StateSubscription)
    given = () if subscription.only is None else (subscription.only,)
    # As it is: a reading outside of the announcement must get its bit from the original filter.
    state = replace(subscription, only=conjunction(*only, *given)) if only else subscription
    if subscription.debounce or subscription.dead_band:
        start = None  # what these wait for would begin again for all who share them
    return Active(digest, "state", left, state, sources, start=start, is_disjoint=needs.is_disjoint)


def _one_of(sources: Iterable[str]) -> Filter:
    return In(Property("source"), tuple(Literal(source) for source in sorted(sources)))
