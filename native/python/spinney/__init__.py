"""Spinney's core: the subscription language and its meaning, the relations between subscriptions, and the matcher."""

from .covers import Prepared, covers, covers_feed, disjoint
from .errors import KnownError, MatcherError, PublicationError, SpinneyError, SyntaxError
from .explain import Explanation
from .expression import FALSE, TRUE, UNKNOWN, Filter
from .known import Knowledge, Known
from .matcher import Matcher
from .matcher_stats import Stats
from .normal_form import normal_form
from .overlaps import activation, overlaps
from .parse import parse, parse_filter
from .specialise import specialise
from .subscription import ContentSubscription, DeadBand, StateSubscription, Subscription, TopKSubscription

__all__ = [
    "FALSE",
    "TRUE",
    "UNKNOWN",
    "ContentSubscription",
    "DeadBand",
    "Explanation",
    "Filter",
    "Knowledge",
    "Known",
    "KnownError",
    "Matcher",
    "MatcherError",
    "Prepared",
    "PublicationError",
    "SpinneyError",
    "StateSubscription",
    "Stats",
    "Subscription",
    "SyntaxError",
    "TopKSubscription",
    "activation",
    "covers",
    "covers_feed",
    "disjoint",
    "normal_form",
    "overlaps",
    "parse",
    "parse_filter",
    "specialise",
]
