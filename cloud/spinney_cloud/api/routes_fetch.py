"""POST /v1/fetch: what mobile brokers held back, for who answers about the past elsewhere, as `spinney replay` does."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from spinney import feed

from ..names import LOG
from .auth import Caller, Right, needs
from .bodies import JsonRoute
from .context import Api, api_of, reply
from .errors import problems
from .explaining import read_subscription
from .models import FetchBody, FetchedReadings

router = APIRouter(prefix="/v1", tags=["subscriptions"], route_class=JsonRoute)


@router.post("/fetch", response_model=FetchedReadings, responses=problems(400, 413, 415, 422, 429))
async def fetch(
    body: FetchBody, caller: Annotated[Caller, Depends(needs(Right.SUBSCRIBE))], api: Annotated[Api, Depends(api_of)]
) -> Response:
    """Asks mobile brokers for valid readings that a subscription would be fed and nobody wanted; keeps none of them."""
    async with api.slow_work.turn():
        request, _ = await asyncio.to_thread(read_subscription, body.subscription)
    now = (await api.log.state(LOG)).now
    since, until = (max(0.0, now - at) for at in (body.since, now if body.until is None else body.until))
    condition = feed(request.subscription)
    fetched = await api.fetching.fetch(caller.tenant, condition, since=since, until=until, seconds=body.seconds)
    return reply({"tenant": caller.tenant, **fetched.to_whole_json()})
