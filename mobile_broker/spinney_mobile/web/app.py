"""What is answered over HTTP: the page, `/status` as JSON or as a stream of it, `/seen`, `/explain`, `/metrics`.

It comes in two ways: through the socket in the data directory, which only the broker's user may open, and through a
port. There loopback names are let in; on other addresses a token is asked for, which the page keeps as a cookie.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import math
import re
from collections.abc import AsyncIterator, Mapping
from importlib.resources import files
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from spinney.errors import SpinneyError

from ..metrics import render
from ..status import Status

EVERY_SECONDS: Final = 2.0
"""Between two pictures of a stream."""
PICTURE_SECONDS: Final = 1.0
"""For how long all streams are given the same one."""
MAX_STREAMS: Final = 20
"""Pages that are open at one time."""
MAX_BODY: Final = 256 * 1024
_COOKIE: Final = "spinney_token"
_LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")


class Source(Protocol):
    """Whom the answers come from."""

    def status(self) -> Status:
        """A picture of this moment."""
        ...

    def seen(self) -> list[dict[str, Any]]:
        """All devices heard, taken or not."""
        ...

    def explain(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Why a reading is wanted or not; SpinneyError for what is none."""
        ...


class WebApp:
    """The application. `token`: what is asked for beyond loopback names, if anything."""

    def __init__(self, source: Source, token: str | None = None) -> None:
        self._source = source
        self._streams = 0
        self._newest = b""
        self._pictured = -math.inf
        self.stopping = asyncio.Event()
        page = files("spinney_mobile.web").joinpath("page.html").read_text(encoding="utf-8")
        self._page = HTMLResponse(page, headers={"Content-Security-Policy": _policy(page)})
        routes = [
            Route("/", self._index),
            Route("/status", self._status),
            Route("/seen", self._seen),
            Route("/explain", self._explain, methods=["POST"]),
            Route("/metrics", self._metrics),
        ]
        self.asgi: ASGIApp = _Door(Starlette(routes=routes), token)

    async def _index(self, _request: Request) -> Response:
        return self._page

    async def _status(self, request: Request) -> Response:
        if "text/event-stream" not in request.headers.get("accept", ""):
            return JSONResponse(self._source.status().to_json())
        if self._streams >= MAX_STREAMS:
            return _problem(503, f"{MAX_STREAMS} pages are open already; close one")
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _stream(self) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            while not self.stopping.is_set():
                yield b"data: %b\n\n" % self._picture()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopping.wait(), EVERY_SECONDS)
        finally:
            self._streams -= 1

    def _picture(self) -> bytes:
        """With many filters it takes its time, which pages must not take many times over."""
        now = asyncio.get_running_loop().time()
        if now - self._pictured >= PICTURE_SECONDS:
            self._newest = json.dumps(self._source.status().to_json(), separators=(",", ":")).encode()
            self._pictured = asyncio.get_running_loop().time()
        return self._newest

    async def _seen(self, _request: Request) -> Response:
        return JSONResponse(self._source.seen())

    async def _metrics(self, _request: Request) -> Response:
        return PlainTextResponse(render(self._source.status()), media_type="text/plain; version=0.0.4")

    async def _explain(self, request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return _problem(413, f"more than {MAX_BODY} bytes")
        try:
            ask = json.loads(body)
            if not isinstance(ask, dict):
                return _problem(400, "expected a JSON object")
            return JSONResponse(self._source.explain(ask))
        except (SpinneyError, ValueError, RecursionError) as error:
            return _problem(400, str(error) or "not JSON")


def _problem(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status)


def _policy(page: str) -> str:
    """Only what is in the page itself may run, and it may ask only us."""
    hashes = {}
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        hashes[tag] = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}'; style-src 'sha256-{hashes['style']}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class _Door:
    """Who may come in, and what all answers say."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        assert scope["type"] == "http"
        request = Request(scope)
        response: ASGIApp
        if not scope["client"]:  # through the socket
            response = self._app
        elif self._token is None:
            # a page elsewhere whose name leads here is a stranger's, for all that it is loopback
            is_ours = _LOOPBACK.fullmatch(request.headers.get("host", ""))
            response = self._app if is_ours else _problem(403, "ask for localhost")
        elif (given := request.query_params.get("token")) is not None and self._is_token(given):
            response = RedirectResponse("/", 303)
            response.set_cookie(_COOKIE, given, httponly=True, samesite="strict")
        elif self._is_token(request.cookies.get(_COOKIE, "")) or self._is_token(_bearer(request)):
            response = self._app
        else:
            response = _problem(401, "open the address with ?token= and what is in the data directory's file `token`")
        await response(scope, receive, _saying(send))

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())


def _bearer(request: Request) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer ")


def _saying(send: Send) -> Send:
    """Headers that all answers have."""

    async def wrapped(message: Any) -> None:
        if message["type"] == "http.response.start":
            more = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return wrapped
