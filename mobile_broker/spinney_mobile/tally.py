"""What this broker tells the cloud of what it and its motes have sent and spared: for people to see. Pure.

Nobody has asked for these messages, so they are few: one for so many readings, or one in an hour.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

TALLY_SECONDS: Final = 10.0
"""From a new link, or from one tally, to the next at least."""
TALLY_READINGS: Final = 100
"""Sent, or spared here or on a mote, since the last tally: so tallies add one message in a hundred at most."""
LONGEST_SECONDS: Final = 3600.0
"""After which it is said in any case, changed or not: the cloud keeps tallies in memory only."""
_READINGS: Final = ("sent", "spared", "motes_spared")


class Tally:
    """Of one uplink. `counts` is asked when it is time; None says nothing."""

    def __init__(self, counts: Callable[[], Mapping[str, int]] | None = None) -> None:
        self.counts = counts
        self.due: float | None = None
        """When it is to be asked."""
        self._told = 0
        """Readings, the last time."""
        self._told_at = 0.0

    def opened(self, now: float) -> None:
        """A new link: it is said anew, once the announcement has gone."""
        self._told, self._told_at = 0, now
        self.due = None if self.counts is None else now + TALLY_SECONDS

    def along(self, now: float) -> dict[str, Any]:
        """To go along with an announcement, which spares a message: who announces often says hardly anything else."""
        return {} if self.counts is None else {"counts": self._say(self.counts(), now)}

    def next(self, session: str, now: float) -> bytes | None:
        """What is to be said now, if anything."""
        if self.counts is None or self.due is None or now < self.due:
            return None
        counts = self.counts()
        if _readings(counts) - self._told < TALLY_READINGS and now - self._told_at < LONGEST_SECONDS:
            self.due = now + TALLY_SECONDS
            return None
        return json.dumps({"session": session, "counts": self._say(counts, now)}, separators=(",", ":")).encode()

    def _say(self, counts: Mapping[str, int], now: float) -> dict[str, int]:
        self._told, self._told_at = _readings(counts), now
        self.due = now + TALLY_SECONDS
        return dict(counts)


def _readings(counts: Mapping[str, int]) -> int:
    return sum(counts.get(name, 0) for name in _READINGS)
