"""/v1/subscriptions: what subscribers want to be told. The coordinator keeps them; here they are asked for."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from spinney import feed
from spinney.subscription_text import duration_seconds

from ..completeness.answer import MAX_PAGE, MAX_REASONS, PAGE
from ..delivery_options import DeliveryOptions, read_options
from ..fetch.parts import DEFAULT_SECONDS
from ..subscriptions import Form
from .asks import ask
from .auth import Caller, Right, needs
from .bodies import JsonRoute
from .context import Api, api_of, owner_of, reply
from .dry_run import Asked, dry_run
from .errors import Problem, problems
from .explaining import read_subscription
from .models import (
    After,
    DeliveryStatus,
    DryRun,
    Duration,
    FetchSeconds,
    Label,
    Limit,
    NewSubscription,
    Owner,
    Sid,
    SubscriptionBody,
    SubscriptionPage,
    SubscriptionView,
)

router = APIRouter(prefix="/v1", tags=["subscriptions"], route_class=JsonRoute)
Asking = Annotated[Caller, Depends(needs(Right.SUBSCRIBE))]
Context = Annotated[Api, Depends(api_of)]
_BODY = problems(400, 413, 415, 422)
MAX_LABEL_QUERIES = 16

_VIEW = tuple(SubscriptionView.model_fields)


def view(kept: dict[str, Any]) -> dict[str, Any]:
    """A subscription as the API shows it, from what the coordinator keeps."""
    return {"subscription": kept["source"], **{name: kept[name] for name in _VIEW if name != "subscription"}}


@router.post(
    "/subscriptions",
    status_code=201,
    response_model=SubscriptionView,
    responses={
        200: {"model": DryRun, "description": "With `dry_run`: what it would have delivered"},
        **_BODY,
        **problems(409, 429),
    },
)
async def create(
    body: NewSubscription,
    caller: Asking,
    api: Context,
    owner: Owner = None,
    dry_run_: Annotated[bool, Query(alias="dry_run", description="Only say what it would have delivered")] = False,
    last: Annotated[Duration, Query(description="For `dry_run`: from so long ago")] = "1h",
    reasons_after: Annotated[
        int, Query(ge=0, le=MAX_REASONS, description="For `dry_run`: `completeness.next` of the page before")
    ] = 0,
    reasons_limit: Annotated[
        int, Query(ge=1, le=MAX_PAGE, description="For `dry_run`: at most so many reasons")
    ] = PAGE,
    fetch: Annotated[
        bool, Query(description="For `dry_run`: also ask mobile brokers for valid readings that nobody wanted")
    ] = False,
    fetch_seconds: FetchSeconds = DEFAULT_SECONDS,
) -> Response:
    """Makes a subscription, or says what it would have delivered."""
    owner = owner_of(caller, owner)
    sid = body.sid or secrets.token_hex(8)
    if dry_run_:
        return await _dry_run(
            api,
            body,
            lambda form, options: Asked(caller.tenant, owner, sid, form, last, reasons_after, reasons_limit, options),
            fetch_seconds if fetch else None,
        )
    answer = await _put(api, caller, owner, sid, body, create=True)
    return reply(view(answer["subscription"]), 201, {"Location": f"/v1/subscriptions/{sid}"})


async def _dry_run(
    api: Api,
    body: NewSubscription,
    asked: Callable[[Form, DeliveryOptions], Asked],
    fetch_seconds: float | None,
) -> Response:
    async with api.slow_work.turn():
        request, form = await asyncio.to_thread(read_subscription, body.subscription, _beside(body))
    question, fetched = asked(form, read_options(request.options)), None
    if fetch_seconds is not None:
        condition, since = feed(request.subscription), duration_seconds(question.last)
        fetched = await api.fetching.fetch(question.tenant, condition, since=since, seconds=fetch_seconds)
    async with api.slow_work.turn():
        return reply(await dry_run(api.log, api.service.settings, question, fetched))


@router.get("/subscriptions", response_model=SubscriptionPage, responses=problems(422))
async def listed(
    caller: Asking,
    api: Context,
    owner: Owner = None,
    all_owners: Annotated[bool, Query(description="For operators: everybody's of the tenant")] = False,
    label: Annotated[
        list[Annotated[str, Query(max_length=513)]],
        Query(description="`name:value`, all of which it must have", max_length=MAX_LABEL_QUERIES),
    ] = [],  # noqa: B006 - FastAPI copies it
    limit: Limit = 100,
    after: After = None,
) -> Response:
    """One's subscriptions, page by page."""
    if all_owners and not caller.may(Right.OPERATE):
        raise Problem(403, "only operators may see everybody's")
    answer = await ask(
        api.log,
        "coordinator",
        "list",
        tenant=caller.tenant,
        owner=None if all_owners else owner_of(caller, owner),
        labels=dict(_label(each) for each in label),
        limit=limit,
        after=after,
    )
    found = [view(kept) for kept in answer["subscriptions"]]
    return reply({"subscriptions": found, "next": answer.get("next"), "count": answer.get("count")})


def _label(text: str) -> tuple[Label, Label]:
    name, colon, value = text.partition(":")
    if not colon:
        raise Problem(422, f"label: expected `name:value`, found {text!r:.60}")
    return name, value


@router.get("/subscriptions/{sid}", response_model=SubscriptionView, responses=problems(404, 422))
async def one(sid: Sid, caller: Asking, api: Context, owner: Owner = None) -> Response:
    """A subscription as it stands."""
    return await _asked(api, "get", caller, owner_of(caller, owner), sid)


@router.put(
    "/subscriptions/{sid}",
    response_model=SubscriptionView,
    responses={201: {"model": SubscriptionView, "description": "There was none of that id"}, **_BODY, **problems(429)},
)
async def put(body: SubscriptionBody, sid: Sid, caller: Asking, api: Context, owner: Owner = None) -> Response:
    """Makes or changes a subscription. One that means the same as before goes on with its state."""
    answer = await _put(api, caller, owner_of(caller, owner), sid, body, create=False)
    return reply(view(answer["subscription"]), 200 if answer.get("existed", True) else 201)


async def _put(
    api: Api, caller: Caller, owner: str, sid: str, body: SubscriptionBody, *, create: bool
) -> dict[str, Any]:
    question = {"tenant": caller.tenant, "owner": owner, "sid": sid, "create": create}
    return await ask(api.log, "coordinator", "put", **question, subscription=body.subscription, **_beside(body))


def _beside(body: SubscriptionBody) -> dict[str, Any]:
    """What is given beside the subscription; the rest may stand in it."""
    return body.model_dump(exclude={"sid", "subscription"}, exclude_unset=True)


@router.delete("/subscriptions/{sid}", status_code=204, responses=problems(404, 422))
async def delete(sid: Sid, caller: Asking, api: Context, owner: Owner = None) -> Response:
    """Ends a subscription."""
    await ask(api.log, "coordinator", "delete", tenant=caller.tenant, owner=owner_of(caller, owner), sid=sid)
    return Response(status_code=204)


@router.post("/subscriptions/{sid}/enable", response_model=SubscriptionView, responses=problems(404, 422))
async def enable(sid: Sid, caller: Asking, api: Context, owner: Owner = None) -> Response:
    """Lets it match again; state and top-k start empty."""
    return await _asked(api, "enable", caller, owner_of(caller, owner), sid)


@router.post("/subscriptions/{sid}/disable", response_model=SubscriptionView, responses=problems(404, 422))
async def disable(sid: Sid, caller: Asking, api: Context, owner: Owner = None) -> Response:
    """Keeps it without matching it."""
    return await _asked(api, "disable", caller, owner_of(caller, owner), sid)


async def _asked(api: Api, what: str, caller: Caller, owner: str, sid: str) -> Response:
    answer = await ask(api.log, "coordinator", what, tenant=caller.tenant, owner=owner, sid=sid)
    return reply(view(answer["subscription"]))


@router.get("/subscriptions/{sid}/delivery", response_model=DeliveryStatus, responses=problems(404, 422))
async def delivery(sid: Sid, caller: Asking, api: Context, owner: Owner = None) -> Response:
    """What waits for its subscriber, what was dropped, and what failed last."""
    who = {"tenant": caller.tenant, "owner": owner_of(caller, owner), "sid": sid}
    await ask(api.log, "coordinator", "get", **who)  # 404 for what is not there
    answer = await ask(api.log, "delivery", "status", **who)
    return reply({"owner": who["owner"], "sid": sid, **{name: answer[name] for name in answer if name != "ok"}})
