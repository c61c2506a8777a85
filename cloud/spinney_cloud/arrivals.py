"""Messages that arrived and are not acknowledged yet.

Their PUBACKs go out in the order of arrival, each once its message is dealt with. What the server sends again is known,
be it still on its way into the log, or be it there and only its PUBACK was lost with a connection.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from hashlib import blake2b

from .mqtt import Publish

REQUESTS, LOG = "requests", "log"
"""Two lanes: a request that cannot be stored holds back no publication."""
MESSAGE_BYTES = 4 * 1024
"""That a message takes here and on its way to its stream, beside topic and payload, as measured."""
MAX_UNHEARD = 10_000
"""Messages of which it is remembered that their PUBACK was not sent."""


class Arrival:
    """One message on its way into the log."""

    __slots__ = ("dealt_with", "lane", "message", "started")

    def __init__(self, message: Publish, lane: str, started: float) -> None:
        self.message = message
        self.lane = lane
        self.started = started
        self.dealt_with = False


class Arrivals:
    """All of them. `ack` is called with each message that may be acknowledged, and says if it could send that."""

    def __init__(self, ack: Callable[[Publish], bool]) -> None:
        self.bytes = 0
        """Of memory that they take."""
        self._ack = ack
        self._lanes: dict[str, deque[Arrival]] = {REQUESTS: deque(), LOG: deque()}
        self._same: dict[tuple[str, bytes], deque[Arrival]] = {}
        """By topic and payload."""
        self._unheard: OrderedDict[bytes, int] = OrderedDict()
        """Dealt with, but the server does not know: how often."""

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def arrive(self, message: Publish, lane: str, now: float) -> Arrival | None:
        """A new message; None if it has come before."""
        key = (message.topic, message.payload)
        same = self._same.get(key)
        if message.dup and same:
            same[0].message = message  # the acknowledgement goes by the connection of now
            same.rotate(-1)
            return None
        if message.dup and self._is_unheard(message):
            self._send(message)
            return None
        arrival = Arrival(message, lane, now)
        self._same.setdefault(key, deque()).append(arrival)
        self._lanes[lane].append(arrival)
        self.bytes += _size(message)
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
        self.bytes -= _size(message)
        self._send(message)

    def _send(self, message: Publish) -> None:
        if not self._ack(message) and message.qos:
            key = _digest(message)
            self._unheard[key] = self._unheard.get(key, 0) + 1
            if len(self._unheard) > MAX_UNHEARD:
                self._unheard.popitem(last=False)

    def _is_unheard(self, message: Publish) -> bool:
        """Whether it was dealt with already; then one time less is left."""
        if not self._unheard:
            return False
        key = _digest(message)
        count = self._unheard.pop(key, 0)
        if count > 1:
            self._unheard[key] = count - 1
        return count > 0


def _size(message: Publish) -> int:
    return len(message.payload) + len(message.topic) + MESSAGE_BYTES


def _digest(message: Publish) -> bytes:
    return blake2b(message.payload, digest_size=16, key=message.topic.encode()[:64]).digest()
