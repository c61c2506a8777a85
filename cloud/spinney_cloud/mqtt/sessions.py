"""Several MQTT sessions that look like one.

nats-server 2.15 drops a QoS 1 message now and then if one session has several filters on which messages come at once,
and sends it again only after `ack_wait`. So there each filter gets a session of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from spinney.mqtt_codec import Publish

from .client import MqttClient

Make = Callable[[str, Callable[[Publish], None]], MqttClient]
"""Makes the client of a name, with what it is to do with messages."""


class Sessions:
    """A client for each group of filters. Its members mean the same as those of MqttClient."""

    def __init__(self, make: Make, groups: Sequence[Sequence[str]], on_message: Callable[[Publish], None]) -> None:
        self._groups = groups
        self._on_message = on_message
        self._clients = [make(f"gateway-{number}", partial(self._take, number)) for number in range(len(groups))]

    def _take(self, number: int, message: Publish) -> None:
        """A message's connection says which client's it is, too."""
        self._on_message(message._replace(connection=message.connection * len(self._clients) + number))

    def ack(self, message: Publish) -> bool:
        """Send the PUBACK; whether that could be."""
        connection, number = divmod(message.connection, len(self._clients))
        return self._clients[number].ack(message._replace(connection=connection))

    @property
    def connected(self) -> bool:
        """Whether all are."""
        return all(client.connected.is_set() for client in self._clients)

    @property
    def refused(self) -> set[str]:
        """Filters that the server does not grant."""
        return set[str]().union(*(client.refused for client in self._clients))

    def pause_reading(self, paused: bool) -> None:
        """Of all."""
        for client in self._clients:
            client.pause_reading(paused)

    async def start(self) -> None:
        """Connect all, and subscribe each to its filters."""
        for client, filters in zip(self._clients, self._groups, strict=True):
            await client.start()
            await client.subscribe(filters)

    async def close(self) -> None:
        """Disconnect all."""
        await asyncio.gather(*(client.close() for client in self._clients))
