"""POST /v1/publications: the payloads of MQTT, answered once they are in the log.

The gateway takes them in, as it does those of MQTT: numbers, leases, rates and order have one keeper.
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from ..payloads import CONTENT_TYPES
from .asks import ask, ask_bytes
from .auth import Caller, Right, needs
from .context import Api, api_of, reply
from .errors import Problem, problems
from .models import Intake, Unpublished

router = APIRouter(prefix="/v1", tags=["publications"])

Publishing = Annotated[Caller, Depends(needs(Right.PUBLISH))]
Context = Annotated[Api, Depends(api_of)]

STORE_SECONDS = 30.0
"""Beyond it nobody knows whether it will be stored, and the client should send it again: by its ids, what is in the log
twice is told once."""
HEADER_ROOM = 1024
"""Beside the payload, in a message to the gateway."""

_FIRST_BYTES: dict[str, bytes] = dict(zip(CONTENT_TYPES, (b"{[", b"[", bytes(range(0x80, 0xA0)), b"\xff"), strict=True))
"""By which each form is known."""
_READING = {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean", "null"]}}
_BINARY = {"type": "string", "format": "binary"}
_SCHEMAS: dict[str, Any] = {
    "application/json": {
        "oneOf": [
            _READING,
            {"type": "array", "description": "Of readings. One that is none is refused; the rest passes."},
            {"type": "object", "required": ["publications"], "properties": {"publications": {"type": "array"}}},
        ]
    },
    "application/senml+json": {"type": "array"},
    "application/senml+cbor": _BINARY,
    "application/vnd.apache.arrow.stream": _BINARY,
}
_BODY = {"required": True, "content": {kind: {"schema": _SCHEMAS[kind]} for kind in CONTENT_TYPES}}


@router.post(
    "/publications",
    response_model=Intake,
    responses=problems(400, 408, 413, 415, 422, 429),
    openapi_extra={"requestBody": _BODY},
)
async def publish(request: Request, caller: Publishing, api: Context) -> Response:
    """Stores what can be stored, and names what cannot. An answer 200 means that the log has it."""
    payload = await request.body()
    check_form(request.headers.get("content-type", ""), payload)
    check_size(api, payload)
    header = orjson.dumps({"tenant": caller.tenant, "client": caller.name})
    taken = await ask_bytes(api.log, "gateway", "publish", header + b"\n" + payload, STORE_SECONDS)
    if taken["refused"] and not taken["ids"]:
        first = taken["refused"][0]
        raise Problem(422, f"nothing was stored: {first['reason']}", fields={"refused": taken["refused"]})
    return reply({name: taken.get(name) for name in ("ids", "stored", "refused", "batch")})


@router.delete("/publications", response_model=Unpublished, responses=problems(422))
async def unpublish(
    caller: Publishing,
    api: Context,
    id: Annotated[str, Query(min_length=5, max_length=400, description="source:boot:sequence")],
) -> Response:
    """From now on a publication is no longer valid: new subscriptions do not get it."""
    answer = await ask(api.log, "gateway", "unpublish", tenant=caller.tenant, client=caller.name, id=id)
    return reply({"id": answer["id"]})


def check_form(content_type: str, payload: bytes) -> None:
    """The payload must look like what it is said to be."""
    kind = content_type.partition(";")[0].strip().lower()
    first_bytes = _FIRST_BYTES.get(kind)
    if first_bytes is None:
        raise Problem(415, f"content-type {kind!r:.60}: expected one of {', '.join(CONTENT_TYPES)}")
    first = payload.lstrip(b" \t\r\n")[:1]
    if not first or first not in first_bytes:
        raise Problem(400, f"the body is no {kind}" if payload else "the body is empty")


def check_size(api: Api, payload: bytes) -> None:
    """What the gateway would refuse, or the log's server not carry, need not travel."""
    limit = min(api.service.settings.limits.payload, api.log.nc.max_payload - HEADER_ROOM)
    if len(payload) > limit:
        raise Problem(413, f"a payload of {len(payload)} bytes; the limit is {limit}")
