"""Text to tree to text, JSON to tree to JSON, and across: the meaning stays, and so does the form."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import filters, publications, subscriptions

from spinney import TRUE, UNKNOWN, Filter, Subscription, parse, parse_filter
from spinney.expression import And, Compare, Instant, Literal, Or, Property
from spinney.subscription import ContentSubscription, StateSubscription, TopKSubscription
from spinney.subscription_text import MAX_SECONDS
from spinney.text_writer import number_text
from spinney.tokens import quote_string

any_text = st.text(st.one_of(st.sampled_from("'\\\"ab%_ "), st.characters(exclude_categories=["Cs"])), max_size=12)
any_name = any_text.filter(bool)
finite = st.floats(allow_nan=False, allow_infinity=False)


@given(filters(), st.lists(publications(), min_size=1, max_size=4))
def test_text_keeps_the_meaning_and_its_form(condition: Filter, samples: list[dict[str, object]]) -> None:
    text = condition.to_text()
    again = parse_filter(text)
    assert again.to_text() == text
    for publication in samples:
        assert again.evaluate(publication) is condition.evaluate(publication)


@given(filters(), st.lists(publications(), min_size=1, max_size=4))
def test_json_keeps_the_meaning_and_its_form(condition: Filter, samples: list[dict[str, object]]) -> None:
    item = condition.to_json()
    again = parse_filter(json.dumps(item))
    assert again == parse_filter(item)
    assert again.to_json() == item
    for publication in samples:
        assert again.evaluate(publication) is condition.evaluate(publication)


@given(filters())
def test_text_and_json_give_one_tree(condition: Filter) -> None:
    from_text = parse_filter(condition.to_text())
    assert parse_filter(from_text.to_json()) == from_text
    assert parse_filter(parse_filter(condition.to_json()).to_text()) == from_text


@given(any_text)
@example("\\")
@example("\\'")
@example("'\\\\'")
def test_every_string_can_be_written(value: str) -> None:
    condition = Compare("=", Property("a"), Literal(value))
    assert parse_filter(condition.to_text()) == parse_filter(condition.to_json()) == condition
    assert parse_filter(f"a = {quote_string(value)} AND b = 'x'") == And((condition, parse_filter("b = 'x'")))


@given(any_name)
@example("location")
@example("AND")
@example("when")
@example("div")
@example("\u1680")
def test_every_name_can_be_written(name: str) -> None:
    for condition in (
        Compare("<", Property(name), Property("b")),
        parse_filter({"op": "isNull", "args": [{"property": name}]}),
    ):
        assert parse_filter(condition.to_text()) == parse_filter(condition.to_json()) == condition


@given(finite)
@example(-0.0)
@example(1e15)
@example(1e16)
@example(-5e-324)
def test_every_double_can_be_written(value: float) -> None:
    condition = Compare("=", Property("a"), Literal(value))
    assert parse_filter(condition.to_text()) == parse_filter(condition.to_json()) == condition
    assert float(number_text(value)) == value


@given(st.decimals(0, 253402300799, allow_nan=False, allow_infinity=False, places=9))
def test_every_moment_can_be_written(seconds: object) -> None:
    condition = Compare("=", Property("time"), Instant(float(str(seconds))))
    assert parse_filter(condition.to_text()) == parse_filter(condition.to_json()) == condition


@settings(max_examples=settings().max_examples // 3)  # drawing them is slow
@given(subscriptions())
def test_subscriptions_keep_all_in_json_and_in_text_what_text_can_say(subscription: Subscription) -> None:
    item = subscription.to_json()
    from_json = parse(json.dumps(item))
    assert from_json.to_json() == item
    assert from_json == parse(item)
    short = subscription.to_short_json()
    assert parse(short).to_short_json() == short
    beside = {"debounce", "reorder", "lost", "dead_band", "id", "owner", "valid_until"}
    assert short == {"text": subscription.to_text()} | {name: item[name] for name in beside & item.keys()}
    assert type(from_json) is type(subscription)
    text = subscription.to_text()
    again = parse(text)
    assert again.to_text() == text
    match subscription, again:
        case StateSubscription(), StateSubscription():
            assert (again.each, again.once) == (subscription.each, subscription.once)
            assert (again.only is None) == (subscription.only is None)
        case TopKSubscription(), TopKSubscription():
            assert (again.k, again.seconds, again.last) == (subscription.k, subscription.seconds, subscription.last)
            assert (again.descending, again.each) == (subscription.descending, subscription.each)
        case _:
            assert isinstance(again, ContentSubscription)


@given(st.floats(1e-9, MAX_SECONDS))
@example(1e-7)
@example(90.0)
@example(86_400.5)
@example(0.1)
def test_every_duration_can_be_written(seconds: float) -> None:
    subscription = TopKSubscription(k=1, seconds=seconds, score=Property("a"))
    assert parse(subscription.to_text()) == parse(subscription.to_json()) == subscription


def test_unknown_can_be_written() -> None:
    for condition in (UNKNOWN, And((UNKNOWN, TRUE)), Or((UNKNOWN, parse_filter("NOT a = 1")))):
        assert parse_filter(condition.to_text()).to_text() == condition.to_text()
        assert parse_filter(condition.to_text()) == parse_filter(condition.to_json())
        assert parse_filter(condition.to_text()).evaluate({}) is condition.evaluate({})


def test_groups_within_groups_of_their_kind_need_no_parentheses() -> None:
    a, b, c = (parse_filter(f"{name} = 1") for name in "abc")
    assert And((And((a, b)), c)).to_text() == "a = 1 AND b = 1 AND c = 1"
    assert Or((a, Or((b, c)))).to_text() == "a = 1 OR b = 1 OR c = 1"
    assert And((Or((a, b)), c)).to_text() == "(a = 1 OR b = 1) AND c = 1"
