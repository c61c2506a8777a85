"""How one subscription wants to be told: the part of its `options` that delivery obeys.

    {"max_per": "10/min", "digest": "5m", "queue": 100, "drop": "newest", "qos": 0,
     "density": {"cell": 8, "at_most": "1/5m"}}

They act on delivery only, never on what the matcher keeps (rule S6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from .density import AtMost, read_at_most
from .rates import Rate, read_period, read_rate

Drop = Literal["oldest", "newest"]
"""Which end of a full queue goes."""

MAX_QUEUE: Final = 1_000_000
"""The largest queue that a subscription may ask for; the owner's own bound holds besides."""

OPTION_NAMES: Final = frozenset({"max_per", "digest", "queue", "drop", "qos"})
"""Those of a subscription's options that are for delivery."""


class OptionError(ValueError):
    """An option that cannot be obeyed: which, and what is expected."""


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """What a subscription asked for; the defaults ask for nothing."""

    max_per: Rate | None = None
    digest_seconds: float | None = None
    queue: int | None = None
    """How many of its notifications may wait; None: as many as its owner's queue holds."""
    drop: Drop = "oldest"
    qos: Literal[0, 1] = 1
    at_most: AtMost | None = None
    """From each cell: a member of the option `density`, whose others activation obeys."""


DEFAULT: Final = DeliveryOptions()


def read_options(options: Mapping[str, Any]) -> DeliveryOptions:
    """The delivery options among a subscription's; OptionError says which is wrong. Others are left alone."""
    if not options:
        return DEFAULT
    return DeliveryOptions(
        max_per=_given(options, "max_per", read_rate),
        digest_seconds=_given(options, "digest", read_period),
        queue=_given(options, "queue", _queue),
        drop=_given(options, "drop", _drop) or "oldest",
        qos=1 if (qos := _given(options, "qos", _qos)) is None else qos,
        at_most=_given(options, "density", read_at_most),
    )


def _given(options: Mapping[str, Any], name: str, read: Any) -> Any:
    value = options.get(name)
    if value is None:
        return None
    try:
        return read(value)
    except ValueError as error:
        raise OptionError(f"{name}: {error}; found {value!r:.60}") from None


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
