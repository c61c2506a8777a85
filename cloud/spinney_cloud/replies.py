"""What the gateway tells clients on `reply`: refusals at once and in full, `stored` put together per client.

To one client one message is under way at a time, and the next goes a little later; whatever is said meanwhile goes
into it. So telling never slows the intake, and a client that sends quickly hears a hundred times a second.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import orjson

from spinney.packed import FORMAT

from .mqtt import MqttClient, MqttError
from .names import topic
from .packers import Packers
from .payloads import Refusal

INTERVAL_SECONDS = 0.01
"""Between two `stored` to one client."""
MAX_REFUSALS = 500
"""In one message."""
MAX_MESSAGES = 1_000
"""Refusals and answers that wait for one client; beyond them new ones are dropped."""
MAX_STORED = 100_000
"""Sources and batches that wait to be told to one client as stored, each; beyond them new ones are dropped."""
MAX_NAMED = 1_000
"""Sources and batches that one message says are stored, each."""
MAX_GREETED = 100_000
"""Clients of which it is known that they have heard our limits."""
_PACKED = {"stored", "batch"}
"""What names packed batches goes packed."""
FORMATS = (FORMAT,)
"""Beside JSON, which they all may use: a client sends in others only while we say that we read them."""


@dataclass(slots=True)
class _Client:
    """What one client is to be told."""

    messages: deque[dict[str, Any]] = field(default_factory=deque)
    stored: dict[str, tuple[int, int]] = field(default_factory=dict)
    batches: list[str | int] = field(default_factory=list)
    under_way: bool = False


class Replies:
    """Speaks through one MQTT client. `run` does the work."""

    def __init__(self, mqtt: MqttClient, max_payload: int, packers: Packers) -> None:
        self.max_payload = max_payload
        """What a client's payload may have: the first reply says it."""
        self.sent = 0
        self.dropped = 0
        self._mqtt = mqtt
        self._packers = packers
        self._clients: dict[str, _Client] = {}
        self._due: OrderedDict[str, None] = OrderedDict()
        self._greeted: OrderedDict[str, str | None] = OrderedDict()
        """With the session of a mobile broker in which it was greeted."""
        self._wake = asyncio.Event()
        self._silence = asyncio.Event()
        self._silence.set()

    # ---- What is to be said

    def stored(self, client: str, numbers: Mapping[str, tuple[int, int]], batch: str | int | None) -> None:
        """Everything of these sources up to these numbers is stored, and so is the batch."""
        told = self._client(client)
        if max(len(told.batches), len(told.stored)) >= MAX_STORED:
            self.dropped += 1
            return
        for source, number in numbers.items():
            if number > told.stored.get(source, (-1, -1)):
                told.stored[source] = number
        if batch is not None:
            told.batches.append(batch)

    def refused(self, client: str, refusals: Sequence[Refusal], batch: str | int | None) -> None:
        """These will never be stored. It is said before what is stored of the same payload."""
        more: dict[str, Any] = {} if batch is None else {"batch": batch}
        if any(each.kind == "size" for each in refusals):
            more |= self._limits()  # which may be others than they were when they were told
        for first in range(0, len(refusals), MAX_REFUSALS):
            items = [_item(each) for each in refusals[first : first + MAX_REFUSALS]]
            self.tell(client, {"refused": items} | more)

    def tell(self, client: str, message: dict[str, Any]) -> None:
        """Anything else."""
        told = self._client(client)
        if len(told.messages) >= MAX_MESSAGES:
            self.dropped += 1
            return
        told.messages.append(message)

    def greet(self, client: str, session: str) -> None:
        """A mobile broker has announced itself: in a new session it hears our limits anew."""
        if self._greeted.get(client) != session:
            self._greeted.pop(client, None)
            self._greet(client, session)
            self.tell(client, self._limits())

    def _client(self, client: str) -> _Client:
        """Who is to hear something."""
        told = self._clients.get(client)
        if told is None:
            told = self._clients[client] = _Client()
            self._silence.clear()
        if not told.under_way:
            self._due[client] = None
            self._wake.set()
        return told

    # ---- Saying it

    @property
    def pending(self) -> int:
        """Clients that have not heard all."""
        return len(self._clients)

    async def drain(self) -> None:
        """Wait until all clients have heard all; `run` must be running."""
        await self._silence.wait()

    async def run(self) -> None:
        """Tell, until cancelled."""
        while True:
            while not self._due:
                self._wake.clear()
                await self._wake.wait()
            client, _ = self._due.popitem(last=False)
            await self._send(client, self._clients[client])

    async def _send(self, client: str, told: _Client) -> None:
        message = self._greeting(client) | _next(told)
        data = orjson.dumps(message)
        if message.keys() == _PACKED and not message["stored"]:
            data = self._packers.pack(client, data)
        told.under_way = True
        try:
            future = await self._mqtt.publish(topic(client, "reply"), data)
        except MqttError:
            self.dropped += 1
            self._again(client)
        else:
            future.add_done_callback(partial(self._sent, client))

    def _greeting(self, client: str) -> dict[str, Any]:
        if client in self._greeted:
            return {}
        self._greet(client, None)
        return self._limits()

    def _greet(self, client: str, session: str | None) -> None:
        self._greeted[client] = session
        if len(self._greeted) > MAX_GREETED:
            self._greeted.popitem(last=False)

    def _limits(self) -> dict[str, Any]:
        return {"max_payload": self.max_payload, "formats": FORMATS}

    def _sent(self, client: str, future: asyncio.Future[None]) -> None:
        if future.cancelled():
            return
        self.sent += 1
        told = self._clients[client]
        urgent = bool(told.messages)
        asyncio.get_running_loop().call_later(0.0 if urgent else INTERVAL_SECONDS, self._again, client)

    def _again(self, client: str) -> None:
        told = self._clients[client]
        told.under_way = False
        if told.messages or told.stored or told.batches:
            self._due[client] = None
            self._wake.set()
        else:
            del self._clients[client]
            if not self._clients:
                self._silence.set()


def _item(refusal: Refusal) -> dict[str, Any]:
    item: dict[str, Any] = {"row": refusal.row, "reason": refusal.reason}
    return item if refusal.id is None else {**item, "id": refusal.id}


def _next(told: _Client) -> dict[str, Any]:
    """The next message to a client: a refusal before what is stored."""
    if told.messages:
        return told.messages.popleft()
    sources = list(islice(told.stored, MAX_NAMED))
    message: dict[str, Any] = {"stored": {source: told.stored.pop(source) for source in sources}}
    if told.batches and not told.stored:
        named, told.batches = told.batches[:MAX_NAMED], told.batches[MAX_NAMED:]
        message["batch"] = named[0] if len(named) == 1 else named
    return message
