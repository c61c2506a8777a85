"""Why a reading matches a subscription or not, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spinney.evaluate import value
from spinney.expression import Filter
from spinney.subscription import ContentSubscription, StateSubscription, Subscription, TopKSubscription


def explanation(subscription: Subscription, publication: Mapping[str, Any]) -> dict[str, Any]:
    """For content, the filter's explanation; for the others, one for each of their parts."""
    match subscription:
        case ContentSubscription():
            return subscription.filter.explain(publication).to_json()
        case StateSubscription():
            parts = {"for": subscription.only, "when": subscription.enter, "until": subscription.exit}
            return _each(parts, publication)
        case TopKSubscription():
            score = {"score": value(subscription.score, publication)}
            return _each({"where": subscription.where}, publication) | score
    raise AssertionError(f"no kind of subscription: {subscription!r}")


def _each(parts: Mapping[str, Filter | None], publication: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part.explain(publication).to_json() for name, part in parts.items() if part is not None}
