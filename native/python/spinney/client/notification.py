"""A notification as a subscriber gets it, and the reading of the cloud's messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..expression import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A publication delivered for a subscription, and why."""

    id: str
    """The same whenever the same is notified again (rule L2)."""
    sid: str
    """Of the subscription."""
    why: str
    """match, enter, exit or top."""
    time: float
    """Of the log, epoch seconds."""
    publication: Mapping[str, Value] | None = None
    """None when no publication brought this about."""
    scope: Value | None = None
    since: float | None = None
    """For an exit: when the scope was entered."""
    rank: int | None = None
    """For a top: its place among the k best, from 1."""
    reason: str | None = None
    also: tuple[str, ...] = field(default=())
    """This client's other subscriptions that the publication had something to say to; they tell it, too."""


class Told(NamedTuple):
    """What one message holds: one notification, or several where its subscription asks for a digest."""

    notifications: tuple[Notification, ...]
    dropped: int
    """So many more were left out by the cloud, because the subscription says so or its queue was full."""


def read(payload: bytes) -> Told:
    """ValueError for what is none."""
    item = json.loads(payload)
    try:
        if "digest" in item:
            return Told(tuple(_notification(each) for each in item["digest"]), int(item.get("dropped", 0)))
        return Told((_notification(item),), 0)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no notification: {error!r}") from error


def _notification(item: Any) -> Notification:
    publication = item.get("publication")
    if publication is not None and not isinstance(publication, dict):
        raise TypeError("a publication is an object")
    return Notification(
        id=_text(item["id"]),
        sid=_text(item["sid"]),
        why=_text(item["why"]),
        time=float(item["time"]),
        publication=publication,
        scope=item.get("scope"),
        since=item.get("since"),
        rank=item.get("rank"),
        reason=item.get("reason"),
        also=tuple(_text(sid) for sid in item.get("also") or ()),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string, not {value!r:.40}")
    return value
