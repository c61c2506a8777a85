"""An MQTT 3.1.1 client that stays: it reconnects, keeps its session, and sends again what was not acknowledged.

client = MqttClient(host, port, "gateway-1", on_message=take)     # take(message) is called for each message
await client.start()
await client.subscribe({"spinney/+/pub": 1})
client.ack(message)                                               # whenever it is safe, in the order of arrival
acknowledged = await client.publish("spinney/m7/reply", b"...")   # waits for room; the future is done at PUBACK
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic

from spinney import mqtt_codec as codec
from spinney.mqtt_codec import MAX_ID, REFUSED, ConnAck, MqttError, Packet, PubAck, Publish, SubAck, UnsubAck, Will
from spinney_cloud.room import Room

from .link import Link, MqttRefused, Target

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 1000
MAX_IN_FLIGHT_BYTES = 32 * 1024**2
MAX_WINDOW = MAX_ID - 1000
"""The other ids are for subscriptions."""
_RESUBSCRIBE_ID = MAX_ID
"""Of the SUBSCRIBE that repeats all filters to a server that has forgotten them."""
MAX_PAYLOAD_BYTES = 1_000_000
"""nats-server ends a connection by which more than its max_payload comes (1 MiB unless set)."""
FIRST_WAIT_SECONDS = 0.05
LAST_WAIT_SECONDS = 5.0
STABLE_SECONDS = 5.0
"""A connection that lasts shorter does not shorten the next wait."""


class WindowFull(MqttError):
    """As many messages are unacknowledged as are allowed."""


class _Sent:
    """A published message without its PUBACK."""

    __slots__ = ("future", "payload", "retain", "sent", "size", "topic")

    def __init__(self, topic: bytes, payload: bytes, retain: bool, future: asyncio.Future[None]) -> None:
        self.topic = topic
        self.payload = payload
        self.retain = retain
        self.future = future
        self.size = len(topic) + len(payload)
        self.sent = False
        """In some connection."""


class MqttClient:
    """See the module. `password` and the like are those of `Target`."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        clean: bool = False,
        user: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        will: Will | None = None,
        on_message: Callable[[Publish], object] | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_packet_bytes: int = codec.MAX_PACKET_BYTES,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        keepalive_seconds: int = 20,
    ) -> None:
        self.target = Target(
            host, port, client_id, clean, user, password, tls, will, keepalive_seconds, max_packet_bytes
        )
        """Where to connect; another one counts from the next connection on."""
        self.connected = asyncio.Event()
        self.session_present = False
        """Whether the server knew us when we connected last."""
        self.connections = 0
        self.received = 0
        self.acknowledged = 0
        """Published messages."""
        self.resent = 0
        self.refused: set[str] = set()
        """Filters that the server does not grant."""
        self._on_message = on_message or self.ack
        self._max_payload_bytes = max_payload_bytes
        self._link: Link | None = None
        self._room = Room(min(max_in_flight, MAX_WINDOW), MAX_IN_FLIGHT_BYTES)
        self._in_flight: dict[int, _Sent] = {}
        self._last_id = 0
        self._filters: dict[str, int] = {}
        self._asked: dict[int, tuple[bytes, asyncio.Future[tuple[int, ...]]]] = {}
        """SUBSCRIBE and UNSUBSCRIBE without an answer, to be sent again in a new connection."""
        self._empty: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._closed = False
        self.trouble: str | None = None
        """Why there is no connection, if there is none."""

    # ---- Connection --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect; waits for the server as long as it takes. MqttRefused if it does not let us in."""
        self._started = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"MQTT {self.target.client_id}")
        try:
            await self._started
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect (without the will). Messages that are not acknowledged fail with MqttError."""
        self._closed = True
        if self._link is not None:
            await self._link.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._room.close()
        for sent in self._in_flight.values():
            if not sent.future.done():
                sent.future.cancel()
        for _, asked in self._asked.values():
            asked.cancel()
        for waiting in self._empty:
            waiting.cancel()

    def abort(self) -> None:
        """Drop the connection as if the network had; it comes again."""
        if self._link is not None:
            self._link.abort("dropped by us")

    async def _run(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while not self._closed:
            began = monotonic()
            self._link = link = Link(self.target, self.connections + 1, self._on_packet)
            try:
                await link.open()
                await link.lost
                if not self._closed:
                    self.trouble = f"connection lost: {link.why}"
                    log.warning("%s: %s", self.target.client_id, self.trouble)
            except (OSError, TimeoutError, MqttError) as error:
                if not self._go_on_after(error):
                    return
            self.connected.clear()
            if monotonic() - began > STABLE_SECONDS:
                wait = FIRST_WAIT_SECONDS
            await asyncio.sleep(wait * random.uniform(0.75, 1.25))  # noqa: S311  # no secret
            wait = min(2 * wait, LAST_WAIT_SECONDS)

    def _go_on_after(self, error: Exception) -> bool:
        """Whether to try again: not when the server refuses us from the first."""
        if isinstance(error, MqttRefused) and error.for_good and self._started and not self._started.done():
            self._started.set_exception(error)
            return False
        if str(error) != self.trouble:
            self.trouble = str(error)
            log.warning("%s: %s", self.target.client_id, self.trouble or type(error).__name__)
        return True

    def _begin(self, answer: ConnAck) -> None:
        """The server lets us in: say again what it may not have heard, in the old order."""
        assert self._link is not None
        self.connections += 1
        self.session_present = answer.session_present
        self.trouble = None
        if self._filters and not answer.session_present:
            self._link.send(codec.subscribe(_RESUBSCRIBE_ID, self._filters))
        for packet, _ in self._asked.values():
            self._link.send(packet)
        for packet_id, sent in self._in_flight.items():
            self._send(packet_id, sent)
        self.connected.set()
        if self._started is not None and not self._started.done():
            self._started.set_result(None)

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self.received += 1
                self._on_message(packet)
            case PubAck():
                self._on_puback(packet.id)
            case ConnAck():
                self._begin(packet)
            case SubAck() if packet.id == _RESUBSCRIBE_ID:
                self._note_codes(self._filters, packet.codes)
            case SubAck() | UnsubAck():
                _, answered = self._asked.pop(packet.id, (b"", None))
                if answered is not None and not answered.done():
                    answered.set_result(packet.codes if isinstance(packet, SubAck) else ())

    # ---- Receiving ---------------------------------------------------------------------------------------------

    async def subscribe(self, filters: str | Iterable[str], qos: int = 1) -> tuple[int, ...]:
        """Subscribe, over reconnects too; for each filter the QoS granted or REFUSED, as SUBACK says."""
        wanted = dict.fromkeys([filters] if isinstance(filters, str) else filters, _checked(qos))
        packet_id = self._next_id()
        codes = await self._ask(packet_id, codec.subscribe(packet_id, wanted))
        if len(codes) != len(wanted):
            raise MqttError(f"{len(codes)} codes for {len(wanted)} filters")
        self._note_codes(wanted, codes)
        self._filters |= {name: qos for name, code in zip(wanted, codes, strict=True) if code != REFUSED}
        return codes

    async def unsubscribe(self, filters: str | Iterable[str]) -> None:
        """End subscriptions."""
        names = [filters] if isinstance(filters, str) else list(filters)
        packet_id = self._next_id()
        await self._ask(packet_id, codec.unsubscribe(packet_id, names))
        for name in names:
            self._filters.pop(name, None)

    def ack(self, message: Publish) -> bool:
        """Send the PUBACK. If the connection by which it came is over (False), the server sends the message again."""
        if self._link is None or message.connection != self._link.number:
            return False
        if message.qos:
            self._link.send(codec.puback(message.id))
        return self.connected.is_set()

    def pause_reading(self, paused: bool) -> None:
        """Take nothing more for a moment; back pressure is better done by not acknowledging."""
        if self._link is not None:
            self._link.pause_reading(paused)

    async def _ask(self, packet_id: int, packet: bytes) -> tuple[int, ...]:
        answered: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._asked[packet_id] = packet, answered
        if self._link is not None and self.connected.is_set():
            self._link.send(packet)
        try:
            return await answered
        finally:
            self._asked.pop(packet_id, None)

    def _note_codes(self, filters: Iterable[str], codes: tuple[int, ...]) -> None:
        for name, code in zip(filters, codes, strict=False):
            if code == REFUSED:
                self.refused.add(name)
                log.error("%s: the MQTT server refuses the subscription to %s", self.target.client_id, name)
            else:
                self.refused.discard(name)

    # ---- Publishing --------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Published messages without their PUBACK."""
        return len(self._in_flight)

    async def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> asyncio.Future[None]:
        """Publish, waiting for room; with QoS 1 the future is done at PUBACK, however many connections that takes."""
        where = self._check(topic, payload, qos)
        if not qos:
            return await self._publish_at_most_once(where, payload, retain)
        await self._room.take(len(where) + len(payload))
        return self._take(where, payload, retain)

    def publish_nowait(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> asyncio.Future[None]:
        """As `publish`, but WindowFull where it would wait."""
        where = self._check(topic, payload, qos)
        if not qos:
            raise MqttError("publish_nowait is for QoS 1")
        if not self._room.try_take(len(where) + len(payload)):
            raise WindowFull(f"{len(self._in_flight)} messages are unacknowledged")
        return self._take(where, payload, retain)

    def forget(self, future: asyncio.Future[None]) -> None:
        """Send a message no more, though it was not acknowledged; its future is cancelled."""
        for packet_id, sent in self._in_flight.items():
            if sent.future is future:
                future.cancel()
                self._on_puback(packet_id)
                self.acknowledged -= 1
                return

    async def drain(self) -> None:
        """Wait until all is acknowledged."""
        if self._in_flight:
            empty: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._empty.append(empty)
            await empty

    def _check(self, topic: str, payload: bytes, qos: int) -> bytes:
        _checked(qos)
        if len(payload) > self._max_payload_bytes:
            raise MqttError(f"a payload of {len(payload)} bytes; the server takes {self._max_payload_bytes}")
        return codec.topic_bytes(topic)

    def _take(self, topic: bytes, payload: bytes, retain: bool) -> asyncio.Future[None]:
        if self._closed:
            raise MqttError("the client is closed")
        packet_id = self._next_id()
        sent = _Sent(topic, payload, retain, asyncio.get_running_loop().create_future())
        self._in_flight[packet_id] = sent
        if self.connected.is_set():
            self._send(packet_id, sent)
        return sent.future

    def _send(self, packet_id: int, sent: _Sent) -> None:
        assert self._link is not None
        self.resent += sent.sent
        packet = codec.publish(sent.topic, sent.payload, packet_id, qos=1, dup=sent.sent, retain=sent.retain)
        sent.sent = True
        self._link.send(packet)

    async def _publish_at_most_once(self, topic: bytes, payload: bytes, retain: bool) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self.connected.wait()
        assert self._link is not None
        await self._link.writable.wait()
        self._link.send(codec.publish(topic, payload, 0, qos=0, retain=retain))
        done.set_result(None)
        return done

    def _on_puback(self, packet_id: int) -> None:
        sent = self._in_flight.pop(packet_id, None)
        if sent is None:
            return
        self.acknowledged += 1
        self._room.give(sent.size)
        if not sent.future.done():
            sent.future.set_result(None)
        if not self._in_flight and self._empty:
            for empty in self._empty:
                if not empty.done():
                    empty.set_result(None)
            self._empty.clear()

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % (_RESUBSCRIBE_ID - 1) + 1
            if self._last_id not in self._in_flight and self._last_id not in self._asked:
                return self._last_id


def _checked(qos: int) -> int:
    if qos not in (0, 1):
        raise MqttError(f"QoS {qos}: only 0 and 1 are spoken here")
    return qos
