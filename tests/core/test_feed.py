"""Feeds: what a subscription needs is what can change what its subscriber is told (rule R1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import publications, state_subscriptions, top_k_subscriptions

from spinney import parse
from spinney.feed import as_content, feed
from spinney.identity import PublicationId
from spinney.parse import parse_filter
from spinney.state import StateFilter
from spinney.subscription import DeadBand, StateSubscription, Subscription, TopKSubscription
from spinney.top_k import TopK


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("x > 1", {}, "x > 1"),
        ("WHEN x > 2 UNTIL x < 1", {}, "x > 2 OR x < 1"),
        ("WHEN x > 2 UNTIL x < 1 FOR y = 1", {}, "y = 1 AND (x > 2 OR x < 1)"),
        ("WHEN x > 2 UNTIL x < 1 FOR y = 1", {"debounce": 3.0}, "y = 1"),
        ("WHEN x > 2 UNTIL x < 1", {"dead_band": DeadBand(attribute="x", by=1.0)}, "TRUE"),
        ("WHEN x > 2 UNTIL x < 1 EACH room", {}, "(x > 2 OR x < 1) AND NOT room IS NULL"),
        ("WHEN x > 2 UNTIL x < 1 EACH room", {"debounce": 3.0}, "NOT room IS NULL"),
        ("TOP 2 OVER 1h BY x + y", {}, "NOT (x + y) IS NULL"),
        ("TOP 2 OVER 1h BY x WHERE y = 1 EACH type", {}, "y = 1 AND NOT x IS NULL AND NOT type IS NULL"),
    ],
)
def test_the_feed_of_each_kind_r1(text: str, options: dict[str, Any], expected: str) -> None:
    subscription = parse(text)
    assert isinstance(subscription, Subscription)
    assert feed(replace(subscription, **options)) == parse_filter(expected)


def test_only_subscriptions_have_a_feed() -> None:
    with pytest.raises(TypeError, match="not a subscription: Compare"):
        feed(parse_filter("x > 1"))


@settings(max_examples=40)
@given(state_subscriptions(), st.lists(publications(), max_size=8))
def test_what_a_state_filter_is_told_outside_its_feed_changes_nothing_r1(
    subscription: StateSubscription, log: list[dict[str, Any]]
) -> None:
    everything, only_feed = StateFilter(subscription), StateFilter(subscription)
    for n, publication in enumerate(log):
        told = everything.feed(PublicationId("m", 0, n), publication, float(n))
        again = []
        if feed(subscription).evaluate(publication) is True:
            again = only_feed.feed(PublicationId("m", 0, n), publication, float(n))
        assert again == told
    assert only_feed.tick(1e9) == everything.tick(1e9)


@settings(max_examples=40)
@given(top_k_subscriptions(), st.lists(publications(), max_size=8))
def test_what_top_k_is_told_outside_its_feed_changes_nothing_r1(
    subscription: TopKSubscription, log: list[dict[str, Any]]
) -> None:
    everything, only_feed = TopK(subscription), TopK(subscription)
    for n, publication in enumerate(log):
        told = everything.feed(PublicationId("m", 0, n), publication, float(n))
        inside = feed(subscription).evaluate(publication) is True
        assert told == (only_feed.feed(PublicationId("m", 0, n), publication, float(n)) if inside else [])


def test_a_state_subscription_with_equal_enter_and_exit_is_a_content_one_s7() -> None:
    subscription = parse("WHEN x > 1 UNTIL x > 1 FOR y = 1 EACH room")
    assert isinstance(subscription, StateSubscription)
    content = as_content(replace(subscription, id="s", owner="o", valid_until=9.0))
    assert content is not None
    assert content.filter == parse_filter("y = 1 AND x > 1 AND NOT room IS NULL")
    assert (content.id, content.owner, content.valid_until) == ("s", "o", 9.0)


def test_whether_enter_and_exit_are_equal_can_be_decided_by_normal_form_s7() -> None:
    subscription = parse("WHEN x > 1 UNTIL 1 < x")
    assert isinstance(subscription, StateSubscription)
    assert as_content(subscription) is None
    assert as_content(subscription, same=lambda _one, _other: True) is not None
