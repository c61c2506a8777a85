"""uvicorn in our event loop: it leaves signals to us, and bounds connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn

from .app import WebApp

MAX_CONNECTIONS: Final = 64
IDLE_SECONDS: Final = 30
STOP_SECONDS: Final = 2


class _Uvicorn(uvicorn.Server):
    """Signals are the process's own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


class WebServer:
    """Serves an application on sockets that listen, until cancelled."""

    def __init__(self, app: WebApp, sockets: list[socket.socket]) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._app = app
        self._sockets = sockets
        config = uvicorn.Config(
            app.asgi,
            http="h11",
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        self._server = _Uvicorn(config)

    async def run(self) -> None:
        """Until cancelled; what is being answered then is ended in order."""
        serving = asyncio.create_task(self._server.serve(self._sockets))
        try:
            await asyncio.shield(serving)
        finally:
            self._app.stopping.set()
            self._server.should_exit = True
            await serving


def listen(host: str, port: int) -> socket.socket:
    """A socket for it; OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    listener.setblocking(False)
    return listener
