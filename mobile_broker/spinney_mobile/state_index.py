"""Which state filters a reading may tell something new: few, of many that are fed (rules S1, R4).

A filter has two slots in an index: what would set its bit to 1, and what would set it to 0. Of each source a mask says
which slots would be news; all others are not even looked at. With debounce or dead band every reading in FOR counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from spinney import PublicationId, feed
from spinney.bounds import bounds
from spinney.compiled import compile_filter
from spinney.evaluator import Evaluator, Setting
from spinney.expression import Filter
from spinney.mask_index import MaskIndex, slots
from spinney.subscription import StateSubscription

from .samples import Digest

_UNKNOWN: tuple[int, int] = (-1, -1)


class _Slots(NamedTuple):
    """The masks of a filter's slots. Without a bit that rules anything out, both are the same."""

    rise: int
    fall: int
    keeps_rise: bool
    """With EACH, what sets the bit to 1 is news also while it is 1, in another value."""

    @property
    def both(self) -> int:
        return self.rise | self.fall

    def after(self, setting: Setting | None) -> int:
        """Those that are news once the bit is set so."""
        if setting is None or self.rise == self.fall:
            return self.both
        if setting.bit:
            return self.both if self.keeps_rise else self.fall
        return self.rise


class _Source:
    """What is known of a source: of which (epoch, boot), which slots are news, which filters its mote evaluates."""

    __slots__ = ("elsewhere", "news", "start")

    def __init__(self, news: int) -> None:
        self.start = _UNKNOWN
        self.news = news
        self.elsewhere: frozenset[Digest] = frozenset()


class StateIndex:
    """State filters by digest. Answers are supersets of what tells something new."""

    def __init__(self) -> None:
        self._index = MaskIndex()
        self._tests: dict[int, Callable[[Mapping[str, Any]], bool]] = {}
        self._conditions: dict[int, Filter] = {}
        self._digests: dict[int, Digest] = {}
        self._slots: dict[Digest, _Slots] = {}
        self._sources: dict[str, _Source] = {}

    def put(self, digest: Digest, subscription: StateSubscription, evaluator: Evaluator) -> None:
        """A filter, or another form of it; its evaluator knows the bits that are set."""
        if digest in self._slots:
            self.remove(digest)
        rise, fall = _conditions(subscription)
        risen = self._take(digest, rise)
        fallen = risen if fall is None else self._take(digest, fall)
        masks = self._slots[digest] = _Slots(risen, fallen, subscription.each is not None)
        for name, source in self._sources.items():
            if digest not in source.elsewhere:
                source.news |= masks.after(_setting(evaluator, name, source.start))

    def _take(self, digest: Digest, condition: Filter) -> int:
        slot = self._index.add(bounds(condition))
        self._conditions[slot] = condition
        self._digests[slot] = digest
        return 1 << slot

    def remove(self, digest: Digest) -> None:
        """A filter is gone."""
        both = self._slots.pop(digest).both
        for slot in slots(both):
            self._index.remove(slot)
            del self._conditions[slot], self._digests[slot]
            self._tests.pop(slot, None)
        for source in self._sources.values():
            source.news &= ~both

    def news(self, id: PublicationId, publication: Mapping[str, Any], epoch: int) -> list[Digest]:
        """The filters that the reading may tell something new."""
        source = self._source(id.source)
        start = (epoch, id.boot)
        if source.start != start:
            source.start = start
            source.news = self._all_but(source.elsewhere)
        found: dict[Digest, None] = {}
        for slot in slots(self._index.candidates(publication, source.news)):
            digest = self._digests[slot]
            if digest not in found and self._test(slot)(publication):
                found[digest] = None
        return list(found)

    def settle(self, digest: Digest, source: str, evaluator: Evaluator) -> None:
        """After a filter has examined a reading of the source."""
        known, masks = self._source(source), self._slots[digest]
        known.news = known.news & ~masks.both | masks.after(_setting(evaluator, source, known.start))

    def set_elsewhere(self, source: str, digests: Collection[Digest]) -> list[Digest]:
        """The filters that somebody else evaluates for the source from now on; which ones changed hands."""
        known = self._source(source)
        now = frozenset(digests)
        changed = [digest for digest in known.elsewhere ^ now if digest in self._slots]
        known.elsewhere = now
        for digest in changed:
            both = self._slots[digest].both
            known.news = known.news & ~both if digest in now else known.news | both
        return changed

    def elsewhere(self, source: str) -> Collection[Digest]:
        """The filters that somebody else evaluates for the source."""
        known = self._sources.get(source)
        return () if known is None else known.elsewhere

    def is_elsewhere(self, digest: Digest, source: str) -> bool:
        """Whether somebody else evaluates the filter for the source."""
        return digest in self._source(source).elsewhere

    def forget(self, source: str) -> None:
        """A source is given up."""
        self._sources.pop(source, None)

    def _source(self, name: str) -> _Source:
        source = self._sources.get(name)
        if source is None:
            source = self._sources[name] = _Source(self._index.live)
        return source

    def _all_but(self, digests: Collection[Digest]) -> int:
        mask = self._index.live
        for digest in digests:
            if digest in self._slots:
                mask &= ~self._slots[digest].both
        return mask

    def _test(self, slot: int) -> Callable[[Mapping[str, Any]], bool]:
        test = self._tests.get(slot)
        if test is None:
            test = self._tests[slot] = compile_filter(self._conditions[slot])
        return test


def _conditions(subscription: StateSubscription) -> tuple[Filter, Filter | None]:
    """What may set the bit to 1, and to 0; or what counts in any case."""
    if subscription.debounce or subscription.dead_band:
        return feed(subscription), None
    rise = replace(subscription, exit=subscription.enter)
    fall = replace(subscription, enter=subscription.exit)
    return feed(rise), feed(fall)


def _setting(evaluator: Evaluator, source: str, start: tuple[int, int]) -> Setting | None:
    """What the bit is set to, within this (epoch, boot) of the source; None while it is unknown."""
    state = evaluator.state(source)
    return state.setting if state is not None and state.newest[:2] == start else None
