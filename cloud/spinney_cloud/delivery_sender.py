"""From the queues to the MQTT server: at QoS 1, until acknowledged, or given up as a dead letter.

A message is tried again in a new connection, as MQTT 3.1.1 has it. What counts as an attempt is a failure of that one
message: the server acknowledges later ones but not this one, or it ends one connection after the other as soon as this
one is the first. A server that is away or acknowledges nothing uses up nobody's attempts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final

from .delivery_window import Window
from .failpoints import failpoint
from .mqtt import MqttClient, MqttError
from .mqtt.client import WindowFull
from .names import is_name, topic
from .settings import Delivery
from .subscriber_queue import Item, SubscriberQueues

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 0.25


@dataclass(eq=False, slots=True)
class Flight:
    """A message that is under way."""

    item: Item
    number: int
    sent: float
    """Monotonic."""
    tried: float
    """When it was tried last."""
    future: asyncio.Future[None] | None = None
    attempts: int = 0
    given_up: bool = False


class Sender:
    """Takes from the queues what the window allows.

    `on_sent(item)` is called at PUBACK; `on_failure(item, why)` at each failed attempt; `give_up(flight, why)` when it
    is to become a dead letter, upon which `settle(flight)` is to be called.
    """

    def __init__(
        self,
        client: MqttClient,
        queues: SubscriberQueues,
        settings: Delivery,
        *,
        on_sent: Callable[[Item], None],
        on_failure: Callable[[Item, str], None],
        give_up: Callable[[Flight, str], None],
    ) -> None:
        self.window = Window(settings.in_flight)
        self.retried = 0
        self.progress = asyncio.Event()
        """Set whenever something is settled: there may be room again."""
        self._client = client
        self._queues = queues
        self._settings = settings
        self._on_sent = on_sent
        self._on_failure = on_failure
        self._give_up = give_up
        self._flights: dict[int, Flight] = {}
        self._number = 0
        self._acknowledged = 0
        """The newest number that was acknowledged."""
        self._connections = 0
        self._first_then: int | None = None
        """The first under way at the last look."""
        self._refused: Item | None = None
        """Taken from the queues when the client had no room for its bytes."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def in_flight(self) -> int:
        """Messages under way."""
        return len(self._flights)

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest message has been under way."""
        first = next(iter(self._flights.values()), None)
        return 0.0 if first is None else monotonic() - first.sent

    def pump(self) -> None:
        """Send what may be sent now."""
        if self._closed or not self._client.connected.is_set():
            return
        now = monotonic()
        while len(self._flights) < self.window.size:
            item, self._refused = self._refused or self._queues.pop(now), None
            if item is None or not self._send(item, now):
                return

    def _send(self, item: Item, now: float) -> bool:
        """False if the client has no room."""
        _, owner, sid = item.key
        self._number += 1
        flight = Flight(item, self._number, now, now)
        if not is_name(owner) or not is_name(sid):
            self._bury(flight, f"no topic can be named after {owner!r:.70} and {sid!r:.70}")
            return True
        where = topic(owner, "note", sid)
        try:
            if item.qos:
                flight.future = self._client.publish_nowait(where, item.payload)
                flight.future.add_done_callback(partial(self._done, flight))
            else:
                self._send_once(flight, where)
        except WindowFull:
            self._refused = item
            return False
        except MqttError as error:
            self._bury(flight, str(error))
            return True
        self._flights[flight.number] = flight
        return True

    def _send_once(self, flight: Flight, where: str) -> None:
        """At QoS 0 a message is sent when the connection has taken it."""

        async def send() -> None:
            try:
                await self._client.publish(where, flight.item.payload, qos=0)
            except MqttError as error:
                self._bury(flight, str(error))
            else:
                self._settled(flight)

        task = asyncio.create_task(send())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _done(self, flight: Flight, future: asyncio.Future[None]) -> None:
        if future.cancelled() or flight.number not in self._flights:
            return
        failpoint("delivery.acknowledged")
        self.window.acknowledged(monotonic() - flight.sent, len(self._flights))
        self._settled(flight)

    def _settled(self, flight: Flight) -> None:
        self._acknowledged = max(self._acknowledged, flight.number)
        if self._flights.pop(flight.number, None) is not None:
            self._on_sent(flight.item)
        self.progress.set()
        self.pump()

    def settle(self, flight: Flight) -> None:
        """It has become a dead letter: send it no more."""
        self._flights.pop(flight.number, None)
        if flight.future is not None:
            self._client.forget(flight.future)
        self.progress.set()
        self.pump()

    # ---- What fails ---------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Look after what is not acknowledged, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep(monotonic())
            self.pump()

    def sweep(self, now: float) -> None:
        """Count attempts of the oldest message under way, and give it up after the limit."""
        first = next((flight for flight in self._flights.values() if not flight.given_up), None)
        ended, self._connections = self._client.connections - self._connections, self._client.connections
        if first is None:
            self._first_then = None
            return
        if ended > 0 and self._first_then == first.number and self._acknowledged < first.number:
            self._failed(first, "the MQTT server ends the connection", ended, now)
        elif self._acknowledged > first.number and now - first.tried > self._settings.retry:
            self._failed(first, f"no acknowledgement within {self._settings.retry:g} s", 1, now)
            if not first.given_up:
                self._client.abort()
        self._first_then = first.number

    def _failed(self, flight: Flight, why: str, times: int, now: float) -> None:
        flight.attempts += times
        flight.tried = now
        self.retried += times
        self._on_failure(flight.item, why)
        if flight.attempts >= self._settings.attempts:
            self._bury(flight, f"{why}; tried {flight.attempts} times")

    def _bury(self, flight: Flight, why: str) -> None:
        flight.given_up = True
        self._flights[flight.number] = flight
        self._give_up(flight, why)

    async def drain(self, timeout_seconds: float) -> None:
        """Send nothing more, and wait until nothing is under way, at most so long."""
        self._closed = True
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._flights:
                    self.progress.clear()
                    await self.progress.wait()
        except TimeoutError:
            log.warning("%d notifications are not acknowledged; they go again at the next start", len(self._flights))
