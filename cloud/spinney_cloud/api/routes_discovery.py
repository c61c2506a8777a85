"""Discovery: which sources and mobile brokers are there now, and what is active on them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from .asks import ask
from .auth import Caller, Right, needs
from .context import Api, api_of, reply
from .errors import Problem, problems
from .models import MAX_RADIUS_METERS, Activations, After, Brokers, Limit, Sources

router = APIRouter(prefix="/v1", tags=["discovery"])
Looking = Annotated[Caller, Depends(needs(Right.LOOK))]
Context = Annotated[Api, Depends(api_of)]

_UNITS = {"": 1.0, "m": 1.0, "km": 1000.0}
Near = Annotated[
    str | None,
    Query(
        pattern=r"^-?[0-9]{1,3}(\.[0-9]{1,12})?,-?[0-9]{1,3}(\.[0-9]{1,12})?$",
        description="Latitude and longitude",
        examples=["45.81,15.97"],
    ),
]
Within = Annotated[
    str | None,
    Query(
        pattern=r"^[0-9]{1,8}(\.[0-9]{1,6})?(m|km)?$", description="Distance from there: 500m, 2km", examples=["2km"]
    ),
]


@router.get("/sources", response_model=Sources, responses=problems(422))
async def sources(
    caller: Looking,
    api: Context,
    near: Near = None,
    within: Within = None,
    attribute: Annotated[str | None, Query(max_length=256, description="Which they must give")] = None,
    limit: Limit = 100,
    after: After = None,
) -> Response:
    """Announced sources, the nearest first if `near` is given."""
    point, meters = place(near, within)
    return await _asked(
        api, caller, "sources", near=point, within=meters, attribute=attribute, limit=limit, after=after
    )


@router.get("/brokers", response_model=Brokers, responses=problems(422))
async def brokers(caller: Looking, api: Context, limit: Limit = 100, after: After = None) -> Response:
    """Mobile brokers that have announced themselves."""
    return await _asked(api, caller, "brokers", limit=limit, after=after)


@router.get("/activations", response_model=Activations, responses=problems(422))
async def activations(caller: Looking, api: Context, limit: Limit = 100, after: After = None) -> Response:
    """What is active on each mobile broker, and which sources were chosen where a density is asked for."""
    return await _asked(api, caller, "activations", limit=limit, after=after)


def place(near: str | None, within: str | None) -> tuple[list[float] | None, float | None]:
    """Latitude and longitude, and metres."""
    if near is None:
        if within is not None:
            raise Problem(422, "query.within: of where? give `near`, too")
        return None, None
    latitude, longitude = (float(part) for part in near.split(","))
    if abs(latitude) > 90 or abs(longitude) > 180:
        raise Problem(422, "query.near: latitude -90 to 90, then longitude -180 to 180")
    if within is None:
        return [latitude, longitude], None
    digits = within.rstrip("km")
    meters = float(digits) * _UNITS[within[len(digits) :]]
    if meters > MAX_RADIUS_METERS:
        raise Problem(422, f"query.within: at most {MAX_RADIUS_METERS / 1000:g}km, half around the world")
    return [latitude, longitude], meters


async def _asked(api: Api, caller: Caller, what: str, **question: Any) -> Response:
    answer = await ask(api.log, "coordinator", what, tenant=caller.tenant, **question)
    return reply({what: answer[what], "next": answer.get("next")})
