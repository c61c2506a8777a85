"""One connection to an MQTT server, on paho-mqtt: from its opening to its end, and never used again.

What happens on paho's thread becomes an event in the handover queue, and nothing else is done there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from .address import Access
from .handover import Handover

KEEPALIVE_SECONDS = 30
CLOSE_SECONDS = 2.0
"""For the server to take what is still to be written, at the end."""
_CHUNK = 64 * 1024


class Opened(NamedTuple):
    """The server has let us in."""

    link: Link
    session_present: bool


class Refused(NamedTuple):
    """The server has not let us in."""

    link: Link
    reason: str


class Granted(NamedTuple):
    """The server's answer to a subscribe: for each topic, whether we may hear it."""

    link: Link
    granted: tuple[bool, ...]


class Acked(NamedTuple):
    """The server has taken what we published."""

    link: Link
    mid: int


class Arrived(NamedTuple):
    """A message, to be acknowledged by `link.ack`."""

    link: Link
    mid: int
    topic: str
    payload: bytes
    retained: bool = False
    """It was published before we subscribed."""

    def ack(self) -> None:
        """Tell the server that it need not send it again; nothing once the link is over, or if it would not anyway."""
        if self.mid:
            self.link.ack(self.mid)


class Lost(NamedTuple):
    """The connection has ended."""

    link: Link
    reason: str


Event = Opened | Refused | Granted | Acked | Arrived | Lost


class Will(NamedTuple):
    """What the server says for us at QoS 1 when the link ends without a good-bye."""

    topic: str
    payload: bytes
    retain: bool = False


class Link:
    """Opened once, closed once."""

    def __init__(
        self, access: Access, client_id: str, *, clean: bool, events: Handover[Event], will: Will | None = None
    ) -> None:
        self._events = events
        self._over = threading.Event()
        self._closing = False
        self._access = access
        self._client = self._make_client(client_id, clean)
        if will is not None:
            self._client.will_set(will.topic, will.payload, qos=1, retain=will.retain)

    def _make_client(self, client_id: str, clean: bool) -> paho.Client:
        access = self._access
        client = _Client(
            self._ended,
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=clean,
            transport="websockets" if access.server.web_socket else "tcp",
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.max_inflight_messages_set(0)  # the window is the publisher's
        if access.server.web_socket:
            client.ws_set_options(access.server.path)
        if access.server.tls:
            client.tls_set_context(_tls_context(access))
        if access.user is not None:
            client.username_pw_set(access.user, access.password)
        client.on_socket_open = lambda _client, _data, sock: _send_at_once(sock)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        return client

    # ---- ours

    def open(self) -> None:
        """Connect; what comes of it is an event. OSError if nobody is there."""
        self._client.connect(self._access.server.host, self._access.server.port, KEEPALIVE_SECONDS)
        self._client.loop_start()

    def subscribe(self, topics: Sequence[str], at_most_once: Collection[str] = ()) -> None:
        """At QoS 1, these of them at QoS 0; the answer is an event."""
        self._client.subscribe([(topic, int(topic not in at_most_once)) for topic in topics])

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, at_most_once: bool = False) -> int:
        """At QoS 1, or at QoS 0; the number that the Acked event will have: at QoS 0 it means that this was written."""
        return self._client.publish(topic, payload, qos=int(not at_most_once), retain=retain).mid

    def ack(self, mid: int) -> None:
        """Acknowledge a message that arrived here; any thread may."""
        if not self._over.is_set():
            self._client.ack(mid, 1)

    def close(self) -> None:
        """Say good-bye, after all that was published or acknowledged has been written, and until that has been read."""
        if not self._over.is_set():
            self._closing = True
            self._client.disconnect()
            self._over.wait(CLOSE_SECONDS)
        self.abandon()

    def abandon(self) -> None:
        """End it at once, whatever state it is in."""
        self._over.set()
        _shut_down(self._client.socket())
        self._client.loop_stop()

    # ---- paho's thread

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._events.put_now(Refused(self, str(reason)))
        else:
            self._events.put_now(Opened(self, bool(flags.session_present)))

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        self._events.put_now(Granted(self, tuple(not reason.is_failure for reason in reasons)))

    def _on_publish(self, _client: Any, _data: Any, mid: int, _reason: Any, _properties: Any) -> None:
        # Never waits: paho holds a lock here that `publish` needs. The publisher's window bounds these.
        self._events.put_now(Acked(self, mid))

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        self._events.put(Arrived(self, message.mid, message.topic, message.payload, message.retain), self._over.is_set)

    def _on_disconnect(self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if self._closing:  # the socket is still open
            _wait_for_end(client.socket())
        self._over.set()
        self._events.put_now(Lost(self, str(reason)))

    def _ended(self) -> None:
        """Whatever ended paho's thread: something in it may have failed over what a server sent."""
        if not self._over.is_set():
            self._over.set()
            self._events.put_now(Lost(self, "the MQTT client failed"))


class _Client(paho.Client):
    """paho's, whose thread does not end without a word."""

    def __init__(self, ended: Callable[[], None], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ended = ended

    def loop_forever(self, timeout: float = 1.0, retry_first_connection: bool = False) -> MQTTErrorCode:
        """What paho's thread does."""
        try:
            return super().loop_forever(timeout, retry_first_connection)
        finally:
            self._ended()


class _TlsSocket(ssl.SSLSocket):
    """One whose failed handshake leaves nothing open; paho would leave it to the garbage collector."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


def _tls_context(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=access.ca)
    context.sslsocket_class = _TlsSocket
    if access.certificate is not None:
        context.load_cert_chain(*access.certificate)
    return context


def _send_at_once(sock: Any) -> None:
    """A small message must not wait until the one before it is acknowledged: that takes 40 ms."""
    with _same_socket(sock) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _shut_down(sock: Any) -> None:
    """Make whoever waits for this socket see its end. It may be closed meanwhile."""
    with contextlib.suppress(OSError, AttributeError), _same_socket(sock) as same:
        same.shutdown(socket.SHUT_RDWR)


def _wait_for_end(sock: Any) -> None:
    """Until the server has closed it: then it has read all. If this client came again before that, a server would drop
    what it has not yet read of the old connection, acknowledgements among it (mosquitto 2.0 does).
    """
    end = time.monotonic() + CLOSE_SECONDS
    with contextlib.suppress(OSError, AttributeError), _same_socket(sock) as same:
        same.settimeout(CLOSE_SECONDS)
        while same.recv(_CHUNK) and time.monotonic() < end:
            pass


def _same_socket(sock: Any) -> socket.socket:
    """The bare one of what may be wrapped in TLS or a WebSocket."""
    return socket.socket(fileno=os.dup(sock.fileno()))
