"""Notifications as server-sent events, of one subscription or of all."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import Response

from .asks import ask
from .auth import Caller, Right, needs
from .context import Api, api_of, owner_of
from .errors import problems
from .events import EventStream
from .models import Owner, Sid

router = APIRouter(prefix="/v1", tags=["notifications"])
Asking = Annotated[Caller, Depends(needs(Right.SUBSCRIBE))]
Context = Annotated[Api, Depends(api_of)]
EventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", max_length=64, description="Go on after this event; without it: from now on"),
]
After = Annotated[str | None, Query(max_length=64, description="The same, for clients that cannot set the header")]
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events for as long as the client reads; `gap` says that some are no longer there, "
        "`cut` is the last one of a client that reads too slowly",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get("/notifications", response_class=Response, responses={**_STREAM, **problems(422, 429)})
async def notifications(
    request: Request, caller: Asking, api: Context, owner: Owner = None, last: EventId = None, after: After = None
) -> Response:
    """All notifications of one's subscriptions as they come. Options of delivery are for MQTT: none is left out."""
    return _stream(request, api, caller, owner_of(caller, owner), None, last or after)


@router.get(
    "/subscriptions/{sid}/notifications",
    response_class=Response,
    responses={**_STREAM, **problems(404, 422, 429)},
)
async def notifications_of_one(
    sid: Sid,
    request: Request,
    caller: Asking,
    api: Context,
    owner: Owner = None,
    last: EventId = None,
    after: After = None,
) -> Response:
    """All notifications of one subscription as they come. Options of delivery are for MQTT: none is left out."""
    owner = owner_of(caller, owner)
    await ask(api.log, "coordinator", "get", tenant=caller.tenant, owner=owner, sid=sid)  # 404 for what is not there
    return _stream(request, api, caller, owner, sid, last or after)


def _stream(request: Request, api: Api, caller: Caller, owner: str, sid: str | None, after: str | None) -> EventStream:
    events = api.streams.feed.events(owner, caller.tenant, sid, after)
    return EventStream(api.streams, caller, events, api.service.stopping, api.door.watch(request, caller))
