"""Subscriptions as they are kept: what follows from a text, and what a reader gets back."""

from __future__ import annotations

import pytest

from spinney import Matcher, StateSubscription, feed, normal_form, parse
from spinney.filter_bytes import filter_bytes
from spinney_cloud.subscriptions import (
    CORE,
    Form,
    StoredSubscription,
    StoredSubscriptionError,
    form_of,
)

TEXTS = [
    "NO2 > 40",
    "NO2 > 40 AND lat BETWEEN 45.81 AND 45.82",
    "NO2 > CO",
    "NO2 > 40 OR NO2 > CO",
    "NO2 > 40 AND NO2 > CO",
    "type LIKE 'air/%'",
    "type LIKE '%/air'",
    "TRUE",
    "FALSE",
    "NO2 IS NULL",
    "S_WITHIN(location, POLYGON((15.9 45.8, 16 45.8, 16 45.9, 15.9 45.8)))",
    "WHEN temp > 25 UNTIL temp <= 22 EACH room",
    "TOP 5 OVER 24h BY NO2 DESC",
    "TOP 5 OVER LAST 100 BY distance(lat, long, 45.8, 16)",
]


def stored(text: str, **more: object) -> StoredSubscription:
    form = form_of(parse(text))
    return StoredSubscription(
        tenant="default", owner="ana", sid="s1", source=text, start=7, created=1.5, kind=form.kind,
        normal=form.normal, digest=form.digest, program=form.program, **more,
    )  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_cost_is_what_the_matcher_counts(text: str) -> None:
    matcher = Matcher()
    matcher.add("a", text)
    assert form_of(parse(text)).cost == ("scanned" if matcher.stats().scanned else "indexed")


@pytest.mark.parametrize("text", TEXTS)
def test_a_reader_gets_back_what_was_written(text: str) -> None:
    one = stored(text, expires=9.0, labels={"floor": "2"}, options={"max_per": "10/min"}, enabled=False)
    assert StoredSubscription.decode(one.encode()) == one


@pytest.mark.parametrize("text", TEXTS)
def test_the_normal_form_is_read_again_as_itself(text: str) -> None:
    one = stored(text)
    read = one.subscription()
    assert normal_form(read) == normal_form(parse(text))
    assert (read.id, read.owner, read.valid_until) == ("s1", "ana", None)


@pytest.mark.parametrize("text", TEXTS)
def test_the_compiled_feed_needs_no_parser(text: str) -> None:
    assert stored(text).compiled_feed() == filter_bytes(feed(normal_form(parse(text))))


def test_what_another_compiler_wrote_is_compiled_anew() -> None:
    old = StoredSubscription.from_json(stored("NO2 > 40").to_json() | {"program": "", "core": CORE - 1})
    assert old.compiled_feed() == stored("NO2 > 40").compiled_feed()
    assert StoredSubscription.from_json(old.to_json() | {"program": None}).cost == "indexed"


def test_equal_meaning_has_one_digest_and_another_meaning_another() -> None:
    def digest(source: str | dict[str, object]) -> str:
        return form_of(parse(source)).digest

    assert digest("NO2 > 40 AND temp < 3") == digest({"text": "temp < 3 AND NOT NO2 <= 40", "owner": "x"})
    others = ["NO2 > 40", "NO2 >= 40", "WHEN NO2 > 40 UNTIL NO2 <= 40", "TOP 1 OVER 1h BY NO2"]
    state = {"text": "WHEN NO2 > 40 UNTIL NO2 <= 40"}
    variants = [{**state, "debounce": 5}, {**state, "reorder": 5}, {**state, "lost": 5}]
    digests = [*map(digest, others), *map(digest, variants)]
    assert len(set(digests)) == len(digests)


def test_options_that_text_cannot_say_stay_in_the_normal_form() -> None:
    source = {"text": "WHEN temp > 25 UNTIL temp < 22", "debounce": "30s", "dead_band": {"attribute": "temp", "by": 1}}
    form = form_of(parse(source))
    assert isinstance(form, Form)
    again = parse(form.normal)
    assert isinstance(again, StateSubscription)
    assert (again.debounce, again.dead_band) == (30.0, parse(source).dead_band)


def test_a_state_filter_that_is_a_content_filter_is_kept_as_one() -> None:
    form = form_of(parse("WHEN temp > 25 UNTIL temp > 25 FOR room = 'a'"))
    assert (form.kind, form.digest) == ("content", form_of(parse("room = 'a' AND temp > 25")).digest)


def test_a_normal_form_that_cannot_be_read_again_gives_way_to_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " OR ".join(f"a{i} > {i}" for i in range(40))
    given = parse(text)

    def refuse(_: object) -> None:
        from spinney import SyntaxError as SubscriptionError

        raise SubscriptionError("too deep", line=1, column=1)

    monkeypatch.setattr("spinney_cloud.subscriptions.parse", refuse)
    assert form_of(given).normal == text


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"v":1}', b'{"v":"x"}', b"\xff"])
def test_damage_is_told(data: bytes) -> None:
    with pytest.raises(StoredSubscriptionError, match="damaged"):
        StoredSubscription.decode(data)


def test_what_is_newer_is_refused() -> None:
    with pytest.raises(StoredSubscriptionError, match="version 99"):
        StoredSubscription.from_json(stored("NO2 > 40").to_json() | {"v": 99})
