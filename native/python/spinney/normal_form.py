"""One form for all filters and subscriptions that are written differently and are the same (rule R3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, overload

from .expression import TRUE, Filter
from .feed import as_content
from .ranges import EVERYTHING
from .simplify import simplify, simplify_value
from .subscription import ContentSubscription, StateSubscription, Subscription, TopKSubscription

S = TypeVar("S", bound=Subscription)

_BARE: Mapping[str, Any] = {"id": None, "owner": None, "valid_until": None}
"""What the normal form does not hold (rule R3)."""


@overload
def normal_form(item: Filter) -> Filter: ...
@overload
def normal_form(item: Subscription) -> Subscription: ...
def normal_form(item: Filter | Subscription) -> Filter | Subscription:
    """A filter with the same verdict on every publication; or a subscription without id, owner and validity.

    Whatever has the same normal form means the same. Constants are numbers, dates too.
    """
    if isinstance(item, Filter):
        return simplify(item, EVERYTHING)
    match item:
        case ContentSubscription():
            return ContentSubscription(filter=normal_form(item.filter))
        case StateSubscription():
            return _state(item)
        case TopKSubscription():
            score = simplify_value(item.score, EVERYTHING)
            return replace(item, score=score, where=_optional(item.where), **_BARE)
    raise TypeError(f"not a kind of subscription: {item!r}")


def _state(subscription: StateSubscription) -> Subscription:
    normal = replace(
        subscription,
        enter=normal_form(subscription.enter),
        exit=normal_form(subscription.exit),
        only=_optional(subscription.only),
        **_BARE,
    )
    content = as_content(normal)
    return normal if content is None else normal_form(content)


def _optional(condition: Filter | None) -> Filter | None:
    normal = None if condition is None else normal_form(condition)
    return None if normal == TRUE else normal
