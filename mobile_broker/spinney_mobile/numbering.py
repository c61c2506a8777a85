"""Which sample is which: numbers for sources that have none, repeats, and what comes late (rules I1 to I3).

A source's numbers count on for as long as this broker owns it: the boot is the epoch of its lease, and the sequence
begins at the milliseconds of the clock, but always beyond the last one used. So a restart leaves a gap and never
repeats a number, and whoever owns the source next begins beyond ours.
"""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from spinney import Duplicates, PublicationId
from spinney.expression import Value

from .samples import Sample

CONTENT_SECONDS: Final = 5.0
"""For how long an equal sample of a source without numbers is the same one, heard another way."""
WINDOW_SECONDS: Final = 24 * 3600.0
"""For how long a number is remembered."""
MAX_NUMBERS: Final = 100_000
"""Numbers remembered at most, of all sources together."""
MAX_SOURCES: Final = 10_000
"""Sources whose newest number is known; beyond it the one unheard for longest is forgotten, and counted."""
MAX_KINDS: Final = 16
"""Sets of attributes of one source whose last values are remembered."""
RESTART_GAP: Final = 100_000
"""Numbers that may have been used since the last one that was stored, before a power cut."""
NUMBER: Final = "number"
"""Begins the keys of what is kept: number, source."""

_Content = frozenset[tuple[str, Value, bool]]


class Numbered(NamedTuple):
    """A sample's number, and whether a newer one of its source has been here."""

    id: PublicationId
    late: bool


class Numbering:
    """Pure: time comes with the samples. `stored` says what to keep together with a publication that goes up."""

    def __init__(self, kept: Mapping[str, bytes] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        """Repeated, late, forgotten."""
        self._newest: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._restored: set[str] = set()
        self._duplicates = Duplicates(WINDOW_SECONDS, limit=MAX_NUMBERS)
        self._contents: dict[str, OrderedDict[frozenset[str], tuple[_Content, float]]] = {}
        self._latest = -math.inf
        self._gone: dict[str, bytes | None] = {}
        self._begun: set[str] = set()
        for key, value in (kept or {}).items():
            kind, _, source = key.partition(":")
            if kind == NUMBER:
                boot, sequence = json.loads(value)
                self._newest[source] = (boot, sequence)
                self._restored.add(source)

    def number(self, sample: Sample, epoch: int) -> Numbered | None:
        """The number of a sample; None if it has been here."""
        if sample.boot is not None and sample.sequence is not None:
            return self._numbered(PublicationId(sample.source, sample.boot, sample.sequence), sample.heard)
        if self._repeats_content(sample):
            self.counts["repeated"] += 1
            return None
        return Numbered(self._next(sample, epoch), False)

    def _numbered(self, id: PublicationId, heard: float) -> Numbered | None:
        self._latest = max(self._latest, heard)
        if self._duplicates.repeats(id, self._latest):
            self.counts["repeated"] += 1
            return None
        late = (id.boot, id.sequence) < self._newest.get(id.source, (-1, -1))
        if late:
            self.counts["late"] += 1
        else:
            self._remembered(id)
        return Numbered(id, late)

    def _repeats_content(self, sample: Sample) -> bool:
        """Whether the source's last sample with the same attributes had the same values, a moment ago."""
        kinds = self._contents.setdefault(sample.source, OrderedDict())
        names = frozenset(sample.values)
        content = frozenset((name, value, value.__class__ is bool) for name, value in sample.values.items())
        before = kinds.get(names)
        # A sample with a time of its own is another one at another time, however equal.
        is_dated = sample.time != sample.heard
        if not is_dated and before is not None and before[0] == content and _within(before[1], sample.heard):
            return True
        kinds[names] = (content, sample.heard)
        kinds.move_to_end(names)
        if len(kinds) > MAX_KINDS:
            kinds.popitem(last=False)
        return False

    def _next(self, sample: Sample, epoch: int) -> PublicationId:
        boot, sequence = self._newest.get(sample.source, (-1, -1))
        if sample.source in self._restored:
            self._restored.discard(sample.source)
            boot, sequence = max(boot, epoch), max(sequence + RESTART_GAP, _milliseconds(sample))
        elif epoch > boot:
            boot, sequence = epoch, _milliseconds(sample)
        else:
            return self._remembered(PublicationId(sample.source, boot, sequence + 1))
        self._begun.add(sample.source)
        return self._remembered(PublicationId(sample.source, boot, sequence + 1))

    def _remembered(self, id: PublicationId) -> PublicationId:
        self._newest[id.source] = (id.boot, id.sequence)
        self._newest.move_to_end(id.source)
        if len(self._newest) > MAX_SOURCES:
            source, _ = self._newest.popitem(last=False)
            self._contents.pop(source, None)
            self._restored.discard(source)
            self._begun.discard(source)
            self._gone[_key(source)] = None
            self.counts["forgotten"] += 1
        return id

    def begins(self, source: str) -> bool:
        """Whether a source's numbers begin anew, which is to be kept whatever becomes of its publication."""
        return source in self._begun

    def stored(self, source: str) -> dict[str, bytes | None]:
        """What is to be kept when anything of the source is; None for what is not any more."""
        gone, self._gone = self._gone, {}
        self._begun.discard(source)
        newest = self._newest.get(source)
        return gone if newest is None else {**gone, _key(source): json.dumps(newest).encode()}


def _key(source: str) -> str:
    return f"{NUMBER}:{source}"


def _milliseconds(sample: Sample) -> int:
    return max(0, int(sample.heard * 1000))


def _within(before: float, now: float) -> bool:
    return abs(now - before) <= CONTENT_SECONDS
