"""The page's routes, put together: NiceGUI's page and files, ours, the socket, logging in and out; behind the guard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import parse_qs

from fastapi import Depends, FastAPI, Request
from nicegui import core, ui
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from ..api.auth import Caller, Right, needs
from ..api.context import Api, reply
from ..api.errors import Problem, install
from ..api.explaining import read_subscription
from ..api.models import MAX_TEXT
from ..api.sessions import COOKIE
from . import shell
from .guard import BASE, LOGIN, Guard, Nonces
from .live import Live

log = logging.getLogger(__name__)

STATIC: Final = Path(__file__).parent / "static"
MAX_FORM: Final = 4_096
"""Bytes of a name and a password."""
RECONNECT_SECONDS: Final = 30.0
"""For so long NiceGUI keeps what it knows of a page whose socket is gone."""


@asynccontextmanager
async def dashboard(app: FastAPI, api: Api) -> AsyncIterator[None]:
    """The page, below /dashboard of the application; once in a process, for NiceGUI is one for all."""
    live = Live(api)
    page = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    page.state.api = api
    install(page)
    _add_routes(page, live)
    shell.define(api)
    core.app.config.socket_io_js_transports = ["websocket"]
    core.app.config.quasar_config["loadingBar"]["skipHijack"] = True  # else it runs with each of our requests
    ui.run_with(
        page,
        title="Spinney",
        favicon=STATIC / "icon.svg",
        language="en-US",
        dark=None,
        tailwind=False,
        binding_refresh_interval=None,
        gzip_middleware_factory=None,  # what is zipped cannot be given a nonce
        reconnect_timeout=RECONNECT_SECONDS,
        show_welcome_message=False,
    )
    for path in ("/", BASE):  # or else the way to the page would name scheme and host, which a proxy may hide
        app.add_route(path, _to_page, include_in_schema=False)
    zipped = GZipMiddleware(Nonces(page), minimum_size=1_000)
    app.mount(BASE, Guard(zipped, api.door, lambda: api.service.settings.dashboard))
    async with page.router.lifespan_context(page):
        try:
            yield
        finally:
            await live.close()


async def _to_page(_: Request) -> Response:
    return RedirectResponse(f"{BASE}/", 307)


def _add_routes(page: FastAPI, live: Live) -> None:
    page.mount("/static", StaticFiles(directory=STATIC))
    page.mount("/leaflet", StaticFiles(directory=shell.LEAFLET / "leaflet"))
    page.add_api_route("/login", _form, methods=["GET"])
    page.add_api_route("/login", _log_in, methods=["POST"])
    page.add_api_route("/logout", _log_out, methods=["POST"])
    page.add_api_route("/check", _check, methods=["POST"])

    @page.websocket("/live")
    async def sockets(socket: WebSocket) -> None:
        await live.serve(socket, await api_of(socket).door.caller(socket))


def api_of(connection: Request | WebSocket) -> Api:
    """The application's surroundings."""
    api: Api = connection.app.state.api
    return api


async def _form(request: Request) -> Response:
    """Where one logs in; who need not is led on."""
    if not api_of(request).door.has_users:
        return RedirectResponse(f"{BASE}/", 303)
    return FileResponse(STATIC / "login.html", headers={"cache-control": "no-store"})


async def _log_in(request: Request) -> Response:
    """A form's name and password. The cookie is no script's business, and goes along on no other site's request."""
    door = api_of(request).door
    body = await request.body()
    fields = parse_qs(body[:MAX_FORM].decode(errors="replace"))
    name, password = (fields.get(field, [""])[0] for field in ("name", "password"))
    if not door.is_own_page(request):
        origin = request.headers.get("origin")
        log.warning("a login from the page at %s is refused; http.public_url says where it is behind a proxy", origin)
        return RedirectResponse(f"{LOGIN}#elsewhere", 303)
    cookie = await door.log_in(name, password)
    if cookie is None:
        return RedirectResponse(f"{LOGIN}#wrong", 303)
    response = RedirectResponse(f"{BASE}/", 303)
    lifetime = door.sessions.lifetime_seconds if door.sessions is not None else 0.0
    secure = request.headers.get("origin", "").startswith("https:")  # as the browser sees it, also through a proxy
    response.set_cookie(
        COOKIE, cookie, max_age=int(lifetime), path="/", secure=secure, httponly=True, samesite="strict"
    )
    return response


async def _log_out(_: Request) -> Response:
    response = RedirectResponse(LOGIN, 303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


async def _check(request: Request, _: Annotated[Caller, Depends(needs(Right.SUBSCRIBE))]) -> Response:
    """Whether a text is a subscription; what kind of, or else where not. Half a text is no fault: the answer is 200."""
    text = (await request.body())[: 4 * MAX_TEXT].decode(errors="replace")
    async with api_of(request).slow_work.turn():
        try:
            _subscription, form = await asyncio.to_thread(read_subscription, text)
        except Problem as problem:
            return reply({"ok": False, "message": problem.detail, **problem.fields})
    return reply({"ok": True, "kind": form.kind, "normal": form.normal, "cost": form.cost})
