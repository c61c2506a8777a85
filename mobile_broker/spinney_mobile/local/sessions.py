"""What is remembered of the local port's clients: what they hear, and what is on its way to them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from spinney.mqtt_codec import MAX_ID

from .packets import matches

MAX_RETAINED: Final = 1_000
"""Topics of which the last retained message is kept; beyond it the oldest goes."""


class Connection(Protocol):
    """Where a client is."""

    def has_room(self) -> bool:
        """Whether it can be given more."""
        ...

    def write(self, data: bytes) -> None:
        """To the client."""

    def end(self, reason: str) -> None:
        """Close, after what has been written."""


class Delivery:
    """A message to several sessions; `done` is called once each of them has it, or will not get it."""

    def __init__(self, done: Callable[[], object]) -> None:
        self._done = done
        self._left = 1

    def more(self) -> None:
        """One more is to get it."""
        self._left += 1

    def less(self) -> None:
        """One has it, or will not get it."""
        self._left -= 1
        if not self._left:
            self._done()


class Out(NamedTuple):
    """A message to one session."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool = False
    delivery: Delivery | None = None

    def settled(self) -> None:
        """It has arrived, or will not."""
        if self.delivery is not None:
            self.delivery.less()


@dataclass(slots=True)
class Session:
    """What is remembered of a client, whether it is there or may come back."""

    id: str
    client: str | None
    clean: bool
    filters: dict[str, tuple[list[str], int]] = field(default_factory=dict)
    queue: deque[Out] = field(default_factory=deque)
    flight: OrderedDict[int, Out] = field(default_factory=OrderedDict)
    connection: Connection | None = None
    last_id: int = 0

    def next_id(self) -> int:
        """One that is not under way."""
        while True:
            self.last_id = self.last_id % MAX_ID + 1
            if self.last_id not in self.flight:
                return self.last_id

    def to_json(self) -> dict[str, Any]:
        """Who it is and what it hears, as objects that json.dumps takes."""
        filters = {topic: qos for topic, (_, qos) in self.filters.items()}
        return {"id": self.id, "client": self.client, "filters": filters}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Session:
        """What gave these, and is not there now."""
        filters = {topic: (topic.split("/"), qos) for topic, qos in item["filters"].items()}
        return cls(item["id"], item["client"], clean=False, filters=filters)

    def end(self) -> None:
        """Nothing that waits for it will arrive."""
        for message in (*self.queue, *self.flight.values()):
            message.settled()


class Retained:
    """The last message of each topic that is to be kept for those who come later."""

    def __init__(self) -> None:
        self._messages: OrderedDict[str, bytes] = OrderedDict()

    def put(self, topic: str, payload: bytes) -> int:
        """Keep one; one that is empty takes back what was kept. How many had to go for it."""
        self._messages.pop(topic, None)
        if payload:
            self._messages[topic] = payload
        if len(self._messages) <= MAX_RETAINED:
            return 0
        self._messages.popitem(last=False)
        return 1

    def of(self, levels: list[str]) -> Iterator[tuple[str, bytes]]:
        """Those whose topics a filter matches."""
        return ((topic, payload) for topic, payload in self._messages.items() if matches(levels, topic.split("/")))
