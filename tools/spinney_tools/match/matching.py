"""One reading at a time against all subscriptions: the matcher finds whose feed it is in, state and top-k go on.

A reading's log time is its `time`, but never earlier than that of the reading before (rule I3); without `time`, it is
that of the reading before. Its source is its `source`, else the file that it stands in; its number is its place in the
files, so that no reading is late or a duplicate. What falls due between two readings happens at its own time; time ends
with the last reading, only what `reorder` holds back is released then.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from spinney import Matcher, PublicationError
from spinney.identity import PublicationId
from spinney.instants import parse_timestamp
from spinney.notification import Notification
from spinney.publication import read
from spinney.state import StateFilter
from spinney.subscription import StateSubscription, Subscription, TopKSubscription
from spinney.top_k import TopK

_LINE_BITS = 36
"""A publication's number is file and line together: room for 2^36 lines in each of 2^17 files."""

_TIMESTAMP = re.compile(rb'"time"\s*:\s*("[^"]*")')
"""A `time` that is no number yet."""

_TO_BE_READ = re.compile(
    rb'"(?:(?:id|source|type)"\s*:\s*[^"n\s]|(?:time|lat|long)"\s*:\s*[^0-9n\s-]|valid_for"\s*:\s*[^0-9n\s])'
)
"""In every line with a reserved attribute that publications refuse, which matching alone would not notice."""

_ESCAPED = re.compile(rb'\\(?:"|u00[67])')
"""Where a key or a quote may be escaped: these patterns are for plain ones."""


class _Fed(Protocol):
    """What runs a state or top-k subscription."""

    def feed(
        self, publication_id: PublicationId, publication: Mapping[str, Any], log_time: float
    ) -> list[Notification]: ...

    def next_wake(self) -> float | None: ...

    def tick(self, log_time: float) -> list[Notification]: ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reading stands: the file's number and the line."""

    file: int
    line: int


@dataclass(frozen=True, slots=True)
class Found:
    """A reading, the subscriptions that it is for, and why."""

    place: Place
    ids: list[str]
    why: str | None
    json: bytes
    publication: Mapping[str, Any] | None
    """Set where it was needed."""
    details: Mapping[str, Any] = field(default_factory=dict)


def _with_seconds(line: bytes) -> bytes:
    """The line with its timestamp, if that is what `time` is, as the number that it stands for."""
    at = line.find(b'"time"')
    timestamp = _TIMESTAMP.match(line, at) if at >= 0 else None
    if timestamp is None:
        return line
    try:
        seconds = parse_timestamp(timestamp[1][1:-1].decode())
    except ValueError:
        return line
    return b"%s%s%s" % (line[: timestamp.start(1)], repr(seconds).encode(), line[timestamp.end(1) :])


class Matching:
    """All subscriptions, fed with readings in order."""

    def __init__(
        self,
        subscriptions: Mapping[str, Subscription],
        files: list[str],
        *,
        read_all: bool = False,
        keep_all: bool = False,
    ) -> None:
        self._order = {name: number for number, name in enumerate(subscriptions)}
        self._files = files
        self._keep_all = keep_all
        self._matcher = Matcher()
        self._fed: dict[str, _Fed] = {}
        self._waking: dict[str, _Fed] = {}
        self._log_time = -math.inf
        for name, subscription in subscriptions.items():
            self._matcher.add(name, subscription)
            if isinstance(subscription, StateSubscription):
                self._fed[name] = StateFilter(subscription)
            elif isinstance(subscription, TopKSubscription):
                self._fed[name] = TopK(subscription)
        self._read_all = read_all or keep_all or bool(self._fed)

    def take(self, place: Place, line: bytes) -> list[Found]:
        """What this reading brings about. PublicationError if it is refused; then nothing has happened."""
        if not line.startswith(b"{"):
            raise PublicationError("expected a reading: one JSON object on a line", position=0)
        self._matcher.match_json(line)  # refuses what json.loads would let pass, and says where
        publication = read(json.loads(line))
        ids = self._sorted(self._matcher.match(publication))
        content = [name for name in ids if name not in self._fed]
        found = []
        if content or self._keep_all:
            found.append(Found(place, content, "match" if content else None, line, publication))
        return found + self._feed([name for name in ids if name in self._fed], place, line, publication)

    def take_block(self, file: int, numbered: list[tuple[int, bytes]]) -> list[Found] | None:
        """The same for many lines with one call, from their text alone; None where each has to be taken by itself."""
        lines = [_with_seconds(line) for _, line in numbered]
        if self._read_all or not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
            return None
        # No string, and no object within an object, goes on over a line's end: each line is one reading or more.
        block = b"[" + b",\n".join(lines) + b"]"
        if _TO_BE_READ.search(block) or _ESCAPED.search(block):
            return None
        try:
            answers = self._matcher.match_json(block)
        except PublicationError:
            return None
        if len(answers) != len(lines):
            return None
        return [
            Found(Place(file, number), self._sorted(ids), "match", line, None)
            for (number, line), ids in zip(numbered, answers, strict=True)
            if ids
        ]

    def _sorted(self, ids: Collection[str]) -> list[str]:
        return sorted(ids, key=self._order.__getitem__)

    def _feed(self, names: list[str], place: Place, line: bytes, publication: Mapping[str, Any]) -> list[Found]:
        """Feeds those whose feed the reading is in; all others learn what time it is."""
        if not self._fed:
            return []
        self._log_time = max(self._log_time, publication.get("time", self._log_time))
        log_time = self._log_time if self._log_time > -math.inf else 0.0
        number = place.file << _LINE_BITS | place.line
        current = PublicationId(publication.get("source", self._files[place.file]), 0, number)
        told = [note for fed in self._waking.values() for note in _before(fed, log_time)]
        for name in names:
            told += self._fed[name].feed(current, publication, log_time)
            self._waking[name] = self._fed[name]
        told += [note for fed in self._waking.values() for note in _at(fed, log_time)]
        self._waking = {name: fed for name, fed in self._waking.items() if fed.next_wake() is not None}
        return [_found(notification, current, line) for notification in told]

    def finish(self) -> list[Found]:
        """After the last reading: what `reorder` has held back."""
        held = (fed for fed in self._waking.values() if isinstance(fed, StateFilter) and fed.reorder)
        return [_found(notification, None, b"") for fed in held for notification in _before(fed, math.inf)]


def _before(fed: _Fed, log_time: float) -> Iterator[Notification]:
    """What falls due before this time: each at its own."""
    while (wake := fed.next_wake()) is not None and wake < log_time:
        yield from fed.tick(wake)


def _at(fed: _Fed, log_time: float) -> list[Notification]:
    """What falls due at this time, after the reading that arrived at it."""
    wake = fed.next_wake()
    return fed.tick(log_time) if wake is not None and wake <= log_time else []


def _found(notification: Notification, current: PublicationId | None, line: bytes) -> Found:
    number = notification.publication_id.sequence
    details = {"scope": notification.scope, "rank": notification.rank, "reason": notification.reason}
    publication = notification.publication
    return Found(
        Place(number >> _LINE_BITS, number & ((1 << _LINE_BITS) - 1)),
        [str(notification.subscription)],
        notification.why,
        line if notification.publication_id == current else json.dumps(publication, ensure_ascii=False).encode(),
        publication,
        {name: value for name, value in details.items() if value is not None},
    )
