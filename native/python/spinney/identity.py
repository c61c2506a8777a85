"""Which reading is which, which came before, and which has been here already (rules I1 to I3)."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar

from .errors import PublicationError
from .publication import attribute
from .snapshots import check_snapshot

LARGEST_NUMBER = 2**53 - 1
"""Boots and sequence numbers go through JSON, where larger ones would be rounded."""

MAX_REMEMBERED = 1_000_000
"""Readings that Duplicates remembers at most; beyond it the oldest are forgotten before their time."""

MAX_SOURCES = 1_000_000
"""Sources that Lateness remembers at most; beyond it the one unheard for longest is forgotten."""

CONTENT_SECONDS = 60.0
"""For how long an equal reading of an unnumbered source counts as the same, unless set."""

_TEXT = re.compile(r"(.+):(0|[1-9][0-9]*):(0|[1-9][0-9]*)", re.DOTALL)


class PublicationId(NamedTuple):
    """One reading: its source, the source's boot counter, and the number within that boot (rule I1).

    Within a source, ids compare as the readings were made.
    """

    source: str
    boot: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.source}:{self.boot}:{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> PublicationId:
        """The id that prints as `text`; PublicationError for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise PublicationError(f"id: expected source:boot:sequence, not {text[:80]!r}", attribute="id")
        source, boot, sequence = match[1], int(match[2][:20]), int(match[3][:20])
        if max(boot, sequence) > LARGEST_NUMBER:
            raise PublicationError(f"id: boot and sequence go up to 2**53 - 1: {text[:80]!r}", attribute="id")
        return cls(source, boot, sequence)


class Duplicates:
    """Tells readings that have been here already, as a pure function of the log (rule I2).

    A numbered reading is a duplicate if its id occurs earlier in the log within `window_seconds` of log time; one of
    an unnumbered source, if an equal one of that source does within `content_seconds`. Log times never decrease.
    """

    def __init__(
        self, window_seconds: float, *, content_seconds: float = CONTENT_SECONDS, limit: int = MAX_REMEMBERED
    ) -> None:
        self._numbers: _Recent[PublicationId] = _Recent(window_seconds, limit)
        self._contents: _Recent[str] = _Recent(content_seconds, limit)
        self._limit = limit
        self.duplicates = 0

    @property
    def forgotten(self) -> int:
        """How many readings had to be forgotten before their time, for lack of room."""
        return self._numbers.forgotten + self._contents.forgotten

    def repeats(self, publication_id: PublicationId, log_time: float) -> bool:
        """Whether this occurrence of a numbered reading is a duplicate. Counts, and remembers it."""
        return self._count(self._numbers.occur(publication_id, log_time))

    def repeats_content(self, source: str, publication: Mapping[str, Any], log_time: float) -> bool:
        """Whether this reading of an unnumbered source is a duplicate. Counts, and remembers it."""
        return self._count(self._contents.occur(content_digest(source, publication), log_time))

    def _count(self, repeated: bool) -> bool:
        self.duplicates += repeated
        return repeated

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects that json.dumps takes."""
        return {
            "format": "duplicates",
            "version": 1,
            "limit": self._limit,
            "duplicates": self.duplicates,
            "window": self._numbers.seconds,
            "numbers": [[*publication_id, time] for publication_id, time in self._numbers.items()],
            "content_window": self._contents.seconds,
            "contents": [[digest, time] for digest, time in self._contents.items()],
            "forgotten": [self._numbers.forgotten, self._contents.forgotten],
        }

    @classmethod
    def restore(cls, snapshot: Mapping[str, Any]) -> Duplicates:
        """What gave this snapshot, as it was then."""
        check_snapshot(snapshot, "duplicates", 1)
        self = cls(snapshot["window"], content_seconds=snapshot["content_window"], limit=snapshot["limit"])
        self.duplicates = snapshot["duplicates"]
        for source, boot, sequence, time in snapshot["numbers"]:
            self._numbers.occur(PublicationId(source, boot, sequence), time)
        for digest, time in snapshot["contents"]:
            self._contents.occur(digest, time)
        self._numbers.forgotten, self._contents.forgotten = snapshot["forgotten"]
        return self


def content_digest(source: str, publication: Mapping[str, Any]) -> str:
    """A digest that is equal for equal readings of one source, whatever the order of their attributes."""
    attributes = {name: attribute(publication, name) for name in sorted(publication)}
    text = json.dumps([source, {name: value for name, value in attributes.items() if value is not None}])
    return blake2b(text.encode(), digest_size=16).hexdigest()


_Key = TypeVar("_Key", bound=Hashable)


class _Recent(Generic[_Key]):
    """What occurred within the last so many seconds of log time, each with its latest occurrence, oldest first."""

    def __init__(self, seconds: float, limit: int) -> None:
        self.seconds = seconds
        self.forgotten = 0
        self._limit = limit
        self._times: OrderedDict[_Key, float] = OrderedDict()

    def occur(self, key: _Key, log_time: float) -> bool:
        """Remember an occurrence; whether there is an earlier one within the window."""
        self._expire(log_time)
        known = key in self._times
        self._times[key] = log_time
        self._times.move_to_end(key)
        if len(self._times) > self._limit:
            self._times.popitem(last=False)
            self.forgotten += 1
        return known

    def _expire(self, log_time: float) -> None:
        while self._times:
            key, time = next(iter(self._times.items()))
            if time + self.seconds >= log_time:
                return
            del self._times[key]

    def items(self) -> Iterable[tuple[_Key, float]]:
        """Every key with its latest time, oldest first."""
        return self._times.items()


class Lateness:
    """Per source, the newest reading examined; an older one is late: state filters do not examine it.

    A subscription with `reorder` is fed late readings too, and its StateFilter decides (rule S5).
    """

    def __init__(self, limit: int = MAX_SOURCES) -> None:
        self._limit = limit
        self._newest: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self.late = 0
        self.forgotten = 0

    def examine(self, publication_id: PublicationId) -> bool:
        """Whether the reading is late. Counts it if so, else remembers it as the newest of its source."""
        order = (publication_id.boot, publication_id.sequence)
        newest = self._newest.get(publication_id.source)
        if newest is not None and order < newest:
            self.late += 1
            return True
        self._newest[publication_id.source] = order
        self._newest.move_to_end(publication_id.source)
        if len(self._newest) > self._limit:
            self._newest.popitem(last=False)
            self.forgotten += 1
        return False

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects that json.dumps takes."""
        return {
            "format": "lateness",
            "version": 1,
            "limit": self._limit,
            "newest": [[source, *order] for source, order in self._newest.items()],
            "late": self.late,
            "forgotten": self.forgotten,
        }

    @classmethod
    def restore(cls, snapshot: Mapping[str, Any]) -> Lateness:
        """What gave this snapshot, as it was then."""
        check_snapshot(snapshot, "lateness", 1)
        self = cls(snapshot["limit"])
        self._newest = OrderedDict((source, (boot, sequence)) for source, boot, sequence in snapshot["newest"])
        self.late = snapshot["late"]
        self.forgotten = snapshot["forgotten"]
        return self
