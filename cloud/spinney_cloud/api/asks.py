"""What the API asks other processes, over core NATS, in JSON.

Each answer is `{"ok": true, ...}`, or `{"ok": false, "status": 404, "error": {"message": ..., "line": ..., ...}}`.
"""

from __future__ import annotations

from typing import Any

import orjson

from ..log_errors import LogError, NobodyThere, TooLarge
from ..nats_log import NatsLog
from .errors import Problem, unavailable

ASK_SECONDS = 10.0
REFUSALS = (400, 403, 404, 409, 413, 422, 429, 503)
"""Statuses that another process may give."""


async def ask(log: NatsLog, process: str, what: str, /, **question: Any) -> dict[str, Any]:
    """What the process answers; a Problem if it refuses, or if nobody is there."""
    return await ask_bytes(log, process, what, orjson.dumps(question), ASK_SECONDS)


async def ask_bytes(log: NatsLog, process: str, what: str, question: bytes, timeout_seconds: float) -> dict[str, Any]:
    """The same for a question in any form."""
    try:
        data = await log.ask(process, what, question, timeout_seconds=timeout_seconds)
    except NobodyThere:
        raise unavailable(f"{process} is not there; it is being started again") from None
    except TooLarge as error:
        raise Problem(413, f"too large to be passed on: {error}") from None
    except LogError as error:
        raise unavailable(f"{process} does not answer: {error}") from None
    answer: dict[str, Any] = orjson.loads(data)
    if answer.get("ok"):
        return answer
    raise _refusal(answer)


def _refusal(answer: dict[str, Any]) -> Problem:
    error = answer.get("error") or {}
    fields = error if isinstance(error, dict) else {"message": str(error)}
    status = answer.get("status", 422)
    told = {name: fields.get(name) for name in ("line", "column", "path", "expected", "found")}
    return Problem(status if status in REFUSALS else 503, fields.get("message", "refused"), fields=told)
