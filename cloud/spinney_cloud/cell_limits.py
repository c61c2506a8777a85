"""At most so many notifications of a subscription from each H3 cell in each period: the first of them pass.

A period is of the log's time, and begins at a multiple of its length. So what passes follows from the notification log
alone, in its order. What has passed is remembered by id until all of its period is done, and kept in a file (see
`lines`): whoever starts again and reads a part of the log again decides as before.

No I/O and no clock. Log time does not go back within a subscription; what seems older belongs to the newest period.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from .cells import cell_at, cell_within
from .density import AtMost

MAX_PASSED: Final = 500_000
"""Notifications that are remembered, of all subscriptions; beyond it all others pass, and are counted."""
QUIET_SECONDS: Final = 3600.0
"""After the end of its period what has passed is forgotten, if nothing more came of its subscription."""

Key = tuple[str, str, str]
"""A subscription: tenant, owner, sid."""
Position = tuple[float, float] | str | None
"""Where a publication was made: latitude and longitude, or an H3 cell; None: nobody knows."""


def position_of(publication: Mapping[str, Any]) -> Position:
    """Where it was made, as it says itself."""
    lat, long = publication.get("lat"), publication.get("long")
    if isinstance(lat, int | float) and isinstance(long, int | float):
        return float(lat), float(long)
    cell = publication.get("cell")
    return cell if isinstance(cell, str) else None


def cell_of(position: Position, resolution: int) -> str:
    """The cell that it counts for; places that nobody knows are one cell."""
    if position is None:
        return ""
    if isinstance(position, str):
        return cell_within(position, resolution) or ""
    return cell_at(*position, resolution)


@dataclass(eq=False, slots=True)
class _Window:
    period: int
    last: int = 0
    """The newest message of the notification log that was judged by it."""
    passed: dict[str, list[str]] = field(default_factory=dict)
    """Ids by cell."""


@dataclass(slots=True)
class _Limited:
    at_most: AtMost
    windows: list[_Window] = field(default_factory=list)
    """The newest period is the last; older ones stay until all of them is done."""


class CellLimits:
    """Of all subscriptions."""

    def __init__(self, max_passed: int = MAX_PASSED) -> None:
        self.uncounted = 0
        """Notifications that passed because too many were remembered."""
        self.remembered = 0
        self._max_passed = max_passed
        self._limited: dict[Key, _Limited] = {}
        self._time = 0.0
        self._new: list[list[Any]] = []

    def set_limit(self, key: Key, at_most: AtMost | None) -> None:
        """A subscription is there, or has another limit now: with that it begins anew."""
        known = self._limited.get(key)
        if known is not None and known.at_most != at_most:
            self.forget(key)
        if at_most is not None:
            self._limited.setdefault(key, _Limited(at_most))

    def forget(self, key: Key) -> None:
        """A subscription has ended."""
        known = self._limited.pop(key, None)
        if known is not None:
            self.remembered -= sum(_size(window) for window in known.windows)
            self._new.append([*key])

    def passes(self, key: Key, position: Position, time: float, id: str, sequence: int) -> bool:
        """Whether a notification of this log time, in this message of the notification log, passes."""
        limited = self._limited.get(key)
        if limited is None:
            return True
        self._time = max(self._time, time)
        window = self._window(limited, int(time // limited.at_most.seconds), sequence)
        cell = cell_of(position, limited.at_most.cell)
        passed = window.passed.get(cell, [])
        if id in passed:
            return True
        if len(passed) >= limited.at_most.count:
            return False
        if self.remembered >= self._max_passed:
            self.uncounted += 1
            return True
        self._remember(window, cell, id)
        self._new.append([*key, _spec(limited.at_most), window.period, sequence, cell, id])
        return True

    def _window(self, limited: _Limited, period: int, sequence: int) -> _Window:
        for window in limited.windows:
            if window.period == period:
                break
        else:
            if limited.windows and limited.windows[-1].period > period:
                window = limited.windows[-1]
            else:
                window = _Window(period)
                limited.windows.append(window)
        window.last = max(window.last, sequence)
        return window

    def _remember(self, window: _Window, cell: str, id: str) -> None:
        window.passed.setdefault(cell, []).append(id)
        self.remembered += 1

    def prune(self, floor: int) -> None:
        """Forget periods that are over. All messages of the notification log up to the floor are done, and what was
        begun before a restart has been read again."""
        for limited in self._limited.values():
            if limited.windows:
                self._prune(limited, floor)

    def _prune(self, limited: _Limited, floor: int) -> None:
        newest = limited.windows[-1]
        is_quiet = self._time >= (newest.period + 1) * limited.at_most.seconds + QUIET_SECONDS
        gone = [one for one in limited.windows if one.last <= floor and (one is not newest or is_quiet)]
        for window in gone:
            limited.windows.remove(window)
            self.remembered -= _size(window)

    # ---- What is kept

    def take_lines(self) -> bytes:
        """What has passed or was forgotten since the last call, as the file has it."""
        new, self._new = self._new, []
        return b"".join(map(_line, new))

    def lines(self) -> bytes:
        """All that is remembered, as the file begins with it."""
        self._new = []
        return b"".join(map(_line, self._all()))

    def _all(self) -> Iterator[list[Any]]:
        for key, limited in self._limited.items():
            for window in limited.windows:
                for cell, ids in window.passed.items():
                    for id in ids:
                        yield [*key, _spec(limited.at_most), window.period, window.last, cell, id]

    def restore(self, lines: Iterable[bytes]) -> None:
        """Once the subscriptions' limits are known: what was kept of them. Damaged lines and others' are left out."""
        for line in lines:
            try:
                tenant, owner, sid, *more = orjson.loads(line)
            except (ValueError, TypeError):
                continue
            limited = self._limited.get((tenant, owner, sid))
            if limited is None:
                continue
            if not more:
                self.remembered -= sum(_size(window) for window in limited.windows)
                limited.windows.clear()
            elif more[0] == _spec(limited.at_most):
                _, period, sequence, cell, id = more
                window = self._window(limited, period, sequence)
                if id not in window.passed.get(cell, ()):
                    self._remember(window, cell, id)


def _size(window: _Window) -> int:
    return sum(map(len, window.passed.values()))


def _spec(at_most: AtMost) -> str:
    return f"{at_most.count}/{at_most.seconds:g}s/{at_most.cell}"


def _line(item: list[Any]) -> bytes:
    return orjson.dumps(item) + b"\n"
