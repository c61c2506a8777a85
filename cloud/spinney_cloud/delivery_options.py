"""How one subscription wants to be told: the part of its `options` that delivery obeys.

    {"max_per": "10/min", "digest": "5m", "queue": 100, "drop": "newest", "qos": 0}

The rate limit and the digest act on delivery only, never on what the matcher keeps (rule S6).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from spinney.subscription_text import duration_seconds

Drop = Literal["oldest", "newest"]
"""Which end of a full queue goes."""

MAX_RATE: Final = 10_000
"""The largest count of a rate limit: that many times are remembered."""
MAX_PERIOD_SECONDS: Final = 24 * 3600.0
"""The longest period of a rate limit or a digest."""
MAX_QUEUE: Final = 1_000_000
"""The largest queue that a subscription may ask for; the owner's own bound holds besides."""

OPTION_NAMES: Final = frozenset({"max_per", "digest", "queue", "drop", "qos"})
"""Those of a subscription's options that are for delivery."""

_RATE = re.compile(r"([1-9][0-9]{0,8})/([0-9.]*[a-z]+)")
_UNITS = {"second": "1s", "sec": "1s", "minute": "1m", "hour": "1h", "day": "1d"}


class OptionError(ValueError):
    """An option that cannot be obeyed: which, and what is expected."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most so many messages within any such period; of what comes too soon the newest is kept."""

    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """What a subscription asked for; the defaults ask for nothing."""

    max_per: Rate | None = None
    digest_seconds: float | None = None
    queue: int | None = None
    """How many of its notifications may wait; None: as many as its owner's queue holds."""
    drop: Drop = "oldest"
    qos: Literal[0, 1] = 1


DEFAULT: Final = DeliveryOptions()


def read_options(options: Mapping[str, Any]) -> DeliveryOptions:
    """The delivery options among a subscription's; OptionError says which is wrong. Others are left alone."""
    if not options:
        return DEFAULT
    return DeliveryOptions(
        max_per=_given(options, "max_per", _rate),
        digest_seconds=_given(options, "digest", _period),
        queue=_given(options, "queue", _queue),
        drop=_given(options, "drop", _drop) or "oldest",
        qos=1 if (qos := _given(options, "qos", _qos)) is None else qos,
    )


def _given(options: Mapping[str, Any], name: str, read: Any) -> Any:
    value = options.get(name)
    if value is None:
        return None
    try:
        return read(value)
    except ValueError as error:
        raise OptionError(f"{name}: {error}; found {value!r:.60}") from None


def _rate(value: Any) -> Rate:
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("expected a rate such as 10/min or 1/30s")
    count, unit = int(found[1]), _UNITS.get(found[2], found[2])
    if count > MAX_RATE:
        raise ValueError(f"a rate has a count of at most {MAX_RATE}")
    return Rate(count, _period(unit if unit[0].isdigit() else f"1{unit}"))


def _period(value: Any) -> float:
    if not isinstance(value, str):
        raise ValueError("expected a duration such as 30s or 5m")
    seconds = duration_seconds(value)
    if seconds > MAX_PERIOD_SECONDS:
        raise ValueError(f"a period is at most {MAX_PERIOD_SECONDS / 3600:.0f} h")
    return seconds


def _queue(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MAX_QUEUE:
        raise ValueError(f"expected how many may wait, from 1 to {MAX_QUEUE}")
    return value


def _drop(value: Any) -> Drop:
    if value not in ("oldest", "newest"):
        raise ValueError('expected "oldest" or "newest"')
    return "oldest" if value == "oldest" else "newest"


def _qos(value: Any) -> Literal[0, 1]:
    if type(value) is not int or value not in (0, 1):
        raise ValueError("expected 0 or 1")
    return 1 if value else 0
