"""What stops a command, and what to do about it."""

from __future__ import annotations

from spinney.errors import SpinneyError


class FlashError(SpinneyError):
    """A step that failed: what went wrong, and `advice`, what to do."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.advice = advice
