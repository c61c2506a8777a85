"""The way out to clients for other processes: a request on `names.OUT` is published by MQTT, and answered at PUBACK.

What finds no room waits in its order; what finds no room to wait is put off, and comes again.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from .mqtt import MqttClient, MqttError
from .names import OUT, is_name, topic
from .nats_connection import Connection, subject_bytes

LEAVES = frozenset({"reply", "act"})
MAX_WAITING: Final = 2_000
"""Two processes' messages under way."""
PUT_OFF: Final = b"Spinney-Put-Off: 1\r\n"
_REFUSED: Final = b"Spinney-Error: 1\r\n"


class WayOut:
    """Answers requests of one connection by one MQTT client."""

    def __init__(self, connection: Connection, mqtt: MqttClient) -> None:
        self.sent = 0
        self.refused = 0
        self.put_off = 0
        """For want of room to wait."""
        self._connection = connection
        self._mqtt = mqtt
        self._waiting: asyncio.Queue[tuple[str, bytes, bytes]] = asyncio.Queue(MAX_WAITING)

    async def start(self) -> None:
        """Answer from now on."""
        await self._connection.listen(OUT, self._take)

    def _take(self, subject: bytes, reply: bytes, data: bytes, _headers: bytes | None) -> None:
        *_, client, leaf = subject.decode(errors="replace").split(".")
        if leaf not in LEAVES or not is_name(client):
            self._refuse(reply, f"no way out to {client[:64]}/{leaf[:64]}")
            return
        try:
            self._waiting.put_nowait((topic(client, leaf), data, reply))
        except asyncio.QueueFull:
            self.put_off += 1
            self._answer(reply, b"many messages wait already", PUT_OFF)

    async def run(self) -> None:
        """Send, until cancelled."""
        while True:
            where, data, reply = await self._waiting.get()
            try:
                future = await self._mqtt.publish(where, data)
            except MqttError as error:
                self._refuse(reply, str(error))
            else:
                future.add_done_callback(partial(self._sent, reply))

    def _sent(self, reply: bytes, future: asyncio.Future[None]) -> None:
        if not future.cancelled():
            self.sent += 1
            self._answer(reply, b"", b"")

    def _refuse(self, reply: bytes, why: str) -> None:
        self.refused += 1
        self._answer(reply, why.encode(), _REFUSED)

    def _answer(self, reply: bytes, data: bytes, headers: bytes) -> None:
        if reply:
            self._connection.send(subject_bytes(reply.decode()), data, headers=headers)
