"""Since when this broker still has all that it stopped of a source, so that an answer about the past may say so. Pure.

A reading that goes up is in the cloud's log once all that the outbox had when it was taken is stored. So if the last
reading of a source that was stopped here and is not kept was taken before a moment by whose outbox all is stored, then
nothing of the source is missing here that would have come after that.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Final

MAX_SOURCES: Final = 20_000
"""Beyond it nothing is known of any source until later."""
MARK_SECONDS: Final = 0.5
"""Between two moments of which it is known when all before them was stored."""
MAX_MARKS: Final = 4_096
"""Of more, every second one of the older half is forgotten: what is known is then known of a later moment."""


class Whole:
    """`gone` for each reading that is not kept, `settle` from time to time, `since` to ask."""

    def __init__(self) -> None:
        self._begun = -math.inf
        """What was stopped before is gone; at first, what was before the start."""
        self._gone: dict[str, float] = {}
        """By source, when the newest reading that is gone was taken."""
        self._open: tuple[float, int] | None = None
        """A moment, and the outbox's end then."""
        self._marks: list[float] = []
        self._stored: list[float] = []
        """When all that was taken before each mark was known to be stored."""

    def gone(self, source: str, taken: float) -> None:
        """A reading was stopped, and is not kept, or not any longer."""
        self._gone[source] = max(taken, self._gone.get(source, taken))
        if len(self._gone) > MAX_SOURCES:
            self._begun = max(self._gone.values())
            self._gone.clear()

    def settle(self, now: float, end: int, oldest: int | None) -> None:
        """`end`: the place of the outbox's next record; `oldest`: of the first that waits, if any."""
        if self._open is not None and (oldest is None or oldest >= self._open[1]):
            self._marks.append(self._open[0])
            self._stored.append(now)
            self._open = None
            if len(self._marks) > MAX_MARKS:
                del self._marks[: MAX_MARKS // 2 : 2], self._stored[: MAX_MARKS // 2 : 2]
        if self._open is None and (not self._marks or now >= self._marks[-1] + MARK_SECONDS):
            self._open = (now, end)

    def stored(self, taken: float) -> float | None:
        """By when what was taken then had come, had it gone up; None if that is not known yet."""
        at = bisect_right(self._marks, taken)
        return self._stored[at] if at < len(self._marks) else None

    def since(self, source: str) -> float | None:
        """From when on all that was stopped of a source is kept; None if that is not known."""
        return self.stored(max(self._begun, self._gone.get(source, self._begun)))
