"""Messages that arrived and are not acknowledged yet: their PUBACKs go out in the order of arrival, each once its
message is dealt with; what the server sends again meanwhile is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .mqtt import Publish

REQUESTS, LOG = "requests", "log"
"""Two lanes: a request that cannot be stored holds back no publication."""


class Arrival:
    """One message on its way into the log."""

    __slots__ = ("dealt_with", "lane", "message", "started")

    def __init__(self, message: Publish, lane: str, started: float) -> None:
        self.message = message
        self.lane = lane
        self.started = started
        self.dealt_with = False


class Arrivals:
    """All of them. `ack` is called with each message that may be acknowledged."""

    def __init__(self, ack: Callable[[Publish], None]) -> None:
        self.bytes = 0
        self._ack = ack
        self._lanes: dict[str, deque[Arrival]] = {REQUESTS: deque(), LOG: deque()}
        self._same: dict[tuple[str, bytes], deque[Arrival]] = {}
        """By topic and payload."""

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def arrive(self, message: Publish, lane: str, now: float) -> Arrival | None:
        """A new message; None if it has come before and is being dealt with."""
        key = (message.topic, message.payload)
        same = self._same.get(key)
        if message.dup and same:
            same[0].message = message  # the acknowledgement goes by the connection of now
            same.rotate(-1)
            return None
        arrival = Arrival(message, lane, now)
        self._same.setdefault(key, deque()).append(arrival)
        self._lanes[lane].append(arrival)
        self.bytes += len(message.payload)
        return arrival

    def done(self, arrival: Arrival) -> None:
        """It is stored, or refused: acknowledge it, and those after it that waited for it."""
        arrival.dealt_with = True
        lane = self._lanes[arrival.lane]
        while lane and lane[0].dealt_with:
            self._leave(lane.popleft())

    def _leave(self, arrival: Arrival) -> None:
        message = arrival.message
        key = (message.topic, message.payload)
        same = self._same[key]
        same.remove(arrival)
        if not same:
            del self._same[key]
        self.bytes -= len(message.payload)
        self._ack(message)
