"""Notifications: what a subscriber is told, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf

from .expression import Value
from .identity import PublicationId

Why = OneOf["match", "enter", "exit", "top"]
Reason = OneOf["lost", "forgotten", "repaired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A publication delivered for a subscription."""

    subscription: str | None
    publication_id: PublicationId
    why: Why
    scope: Value | None
    """The source, or the EACH value; None where everything is one scope (rule S3)."""
    time: float
    """Of the log."""
    publication: Mapping[str, Any] | None
    """None when no publication brought this about."""
    reason: Reason | None = None
    """Why without a publication: its sources are lost (S4), there was no room for them, or labels had gone missing."""
    since: float | None = None
    """For an exit: the log time at which the scope was entered."""
    rank: int | None = None
    """For a top: its place among the k best, from 1."""

    @property
    def id(self) -> str:
        """The same whenever the same is notified again (rule L2): a JSON array, in ASCII."""
        return json.dumps(
            [self.subscription, str(self.publication_id), self.why, scope_key(self.scope)], separators=(",", ":")
        )


def scope_key(scope: Value | None) -> str:
    """A text that is equal for equal scopes only: 1 and true differ, 0.0 and -0.0 do not."""
    if isinstance(scope, float):
        return repr(scope + 0.0)
    return json.dumps(scope)
