"""The process that speaks HTTP: the API, events, metrics of all processes, health."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import orjson
from prometheus_client import generate_latest

from .api.app import make_app
from .api.auth import Door
from .api.context import Api
from .api.events import Streams
from .api.observed import Observed
from .api.server import ConnectionCounts, WebServer, load_certificate, tls_context, web_server
from .api.sessions import Sessions
from .api.slow_work import SlowWork
from .dashboard import dashboard
from .data_dir import read_secrets
from .fetch.fetching import Fetching
from .nats_log import NatsLog
from .note_feed import NoteFeed
from .service import Service
from .settings import Settings
from .users import UsersFile

log = logging.getLogger(__name__)
BACKLOG = 1024


async def serve(service: Service) -> None:
    """Answer until told to stop."""
    context = tls_context(service.settings.http.tls)
    listening = listen(service)
    async with await NatsLog.connect(service.endpoints, name=service.name) as nats_log, NoteFeed(nats_log) as feed:
        sessions = Sessions(read_secrets(service.settings.data), service.settings.dashboard.session)
        users = UsersFile(service.settings.data)
        settings = service.settings
        door = Door(users.current, settings.security.anonymous, service.metrics, sessions, settings.http.public_url)
        streams = Streams(feed)
        service.metrics.register(streams)
        fetching = Fetching(nats_log, settings, service.metrics)
        api = Api(service, nats_log, door, SlowWork(), fetching, streams)
        app = make_app(api)
        service.health = lambda: health(nats_log)
        await answer_asks(service, nats_log)
        await fetching.start()
        service.on_reload = lambda settings: reload_certificate(context, settings)
        async with AsyncExitStack() as stack:
            if service.settings.dashboard.enabled:
                await stack.enter_async_context(dashboard(app, api))
            observed = Observed(app, service.metrics)
            server = web_server(observed, service.settings.http, context, ConnectionCounts(service.metrics))
            await serve_until_stopped(service, server, listening)


def health(nats_log: NatsLog) -> dict[str, Any]:
    """Without the log's server little can be answered."""
    return {"ready": True} if nats_log.connected else {"ready": False, "why": "no connection to the log's server"}


async def answer_asks(service: Service, nats_log: NatsLog) -> None:
    """As every process does."""

    async def metrics(_: bytes) -> bytes:
        return generate_latest(service.metrics)

    async def healthy(_: bytes) -> bytes:
        return orjson.dumps(service.health())

    await nats_log.answer(service.name, "metrics", metrics)
    await nats_log.answer(service.name, "health", healthy)


def listen(service: Service) -> socket.socket:
    """The socket, before anything else: a port in use is said at once."""
    host, port = service.settings.http.host, service.endpoints.http_port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # inherited by connections: head and body are written one after the other, and must not wait for each other's ACK
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


async def serve_until_stopped(service: Service, server: WebServer, listening: socket.socket) -> None:
    """Finish what is being answered, then return."""
    serving = asyncio.create_task(server.serve([listening]))
    await _first(serving, server.wait_started())
    if not serving.done():
        service.ready()
        await _first(serving, service.stopping.wait())
    server.should_exit = True
    await serving


async def _first(serving: asyncio.Task[None], other: Coroutine[Any, Any, Any]) -> None:
    """Until the other has happened, or the server has ended by itself."""
    waiting = asyncio.create_task(other)
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def reload_certificate(context: ssl.SSLContext | None, settings: Settings) -> None:
    """New connections are shown the new certificate; a broken one is said, and the old one kept."""
    if context is None or settings.http.tls.certificate is None:
        return
    try:
        load_certificate(context, settings.http.tls)
        log.info("the certificate is loaded again")
    except (OSError, ssl.SSLError) as error:
        log.error("the certificate cannot be loaded, the old one stays: %s", error)
