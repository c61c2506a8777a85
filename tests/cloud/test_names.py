"""Names: what a client may be called, which topics it may use, and keys that cannot be mistaken for each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud import names
from spinney_cloud.names import Topic, is_name, parse_topic

good = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@pytest.mark.parametrize("text", ["", "a b", "a.b", "a/b", "*", ">", "+", "#", "ä", "x" * 65, "a\n", "a\0"])
def test_what_is_no_name(text):
    assert not is_name(text)


@given(good)
def test_what_is_a_name(text):
    assert is_name(text)


@given(good, st.sampled_from(["pub", "unpub", "ann"]))
def test_a_topic_is_read_as_it_was_written(client, leaf):
    assert parse_topic(names.topic(client, leaf)) == Topic(client, leaf)


@given(good, good)
def test_a_subscriptions_topic_has_its_sid(client, sid):
    assert parse_topic(names.topic(client, "sub", sid)) == Topic(client, "sub", sid)


@pytest.mark.parametrize(
    "topic",
    [
        *("spinney/a/reply", "spinney/a/note/s", "spinney/a/act", "spinney/*/pub", "spinney/a b/pub", "spinney//pub"),
        *("spinney/a/sub", "spinney/a/sub/", "spinney/a/sub/s/t", "spinney/a/pub/x", "other/a/pub", "spinney/a", ""),
    ],
)
def test_a_topic_that_no_client_may_use(topic):
    assert parse_topic(topic) is None


@given(st.tuples(good, good, good), st.tuples(good, good, good))
def test_keys_of_subscriptions_differ_as_subscriptions_do(one, other):
    assert (names.subscription_key(*one) == names.subscription_key(*other)) == (one == other)


def test_the_slot_stands_in_the_key_and_never_changes():
    assert names.subscription_key("default", "ann", "s1") == "0652.default.ann.s1"
    assert {names.slot_of("ann", str(number)) for number in range(20_000)} == set(range(names.SLOTS))
