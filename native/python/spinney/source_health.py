"""A source's battery and silence in one character, as an announcement has them: `health` is a string with one character
for each of its `sources`, in their order, or an object {source: character} of those that have changed.

An announcement without it leaves what was told before in the same session, but for silences: those are told again, or
are over. The character is one of the 64 of base64url: battery bucket * 8 + silence bucket. Bucket 0 means unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

BATTERY_EDGES: Final = (0.05, 0.15, 0.3, 0.5, 0.7, 0.9)
"""Shares of a full battery at which its bucket changes: 1 is almost empty, 7 is full."""
BATTERIES: Final = (None, 0.02, 0.1, 0.22, 0.4, 0.6, 0.8, 1.0)
"""What each bucket is taken for."""
SILENCE_EDGES: Final = (300.0, 600.0, 1200.0, 1800.0, 3600.0)
"""Seconds without anything heard of a source at which its bucket changes: 1 is heard lately."""
SILENCES: Final = (None, 0.0, *SILENCE_EDGES, SILENCE_EDGES[-1])
"""The least silence of each bucket."""
HYSTERESIS: Final = 0.02
"""Of a battery's share: so far beyond the edge of its bucket it changes to another."""
HEARD_LATELY: Final = 1
_CODES: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_SILENCES_SHIFT: Final = 8


class SourceHealth(NamedTuple):
    """What is known of a source."""

    battery: float | None = None
    """From 0 to 1."""
    silent_seconds: float | None = None
    """At least so long nothing was heard of it; None: unknown."""


def battery_bucket(share: float, before: int = 0) -> int:
    """The bucket of a battery, which keeps the one it had while it is near."""
    bucket = 1 + bisect_right(BATTERY_EDGES, share)
    if before and abs(bucket - before) == 1:
        edge = BATTERY_EDGES[min(bucket, before) - 1]
        if abs(share - edge) < HYSTERESIS:
            return before
    return bucket


def silence_bucket(seconds: float | None) -> int:
    """The bucket of a silence."""
    return 0 if seconds is None else 1 + bisect_right(SILENCE_EDGES, seconds)


def encode(battery: int, silence: int) -> str:
    """The character of two buckets."""
    return _CODES[battery * _SILENCES_SHIFT + silence]


def decode(code: str) -> SourceHealth:
    """What a character says; ValueError if it is none."""
    at = _CODES.find(code) if len(code) == 1 else -1
    if at < 0:
        raise ValueError(f"expected one character of base64url, found {code!r:.20}")
    return _HEALTHS[at]


def without_silence(code: str) -> str:
    """The same character, but that it tells of no silence: what an announcement that tells nothing leaves of it."""
    battery, silence = divmod(_CODES.index(code), _SILENCES_SHIFT)
    return code if silence <= HEARD_LATELY else encode(battery, 0)


_HEALTHS: Final = tuple(SourceHealth(battery, silence) for battery in BATTERIES for silence in SILENCES)
"""By code: each is made once."""
