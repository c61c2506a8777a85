"""What other processes ask the gateway, over core NATS.

`publish` is a line {"tenant", "client"} and a payload, answered once it is stored; `unpublish` is {"tenant", "client",
"id"}; `release` is {"reader"} (see the keeper). Answers are {"ok": true, ...}, or {"ok": false, "status", "error"}.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import orjson

from spinney import PublicationError

from .front_door import FrontDoor
from .intake import Sender
from .keeper import Keeper
from .log_errors import LogError
from .nats_log import NatsLog
from .source_owners import NotTheOwner

HTTP = "http"
"""In place of a topic, in dead letters."""


class Answers:
    """Answers with what stands behind the front door."""

    def __init__(self, door: FrontDoor, keeper: Keeper) -> None:
        self._door = door
        self._keeper = keeper

    async def start(self, log: NatsLog) -> None:
        """Answer from now on."""
        await log.answer("gateway", "publish", self.publish)
        await log.answer("gateway", "unpublish", self.unpublish)
        await log.answer("gateway", "release", self.release)

    async def publish(self, question: bytes) -> bytes:
        """A payload that came by HTTP."""
        head, _, payload = question.partition(b"\n")
        sender = _sender(orjson.loads(head))
        taken = self._door.take(sender, payload)
        if taken.busy is not None:
            return _no(503 if taken.busy.startswith("disk") else 429, taken.busy)
        if taken.refusals:
            self._door.refused(sender, HTTP, payload, taken)
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._door.store(sender, taken, partial(_settle, stored))
        try:
            await stored
        except LogError as error:
            return _no(413, f"the log does not take it: {error}")
        self._door.metrics.stored += len(taken.rows)
        return _yes(
            ids=[row["id"] for row in taken.rows],
            stored=taken.stored(),
            refused=[{"row": row, "id": id, "reason": reason} for row, id, reason, _ in taken.refusals],
            batch=taken.batch,
        )

    async def unpublish(self, question: bytes) -> bytes:
        """An id that came by HTTP."""
        asked = orjson.loads(question)
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            id = self._door.unpublish(_sender(asked), asked.get("id"), partial(_settle, stored))
        except PublicationError as error:
            return _no(422, str(error))
        except NotTheOwner as error:
            return _no(403, str(error))
        await stored
        return _yes(id=id)

    async def release(self, question: bytes) -> bytes:
        """An operator does not want to wait for a reader any longer."""
        reader = orjson.loads(question)["reader"]
        try:
            floor = await self._keeper.release(reader)
        except ValueError as error:
            return _no(404, str(error))
        await self._keeper.keep()
        return _yes(reader=reader, floor=floor)


def _sender(asked: dict[str, Any]) -> Sender:
    return Sender(asked["tenant"], asked["client"])


def _settle(stored: asyncio.Future[None], error: LogError | None) -> None:
    if stored.done():
        return  # who asked has gone
    if error is None:
        stored.set_result(None)
    else:
        stored.set_exception(error)


def _yes(**answer: Any) -> bytes:
    return orjson.dumps({"ok": True, **answer})


def _no(status: int, message: str) -> bytes:
    return orjson.dumps({"ok": False, "status": status, "error": {"message": message}})
