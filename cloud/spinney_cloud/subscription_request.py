"""What a subscriber asks for: the subscription, and beside it how it is kept and delivered.

In JSON the options stand beside the members of the core's form, which knows nothing of them:

    {"text": "NO2 > 40", "max_per": "10/min", "labels": {"floor": "2"},
     "density": {"per_cell": 3, "cell": 8, "every": "5m", "at_most": "1/5m"}}

`"on": "pipeline"` leaves a subscription to the Spark pipeline (pipeline/), which must be running: the matcher passes it
over. Without it, or with `"on": "broker"`, the matcher answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from spinney import ContentSubscription, StateSubscription, parse
from spinney import SyntaxError as SubscriptionError
from spinney.expression import And, Filter, Node, Not, Or
from spinney.json_source import BadJson, RepeatedKey
from spinney.json_source import read as read_json
from spinney.subscription_json import AnySubscription, subscription_from_json

from .delivery_options import OPTION_NAMES as DELIVERY_OPTIONS
from .delivery_options import OptionError, read_options
from .density import DensityError, read_at_most, read_density

MAX_COMPARISONS: Final = 1_000
"""In one subscription; a list of values is one. What follows from them takes a second at worst to find out, and each
reading that is not ruled out by the index is compared with all of them."""
_SHORT: Final = 3 * MAX_COMPARISONS
"""Characters; no shorter text has more comparisons than that."""
MAX_LABELS: Final = 64
MAX_LABEL: Final = 256
"""Characters of a label's name or value."""
LATEST: Final = 1e11
"""Epoch seconds beyond which nobody plans."""

ON: Final = "on"
"""The option that says who answers."""
BROKER, PIPELINE = "broker", "pipeline"
OPTIONS: Final = frozenset({*DELIVERY_OPTIONS, "density", ON})
_OURS: Final = frozenset({*OPTIONS, "labels", "enabled", "expires"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRequest:
    """A subscription that can be kept."""

    subscription: AnySubscription
    source: str | dict[str, Any]
    """As it was given."""
    enabled: bool = True
    expires: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def read_request(
    source: str | dict[str, Any], beside: Mapping[str, Any] | None = None, *, owner: str, sid: str
) -> SubscriptionRequest:
    """Read it, with more members `beside` the source's own; spinney.SyntaxError says what is wrong and where."""
    text = source if isinstance(source, str) else None
    if text is not None and not text.lstrip().startswith("{"):
        item: dict[str, Any] = {}
        subscription = parse(text)
    else:
        item = source if isinstance(source, dict) else read_json(source)
        bare = item
        if not isinstance(item, RepeatedKey) and not _OURS.isdisjoint(item):
            bare = {name: value for name, value in item.items() if name not in _OURS}
        subscription = subscription_from_json(bare, text)
    if text is None or len(text) > _SHORT:
        _check_comparisons(subscription)
    ours = {name: value for name, value in item.items() if name in _OURS} | _given(beside)
    try:
        _check_names(subscription, owner, sid)
        return SubscriptionRequest(
            subscription=subscription,
            source=source,
            enabled=_enabled(ours),
            expires=_expires(ours, subscription),
            labels=_labels(ours),
            options=_options(ours, subscription),
        )
    except BadJson as error:
        raise error.located(text if item else None) from None


def _check_comparisons(subscription: AnySubscription) -> None:
    """More of them are refused."""
    nodes = [value for one in fields(subscription) if isinstance(value := getattr(subscription, one.name), Node)]
    count = 0
    while nodes:
        node = nodes.pop()
        if isinstance(node, And | Or | Not):
            nodes.extend(node.children())
        elif isinstance(node, Filter):
            count += 1
    if count > MAX_COMPARISONS:
        message = f"{count} comparisons, at most {MAX_COMPARISONS}; many values of one attribute are one: a IN (1, 2)"
        raise SubscriptionError(message, line=1, column=1, expected=f"at most {MAX_COMPARISONS} comparisons")


def _given(beside: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options are in an object of their own there."""
    if beside is None:
        return {}
    unknown = set(beside["options"]) - OPTIONS if "options" in beside else set()
    if unknown:
        known = ", ".join(sorted(OPTIONS))
        raise BadJson(("options",), f"no such option: {min(unknown)}; there are {known}").located(None)
    flat = {name: value for name, value in beside.items() if name in _OURS and value is not None}
    return flat | dict(beside.get("options", {}))


def _check_names(subscription: AnySubscription, owner: str, sid: str) -> None:
    for name, found, wanted in (("id", subscription.id, sid), ("owner", subscription.owner, owner)):
        if found is not None and found != wanted:
            raise BadJson((name,), f"expected {wanted}, as the request says, or nothing", found=found, expected=wanted)


def _enabled(ours: Mapping[str, Any]) -> bool:
    enabled = ours.get("enabled", True)
    if not isinstance(enabled, bool):
        raise BadJson(("enabled",), "expected true or false", expected="true or false")
    return enabled


def _expires(ours: Mapping[str, Any], subscription: AnySubscription) -> float | None:
    expires = ours.get("expires")
    if expires is None:
        return subscription.valid_until
    if subscription.valid_until is not None and subscription.valid_until != expires:
        raise BadJson(("expires",), 'expected "expires" or "valid_until", not both', expected="one of them")
    if isinstance(expires, bool) or not isinstance(expires, int | float) or not 0 <= expires <= LATEST:
        raise BadJson(("expires",), "expected epoch seconds, a number", expected="a number")
    return float(expires)


def _labels(ours: Mapping[str, Any]) -> dict[str, str]:
    labels = ours.get("labels", {})
    if not isinstance(labels, dict) or len(labels) > MAX_LABELS:
        raise BadJson(("labels",), f"expected an object of at most {MAX_LABELS} strings", expected="an object")
    for name, value in labels.items():
        if not isinstance(value, str) or max(len(name), len(value)) > MAX_LABEL:
            message = f"expected a string; names and values have at most {MAX_LABEL} characters"
            raise BadJson(("labels", name), message, expected="a string")
    return labels


def _options(ours: Mapping[str, Any], subscription: AnySubscription) -> dict[str, Any]:
    options = {name: ours[name] for name in ours if name in OPTIONS and ours[name] is not None}
    for name, value in options.items():
        try:
            if name == ON:
                _check_on(value)
            elif name == "density":
                read_density(value)
                _check_at_most(value, subscription)
            else:
                read_options({name: value})
        except (OptionError, DensityError) as error:
            raise BadJson((name,), str(error), found=str(value)[:40]) from None
    return options


def _check_at_most(density: Any, subscription: AnySubscription) -> None:
    """What the first in a period stands for is the others; an exit or a rank that is left out stands for nothing."""
    if read_at_most(density) is not None and not isinstance(subscription, ContentSubscription):
        kind = "state" if isinstance(subscription, StateSubscription) else "top-k"
        message = f"at_most: for content subscriptions only, since each notification of a {kind} subscription counts"
        raise DensityError(f'{message}; "max_per" or "digest" deliver it less often')


def _check_on(value: Any) -> None:
    if value not in (BROKER, PIPELINE):
        raise OptionError(f'{ON}: expected "{BROKER}" or "{PIPELINE}"; found {value!r:.60}')


def is_on_pipeline(options: Mapping[str, Any]) -> bool:
    """Whether the pipeline answers for a subscription with these options, and not the matcher."""
    return options.get(ON) == PIPELINE
