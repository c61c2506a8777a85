"""Bodies are read within bounds of size and time, whoever reads them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import Problem, answer

BODY_SECONDS = 30.0
"""A body that takes longer to come is given up."""
DRAIN_SECONDS = 2.0
DRAIN_FACTOR = 4
"""Of a body that is too large so much more is read, so that the client hears why instead of a broken connection."""


class BodyLimit:
    """ASGI middleware: 413 for what is larger, 408 for what is slower, 415 for what is compressed."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        problem = self._refuse(headers)
        if problem is None:
            await self.app(scope, _Counted(receive, self.max_bytes), send)
            return
        if b"expect" not in headers:
            await drain(receive, DRAIN_FACTOR * self.max_bytes)
        await answer(problem)(scope, receive, send)

    def _refuse(self, headers: dict[bytes, bytes]) -> Problem | None:
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.max_bytes:
            return _too_large(self.max_bytes)
        encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
        if encoding not in ("", "identity"):
            return Problem(415, f"content-encoding {encoding!r:.40} is not known: send it as it is")
        return None


class _Counted:
    """A `receive` that raises instead of giving too much or waiting too long."""

    def __init__(self, receive: Receive, max_bytes: int) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._read = 0
        self._whole = False
        self._deadline: float | None = None

    async def __call__(self) -> Message:
        if self._whole:  # whoever waits now waits for the client to go away
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise Problem(408, f"no whole body in {BODY_SECONDS:g} s", headers={"Connection": "close"}) from None
        self._whole = not message.get("more_body", False)
        self._read += len(message.get("body", b""))
        if self._read > self._max_bytes:
            if not self._whole:
                await drain(self._receive, DRAIN_FACTOR * self._max_bytes)
            raise _too_large(self._max_bytes)
        return message


def _too_large(max_bytes: int) -> Problem:
    return Problem(413, f"a body of at most {max_bytes} bytes is taken", headers={"Connection": "close"})


async def drain(receive: Receive, max_bytes: int) -> None:
    """Read on for a while, and forget what comes."""
    read, more = 0, True
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while more and read < max_bytes:
                message = await receive()
                read += len(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        return


class JsonRequest(Request):
    """Reads JSON strictly: no NaN, no half characters, no nesting that breaks a parser, integers of any length."""

    async def json(self) -> Any:
        """The body's objects."""
        body = await self.body()
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise json.JSONDecodeError(error.msg, "", error.pos) from None


class JsonRoute(APIRoute):
    """A route that reads its body so."""

    def get_route_handler(self) -> Any:
        """FastAPI's own, given our request."""
        handle = super().get_route_handler()

        async def handler(request: Request) -> Any:
            return await handle(JsonRequest(request.scope, request.receive))

        return handler
