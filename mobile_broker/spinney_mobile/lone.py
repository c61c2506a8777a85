"""Whether a batch may go at QoS 0, because the cloud's `stored` acknowledges it and nothing else is under way. Pure.

A batch is lone if nothing was under way when the first of its records came, and nothing waits behind it. Until it is
answered nothing else goes, so that no later reading is stored before it. If no answer comes, all goes at QoS 1 for a
while: somebody on the way does not listen at the moment, and the MQTT server keeps what goes at QoS 1.
"""

from __future__ import annotations

from typing import Final

SURE_SECONDS: Final = 60.0
"""For which nothing goes at QoS 0, after a batch that did so was not answered."""


class Lone:
    """Of one uplink."""

    def __init__(self) -> None:
        self.batch: str | None = None
        """The one that went at QoS 0 last, until all goes again."""
        self.count = 0
        self._idle_since: float | None = None
        self._sure_until = 0.0

    def may_go(self, since: float | None, now: float) -> bool:
        """Whether what has waited since then may go so."""
        if since is None or self._idle_since is None or now < self._sure_until:
            return False
        return since >= self._idle_since

    def sent(self, batch: str, *, is_lone: bool) -> None:
        """A batch has gone."""
        self._idle_since = None
        if is_lone:
            self.batch = batch
            self.count += 1

    def idle(self, now: float) -> None:
        """Nothing is under way."""
        if self._idle_since is None:
            self._idle_since = now

    def again(self, now: float, *, is_empty: bool) -> None:
        """All that is not stored goes again, if there is anything."""
        self.batch = None
        self._idle_since = now if is_empty else None

    def unanswered(self, now: float) -> None:
        """The cloud has not answered it in time."""
        self._sure_until = now + SURE_SECONDS
