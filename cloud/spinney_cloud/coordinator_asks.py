"""What other processes ask the coordinator, in JSON: see api/asks. Every question names its tenant.

put delete enable disable get list         subscriptions
sources brokers activations                discovery
askable owned                              of mobile brokers that are asked for what they held back: see fetch/askable
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from .broker_service import BrokerService
from .fetch.askable import askable, owned
from .log_errors import LogError
from .names import is_name
from .nats_log import NatsLog
from .subscription_reading import Asked, Refusal
from .subscription_service import MAX_PAGE, SubscriptionService
from .subscriptions import StoredSubscription

MAX_SHOWN: Final = 1000
"""Filters of one broker that `activations` lists; all are counted."""

_BESIDE: Final = ("enabled", "expires", "labels", "options")
Answerer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class CoordinatorAsks:
    """Answers questions."""

    def __init__(self, subscriptions: SubscriptionService, brokers: BrokerService) -> None:
        self._subscriptions = subscriptions
        self._brokers = brokers

    async def listen(self, log: NatsLog) -> None:
        """Answer from now on."""
        answers: dict[str, Answerer] = {
            "put": self.put,
            "delete": self.delete,
            "enable": self.enable,
            "disable": self.disable,
            "get": self.get,
            "list": self.list,
            "sources": self.sources,
            "brokers": self.brokers,
            "activations": self.activations,
            "askable": self.askable,
            "owned": self.owned,
        }
        for what, answerer in answers.items():
            await log.answer("coordinator", what, _answering(answerer))

    # ---- Subscriptions -----------------------------------------------------------------------------------------

    async def put(self, question: dict[str, Any]) -> dict[str, Any]:
        """A subscription begins or changes."""
        beside: dict[str, Any] = {name: question[name] for name in _BESIDE if name in question}
        tenant, owner, sid = _who(question)
        (reading,) = await self._subscriptions.read([Asked(owner, sid, question["subscription"], beside)])
        if isinstance(reading, Refusal):
            raise reading
        done = await (await self._subscriptions.put(tenant, reading, create=bool(question.get("create"))))
        assert done.stored is not None
        return {"subscription": shown(done.stored), "existed": done.existed}

    async def delete(self, question: dict[str, Any]) -> dict[str, Any]:
        """A subscription ends."""
        await (await self._subscriptions.end(*_who(question), must_exist=True))
        return {}

    async def enable(self, question: dict[str, Any]) -> dict[str, Any]:
        """It matches again."""
        return await self._enabled(question, True)

    async def disable(self, question: dict[str, Any]) -> dict[str, Any]:
        """It is kept without matching."""
        return await self._enabled(question, False)

    async def _enabled(self, question: dict[str, Any], enabled: bool) -> dict[str, Any]:
        done = await (await self._subscriptions.enable(*_who(question), enabled))
        assert done.stored is not None
        return {"subscription": shown(done.stored)}

    async def get(self, question: dict[str, Any]) -> dict[str, Any]:
        """One as it is."""
        return {"subscription": shown(await self._subscriptions.get(*_who(question)))}

    async def list(self, question: dict[str, Any]) -> dict[str, Any]:
        """A page of them, by owner (null: everybody's) and labels."""
        tenant, owner, labels = _tenant(question), question.get("owner"), question.get("labels") or {}
        if owner is not None and not is_name(owner):
            raise Refusal(422, f"no name: {owner!r:.80}")
        found, following = await self._subscriptions.page(
            tenant, owner, labels, _limit(question), question.get("after")
        )
        count = None if labels else self._subscriptions.count(tenant, owner)
        return {"subscriptions": [shown(one) for one in found], "next": following, "count": count}

    # ---- Discovery ---------------------------------------------------------------------------------------------

    async def sources(self, question: dict[str, Any]) -> dict[str, Any]:
        """Announced sources, perhaps near a point, within metres, with an attribute."""
        near = question.get("near")
        found = self._brokers.announcements.sources(
            _tenant(question),
            near=None if near is None else (float(near[0]), float(near[1])),
            within_meters=question.get("within"),
            attribute=question.get("attribute"),
        )
        return _page("sources", found, question)

    async def brokers(self, question: dict[str, Any]) -> dict[str, Any]:
        """Brokers that are announced."""
        found = sorted(self._brokers.announcements.of(_tenant(question)), key=lambda one: one.client)
        return _page("brokers", found, question, self._brokers.show_broker)

    async def activations(self, question: dict[str, Any]) -> dict[str, Any]:
        """What is active on each, and which sources were chosen and why."""
        found = sorted(self._brokers.announcements.of(_tenant(question)), key=lambda one: one.client)
        return _page("activations", found, question, lambda one: self._brokers.show_activation(one, MAX_SHOWN))

    async def askable(self, question: dict[str, Any]) -> dict[str, Any]:
        """The brokers that may have held back what a filter matches."""
        return await askable(self._brokers, _tenant(question), str(question["filter"]))

    async def owned(self, question: dict[str, Any]) -> dict[str, Any]:
        """Whose sources are whose."""
        return {"owned": owned(self._brokers, _tenant(question), question["sources"])}


def shown(stored: StoredSubscription) -> dict[str, Any]:
    """As it is kept, with what it costs and without its program."""
    item = stored.to_json()
    del item["program"]
    return {**item, "cost": stored.cost}


def _who(question: dict[str, Any]) -> tuple[str, str, str]:
    return _tenant(question), str(question["owner"]), str(question["sid"])


def _tenant(question: dict[str, Any]) -> str:
    tenant = question["tenant"]
    if not isinstance(tenant, str) or not is_name(tenant):
        raise Refusal(422, f"no tenant: {tenant!r:.80}")
    return tenant


def _limit(question: dict[str, Any]) -> int:
    limit = question.get("limit", 100)
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise Refusal(422, f"limit: expected a whole number from 1 to {MAX_PAGE}")
    return limit


def _page(
    what: str, found: Any, question: dict[str, Any], show: Callable[[Any], dict[str, Any]] = dict
) -> dict[str, Any]:
    """The items of a page, the number that the next one begins at, and how many there are on all pages."""
    after, limit = question.get("after"), _limit(question)
    if after is not None and not (isinstance(after, str) and after.isdecimal() and len(after) < 10):
        raise Refusal(422, "after: expected what the page before gave as next")
    start = int(after or 0)
    following = str(start + limit) if start + limit < len(found) else None
    return {what: [show(one) for one in found[start : start + limit]], "next": following, "count": len(found)}


def _answering(answerer: Answerer) -> Callable[[bytes], Awaitable[bytes]]:
    async def answer(data: bytes) -> bytes:
        try:
            question = orjson.loads(data)
            return orjson.dumps({"ok": True, **await answerer(question)})
        except Refusal as refusal:
            return orjson.dumps({"ok": False, "status": refusal.status, "error": refusal.error})
        except (KeyError, TypeError, ValueError) as error:
            return orjson.dumps({"ok": False, "status": 422, "error": {"message": f"no such question: {error!r}"}})
        except LogError as error:
            return orjson.dumps({"ok": False, "status": 503, "error": {"message": str(error)}})

    return answer
