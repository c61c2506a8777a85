"""The way out to clients for other processes: a request on `names.OUT` is published by MQTT, and answered at PUBACK.

What finds no room waits in its order; what finds no room to wait is put off, and comes again. Several messages to one
topic may come in one request, which then says their sizes: it is answered once all of them have their PUBACK.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from .mqtt import MqttClient, MqttError
from .names import OUT, is_name, topic
from .nats_connection import Connection, subject_bytes
from .packers import Packers

LEAVES = frozenset({"reply", "act"})
MAX_WAITING: Final = 2_000
"""Two processes' messages under way."""
SIZES: Final = b"Spinney-Sizes: "
PUT_OFF: Final = b"Spinney-Put-Off: 1\r\n"
_FOR_BROKERS: Final = (b'{"request":"ann",', b'{"fetch":')
"""How replies begin that are for mobile brokers only: answers to announcements, questions for what was held back."""
_REFUSED: Final = b"Spinney-Error: 1\r\n"


def apart(data: bytes, headers: bytes | None) -> list[bytes]:
    """The messages of one request; ValueError where their sizes are not those of its data."""
    _, several, rest = (headers or b"").partition(SIZES)
    if not several:
        return [data]
    found, at = [], 0
    for size in map(int, rest.partition(b"\r\n")[0].split()):
        found.append(data[at : at + size])
        at += size
    if at != len(data):
        raise ValueError(f"{len(data)} bytes, of which {at} are said to be messages")
    return found


class _Request:
    """What is to be published, and answered."""

    __slots__ = ("left", "messages", "reply", "topic")

    def __init__(self, topic: str, messages: list[bytes], reply: bytes) -> None:
        self.topic = topic
        self.messages = messages
        self.reply = reply
        self.left = len(messages)
        """Those without PUBACK."""


class WayOut:
    """Answers requests of one connection by one MQTT client."""

    def __init__(self, connection: Connection, mqtt: MqttClient, packers: Packers) -> None:
        self.sent = 0
        self.refused = 0
        self.put_off = 0
        """For want of room to wait."""
        self._connection = connection
        self._mqtt = mqtt
        self._packers = packers
        self._waiting: asyncio.Queue[_Request] = asyncio.Queue(MAX_WAITING)

    async def start(self) -> None:
        """Answer from now on."""
        await self._connection.listen(OUT, self._take)

    def _take(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        *_, client, leaf = subject.decode(errors="replace").split(".")
        if leaf not in LEAVES or not is_name(client):
            self._refuse(reply, f"no way out to {client[:64]}/{leaf[:64]}")
            return
        try:
            messages = apart(data, headers)
            messages = [self._packed(client, leaf, message) for message in messages]
            self._waiting.put_nowait(_Request(topic(client, leaf), messages, reply))
        except ValueError as error:
            self._refuse(reply, str(error))
        except asyncio.QueueFull:
            self.put_off += 1
            self._answer(reply, b"many messages wait already", PUT_OFF)

    def _packed(self, client: str, leaf: str, message: bytes) -> bytes:
        is_for_broker = leaf == "act" or message.startswith(_FOR_BROKERS)
        return self._packers.pack(client, message) if is_for_broker else message

    async def run(self) -> None:
        """Send, until cancelled."""
        while True:
            request = await self._waiting.get()
            try:
                for message in request.messages:
                    future = await self._mqtt.publish(request.topic, message)
                    future.add_done_callback(partial(self._sent, request))
            except MqttError as error:
                request.left = -1
                self._refuse(request.reply, str(error))

    def _sent(self, request: _Request, future: asyncio.Future[None]) -> None:
        if not future.cancelled():
            self.sent += 1
            request.left -= 1
            if not request.left:
                self._answer(request.reply, b"", b"")

    def _refuse(self, reply: bytes, why: str) -> None:
        self.refused += 1
        self._answer(reply, why.encode(), _REFUSED)

    def _answer(self, reply: bytes, data: bytes, headers: bytes) -> None:
        if reply:
            self._connection.send(subject_bytes(reply.decode()), data, headers=headers)
