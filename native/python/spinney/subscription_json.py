"""Subscriptions as JSON objects. Filters in them are CQL2 JSON, or CQL2 Text in a string.

    {"filter": "NO2 > 40"}
    {"when": ..., "until": ..., "for": ..., "each": "room" | "once": true,
     "debounce": "30s", "dead_band": {"attribute": "temp", "by": 0.5}, "reorder": "5s", "lost": "1h"}
    {"top": 10, "over": "24h" | {"last": 1000}, "by": ..., "desc": true, "where": ..., "each": "type"}
    {"text": "WHEN ..."} stands for any of the three, with the options of its kind beside it

and in each `id`, `owner` and `valid_until`. Durations are seconds, or strings such as "24h".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .expression import Filter
from .json_form import filter_to_json, members, read_condition, read_embedded, read_number, value_to_json
from .json_source import BadJson, Path
from .limits import check_string
from .subscription import ContentSubscription, DeadBand, StateSubscription, Subscription, TopKSubscription
from .subscription_text import MAX_K, MAX_LAST, MAX_SECONDS, duration_seconds, read_subscription
from .text import Reader

_COMMON = ("id", "owner", "valid_until")
_STATE_OPTIONS = ("debounce", "dead_band", "reorder", "lost")
_STATE = ("when", "until", "for", "each", "once", *_STATE_OPTIONS)
_TOP_K = ("top", "over", "by", "desc", "where", "each")
_MAX_NAME = 256

AnySubscription = ContentSubscription | StateSubscription | TopKSubscription


def subscription_from_json(item: Any, source: str | None = None) -> AnySubscription:
    """A subscription from the objects that JSON gives. With their source text, errors name line and column in it."""
    try:
        return _read(item)
    except BadJson as error:
        raise error.located(source) from None


def _read(item: Any) -> AnySubscription:
    if not isinstance(item, dict):
        raise BadJson((), "a subscription is an object", expected="an object")
    if "op" in item:
        return ContentSubscription(filter=read_condition(item, ()))
    if "text" in item:
        return _read_text(item)
    if "filter" in item:
        members(item, (), ("filter", *_COMMON))
        return ContentSubscription(filter=read_condition(item["filter"], ("filter",)), **_common(item))
    if "when" in item:
        return _read_state(item)
    if "top" in item:
        return _read_top_k(item)
    expected = '"filter", "when" and "until", "top", or "text"'
    raise BadJson((), f"expected {expected}", expected=expected)


def _read_text(item: dict[str, Any]) -> AnySubscription:
    text = item["text"]
    if not isinstance(text, str):
        raise BadJson(("text",), "expected a subscription in a string", expected="a string")
    subscription: AnySubscription = read_embedded(text, ("text",), read_subscription)
    options = _STATE_OPTIONS if isinstance(subscription, StateSubscription) else ()
    members(item, (), ("text", *_COMMON, *options))
    subscription = replace(subscription, **_common(item))
    return replace(subscription, **_state_options(item)) if options else subscription


def _read_state(item: dict[str, Any]) -> StateSubscription:
    members(item, (), (*_STATE, *_COMMON))
    once = item.get("once", False)
    if not isinstance(once, bool) or (once and "each" in item):
        raise BadJson(("once",), 'expected true or false, and not both "each" and "once"', expected="true or false")
    return StateSubscription(
        enter=_condition(item, "when"),
        exit=_condition(item, "until"),
        only=_condition(item, "for") if "for" in item else None,
        each=_string(item, "each") if "each" in item else None,
        once=once,
        **_state_options(item),
        **_common(item),
    )


def _state_options(item: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        name: _duration(item[name], (name,)) for name in ("debounce", "reorder", "lost") if name in item
    }
    if "dead_band" in item:
        path: Path = ("dead_band",)
        members(item["dead_band"], path, ("attribute", "by"))
        by = item["dead_band"].get("by")
        if not _is_number(by) or not by > 0:
            raise BadJson((*path, "by"), "expected a number above 0", expected="a number")
        options["dead_band"] = DeadBand(attribute=_string(item["dead_band"], "attribute", path), by=float(by))
    return options


def _read_top_k(item: dict[str, Any]) -> TopKSubscription:
    members(item, (), (*_TOP_K, *_COMMON))
    over, descending = item.get("over"), item.get("desc", False)
    if not isinstance(descending, bool):
        raise BadJson(("desc",), "expected true or false", expected="true or false")
    last = None
    if isinstance(over, dict):
        members(over, ("over",), ("last",))
        last = _count(over.get("last"), ("over", "last"), MAX_LAST)
    if "by" not in item:
        raise BadJson((), 'expected "by", a value', expected='"by"')
    by = item["by"]
    return TopKSubscription(
        k=_count(item["top"], ("top",), MAX_K),
        last=last,
        seconds=_duration(over, ("over",)) if last is None else None,
        score=read_embedded(by, ("by",), _read_score) if isinstance(by, str) else read_number(by, ("by",)),
        descending=descending,
        where=_condition(item, "where") if "where" in item else None,
        each=_string(item, "each") if "each" in item else None,
        **_common(item),
    )


def _read_score(text: str) -> Any:
    reader = Reader(text)
    score = reader.number()
    reader.finish("the end")
    return score


def _common(item: dict[str, Any]) -> dict[str, Any]:
    common: dict[str, Any] = {name: _string(item, name) for name in ("id", "owner") if name in item}
    if "valid_until" in item:
        if not _is_number(item["valid_until"]):
            raise BadJson(("valid_until",), "expected epoch seconds, a number", expected="a number")
        common["valid_until"] = float(item["valid_until"])
    return common


def _condition(item: dict[str, Any], name: str) -> Filter:
    if name not in item:
        raise BadJson((), f'expected "{name}"', expected=f'"{name}"')
    return read_condition(item[name], (name,))


def _string(item: dict[str, Any], name: str, path: Path = ()) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= _MAX_NAME:
        message = f"expected a string of 1 to {_MAX_NAME} characters"
        raise BadJson((*path, name), message, expected="a string")
    try:
        check_string(value)
    except ValueError as error:
        raise BadJson((*path, name), str(error)) from None
    return value


def _count(value: Any, path: Path, limit: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise BadJson(path, f"expected a whole number from 1 to {limit}", expected="a whole number")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def _duration(value: Any, path: Path) -> float:
    if isinstance(value, str):
        try:
            return duration_seconds(value)
        except ValueError as error:
            raise BadJson(path, str(error), found=value, expected="a duration") from None
    if not _is_number(value):
        raise BadJson(path, 'expected a duration: seconds, or a string such as "24h"', expected="a duration")
    if not 0 < value <= MAX_SECONDS:
        raise BadJson(path, f"a duration is more than 0 and at most {MAX_SECONDS:.0f} s", expected="a duration")
    return float(value)


# ---- back to JSON


def subscription_to_json(subscription: Subscription) -> dict[str, Any]:
    """The objects that json.dumps takes; what has its default is left out."""
    match subscription:
        case ContentSubscription(filter=condition):
            body: dict[str, Any] = {"filter": filter_to_json(condition)}
        case StateSubscription():
            body = _state_to_json(subscription)
        case TopKSubscription():
            body = _top_k_to_json(subscription)
        case _:
            raise TypeError(f"not a kind of subscription: {subscription!r}")
    return body | _common_to_json(subscription)


def subscription_to_short_json(subscription: Subscription) -> dict[str, Any]:
    """The same, with the text in it."""
    options = _state_options_to_json(subscription) if isinstance(subscription, StateSubscription) else {}
    return {"text": subscription.to_text(), **options, **_common_to_json(subscription)}


def _common_to_json(subscription: Subscription) -> dict[str, Any]:
    return {name: value for name in _COMMON if (value := getattr(subscription, name)) is not None}


def _state_to_json(subscription: StateSubscription) -> dict[str, Any]:
    body = {"when": filter_to_json(subscription.enter), "until": filter_to_json(subscription.exit)}
    if subscription.only is not None:
        body["for"] = filter_to_json(subscription.only)
    if subscription.each is not None:
        body["each"] = subscription.each
    if subscription.once:
        body["once"] = True
    return body | _state_options_to_json(subscription)


def _state_options_to_json(subscription: StateSubscription) -> dict[str, Any]:
    defaults = {"debounce": 0.0, "reorder": 0.0, "lost": 3600.0}
    found: dict[str, Any] = {
        name: value for name, usual in defaults.items() if (value := getattr(subscription, name)) != usual
    }
    if subscription.dead_band is not None:
        found["dead_band"] = {"attribute": subscription.dead_band.attribute, "by": subscription.dead_band.by}
    return found


def _top_k_to_json(subscription: TopKSubscription) -> dict[str, Any]:
    over = subscription.seconds if subscription.last is None else {"last": subscription.last}
    body = {"top": subscription.k, "over": over, "by": value_to_json(subscription.score)}
    if subscription.descending:
        body["desc"] = True
    if subscription.where is not None:
        body["where"] = filter_to_json(subscription.where)
    if subscription.each is not None:
        body["each"] = subscription.each
    return body
