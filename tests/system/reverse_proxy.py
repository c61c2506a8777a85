"""A reverse proxy that ends TLS, as people put in front of a cloud: with a Host of its own, or the browser's."""

from __future__ import annotations

import asyncio
import queue
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from servers import HOST

SECONDS = 60.0


class Proxy:
    """Every connection to its port becomes one to the other port; only the head of a request is changed."""

    def __init__(self, port: int, upstream: int, context: ssl.SSLContext, *, passes_host: bool) -> None:
        self._port = port
        self._upstream = upstream
        self._context = context
        self._passes_host = passes_host

    async def serve(self, ready: Callable[[asyncio.AbstractEventLoop, asyncio.Event], None]) -> None:
        """Until what it makes ready is set."""
        over = asyncio.Event()
        server = await asyncio.start_server(self._serve_one, HOST, self._port, ssl=self._context)
        ready(asyncio.get_running_loop(), over)
        await over.wait()
        server.close()  # what is open still ends with the loop: browsers keep some connections for later

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            upstream_reader, upstream = await asyncio.open_connection(HOST, self._upstream)
            writers.append(upstream)
            upstream.write(self._changed(head))
            await asyncio.gather(_pipe(reader, upstream), _pipe(upstream_reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass  # either has gone
        finally:
            for each in writers:
                each.transport.abort()

    def _changed(self, head: bytes) -> bytes:
        """One request for each connection, so that no other head comes."""
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        headers = dict(line.split(": ", 1) for line in lines)
        headers["X-Forwarded-For"], headers["X-Forwarded-Proto"] = HOST, "https"
        headers["X-Forwarded-Host"] = headers["Host"]
        if not self._passes_host:
            headers["Host"] = f"{HOST}:{self._upstream}"
        if "Upgrade" not in headers:
            headers["Connection"] = "close"
        return "\r\n".join([first, *(": ".join(header) for header in headers.items()), "", ""]).encode("latin-1")


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@contextmanager
def reverse_proxy(port: int, upstream: int, context: ssl.SSLContext, *, passes_host: bool) -> Iterator[str]:
    """One that runs in a thread; its URL."""
    proxy = Proxy(port, upstream, context, passes_host=passes_host)
    begun: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()
    thread = threading.Thread(target=lambda: asyncio.run(proxy.serve(lambda *made: begun.put(made))), daemon=True)
    thread.start()
    loop, over = begun.get(timeout=SECONDS)
    try:
        yield f"https://localhost:{port}"
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(SECONDS)
        assert not thread.is_alive(), "it does not end"
