"""Who else hears of each reading that the broker takes: local subscribers, Home Assistant, pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from spinney.identity import PublicationId

from .samples import Sample


@dataclass(frozen=True, slots=True)
class Taken:
    """A reading after private rules, place and numbering; repeats and what a rule stopped do not come here."""

    id: PublicationId
    publication: Mapping[str, Any]
    """With `id`, `source`, `time` and all, as it goes up if it does."""
    sample: Sample
    wanted: bool
    """Whether an active feed or a label needed it to go up; with `send = "all"` it goes up all the same."""


class Listener(Protocol):
    """Called in the broker's loop for each reading, in order. It must not wait, and must not raise."""

    def taken(self, taken: Taken) -> None:
        """One reading."""
