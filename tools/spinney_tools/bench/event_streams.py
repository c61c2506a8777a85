"""Both ends of server-sent events, each a process: a web server with nothing but a feed, and many readers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from multiprocessing.connection import Connection
from typing import Any

HOST = "127.0.0.1"


def serve_events(endpoints: Any, port: int, pipe: Connection) -> None:
    """`/OWNER` is that owner's stream. Begins when told to, says when it listens, ends with the pipe."""
    pipe.recv()
    with contextlib.suppress(EOFError):
        asyncio.run(_serve(endpoints, port, pipe))


async def _serve(endpoints: Any, port: int, pipe: Connection) -> None:
    from prometheus_client import CollectorRegistry

    from spinney_cloud.api.auth import Caller
    from spinney_cloud.api.events import EventStream, Streams
    from spinney_cloud.api.server import ConnectionCounts, web_server
    from spinney_cloud.nats_log import NatsLog
    from spinney_cloud.note_feed import NoteFeed
    from spinney_cloud.settings import Http

    async with await NatsLog.connect(endpoints, name="events") as log, NoteFeed(log) as feed:
        streams = Streams(feed)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            owner = scope["path"].strip("/")
            caller = Caller(owner, "subscriber", "default")
            stream = EventStream(streams, caller, feed.events(owner, "default"), stopping, _allowed)
            await stream(scope, receive, send)

        stopping = asyncio.Event()
        server = web_server(app, Http(), None, ConnectionCounts(CollectorRegistry()))
        serving = asyncio.create_task(server.serve([socket.create_server((HOST, port))]))
        await server.wait_started()
        pipe.send(None)
        await serving


async def _allowed() -> bool:
    return True


def read_events(port: int, connections: int, count: int, pipe: Connection) -> None:
    """Reads as many streams; says when all are open, and then when the first and the last event came."""
    pipe.recv()
    with contextlib.suppress(EOFError):
        asyncio.run(_read(port, connections, count, pipe))


async def _read(port: int, connections: int, count: int, pipe: Connection) -> None:
    times: list[float] = []
    got = 0
    done = asyncio.Event()
    streams = [await asyncio.open_connection(HOST, port) for _ in range(connections)]
    for i, (reader, writer) in enumerate(streams):
        writer.write(b"GET /s%d HTTP/1.1\r\nHost: bench\r\n\r\n" % i)
        await reader.readuntil(b"retry: 2000\n\n")

    async def read(reader: asyncio.StreamReader) -> None:
        nonlocal got
        rest = b""
        while data := await reader.read(1 << 16):
            *whole, rest = (rest + data).split(b"\ndata: ")
            got += len(whole)
            times.append(time.time())
            if got >= count:
                done.set()

    tasks = [asyncio.create_task(read(reader)) for reader, _ in streams]
    pipe.send(None)
    await done.wait()
    pipe.send((times[0], times[-1]))
    await asyncio.gather(*tasks, return_exceptions=True)
