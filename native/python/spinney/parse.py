"""`spinney.parse`: subscriptions from text or JSON."""

from __future__ import annotations

from typing import Any

from .errors import SyntaxError
from .expression import Filter
from .json_form import filter_from_json
from .json_source import read as read_json
from .subscription_json import AnySubscription, subscription_from_json
from .subscription_text import read_subscription
from .text import read_filter


def parse(source: str | bytes | dict[str, Any]) -> AnySubscription:
    """A subscription from its text, from JSON text, or from the objects that JSON gives.

    >>> parse("WHEN temp > 25 UNTIL temp <= 22 EACH room").to_text()
    'WHEN temp > 25 UNTIL temp <= 22 EACH room'
    """
    if isinstance(source, bytes):
        source = _decode(source)
    if isinstance(source, str):
        if not source.lstrip().startswith("{"):
            return read_subscription(source)
        return subscription_from_json(read_json(source), source)
    return subscription_from_json(source)


def parse_filter(source: str | bytes | dict[str, Any] | bool) -> Filter:
    """A filter from CQL2 Text, from CQL2 JSON text, or from the objects that CQL2 JSON gives."""
    if isinstance(source, bytes):
        source = _decode(source)
    if isinstance(source, str):
        if not source.lstrip().startswith("{"):
            return read_filter(source)
        return filter_from_json(read_json(source), source)
    return filter_from_json(source)


def _decode(source: bytes) -> str:
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        before = source[: error.start].decode()
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + 1
        raise SyntaxError("not UTF-8", line=line, column=column) from None
