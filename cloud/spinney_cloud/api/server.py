"""uvicorn in our event loop: it leaves signals to us, and bounds connections and the time that each may idle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import h11
import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from ..settings import Http, Tls

HEAD_SECONDS = 10.0
"""A request's head must be whole by then."""
IDLE_SECONDS = 30
"""A connection without a request is closed then."""
MAX_SOCKET_MESSAGE = 1024**2
"""Bytes, from a browser."""
STOP_SECONDS = 5
"""What is being answered when we stop gets so long to end."""

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    b'retry-after: 1\r\n\r\n{"type":"about:blank","title":"Service Unavailable","status":503,'
    b'"detail":"too many connections"}'
)


class ConnectionCounts:
    """What the connections' metrics are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.refused = Counter("spinney_http_connections_refused", "Connections beyond the limit.", registry=registry)
        self.late = Counter("spinney_http_heads_late", "Connections whose request did not come.", registry=registry)
        self.malformed = Counter("spinney_http_malformed", "Requests that are not HTTP.", registry=registry)
        self.open = Gauge("spinney_http_connections", "Open connections.", registry=registry)


def connection_type(max_connections: int, counts: ConnectionCounts) -> type[H11Protocol]:
    """The protocol class for one listener."""

    class Connection(H11Protocol):
        """One client's connection."""

        _head: asyncio.TimerHandle | None = None
        _refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
            """Take it, unless there are too many."""
            if len(self.connections) >= max_connections:
                counts.refused.inc()
                self._refused = True
                self.transport = transport
                transport.write(_FULL)
                transport.close()
                return
            super().connection_made(transport)
            counts.open.set(len(self.connections))
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget it."""
            super().connection_lost(exc)
            self._have_head()
            counts.open.set(len(self.connections))

        def data_received(self, data: bytes) -> None:
            """Part of a request."""
            if self._refused:
                return
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._have_head()
            elif self._head is None:
                self._await_head()

        def send_400_response(self, msg: str) -> None:
            """What came is not HTTP; be it the rest of a request that is being answered, to which no more is said."""
            counts.malformed.inc()
            if _take_the_word(self.cycle):
                super().send_400_response(msg)
            else:
                self.transport.close()

        def _await_head(self) -> None:
            self._head = self.loop.call_later(HEAD_SECONDS, self._too_late)

        def _have_head(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

        def _too_late(self) -> None:
            self._head = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                counts.late.inc()
                self.transport.close()

    return Connection


def _take_the_word(cycle: RequestResponseCycle | None) -> bool:
    """Have the application say no more, as if the client were gone; whether it has not begun yet."""
    if cycle is None or cycle.response_complete:
        return True
    cycle.disconnected = True
    cycle.message_event.set()
    return not cycle.response_started


def tls_context(tls: Tls) -> ssl.SSLContext | None:
    """For a listener; None where there is no certificate. `load` on it again rotates the certificate."""
    if tls.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, tls)
    if tls.ca is not None:
        context.load_verify_locations(tls.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    """Connections from now on are shown this certificate; those that are open stay."""
    assert tls.certificate is not None
    context.load_cert_chain(tls.certificate, tls.key)


class WebServer(uvicorn.Server):
    """Serves until `should_exit` is set. Signals are the process's own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: uvicorn would end the process before it has cleaned up."""
        yield

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does, and tells."""
        await super().startup(sockets)
        self._started.set()

    async def wait_started(self) -> None:
        """Until it accepts connections."""
        await self._started.wait()


def web_server(app: ASGIApp, http: Http, context: ssl.SSLContext | None, counts: ConnectionCounts) -> WebServer:
    """A server for the application, not yet started."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # faults are logged with their request, see observed
    options: dict[str, Any] = {} if context is None else {"ssl_context_factory": lambda *_: context}
    config = uvicorn.Config(
        app,
        http=connection_type(http.max_connections, counts),
        ws="websockets-sansio",
        ws_max_size=MAX_SOCKET_MESSAGE,
        ws_per_message_deflate=False,  # each browser would deflate the same again
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # a forwarded address is anybody's word, and loopback is trusted
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        **options,
    )
    return WebServer(config)
