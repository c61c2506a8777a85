"""POST /v1/explain: why publications match a subscription or not."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from spinney import PublicationError
from spinney.publication import read

from ..density import read_at_most
from .auth import Caller, Right, needs
from .bodies import JsonRoute
from .context import Api, api_of, reply
from .errors import Problem, problems
from .explaining import explain_all, read_subscription
from .log_tail import last_publications
from .models import ExplainBody, Explanations

router = APIRouter(prefix="/v1", tags=["subscriptions"], route_class=JsonRoute)


@router.post("/explain", response_model=Explanations, responses=problems(400, 413, 415, 422, 429))
async def explain(
    body: ExplainBody, caller: Annotated[Caller, Depends(needs(Right.SUBSCRIBE))], api: Annotated[Api, Depends(api_of)]
) -> Response:
    """Judges a publication, or the last ones of the log, by a subscription, and says why."""
    if (body.publication is None) == (body.last is None):
        raise Problem(422, "body: expected either `publication` or `last`")
    async with api.slow_work.turn():
        request, form = await asyncio.to_thread(read_subscription, body.subscription)
        publications, short = await _publications(api, caller.tenant, body)
        at_most = read_at_most(request.options.get("density"))
        explained = await asyncio.to_thread(explain_all, request.subscription, publications, at_most)
    return reply(
        {
            "kind": form.kind,
            "normal": form.normal,
            "cost": form.cost,
            "results": explained.results,
            "cut": explained.cut or ("range" if short else None),
        }
    )


async def _publications(api: Api, tenant: str, body: ExplainBody) -> tuple[list[dict[str, Any]], bool]:
    if body.last is not None:
        return await last_publications(api.log, tenant, body.last)
    try:
        return [dict(read(body.publication))], False
    except PublicationError as error:
        raise Problem(422, f"body.publication: {error}") from None
