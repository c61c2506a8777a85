"""A small MQTT 3.1.1 server in the broker's event loop: what a message means is its handler's business.

A message is acknowledged when the handler has taken it, and not before. Sessions have a bounded queue each. Those that
are to be kept are in `kept`, for whoever starts this again; what waits for them is not.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from spinney.mqtt_codec import REFUSED, MqttError, PubAck, Publish, Will, puback, publish, topic_bytes

from . import packets
from .packets import ClientPacket, Connect, Disconnect, PingReq, ServerDecoder, Subscribe, Unsubscribe
from .sessions import Delivery, Out, Retained, Session

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 100
MAX_SESSIONS: Final = 200
"""Of clients that are there or may come back; beyond it the one away for longest is forgotten."""
MAX_PACKET_BYTES: Final = 1024 * 1024
MAX_FILTERS: Final = 64
"""Of one session."""
MAX_QUEUED: Final = 1_000
"""Messages that wait for one client; beyond it the oldest is dropped."""
MAX_IN_FLIGHT: Final = 50
"""Of QoS 1, to one client."""
MAX_WRITE_BUFFER: Final = 256 * 1024
"""A client that reads so slowly gets its messages from the queue, as it reads."""
CONNECT_SECONDS: Final = 10.0
"""From the connection to a CONNECT."""
KEEPALIVE_FACTOR: Final = 1.5
"""As MQTT has it."""


class Refused(Exception):
    """A client that may not come in, or may not say or hear this; the connection ends with it."""


class Handler(Protocol):
    """What messages mean."""

    def login(self, connect: Connect) -> str | None:
        """Whose name the client has, if it has one; Refused if it may not come in."""

    def may_hear(self, client: str | None, topic: str) -> bool:
        """Whether it may subscribe to this filter."""
        ...

    def received(self, client: str | None, topic: str, payload: bytes) -> None:
        """A message; Refused if it may not say it."""


class MqttServer:
    """`run` serves on a socket until cancelled; `publish` gives a message to whoever hears its topic."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self.handler = handler
        self._tls = tls
        self.on_sessions: Callable[[], object] = lambda: None
        """Told when `kept` is another."""
        self.counts: Counter[str] = Counter()
        """Received, sent, dropped, refused, connections."""
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # whoever went last is last
        self._connections: set[_Connection] = set()
        self._retained = Retained()
        self._waiting: list[tuple[str, Out]] = []

    @property
    def connections(self) -> int:
        """How many clients are there."""
        return len(self._connections)

    async def run(self, listener: socket.socket) -> None:
        """Until cancelled."""
        with listener:
            server = await asyncio.get_running_loop().create_server(
                lambda: _Connection(self), sock=listener, ssl=self._tls
            )
            try:
                await server.serve_forever()
            finally:
                server.close()
                for connection in list(self._connections):
                    connection.end("the broker stops")

    def publish(
        self, topic: str, payload: bytes, delivered: Callable[[], object] | None = None, *, waits: bool = False
    ) -> None:
        """At the QoS that each subscriber asked for. `waits`: for the first one to come, if nobody is there.

        `delivered` is called once all of them have it, or will not get it; at once if nobody is to.
        """
        levels, encoded = topic.split("/"), topic_bytes(topic)
        delivery = None if delivered is None else Delivery(delivered)
        for session in self._sessions.values():
            qos = max((qos for has, qos in session.filters.values() if packets.matches(has, levels)), default=None)
            if qos is not None:
                if delivery is not None:
                    delivery.more()
                self._queue(session, Out(encoded, payload, qos, delivery=delivery))
                waits = False
        if waits:
            self._waiting.append((topic, Out(encoded, payload, 1, delivery=delivery)))
        elif delivery is not None:
            delivery.less()

    def received(self, client: str | None, topic: str, payload: bytes, retain: bool) -> None:
        """A message of a client, for the handler, and then for whoever hears its topic; Refused."""
        self.counts["received"] += 1
        self.handler.received(client, topic, payload)
        if retain:
            self.counts["dropped"] += self._retained.put(topic, payload)
        self.publish(topic, payload)

    def give_kept(self, session: Session, levels: list[str], qos: int) -> None:
        """What was retained of the topics that a new filter matches, and what has waited for somebody to come."""
        waiting, self._waiting = self._waiting, []
        for topic, message in waiting:
            if packets.matches(levels, topic.split("/")):
                self._queue(session, message._replace(qos=qos))
            else:
                self._waiting.append((topic, message))
        for topic, payload in self._retained.of(levels):
            self._queue(session, Out(topic_bytes(topic), payload, qos, retain=True))

    def _queue(self, session: Session, message: Out) -> None:
        if session.connection is None and not message.qos:
            message.settled()
            return
        if len(session.queue) >= MAX_QUEUED:
            session.queue.popleft().settled()
            self.counts["dropped"] += 1
        session.queue.append(message)
        self.send(session)

    def send(self, session: Session) -> None:
        """As much of what waits for a client as it takes now."""
        connection = session.connection
        while session.queue and connection is not None and connection.has_room():
            message = session.queue[0]
            if message.qos and len(session.flight) >= MAX_IN_FLIGHT:
                return
            session.queue.popleft()
            packet_id = session.next_id() if message.qos else 0
            if message.qos:
                session.flight[packet_id] = message
            self.counts["sent"] += 1
            connection.write(publish(message.topic, message.payload, packet_id, qos=message.qos, retain=message.retain))
            if not message.qos:
                message.settled()

    # ---- sessions

    def kept(self) -> list[dict[str, Any]]:
        """The sessions of clients that want to come back to them."""
        return [one.to_json() for one in self._sessions.values() if not one.clean]

    def restore(self, kept: Iterable[Mapping[str, Any]]) -> None:
        """Have the sessions that gave these."""
        for session in map(Session.from_json, kept):
            self._sessions[session.id] = session

    # ---- connections

    def opened(self, connection: _Connection) -> bool:
        """Whether there is room for it."""
        if len(self._connections) >= MAX_CONNECTIONS:
            self.counts["refused"] += 1
            return False
        self._connections.add(connection)
        self.counts["connections"] += 1
        return True

    def closed(self, connection: _Connection) -> None:
        """It is over."""
        self._connections.discard(connection)
        session = connection.session
        if session is None or session.connection is not connection:
            return
        session.connection = None
        if self._sessions.get(session.id) is not session:
            session.end()  # another one has its place
        elif session.clean:
            del self._sessions[session.id]
            session.end()
        else:
            self._sessions.move_to_end(session.id)

    def begin(self, connection: _Connection, connect: Connect, client: str | None) -> tuple[Session, bool]:
        """Its session, and whether it was there before. Whoever had the same client id is thrown off."""
        name = connect.client_id or f"auto-{id(connection)}"
        before = self._sessions.get(name)
        if before is not None and before.client != client:
            raise Refused(f"client id {name!r:.40} is another client's")
        if before is not None and before.connection is not None:
            before.connection.end("another connection has its client id")
        kept = before if before is not None and not connect.clean and not before.clean else None
        session = kept or Session(name, client, connect.clean)
        self._sessions[name] = session
        session.connection = connection
        self._forget()
        if kept is None:
            self.on_sessions()
        return session, kept is not None

    def _forget(self) -> None:
        away = [session.id for session in self._sessions.values() if session.connection is None]
        for name in away[: max(0, len(self._sessions) - MAX_SESSIONS)]:
            session = self._sessions.pop(name)
            self.counts["dropped"] += len(session.queue)
            session.end()


class _Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: MqttServer) -> None:
        self._server = server
        self._decoder = ServerDecoder(max_packet_bytes=MAX_PACKET_BYTES)
        self._transport: asyncio.Transport | None = None
        self._connect: Connect | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._slow = False
        self.session: Session | None = None

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client; it must say who it is soon."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(MAX_WRITE_BUFFER)
        if not self._server.opened(self):
            transport.abort()
            return
        self._expect(CONNECT_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Some bytes; what is wrong with them ends the connection, and no other."""
        try:
            if self._connect is None and not self._decoder.held and data[0] != packets.CONNECT:
                raise MqttError("speaks no MQTT")
            for packet in self._decoder.feed(data):
                self._handle(packet)
        except (MqttError, Refused) as error:
            self._server.counts["refused"] += 1
            log.warning("local MQTT: %s: %s", self._who(), error)
            self.end(str(error))
        if self._connect is not None and self._connect.keepalive_seconds:
            self._expect(self._connect.keepalive_seconds * KEEPALIVE_FACTOR)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # as asyncio names it
        """Whatever the reason."""
        if self._timer is not None:
            self._timer.cancel()
        self._server.closed(self)
        will = self._connect.will if self._connect else None
        if will is not None and self.session is not None:
            self._take(will)

    def pause_writing(self) -> None:
        """It reads slowly."""
        self._slow = True

    def resume_writing(self) -> None:
        """It has read."""
        self._slow = False
        if self.session is not None:
            self._server.send(self.session)

    # ---- out

    def has_room(self) -> bool:
        """Whether it can be given more."""
        return not self._slow and self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """To the client."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def end(self, reason: str) -> None:
        """Close, after what has been written."""
        if self._transport is not None:
            log.debug("local MQTT: %s: %s", self._who(), reason)
            self._transport.abort() if self._slow else self._transport.close()

    # ---- in

    def _handle(self, packet: ClientPacket) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if (self._connect is None) != isinstance(packet, Connect):
            raise MqttError("CONNECT comes first, and once")
        match packet:
            case Connect():
                self._begin(packet)
            case Publish():
                self._server.received(self._client, packet.topic, packet.payload, packet.retain)
                if packet.qos:
                    self.write(puback(packet.id))
            case PubAck(id=packet_id):
                self._acked(packet_id)
            case Subscribe():
                self._subscribe(packet)
            case Unsubscribe():
                self._unsubscribe(packet)
            case PingReq():
                self.write(packets.PINGRESP)
            case Disconnect():
                assert self._connect is not None
                self._connect = self._connect._replace(will=None)
                self.end("it went")

    def _begin(self, connect: Connect) -> None:
        if not connect.known_protocol:
            self.write(packets.connack(packets.WRONG_PROTOCOL))
            raise Refused("speaks another MQTT than 3.1.1 (with mosquitto's clients: -V mqttv311)")
        if not connect.client_id and not connect.clean:
            self.write(packets.connack(packets.WRONG_CLIENT_ID))
            raise Refused("a session to keep needs a client id")
        try:
            client = self._server.handler.login(connect)
            self.session, present = self._server.begin(self, connect, client)
        except Refused:
            self.write(packets.connack(packets.WRONG_PASSWORD))
            raise
        self._connect = connect
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.write(packets.connack(packets.ACCEPTED, session_present=present))
        for packet_id, message in self.session.flight.items():
            self.write(publish(message.topic, message.payload, packet_id, qos=1, dup=True))
        self._server.send(self.session)

    def _subscribe(self, packet: Subscribe) -> None:
        codes = list(self._granted(packet))
        if not self._session.clean:
            self._server.on_sessions()
        self.write(packets.suback(packet.id, codes))
        for (topic, _), qos in zip(packet.filters, codes, strict=True):
            if qos != REFUSED:
                self._server.give_kept(self._session, topic.split("/"), qos)

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        for topic in packet.filters:
            self._session.filters.pop(topic, None)
        if not self._session.clean:
            self._server.on_sessions()
        self.write(packets.unsuback(packet.id))

    def _granted(self, packet: Subscribe) -> Iterator[int]:
        filters = self._session.filters
        for topic, qos in packet.filters:
            has_room = topic in filters or len(filters) < MAX_FILTERS
            if not has_room or not self._server.handler.may_hear(self._client, topic):
                yield REFUSED
                continue
            filters[topic] = (topic.split("/"), qos)
            yield qos

    def _acked(self, packet_id: int) -> None:
        if (message := self._session.flight.pop(packet_id, None)) is not None:
            message.settled()
        self._server.send(self._session)

    def _take(self, will: Will) -> None:
        """Nobody is there to be told what is wrong with it."""
        try:
            self._server.received(self._client, will.topic, will.payload, will.retain)
        except Refused as error:
            log.warning("local MQTT: the will of %s: %s", self._who(), error)

    @property
    def _session(self) -> Session:
        assert self.session is not None
        return self.session

    @property
    def _client(self) -> str | None:
        return self._session.client

    def _who(self) -> str:
        return self.session.id if self.session else "a client"

    def _expect(self, seconds: float) -> None:
        """Something must come within this time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end, "nothing came in time")
