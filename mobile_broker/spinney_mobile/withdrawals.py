"""Readings that local publishers withdraw: what the cloud must be told, kept on disk until it has answered.

No I/O but by `keep`; the clock is handed in.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

MAX_WITHDRAWALS: Final = 1_000
"""That the cloud has not answered; of more, the oldest are given up, and counted."""
ANSWER_SECONDS: Final = 15.0
"""Then it is told again."""
KEY: Final = "unpub:"
"""Begins the keys of what is kept."""


class Withdrawals:
    """Of one broker."""

    def __init__(self, kept: Mapping[str, bytes], keep: Callable[[Mapping[str, bytes | None]], None]) -> None:
        self.dropped = 0
        self._keep = keep
        self._due: OrderedDict[str, float] = OrderedDict(
            (key.removeprefix(KEY), 0.0) for key in kept if key.startswith(KEY)
        )
        """By id, when it is to be told."""

    def __len__(self) -> int:
        return len(self._due)

    def add(self, id: str) -> None:
        """This one is withdrawn."""
        changes: dict[str, bytes | None] = {KEY + id: b""}
        self._due[id] = 0.0
        if len(self._due) > MAX_WITHDRAWALS:
            self.dropped += 1
            changes[KEY + self._due.popitem(last=False)[0]] = None
        self._keep(changes)

    def opened(self) -> None:
        """A new link: all that was not answered is told again."""
        self._due = OrderedDict.fromkeys(self._due, 0.0)

    @property
    def due(self) -> float | None:
        """When `next` will have something."""
        return min(self._due.values(), default=None)

    def next(self, now: float) -> bytes | None:
        """What is to be told now."""
        for id, due in self._due.items():
            if due <= now:
                self._due[id] = now + ANSWER_SECONDS
                return json.dumps({"id": id}).encode()
        return None

    def replied(self, reply: Mapping[str, Any]) -> None:
        """The cloud has it, or will not have it: it has answered."""
        if self._due.pop(str(reply.get("id")), None) is not None:
            self._keep({KEY + str(reply["id"]): None})
