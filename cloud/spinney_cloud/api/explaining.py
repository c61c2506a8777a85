"""Why a subscription is fed a publication or not: the core's own explanation of each of its filters."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spinney import Explanation, Filter, StateSubscription, SyntaxError, TopKSubscription, feed
from spinney.evaluate import value
from spinney.publication import attribute
from spinney.subscription_json import AnySubscription

from ..cell_limits import cell_of, position_of
from ..density import AtMost
from ..subscription_request import SubscriptionRequest, read_request
from ..subscriptions import Form, form_of
from .errors import bad_subscription

MAX_SECONDS = 5.0
MAX_CHARACTERS = 4 * 1024 * 1024
"""Of all explanations of one request together."""


def read_subscription(
    source: str | dict[str, Any], beside: Mapping[str, Any] | None = None
) -> tuple[SubscriptionRequest, Form]:
    """What it says, with more members beside its own, and what follows from it; a Problem where it cannot be read."""
    names = source if isinstance(source, dict) else {}
    try:
        request = read_request(source, beside, owner=names.get("owner", ""), sid=names.get("id", ""))
        return request, form_of(request.subscription)
    except SyntaxError as error:
        raise bad_subscription(error) from None


@dataclass(frozen=True, slots=True)
class Explained:
    """All results, and why there are no more of them."""

    results: list[dict[str, Any]]
    cut: str | None


def explain_all(
    subscription: AnySubscription, publications: Iterable[Mapping[str, Any]], at_most: AtMost | None = None
) -> Explained:
    """One result for each publication, in order, within bounds of time and size."""
    filters = _filters(subscription)
    deadline = time.monotonic() + MAX_SECONDS
    results: list[dict[str, Any]] = []
    characters = 0
    for publication in publications:
        result = _explain(subscription, filters, publication)
        if at_most is not None:
            result["cell"] = cell_of(position_of(publication), at_most.cell)
        results.append(result)
        characters += len(result["text"]) * (1 + len(filters))
        if characters > MAX_CHARACTERS:
            return Explained(results, "size")
        if time.monotonic() > deadline:
            return Explained(results, "time")
    return Explained(results, None)


def _filters(subscription: AnySubscription) -> dict[str, Filter]:
    """The feed, and the filters of which the subscription is made, by the words of its text."""
    named: dict[str, Filter | None] = {"feed": feed(subscription)}
    match subscription:
        case StateSubscription(enter=enter, exit=exit, only=only):
            named |= {"for": only, "when": enter, "until": exit}
        case TopKSubscription(where=where):
            named |= {"where": where}
    return {name: condition for name, condition in named.items() if condition is not None}


def _explain(
    subscription: AnySubscription, filters: Mapping[str, Filter], publication: Mapping[str, Any]
) -> dict[str, Any]:
    parts: dict[str, Explanation] = {name: condition.explain(publication) for name, condition in filters.items()}
    whole = parts["feed"]
    result: dict[str, Any] = {
        "publication": dict(publication),
        "verdict": whole.verdict,
        "text": str(whole),
        "reasons": [str(reason) for reason in whole.reasons()],
        "parts": {name: part.to_json() for name, part in parts.items()},
    }
    if isinstance(subscription, StateSubscription | TopKSubscription) and subscription.each is not None:
        result["each"] = attribute(publication, subscription.each)
    if isinstance(subscription, TopKSubscription):
        score = value(subscription.score, publication)
        result["score"] = score if isinstance(score, float) else None
    return result
