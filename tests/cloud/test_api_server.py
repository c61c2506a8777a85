"""The listener and its bounds: sizes, times, connections, what is not HTTP. Raw sockets against the real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CollectorRegistry
from starlette.responses import Response

from spinney_cloud.api import bodies, server
from spinney_cloud.api import events as stream_events
from spinney_cloud.api.auth import NOBODY_ELSE
from spinney_cloud.api.bodies import BodyLimit, JsonRoute
from spinney_cloud.api.errors import install
from spinney_cloud.api.events import EventStream, Streams
from spinney_cloud.api.observed import Observed
from spinney_cloud.api.server import ConnectionCounts, WebServer, web_server
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.note_feed import NoteFeed
from spinney_cloud.settings import Http

MAX_BODY = 10_000
DEADLINE = 15.0


@dataclass
class Running:
    """A server in this loop."""

    port: int
    server: WebServer
    registry: CollectorRegistry

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    async def exchange(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send, and read one response."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            return await response(reader)
        finally:
            writer.close()


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    length = headers.get("content-length")
    body = await asyncio.wait_for(reader.readexactly(int(length)) if length else reader.read(), 10)
    return int(head[0].split()[1]), headers, body


def application() -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    install(app)
    router = APIRouter(route_class=JsonRoute)

    @router.post("/length")
    async def length(request: Request) -> dict[str, int]:
        return {"length": len(await request.body())}

    @router.post("/json")
    async def parsed(body: dict[str, Any]) -> dict[str, int]:
        return {"members": len(body)}

    @router.get("/fault")
    async def fault() -> None:
        raise ZeroDivisionError

    @router.get("/endless", response_class=Response)
    async def endless() -> Response:
        return EventStream(STREAMS, NOBODY_ELSE, pour_events(), asyncio.Event(), allowed)

    app.include_router(router)
    return app


STREAMS = Streams(NoteFeed(cast(NatsLog, None)))  # it is never entered, so it reads nothing


async def pour_events() -> AsyncGenerator[bytes, None]:
    while True:
        await asyncio.sleep(0)
        yield b"data: " + b"x" * 100_000 + b"\n\n"


async def allowed() -> bool:
    return True


@contextlib.asynccontextmanager
async def running(**http: Any) -> AsyncIterator[Running]:
    registry = CollectorRegistry()
    app = application()
    app.add_middleware(BodyLimit, max_bytes=MAX_BODY)
    listening = socket.create_server(("127.0.0.1", 0))
    web = web_server(Observed(app, registry), Http(**http), None, ConnectionCounts(registry))
    serving = asyncio.create_task(web.serve([listening]))
    await web.wait_started()
    try:
        yield Running(listening.getsockname()[1], web, registry)
    finally:
        web.should_exit = True
        await serving


def run(test: Callable[[Running], Awaitable[None]], **http: Any) -> None:
    async def whole() -> None:
        async with running(**http) as web:
            await test(web)

    asyncio.run(asyncio.wait_for(whole(), 30))


def post(path: str, body: bytes, *more: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}", *more]
    return "\r\n".join([*head, "", ""]).encode() + body


def test_a_body_up_to_the_limit_is_taken() -> None:
    async def test(web: Running) -> None:
        status, _, body = await web.exchange(post("/length", b"x" * MAX_BODY))
        assert (status, json.loads(body)) == (200, {"length": MAX_BODY})

    run(test)


def test_a_body_that_says_it_is_too_large_is_refused_with_a_problem() -> None:
    async def test(web: Running) -> None:
        status, headers, body = await web.exchange(post("/length", b"x" * (MAX_BODY + 1)))
        assert (status, headers["content-type"]) == (413, "application/problem+json")
        assert json.loads(body)["status"] == 413
        assert headers["connection"] == "close"

    run(test)


def test_a_client_that_asks_first_hears_it_before_it_sends() -> None:
    async def test(web: Running) -> None:
        head = f"POST /length HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {MAX_BODY + 1}\r\n\r\n"
        status, _, _ = await web.exchange(head.encode())
        assert status == 413

    run(test)


def test_a_body_in_chunks_that_grows_too_large_is_refused_while_it_is_read() -> None:
    async def test(web: Running) -> None:
        chunk = b"%x\r\n%b\r\n" % (1000, b"x" * 1000)
        head = b"POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        status, _, _ = await web.exchange(head + chunk * 11 + b"0\r\n\r\n")
        assert status == 413

    run(test)


def test_a_body_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "DRAIN_SECONDS", 0.2)

    async def test(web: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")

        async def pour() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b"%x\r\n%b\r\n" % (1000, b"x" * 1000))
                    await writer.drain()

        pouring = asyncio.create_task(pour())
        with contextlib.suppress(ConnectionError):  # it is reset where much is under way
            assert (await response(reader))[0] == 413
        await asyncio.wait_for(pouring, 10)
        assert web.count("spinney_http_requests_total", method="POST", route="/length", status="413") == 1

    run(test)


def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.1)

    async def test(web: Running) -> None:
        status, _, _ = await web.exchange(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
        assert status == 408

    run(test)


def test_a_head_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)

    async def test(web: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"POST /length HTTP/1.1\r\n")

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                for letter in b"x" * 10_000:
                    writer.write(bytes([letter]))
                    await asyncio.sleep(0.01)

        trickling = asyncio.create_task(trickle())
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        trickling.cancel()
        writer.close()
        assert web.count("spinney_http_heads_late_total") == 1

    run(test)


def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)

    async def test(web: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()

    run(test)


def test_a_second_request_that_trickles_is_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)

    async def test(web: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(post("/length", b"abc"))
        assert (await response(reader))[0] == 200
        writer.write(b"POST /le")
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        assert web.count("spinney_http_heads_late_total") == 1

    run(test)


def test_connections_beyond_the_limit_hear_so_and_the_others_go_on() -> None:
    async def test(web: Running) -> None:
        held = [await asyncio.open_connection("127.0.0.1", web.port) for _ in range(3)]
        for reader, writer in held:
            writer.write(post("/length", b"abc"))
            assert (await response(reader))[0] == 200
        status, headers, body = await web.exchange(b"")
        assert (status, headers["content-type"]) == (503, "application/problem+json")
        assert json.loads(body)["detail"] == "too many connections"
        held[0][1].write(post("/length", b"abc"))
        assert (await response(held[0][0]))[0] == 200
        held[1][1].close()
        await held[1][1].wait_closed()
        async with asyncio.timeout(5):
            while (await web.exchange(post("/length", b"abc")))[0] != 200:
                pass
        assert web.count("spinney_http_connections_refused_total") >= 1
        for _, writer in held:
            writer.close()

    run(test, max_connections=3)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"GET / HTTP/9.9\r\n\r\n",
        b"G\x00T / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    ],
    ids=["tls", "version", "nul", "negative", "two lengths", "bad chunk", "long path", "many headers"],
)
def test_what_is_not_http_is_refused_and_harms_nobody(data: bytes) -> None:
    async def test(web: Running) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            status, _, _ = await web.exchange(data)
            assert 400 <= status < 500
        assert (await web.exchange(post("/length", b"abc")))[0] == 200

    run(test)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 9_000,
        b'{"a":' * 1_900,
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b"[]",
        b"null",
        b'"\\u0000',
    ],
)
def test_json_that_is_none_gets_a_problem(body: bytes) -> None:
    async def test(web: Running) -> None:
        status, headers, told = await web.exchange(post("/json", body))
        assert (status in (400, 422), headers["content-type"]) == (True, "application/problem+json")
        assert json.loads(told)["detail"]

    run(test)


def test_a_fault_of_ours_is_told_without_its_inside_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test(web: Running) -> None:
        status, headers, told = await web.exchange(b"GET /fault HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, headers["content-type"]) == (500, "application/problem+json")
        assert "Traceback" not in told.decode()
        assert web.count("spinney_http_requests_total", method="GET", route="/fault", status="500") == 1

    run(test)
    assert "ZeroDivisionError" in caplog.text
    assert "/fault" in caplog.text


def test_a_compressed_body_is_refused() -> None:
    async def test(web: Running) -> None:
        status, _, _ = await web.exchange(post("/length", b"abc", "Content-Encoding: gzip"))
        assert status == 415

    run(test)


def test_made_up_paths_and_methods_make_no_metrics() -> None:
    async def test(web: Running) -> None:
        for number in range(20):
            status, _, _ = await web.exchange(b"M%d /p%d HTTP/1.1\r\nHost: x\r\n\r\n" % (number, number))
            assert status == 404
        names = {sample.labels.get("route") for metric in web.registry.collect() for sample in metric.samples}
        assert names == {None, "none"}

    run(test)


def test_a_stream_whose_client_reads_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_events, "SEND_SECONDS", 0.2)

    async def test(web: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port, limit=1024)
        writer.write(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        before = STREAMS.slow
        async with asyncio.timeout(DEADLINE):
            while STREAMS.slow == before or STREAMS.open:
                await asyncio.sleep(0)
            while await reader.read(1_000_000):  # to the end of what was under way
                pass
        writer.close()

    run(test)


def test_streams_of_one_caller_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_events, "MAX_STREAMS", 1)

    async def test(web: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await reader.readline()
        status, headers, _ = await web.exchange(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, headers["content-type"]) == (429, "application/problem+json")
        writer.close()

    run(test)
