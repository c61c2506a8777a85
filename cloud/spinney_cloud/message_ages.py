"""How old the messages of a stream are, by the time that has passed here since they were seen to be there.

Timestamps are of a clock that may be stepped, by years where a machine learns the time only after it has started. So
they count only for what was there when we began, against the server's time then; from then on time is monotonic.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

STEPS: Final = 500
"""Within the longest age that matters, how often the stream's end is remembered: so exact are ages."""


class Moment(NamedTuple):
    """When the stream ended here."""

    last: int
    now: float


class MessageAges:
    """Of one stream. `now` is monotonic."""

    def __init__(self) -> None:
        self.last_before = 0
        """The newest message that was there when we began."""
        self._seen: list[Moment] = []
        self._ahead = 0.0
        """The server's time then, ahead of the monotonic clock."""

    def saw(self, last: int, server_time: float, now: float, longest: float) -> None:
        """The stream ends there now, and this is the time on its server. No age beyond `longest` matters."""
        seen = self._seen
        if not seen or last < seen[-1].last:
            self.last_before, self._ahead = last, server_time - now
            self._seen = [Moment(last, now)]
        elif last > seen[-1].last and now - seen[-1].now >= longest / STEPS:
            seen.append(Moment(last, now))
            while len(seen) > 1 and now - seen[1].now > longest:
                del seen[0]

    def age(self, sequence: int, timestamp: float, now: float) -> float:
        """At least so many seconds."""
        if sequence <= self.last_before:
            return max(0.0, now + self._ahead - timestamp)
        at = bisect_left(self._seen, (sequence,))
        return now - self._seen[at].now if at < len(self._seen) else 0.0

    def timestamp(self, age: float, now: float) -> float:
        """Of what was there when we began and has this age now."""
        return now + self._ahead - age

    def older_than(self, age: float, now: float) -> int:
        """All up to this message are older, by what was seen of the stream; 0 if none is."""
        found = [moment.last for moment in self._seen if now - moment.now > age]
        return max(found, default=0)
