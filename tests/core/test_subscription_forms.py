"""The three forms of a subscription, in text and in JSON (design: the language and its meaning)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spinney import (
    ContentSubscription,
    DeadBand,
    StateSubscription,
    Subscription,
    SyntaxError,
    TopKSubscription,
    parse,
    parse_filter,
)
from spinney.expression import Arithmetic, Call, Literal, Property

HOT, COLD, LAB = parse_filter("temp > 25"), parse_filter("temp <= 22"), parse_filter("room = 'lab'")
TEMP = Property("temp")


@pytest.mark.parametrize(
    ("text", "subscription"),
    [
        ("temp > 25", ContentSubscription(filter=HOT)),
        ("WHEN temp > 25 UNTIL temp <= 22", StateSubscription(enter=HOT, exit=COLD)),
        ("when temp > 25 until temp <= 22", StateSubscription(enter=HOT, exit=COLD)),
        ("WHEN (temp > 25) UNTIL (temp <= 22)", StateSubscription(enter=HOT, exit=COLD)),
        ("WHEN temp > 25 UNTIL temp <= 22 FOR room = 'lab'", StateSubscription(enter=HOT, exit=COLD, only=LAB)),
        ("WHEN temp > 25 UNTIL temp <= 22 EACH room", StateSubscription(enter=HOT, exit=COLD, each="room")),
        ('WHEN temp > 25 UNTIL temp <= 22 EACH "each"', StateSubscription(enter=HOT, exit=COLD, each="each")),
        ("WHEN temp > 25 UNTIL temp <= 22 ONCE", StateSubscription(enter=HOT, exit=COLD, once=True)),
        (
            "WHEN temp > 25 UNTIL temp <= 22 FOR room = 'lab' ONCE",
            StateSubscription(enter=HOT, exit=COLD, only=LAB, once=True),
        ),
        ("WHEN NOT temp > 25 UNTIL TRUE", parse({"when": "NOT temp > 25", "until": True})),
        ("WHEN TRUE UNTIL FALSE", parse({"when": True, "until": False})),
        ("TOP 10 OVER 24h BY temp", TopKSubscription(k=10, seconds=86400.0, score=TEMP)),
        ("top 10 over last 5 by temp desc", TopKSubscription(k=10, last=5, score=TEMP, descending=True)),
        (
            "TOP 3 OVER 24h BY distance(lat, long, 45.815, 15.977) DESC WHERE room = 'lab' EACH type",
            TopKSubscription(
                k=3,
                seconds=86400.0,
                score=Call("distance", (Property("lat"), Property("long"), Literal(45.815), Literal(15.977))),
                descending=True,
                where=LAB,
                each="type",
            ),
        ),
        (
            "TOP 1 OVER LAST 1000000 BY temp * 2 EACH room",
            TopKSubscription(k=1, last=1_000_000, score=Arithmetic("*", TEMP, Literal(2.0)), each="room"),
        ),
    ],
)
def test_text(text: str, subscription: Subscription) -> None:
    assert parse(text) == parse(text.encode()) == parse({"text": text}) == subscription
    assert parse(subscription.to_text()) == parse(subscription.to_json()) == subscription


@pytest.mark.parametrize(
    ("written", "seconds", "printed"),
    [
        *(("500ms", 0.5, "0.5s"), ("30s", 30, "30s"), ("15m", 900, "15m"), ("15min", 900, "15m"), ("24h", 86400, "1d")),
        *(
            ("7d", 604800, "7d"),
            ("2w", 1209600, "14d"),
            ("1.5h", 5400, "90m"),
            (".5d", 43200, "12h"),
            ("90s", 90, "90s"),
        ),
        *(("0.01ms", 0.00001, "0.00001s"), ("36500d", 3153600000, "36500d")),
    ],
)
def test_durations(written: str, seconds: float, printed: str) -> None:
    subscription = parse(f"TOP 1 OVER {written} BY a")
    assert isinstance(subscription, TopKSubscription)
    assert subscription.seconds == seconds
    assert subscription.to_text() == f"TOP 1 OVER {printed} BY a"
    assert (
        parse({"top": 1, "over": written, "by": "a"}) == parse({"top": 1, "over": seconds, "by": "a"}) == subscription
    )


def test_words_that_begin_clauses_are_names_elsewhere() -> None:
    assert parse("when > 3") == ContentSubscription(filter=parse_filter('"when" > 3'))
    assert parse("top = 3 AND last < 5 AND by IS NULL") == parse('"top" = 3 AND "last" < 5 AND "by" IS NULL')
    assert parse("top IN (1, 2)") == parse('"top" IN (1, 2)')
    text = 'WHEN "until" > 1 UNTIL "for" < 1 EACH "once"'
    assert parse(text).to_text() == text
    assert parse("for > 1").to_text() == '"for" > 1'


def test_json_members_of_a_state_subscription() -> None:
    item: dict[str, Any] = {
        "id": "hot",
        "owner": "ana",
        "valid_until": 1e9,
        "when": HOT.to_json(),
        "until": "temp <= 22",
        "for": "room = 'lab'",
        "each": "room",
        "debounce": "30s",
        "dead_band": {"attribute": "temp", "by": 0.5},
        "reorder": 5,
        "lost": "2h",
    }
    subscription = parse(json.dumps(item))
    assert subscription == StateSubscription(
        id="hot",
        owner="ana",
        valid_until=1e9,
        enter=HOT,
        exit=COLD,
        only=LAB,
        each="room",
        debounce=30.0,
        dead_band=DeadBand(attribute="temp", by=0.5),
        reorder=5.0,
        lost=7200.0,
    )
    assert parse(subscription.to_json()) == subscription
    assert subscription.to_text() == "WHEN temp > 25 UNTIL temp <= 22 FOR room = 'lab' EACH room"


def test_json_members_of_a_top_k_subscription() -> None:
    item = {
        "top": 5,
        "over": {"last": 9},
        "by": {"property": "temp"},
        "desc": True,
        "where": "room = 'lab'",
        "each": "x",
    }
    assert parse(item) == TopKSubscription(k=5, last=9, score=TEMP, descending=True, where=LAB, each="x")


def test_options_beside_a_text() -> None:
    subscription = parse({"text": "WHEN temp > 25 UNTIL temp <= 22", "id": "x", "lost": 60, "debounce": "1s"})
    assert subscription == StateSubscription(id="x", enter=HOT, exit=COLD, lost=60.0, debounce=1.0)
    assert parse({"text": "temp > 25", "owner": "ana", "valid_until": 5}) == ContentSubscription(
        owner="ana", valid_until=5.0, filter=HOT
    )


def test_a_bare_filter_in_json_is_a_content_subscription() -> None:
    assert parse(HOT.to_json()) == parse({"filter": HOT.to_json()}) == parse({"filter": "temp > 25"})


def test_defaults_are_left_out_of_json() -> None:
    assert parse("WHEN TRUE UNTIL FALSE").to_json() == {"when": True, "until": False}
    assert parse("TOP 1 OVER 1s BY a").to_json() == {"top": 1, "over": 1.0, "by": {"property": "a"}}


@pytest.mark.parametrize("k", ["1", "10000"])
def test_k_has_a_range(k: str) -> None:
    assert isinstance(parse(f"TOP {k} OVER 1h BY a"), TopKSubscription)
    with pytest.raises(SyntaxError, match="1:5: expected a whole number from 1 to 10000"):
        parse("TOP 10001 OVER 1h BY a")
