"""What operators and their machines look at: /metrics, /healthz, /readyz, dead letters."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Path, Query, Request
from prometheus_client import generate_latest
from starlette.responses import PlainTextResponse, Response

from ..log_errors import LogError
from ..names import dead_subject
from ..nats_log import Message, NatsLog
from .asks import ask
from .auth import Caller, Right, needs
from .context import Api, api_of, reply
from .errors import Problem, problems
from .log_tail import last_letters
from .models import DeadLetters, Health, Limit, Released

router = APIRouter(tags=["operations"])
versioned = APIRouter(prefix="/v1", tags=["operations"])
Context = Annotated[Api, Depends(api_of)]

PROCESSES = ("gateway", "matcher", "coordinator", "delivery", "http")
PIPELINE = "pipeline"
"""Shown where there is one, or where the log waits for one; the others do their work without it."""
SUPERVISOR = "supervisor"
"""It tells of restarts; processes that were started by others have none."""
ASK_SECONDS = 2.0
"""A process that has not answered by then is shown as down."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_UP = "# HELP spinney_up Whether the process answers.\n# TYPE spinney_up gauge\n"


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={
        200: {"content": {"text/plain": {}}, "description": "Prometheus' text format"},
        **problems(401, 403, 503),
    },
)
async def metrics(_: Annotated[Caller, Depends(needs(Right.OPERATE))], api: Context) -> Response:
    """The metrics of all processes."""
    answers, supervisor = await asyncio.gather(ask_all(api, "metrics"), _ask(api.log, SUPERVISOR, "metrics"))
    up = "".join(f'spinney_up{{process="{name}"}} {int(text is not None)}\n' for name, text in answers.items())
    texts = [text.decode() for text in (*answers.values(), supervisor) if text is not None]
    return Response("".join([*texts, _UP, up]), media_type=METRICS_TYPE)


@router.get("/healthz", response_model=dict[str, bool])
async def healthz() -> Response:
    """This process lives."""
    return reply({"alive": True})


@router.get(
    "/readyz", response_model=Health, responses={503: {"model": Health, "description": "Somebody is not ready"}}
)
async def readyz(request: Request, api: Context) -> Response:
    """Whether all processes do their work; if not, who does not, and why. Operators see all that they tell.

    A pipeline is shown and does not count: the broker does its work without it.
    """
    health = health_of(await ask_all(api, "health"))
    if not await _is_operator(request, api):
        shown = {name: {key: told.get(key) for key in ("ready", "why")} for name, told in health["processes"].items()}
        health["processes"] = shown
    return reply(health, 200 if health["ready"] else 503)


async def _is_operator(request: Request, api: Api) -> bool:
    try:
        return (await api.door.caller(request)).may(Right.OPERATE)
    except Problem:
        return False


def health_of(answers: dict[str, bytes | None]) -> dict[str, Any]:
    """What the processes' answers come to."""
    processes = {name: _told(data) for name, data in answers.items()}
    needed = {name: told for name, told in processes.items() if name != PIPELINE}
    late = [f"{name}: {told.get('why') or 'not ready'}" for name, told in needed.items() if not told["ready"]]
    holds = processes["gateway"].get("holds", [])
    return {"ready": not late, "why": late, "holds": holds, "processes": processes}


def _told(data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {"ready": False, "why": "does not answer"}
    told = orjson.loads(data)
    return {**told, "ready": bool(told.get("ready"))}


async def ask_all(api: Api, what: str) -> dict[str, bytes | None]:
    """Each process' answer; None where there is none. This process answers without being asked over the wire."""
    own = generate_latest(api.service.metrics) if what == "metrics" else orjson.dumps(api.service.health())
    names = (*PROCESSES, PIPELINE)
    others = [name for name in names if name != api.service.name]
    answers = await asyncio.gather(*(_ask(api.log, name, what) for name in others))
    found: dict[str, bytes | None] = {**dict(zip(others, answers, strict=True)), api.service.name: own}
    if found[PIPELINE] is None and not api.service.settings.log.pipeline:
        del found[PIPELINE]
    return {name: found[name] for name in names if name in found}


async def _ask(log: NatsLog, process: str, what: str) -> bytes | None:
    try:
        return await log.ask(process, what, timeout_seconds=ASK_SECONDS)
    except LogError:
        return None


@versioned.get("/dead-letters", response_model=DeadLetters, responses=problems(422))
async def dead_letters(
    caller: Annotated[Caller, Depends(needs(Right.OPERATE))],
    api: Context,
    stage: Annotated[Literal["intake", "request", "delivery"] | None, Query(description="Where it ended")] = None,
    client: Annotated[str | None, Query(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="Whose")] = None,
    limit: Limit = 100,
    before: Annotated[int | None, Query(ge=1, le=2**53, description="`next` of the page before")] = None,
) -> Response:
    """What was refused or could not be delivered, the newest first."""
    subject = dead_subject(stage or "*", client or "*")

    def wanted(message: Message) -> bool:
        return _tenant(api, message) == caller.tenant

    found, after = await last_letters(api.log, subject, before, limit, wanted)
    return reply({"letters": [_letter(message) for message in found], "next": after})


@versioned.post("/readers/{reader}/release", response_model=Released, responses=problems(404, 422))
async def release(
    reader: Annotated[Literal["matcher", "delivery", "pipeline"], Path(description="As /readyz names it")],
    _: Annotated[Caller, Depends(needs(Right.OPERATE))],
    api: Context,
) -> Response:
    """The log is purged although this reader has not read all, and may lose what it has not; until it goes on."""
    answer = await ask(api.log, "gateway", "release", reader=reader)
    return reply({"reader": reader, "floor": answer["floor"]})


def _tenant(api: Api, message: Message) -> str | None:
    """As the letter says, or else its client's."""
    said = _read_letter(message).get("tenant")
    return said if isinstance(said, str) else api.door.tenant_of(message.subject.rpartition(".")[2])


def _read_letter(message: Message) -> dict[str, Any]:
    try:
        item = orjson.loads(message.data)
    except orjson.JSONDecodeError:
        return {}
    return item if isinstance(item, dict) else {}


def _letter(message: Message) -> dict[str, Any]:
    _, _, stage, client = message.subject.split(".")
    shown = {"sequence": message.sequence, "time": message.time, "stage": stage, "client": client}
    return {**shown, "letter": _read_letter(message)}
