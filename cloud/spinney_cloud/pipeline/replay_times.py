"""Moments as people write them: `2026-10-01`, `2026-10-01 12:30`, RFC 3339, `now`, `today`, `yesterday`, `-7d`."""

from __future__ import annotations

import datetime as dt
import re

from spinney.subscription_text import duration_seconds

EXPECTED = "2026-10-01, 2026-10-01T12:30, 2026-10-01T12:30:00+02:00, now, today, yesterday, or -7d"
_MONTH = re.compile(r"\d{4}-\d{2}")


def moment(text: str, now: float) -> float:
    """Epoch seconds; without a zone it is UTC. A date is its first moment. ValueError says what would do."""
    word = text.strip()
    if word == "now":
        return now
    if word in ("today", "yesterday"):
        return now // 86_400 * 86_400 - (86_400 if word == "yesterday" else 0)
    if word.startswith("-"):
        return now - _duration(word[1:], text)
    try:
        found = dt.datetime.fromisoformat(f"{word}-01" if _MONTH.fullmatch(word) else word)
    except ValueError as error:
        detail = "" if "format" in str(error) else f": {error}"
        raise ValueError(f"{text!r:.60} is no moment{detail}; expected {EXPECTED}") from None
    return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp()


def _duration(word: str, text: str) -> float:
    try:
        return duration_seconds(word)
    except ValueError:
        raise ValueError(f"{text!r:.60} is no time ago; expected -30m, -24h, -7d or -4w") from None


def written(seconds: float) -> str:
    """A moment for people: a date alone where it is one, else to the second, in UTC."""
    found = dt.datetime.fromtimestamp(seconds, dt.UTC)
    if seconds % 86_400 == 0:
        return found.strftime("%Y-%m-%d")
    return found.strftime("%Y-%m-%d %H:%M:%SZ")
