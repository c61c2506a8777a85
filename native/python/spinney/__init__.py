"""Spinney's core: the subscription language and its meaning, the relations between subscriptions, and the matcher."""

from .errors import MatcherError, PublicationError, SpinneyError, SyntaxError
from .explain import Explanation
from .expression import FALSE, TRUE, UNKNOWN, Filter
from .matcher import Matcher
from .matcher_stats import Stats
from .parse import parse, parse_filter
from .subscription import ContentSubscription, DeadBand, StateSubscription, Subscription, TopKSubscription

__all__ = [
    "FALSE",
    "TRUE",
    "UNKNOWN",
    "ContentSubscription",
    "DeadBand",
    "Explanation",
    "Filter",
    "Matcher",
    "MatcherError",
    "PublicationError",
    "SpinneyError",
    "StateSubscription",
    "Stats",
    "Subscription",
    "SyntaxError",
    "TopKSubscription",
    "parse",
    "parse_filter",
]
