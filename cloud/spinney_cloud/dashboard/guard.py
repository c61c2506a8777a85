"""In front of everything below /dashboard: who may come in, from which page, and what the browser may do with it.

Sockets are checked at their opening and at every message, NiceGUI's like ours. Vue compiles NiceGUI's templates in the
browser, which is why 'unsafe-eval' stands in the policy; scripts in the page itself need its nonce.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..api.auth import Door
from ..api.errors import Problem
from ..settings import Dashboard

BASE: Final = "/dashboard"
LOGIN: Final = f"{BASE}/login"
OPEN: Final = ("/login", "/static/login.css", "/static/icon.svg", "/static/theme.js")
"""What one sees before logging in."""
SOCKETS: Final = "/_nicegui_ws/"
FORBIDDEN: Final = 4403
NONCE: Final = "spinney.nonce"
"""In a request's scope."""

_SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "strict-origin-when-cross-origin",  # tile servers want to know whose map it is
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_SCRIPT = b"<script"


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, door: Door, settings: Callable[[], Dashboard]) -> None:
        self._app = app
        self._door = door
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request or socket."""
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        send = _with_headers(send, {**_SAFE, "content-security-policy": self._policy(nonce)})
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path.startswith(SOCKETS):
            await PlainTextResponse("a WebSocket only", 404)(scope, receive, send)
        elif path in OPEN:
            await self._app(scope, receive, send)
        elif (answer := await self._refuse(HTTPConnection(scope))) is not None:
            await answer(scope, receive, send)
        else:
            await self._app({**scope, NONCE: nonce.encode()}, receive, send)

    async def _refuse(self, connection: HTTPConnection) -> Response | None:
        try:
            await self._door.caller(connection)
        except Problem as problem:
            if problem.status_code == 401 and self._door.has_users:
                return RedirectResponse(LOGIN, 303, {"cache-control": "no-store"})
            return PlainTextResponse(str(problem.detail), problem.status_code)
        return None

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        try:
            caller = await self._door.caller(connection)
            if not self._door.is_own_page(connection):
                raise Problem(403, "a page of another site is not let in")
        except Problem:
            await receive()
            await send({"type": "websocket.close", "code": FORBIDDEN})  # before it is accepted: an HTTP 403
            return
        still_allowed = self._door.watch(connection, caller)

        async def checked() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive" and not await still_allowed():
                await send({"type": "websocket.close", "code": FORBIDDEN, "reason": "log in again"})
                return {"type": "websocket.disconnect", "code": FORBIDDEN}
            return message

        await self._app(scope, checked, send)

    def _policy(self, nonce: str) -> str:
        tiles = origin_of(self._settings().tiles)
        return "; ".join(
            [
                "default-src 'none'",
                f"script-src 'self' 'nonce-{nonce}' 'unsafe-eval'",
                "style-src 'self' 'unsafe-inline'",
                f"img-src 'self' data: blob:{tiles and ' ' + tiles}",
                "font-src 'self'",
                "connect-src 'self'",
                "manifest-src 'self'",
                "base-uri 'none'",
                "form-action 'self'",
                "frame-ancestors 'none'",
            ]
        )


class Nonces:
    """ASGI middleware: gives the scripts of NiceGUI's page our nonce. What others have said stands in it escaped."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        is_page = NONCE in scope and scope["path"].removeprefix(scope.get("root_path", "")) in ("", "/")
        await self._app(scope, receive, _Page(send, scope[NONCE]) if is_page else send)


class _Page:
    """A `send` for a page: the whole of it is changed, and sent at once."""

    def __init__(self, send: Send, nonce: bytes) -> None:
        self._send = send
        self._nonce = nonce
        self._start: Message = {}
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        headers = MutableHeaders(raw=self._start["headers"])
        if headers.get("content-type", "").startswith("text/html"):
            self._body = self._body.replace(_SCRIPT, b'%b nonce="%b"' % (_SCRIPT, self._nonce))
            headers["content-length"] = str(len(self._body))
            headers["cache-control"] = "no-store"
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": self._body})


def _with_headers(send: Send, more: dict[str, str]) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in more.items():
                headers[name] = value
        await send(message)

    return with_headers


def origin_of(tiles: str) -> str:
    """Of a URL with places in braces, as a policy names it; empty for none."""
    parts = urlsplit(tiles)
    return f"{parts.scheme}://{parts.netloc.replace('{s}', '*')}" if parts.netloc else ""
