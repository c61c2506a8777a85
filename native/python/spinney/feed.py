"""Feeds: the publications that a subscription needs (rule R1), which is what activation goes by."""

from __future__ import annotations

from collections.abc import Callable
from operator import eq

from .expression import Expression, Filter, IsNull, Not, Property, conjunction, disjunction
from .subscription import ContentSubscription, StateSubscription, Subscription, TopKSubscription


def feed(subscription: Subscription) -> Filter:
    """The filter that is TRUE for every publication that can change what the subscriber is told (rule R1)."""
    match subscription:
        case ContentSubscription(filter=filter):
            return filter
        case StateSubscription():
            return _state_feed(subscription)
        case TopKSubscription(where=where, score=score, each=each):
            return conjunction(*_optional(where), _present(score), *_each(each))
    raise TypeError(f"not a subscription: {type(subscription).__name__}")


def _state_feed(subscription: StateSubscription) -> Filter:
    """With debounce or dead band also what ends a run or moves the attribute: everything in FOR (rule S6)."""
    parts = list(_optional(subscription.only))
    if not (subscription.debounce or subscription.dead_band):
        parts.append(disjunction(subscription.enter, subscription.exit))
    return conjunction(*parts, *_each(subscription.each))


def as_content(
    subscription: StateSubscription, same: Callable[[Filter, Filter], bool] = eq
) -> ContentSubscription | None:
    """The content subscription that a state subscription is when enter and exit are the same F: FOR AND F (rule S7).

    `same` compares the two, by their normal forms where that is at hand.
    """
    if not same(subscription.enter, subscription.exit):
        return None
    return ContentSubscription(
        id=subscription.id,
        owner=subscription.owner,
        valid_until=subscription.valid_until,
        filter=conjunction(*_optional(subscription.only), subscription.enter, *_each(subscription.each)),
    )


def _optional(part: Filter | None) -> tuple[Filter, ...]:
    return () if part is None else (part,)


def _each(name: str | None) -> tuple[Filter, ...]:
    return () if name is None else (_present(Property(name)),)


def _present(expression: Expression) -> Filter:
    return Not(IsNull(expression))
