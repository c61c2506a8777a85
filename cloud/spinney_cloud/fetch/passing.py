"""The gateway's part: what a mobile broker answers is passed on to the http process, which asked, and kept nowhere.

What finds no room is dropped, and counted: whoever asked says then that the broker did not answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import orjson

from ..log_errors import LogError
from ..nats_log import NatsLog
from ..rate_limit import RateLimit

MAX_UNDER_WAY_BYTES: Final = 32 * 1024**2
"""Of parts of all brokers that http has not taken yet."""
PART_BYTES: Final = 4 * 1024
"""That a part takes besides."""
MAX_PER_SECOND: Final = 50
"""Of one client..."""
OVER_SECONDS: Final = 2.0
"""...on an average of so long: more than an honest answer has."""
PASS_SECONDS: Final = 5.0
PROCESS: Final = "http"
WHAT: Final = "fetched"

Refuse = Callable[[str, dict[str, Any]], object]
"""Tells a client that what it sent is not taken."""


class Passing:
    """Between brokers and http."""

    def __init__(self, log: NatsLog, refuse: Refuse) -> None:
        self.counts: Counter[str] = Counter()
        """Parts, by what became of them."""
        self._log = log
        self._refuse = refuse
        self._limit = RateLimit(MAX_PER_SECOND, over_seconds=OVER_SECONDS)
        self._bytes = 0
        """Under way."""
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, tenant: str, client: str, id: str | None, payload: bytes) -> None:
        """A message of a broker's, as JSON, and the question that it says it answers."""
        if id is None:
            self._refused(client, None, "fetched: expected an object with the id of a question")
        elif self._bytes + len(payload) > MAX_UNDER_WAY_BYTES or not self._limit.allow(client, 1, time.monotonic()):
            self.counts["dropped"] += 1
        else:
            self._bytes += len(payload) + PART_BYTES
            head = orjson.dumps({"tenant": tenant, "client": client, "id": id})
            task = asyncio.create_task(self._pass(client, id, head + b"\n" + payload))
            task.add_done_callback(lambda _: self._left(len(payload) + PART_BYTES))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _left(self, size: int) -> None:
        self._bytes -= size

    async def _pass(self, client: str, id: str, data: bytes) -> None:
        try:
            answer = orjson.loads(await self._log.ask(PROCESS, WHAT, data, timeout_seconds=PASS_SECONDS))
        except LogError:
            self.counts["dropped"] += 1
            return
        if answer["ok"]:
            self.counts["passed"] += 1
        else:
            self._refused(client, id, answer["error"])

    def _refused(self, client: str, id: str | None, why: str) -> None:
        self.counts["refused"] += 1
        self._refuse(client, {"request": "fetch", "id": id, "ok": False, "error": {"message": why}})

    async def close(self) -> None:
        """Whoever asked does without."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
