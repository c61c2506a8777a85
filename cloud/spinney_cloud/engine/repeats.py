"""Which readings have been here already, and which come late (rules I2, I3), for runs at a time.

The answers are those of `spinney.Duplicates` and `spinney.Lateness`, given row by row. But a run that begins beyond the
newest number of its source is news from end to end, which is one comparison, and is remembered in 32 bytes.
"""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from ..records import Run

MAX_RUNS = 4_000_000
"""Runs that are remembered within the window; beyond it the oldest are forgotten before their time, and counted."""

MAX_SINGLES = 1_000_000
"""The same for readings that came late or again, and for contents of unnumbered sources."""

MAX_SOURCES = 1_000_000
"""Sources whose newest reading is known; beyond it the one unheard of for longest is forgotten, and counted."""

MIN_COMPACTED = 64
"""Forgotten runs of a source that are not worth moving the others."""

Row = Mapping[str, Any]

_NONE: frozenset[int] = frozenset()


class Examined(NamedTuple):
    """What is not as it should be with a record's rows."""

    repeated: AbstractSet[int]
    late: AbstractSet[int]


class _Boot:
    """The runs of one source within one boot, in order of numbers as of time; those before `start` are forgotten."""

    __slots__ = ("boot", "firsts", "lasts", "source", "start", "times")

    def __init__(self, source: str, boot: int) -> None:
        self.source, self.boot = source, boot
        self.firsts, self.lasts, self.times = array("q"), array("q"), array("d")
        self.start = 0

    def append(self, first: int, last: int, time: float) -> None:
        """A run beyond all others."""
        self.firsts.append(first)
        self.lasts.append(last)
        self.times.append(time)

    def forget(self) -> bool:
        """Forget the oldest; whether none is left."""
        self.start += 1
        if self.start == len(self.firsts):
            return True
        if self.start > MIN_COMPACTED and 2 * self.start > len(self.firsts):
            for column in (self.firsts, self.lasts, self.times):
                del column[: self.start]
            self.start = 0
        return False

    def holds(self, number: int) -> bool:
        """Whether a run has the number."""
        place = bisect_right(self.firsts, number, self.start) - 1
        return place >= self.start and number <= self.lasts[place]

    def to_json(self) -> list[Any]:
        columns = (self.firsts[self.start :], self.lasts[self.start :], self.times[self.start :])
        return [self.source, self.boot, *(b64encode(column.tobytes()).decode() for column in columns)]

    @classmethod
    def from_json(cls, source: str, boot: int, *columns: str) -> _Boot:
        self = cls(source, boot)
        firsts, lasts, times = (b64decode(column) for column in columns)
        self.firsts.frombytes(firsts)
        self.lasts.frombytes(lasts)
        self.times.frombytes(times)
        return self


class Repeats:
    """A pure function of the log, for one tenant. Log times never decrease."""

    def __init__(self, window_seconds: float, content_seconds: float) -> None:
        self.duplicates = self.late = self.gaps = self.forgotten = 0
        self._window = window_seconds
        self._content_window = content_seconds
        self._newest: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._boots: dict[tuple[str, int], _Boot] = {}
        self._runs: deque[_Boot] = deque()
        """Of each remembered run, oldest first, the boot that has it as its oldest by then."""
        self._singles: OrderedDict[tuple[str, int, int], float] = OrderedDict()
        self._contents: OrderedDict[bytes, float] = OrderedDict()

    def examine(self, runs: Sequence[Run], rows: Callable[[], Sequence[Row]], time: float) -> Examined:
        """The rows of a record that are duplicates, and those that are late. Remembers all of them."""
        self._expire(time)
        repeated: set[int] = set()
        late: set[int] = set()
        start = 0
        for run in runs:
            if run.numbered:
                self._numbered(run, start, time, repeated, late)
            else:
                self._unnumbered(run, start, rows()[start : start + run.length], time, repeated, late)
            start += run.length
        self.duplicates += len(repeated)
        self.late += len(late)
        return Examined(repeated, late) if repeated or late else Examined(_NONE, _NONE)

    def _numbered(self, run: Run, start: int, time: float, repeated: set[int], late: set[int]) -> None:
        newest = self._newest.get(run.source)
        known = 0 if newest is None else self._known(run, newest)
        for row in range(known):
            number = run.first + row
            if self._again((run.source, run.boot, number), time):
                repeated.add(start + row)
            elif newest is not None and (run.boot, number) < newest:
                late.add(start + row)
            else:
                self._is_newest(run.source, (run.boot, number))
        if known < run.length:
            if newest is not None and newest[0] == run.boot and newest[1] + 1 < run.first:
                self.gaps += 1
            last = run.first + run.length - 1
            self._remember(run.source, run.boot, run.first + known, last, time)
            self._is_newest(run.source, (run.boot, last))

    @staticmethod
    def _known(run: Run, newest: tuple[int, int]) -> int:
        """How many of a run's rows are not beyond the newest."""
        if run.boot != newest[0]:
            return 0 if run.boot > newest[0] else run.length
        return min(max(newest[1] - run.first + 1, 0), run.length)

    def _again(self, id: tuple[str, int, int], time: float) -> bool:
        """Whether a number occurred within the window, for one that is not beyond the newest. Remembers it."""
        boot = self._boots.get(id[:2])
        known = id in self._singles or (boot is not None and boot.holds(id[2]))
        self._put(self._singles, id, time)
        return known

    def _unnumbered(
        self, run: Run, start: int, rows: Sequence[Row], time: float, repeated: set[int], late: set[int]
    ) -> None:
        """The gateway has numbered them, so a repeat has another number (rule I2)."""
        for place, row in enumerate(rows):
            digest = content(run.source, row)
            known = digest in self._contents
            self._put(self._contents, digest, time)
            order = (run.boot, run.first + place)
            if known:
                repeated.add(start + place)
            elif order < self._newest.get(run.source, order):
                late.add(start + place)
            else:
                self._is_newest(run.source, order)

    def _is_newest(self, source: str, order: tuple[int, int]) -> None:
        self._newest[source] = order
        self._newest.move_to_end(source)
        if len(self._newest) > MAX_SOURCES:
            self._newest.popitem(last=False)
            self.forgotten += 1

    def _put(self, memory: OrderedDict[Any, float], key: Any, time: float) -> None:
        memory[key] = time
        memory.move_to_end(key)
        if len(memory) > MAX_SINGLES:
            memory.popitem(last=False)
            self.forgotten += 1

    def _remember(self, source: str, number: int, first: int, last: int, time: float) -> None:
        boot = self._boots.get((source, number))
        if boot is None:
            boot = self._boots[source, number] = _Boot(source, number)
        boot.append(first, last, time)
        self._runs.append(boot)
        if len(self._runs) > MAX_RUNS:
            self._forget_run()
            self.forgotten += 1

    def _forget_run(self) -> None:
        boot = self._runs.popleft()
        if boot.forget():
            del self._boots[boot.source, boot.boot]

    def _expire(self, time: float) -> None:
        while self._runs and self._runs[0].times[self._runs[0].start] + self._window < time:
            self._forget_run()
        for memory, seconds in ((self._singles, self._window), (self._contents, self._content_window)):
            while memory and next(iter(memory.values())) + seconds < time:
                memory.popitem(last=False)

    def snapshot(self) -> dict[str, Any]:
        """All of it, as objects for JSON."""
        boots = list(self._boots.values())
        places = {id(boot): place for place, boot in enumerate(boots)}
        order = array("I", (places[id(boot)] for boot in self._runs))
        return {
            "counts": [self.duplicates, self.late, self.gaps, self.forgotten],
            "newest": [[source, *order] for source, order in self._newest.items()],
            "boots": [boot.to_json() for boot in boots],
            "runs": b64encode(order.tobytes()).decode(),
            "singles": [[*key, time] for key, time in self._singles.items()],
            "contents": [[digest.hex(), time] for digest, time in self._contents.items()],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the windows may be others now."""
        self.duplicates, self.late, self.gaps, self.forgotten = snapshot["counts"]
        self._newest = OrderedDict((source, (boot, number)) for source, boot, number in snapshot["newest"])
        boots = [_Boot.from_json(*item) for item in snapshot["boots"]]
        self._boots = {(boot.source, boot.boot): boot for boot in boots}
        order = array("I")
        order.frombytes(b64decode(snapshot["runs"]))
        self._runs = deque(boots[place] for place in order)
        self._singles = OrderedDict(
            ((source, boot, number), time) for source, boot, number, time in snapshot["singles"]
        )
        self._contents = OrderedDict((bytes.fromhex(digest), time) for digest, time in snapshot["contents"])


def content(source: str, row: Row) -> bytes:
    """Equal for equal readings of one source, whatever the order of their attributes; the gateway's id is none."""
    attributes = {name: _number(value) for name, value in row.items() if value is not None and name != "id"}
    return blake2b(orjson.dumps([source, attributes], option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _number(value: Any) -> Any:
    return float(value) if value.__class__ is int else value
