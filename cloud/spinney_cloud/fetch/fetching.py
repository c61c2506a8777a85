"""The http process's part: asks mobile brokers for what they held back, and waits for their answers, not for long."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Counted

from spinney import Filter
from spinney.compiled import compile_filter

from ..api.asks import ask
from ..api.errors import Problem
from ..log_errors import LogError
from ..names import LOG
from ..nats_log import NatsLog
from ..settings import Settings
from .parts import DEFAULT_SECONDS, Part, PartError, Reading, question, read_part
from .passing import WHAT
from .result import Claim, Fetched, FetchedBroker, FetchedReading

logger = logging.getLogger(__name__)

MAX_UNDER_WAY: Final = 8
"""Questions of all tenants."""
MAX_OF_TENANT: Final = 2
MAX_READINGS: Final = 10_000
MAX_BYTES: Final = 8 * 1024**2
"""Of one question's answers."""
BROKER_READINGS: Final = 2_000
BROKER_BYTES: Final = 2 * 1024**2
SLACK_SECONDS: Final = 1.0
DRIFT: Final = 0.001
"""By so much, and so large a share, a broker may be wrong about how long ago something was."""


@dataclass(slots=True)
class _Answering:
    """A broker that was asked."""

    session: str
    parts: int = 0
    is_done: bool = False
    is_cut: bool = False
    error: str | None = None
    refused: int = 0
    """Readings that are none."""
    readings: list[tuple[float, Reading]] = field(default_factory=list)
    """With the loop's time at which each was taken."""
    whole: dict[str, float] = field(default_factory=dict)
    """The same, by source, from which on all are there."""


@dataclass(slots=True)
class _Question:
    """One that is open."""

    tenant: str
    brokers: dict[str, _Answering]
    readings: int = 0
    bytes: int = 0
    is_answered: asyncio.Event = field(default_factory=asyncio.Event)

    def look(self) -> None:
        if all(one.is_done for one in self.brokers.values()):
            self.is_answered.set()


class Fetching:
    """All of one process. `start` first."""

    def __init__(self, log: NatsLog, settings: Settings, metrics: CollectorRegistry) -> None:
        self._log = log
        self._settings = settings
        self._open: dict[str, _Question] = {}
        self._under_way: Counter[str] = Counter()
        """By tenant."""
        self._counts = Counted(
            "spinney_http_fetch_parts", "Parts of mobile brokers' answers, by what became of them", ["what"],
            registry=metrics,
        )  # fmt: skip

    async def start(self) -> None:
        """Hear answers from now on."""
        await self._log.answer("http", WHAT, self._on_part)

    # ---- A question

    async def fetch(
        self, tenant: str, condition: Filter, *, since: float, until: float = 0.0, seconds: float = DEFAULT_SECONDS
    ) -> Fetched:
        """What brokers of a tenant held back of what a filter matches, from so many seconds ago to so many. Problem."""
        text = condition.to_text()
        async with self._turn(tenant):
            who = await ask(self._log, "coordinator", "askable", tenant=tenant, filter=text)
            fetched = Fetched((await self._log.state(LOG)).now)
            fetched.not_named = who["not_named"]
            asked = _Question(tenant, {client: _Answering(session) for client, session in who["asked"].items()})
            if asked.brokers:
                await self._ask(asked, text, since, until, seconds)
            await self._gather(asked, condition, fetched, fetched.asked_at - since, fetched.asked_at - until)
        fetched.brokers += [FetchedBroker(client, why) for client, why in who["not_asked"].items()]
        return fetched

    @asynccontextmanager
    async def _turn(self, tenant: str) -> AsyncIterator[None]:
        if self._under_way[tenant] >= MAX_OF_TENANT or self._under_way.total() >= MAX_UNDER_WAY:
            raise Problem(429, "mobile brokers are being asked already", headers={"Retry-After": "5"})
        self._under_way[tenant] += 1
        try:
            yield
        finally:
            self._under_way[tenant] -= 1
            self._under_way += Counter()  # without those of which there are none

    async def _ask(self, asked: _Question, text: str, since: float, until: float, seconds: float) -> None:
        id = secrets.token_hex(16)
        data = question(id, text, since=since, until=until, slack=seconds, readings=BROKER_READINGS, size=BROKER_BYTES)
        self._open[id] = asked
        sending = [asyncio.create_task(self._send(asked, client, data, seconds)) for client in asked.brokers]
        try:
            async with asyncio.timeout(seconds):
                await asked.is_answered.wait()
        except TimeoutError:
            pass
        finally:
            del self._open[id]
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def _send(self, asked: _Question, client: str, data: bytes, seconds: float) -> None:
        try:
            await self._log.out(client, "reply", data, timeout_seconds=seconds)
        except LogError as error:
            asked.brokers[client].error = str(error)
            asked.brokers[client].is_done = True
            asked.look()

    # ---- Its answers

    async def _on_part(self, data: bytes) -> bytes:
        head, _, payload = data.partition(b"\n")
        said = orjson.loads(head)
        why = self._take(said["tenant"], said["client"], said["id"], payload)
        self._counts.labels("taken" if why is None else "refused").inc()
        if why is not None:
            logger.debug("an answer of %s is refused: %s", said["client"], why)
        return orjson.dumps({"ok": True} if why is None else {"ok": False, "error": why})

    def _take(self, tenant: str, client: str, id: str, payload: bytes) -> str | None:
        """Why it is not taken, if it is not."""
        asked = self._open.get(id)
        if asked is None or asked.tenant != tenant or client not in asked.brokers:
            return "nobody asks this client for this now"
        broker = asked.brokers[client]
        if broker.is_done:
            return "all of it has come"
        try:
            self._put(asked, broker, _next_part(broker, payload, self._settings.limits.attributes), len(payload))
        except PartError as error:
            broker.is_done, broker.error = True, str(error)
            return str(error)
        finally:
            asked.look()
        return None

    def _put(self, asked: _Question, broker: _Answering, part: Part, size: int) -> None:
        asked.bytes += size
        asked.readings += len(part.readings)
        if asked.bytes > MAX_BYTES or asked.readings > MAX_READINGS or len(broker.readings) > BROKER_READINGS:
            broker.is_cut = True
            raise PartError("this is more than was asked for")
        now = asyncio.get_running_loop().time()
        broker.parts += 1
        broker.readings += [(now - one.age, one) for one in part.readings]
        broker.whole |= {source: now - seconds * (1 - DRIFT) + SLACK_SECONDS for source, seconds in part.whole.items()}
        broker.is_cut = broker.is_cut or part.cut
        broker.error = part.error
        broker.is_done = not part.more
        broker.refused += part.refused

    async def _gather(self, asked: _Question, condition: Filter, fetched: Fetched, since: float, until: float) -> None:
        """What of it may be used, in the log's time. Ages are told some time after the question: it seems later."""
        now = (await self._log.state(LOG)).now
        offset, elapsed = now - asyncio.get_running_loop().time(), now - fetched.asked_at
        owned = await self._owned(asked)
        test, seen = compile_filter(condition, clean=True), set[str]()
        fetched.refused = sum(broker.refused for broker in asked.brokers.values())
        for client, broker in asked.brokers.items():
            is_whole = broker.is_done and broker.error is None
            told = FetchedBroker(client, None, is_whole, 0, broker.is_cut, broker.error)
            fetched.brokers.append(told)
            for taken, one in broker.readings:
                arrival = taken + offset
                if not since <= arrival <= until + elapsed:
                    continue
                if one.id.source not in owned.get(client, ()) or str(one.id) in seen or not test(one.publication):
                    fetched.refused += 1
                    continue
                seen.add(str(one.id))
                told.readings += 1
                fetched.readings.append(FetchedReading(one.id, min(arrival, until), one.epoch, client, one.publication))
            if is_whole and not broker.is_cut and not broker.refused:
                fetched.claims += [Claim(client, one, at + offset, until) for one, at in broker.whole.items()]

    async def _owned(self, asked: _Question) -> Mapping[str, set[str]]:
        """By client the sources that are its own to tell of."""
        names = {
            client: sorted({one.id.source for _, one in broker.readings})
            for client, broker in asked.brokers.items()
            if broker.readings
        }
        if not names:
            return {}
        answer: dict[str, Any] = await ask(self._log, "coordinator", "owned", tenant=asked.tenant, sources=names)
        return {client: set(found) for client, found in answer["owned"].items()}


def _next_part(broker: _Answering, payload: bytes, attributes: int) -> Part:
    """The part that follows on those before it; PartError."""
    part = read_part(payload, attributes)
    if part.session != broker.session:
        raise PartError("it is of another session")
    if part.number != broker.parts:
        raise PartError(f"part {broker.parts} is missing")
    return part
