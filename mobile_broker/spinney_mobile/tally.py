"""What this broker tells the cloud of what it and its motes have sent and spared: for people to see. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

TALLY_SECONDS: Final = 10.0
"""From a new link to its first tally."""
GROWTH: Final = 4.0
"""So much longer than the one before is each pause between tallies, as nobody has asked for these messages..."""
LONGEST_SECONDS: Final = 3600.0
"""...up to this, after which the same is said again: the cloud keeps tallies in memory only."""


class Tally:
    """Of one uplink. `counts` is asked when it is time; None says nothing."""

    def __init__(self, counts: Callable[[], Mapping[str, int]] | None = None) -> None:
        self.counts = counts
        self.due: float | None = None
        """When it is to be asked."""
        self._said: Mapping[str, int] | None = None
        self._said_at = 0.0
        self._pause = TALLY_SECONDS

    def opened(self, now: float) -> None:
        """A new link: it is said anew, once the announcement has gone."""
        self._said = None
        self._pause = TALLY_SECONDS
        self.due = None if self.counts is None else now + TALLY_SECONDS

    def along(self, now: float) -> dict[str, Any]:
        """To go along with an announcement, which spares a message: who announces often says hardly anything else."""
        if self.counts is None:
            return {}
        if self._said is not None and now - self._said_at >= self._pause:
            self._pause = min(GROWTH * self._pause, LONGEST_SECONDS)
        self._said, self._said_at = dict(self.counts()), now
        self.due = now + self._pause
        return {"counts": self._said}

    def next(self, session: str, now: float) -> bytes | None:
        """What is to be said now, if anything."""
        if self.counts is None or self.due is None or now < self.due:
            return None
        counts = dict(self.counts())
        if counts == self._said and now - self._said_at < LONGEST_SECONDS:
            self.due = now + self._pause
            return None
        self._said, self._said_at = counts, now
        self._pause = min(GROWTH * self._pause, LONGEST_SECONDS)
        self.due = now + self._pause
        return json.dumps({"session": session, "counts": counts}, separators=(",", ":")).encode()
