"""Subscribers' sessions at our MQTT server: who is there, since when the others are away, and what waits for them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from .asks import ask
from .auth import Caller, Right, needs
from .context import Api, api_of, reply
from .errors import problems
from .models import After, Limit, Sessions

router = APIRouter(prefix="/v1", tags=["notifications"])
Asking = Annotated[Caller, Depends(needs(Right.SUBSCRIBE))]
Context = Annotated[Api, Depends(api_of)]


@router.get("/sessions", response_model=Sessions, responses=problems(422))
async def sessions(caller: Asking, api: Context, limit: Limit = 100, after: After = None) -> Response:
    """One's own; an operator's are those of all clients in the tenant. Empty where the MQTT server is not ours."""
    client = None if caller.may(Right.OPERATE) else caller.name
    found: list[dict[str, Any]] = []
    place: str | None = after or ""
    while place is not None and len(found) < limit:
        answer = await ask(api.log, "delivery", "sessions", client=client, after=place, limit=limit)
        page = answer["sessions"]
        mine = [one for one in page if client is not None or api.door.tenant_of(one["client"]) == caller.tenant]
        room = limit - len(found)
        found += mine[:room]
        place = found[-1]["key"] if len(mine) > room else page[-1]["key"] if len(page) == limit else None
    return reply({"sessions": found, "next": place})
