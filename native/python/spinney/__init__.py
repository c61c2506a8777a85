"""Spinney's core: the subscription language and its meaning, the relations between subscriptions, and the matcher;
and, imported when first used, the client SDK: Publisher and Subscriber.
"""

from typing import TYPE_CHECKING

from .covers import Prepared, covers, covers_feed, disjoint
from .errors import KnownError, LabelError, MatcherError, PublicationError, SnapshotError, SpinneyError, SyntaxError
from .evaluator import Evaluator
from .explain import Explanation
from .expression import FALSE, TRUE, UNKNOWN, Filter
from .feed import feed
from .forest import FilterList, Forest
from .identity import Duplicates, Lateness, PublicationId
from .known import Knowledge, Known
from .label import Label, Mark
from .matcher import Matcher
from .matcher_stats import Stats
from .membership import OwnerFilter
from .native import NativeCoreMissing
from .normal_form import normal_form
from .notification import Notification
from .overlaps import activation, overlaps
from .parse import parse, parse_filter
from .specialise import specialise
from .state import StateFilter
from .subscription import ContentSubscription, DeadBand, StateSubscription, Subscription, TopKSubscription
from .top_k import TopK

if TYPE_CHECKING:
    from .client import Publisher, Subscriber

__all__ = [
    "FALSE",
    "TRUE",
    "UNKNOWN",
    "ContentSubscription",
    "DeadBand",
    "Duplicates",
    "Evaluator",
    "Explanation",
    "Filter",
    "FilterList",
    "Forest",
    "Knowledge",
    "Known",
    "KnownError",
    "Label",
    "LabelError",
    "Lateness",
    "Mark",
    "Matcher",
    "MatcherError",
    "NativeCoreMissing",
    "Notification",
    "OwnerFilter",
    "Prepared",
    "PublicationError",
    "PublicationId",
    "Publisher",
    "SnapshotError",
    "SpinneyError",
    "StateFilter",
    "StateSubscription",
    "Stats",
    "Subscriber",
    "Subscription",
    "SyntaxError",
    "TopK",
    "TopKSubscription",
    "activation",
    "covers",
    "covers_feed",
    "disjoint",
    "feed",
    "normal_form",
    "overlaps",
    "parse",
    "parse_filter",
    "specialise",
]


def __getattr__(name: str) -> object:
    """The client SDK needs paho, which the core does not."""
    if name in ("Publisher", "Subscriber"):
        from . import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
