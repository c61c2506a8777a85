"""What time it is in the log: by its own records and the time that has passed since, never by our own wall clock.

A record is read after it was stored, so each says what time it is at least. A tick of this process was stored a moment
ago: it says what time it is, also after the log's clock was set back.
"""

from __future__ import annotations


class LogClock:
    """`now` is monotonic. Until it has been asked, nobody knows."""

    def __init__(self) -> None:
        self._ahead: float | None = None
        """Of the monotonic clock."""
        self._asked = False

    def ask(self) -> None:
        """We published a tick; the next tick we read is ours."""
        self._asked = True

    def read(self, time: float, now: float, *, own: bool) -> None:
        """A record has been read; `own`: it is a tick, and no other than ours if one was asked for."""
        ahead = time - now
        if own and self._asked:
            self._ahead, self._asked = ahead, False
        elif self._ahead is not None:
            self._ahead = max(self._ahead, ahead)

    def seconds_until(self, time: float, now: float) -> float:
        """How long until the log has this time; 0 if it is to be asked first."""
        return 0.0 if self._ahead is None else time - now - self._ahead
