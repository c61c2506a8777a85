"""What the routes work with: one object for the application."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import HTTPConnection
from starlette.responses import Response

from ..fetch.fetching import Fetching
from ..nats_log import NatsLog
from ..service import Service
from .auth import Caller, Door, Right
from .errors import Problem
from .events import Streams
from .slow_work import SlowWork


@dataclass(slots=True)
class Api:
    """The application's surroundings."""

    service: Service
    log: NatsLog
    door: Door
    slow_work: SlowWork
    fetching: Fetching
    streams: Streams


def api_of(connection: HTTPConnection) -> Api:
    """A dependency: the application's one."""
    api: Api = connection.app.state.api
    return api


def reply(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON, quickly. Tests hold it against the route's model."""
    return Response(orjson.dumps(body), status, headers, "application/json")


def owner_of(caller: Caller, owner: str | None) -> str:
    """Whose subscriptions: one's own; only operators may name another."""
    if owner is None or owner == caller.name:
        return caller.name
    if not caller.may(Right.OPERATE):
        raise Problem(403, "only operators may name another owner")
    return owner
