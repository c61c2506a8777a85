"""Queues of subscribers: bounded, in order, fair; digests and rate limits."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud.cell_limits import Key
from spinney_cloud.delivery_options import DEFAULT, DeliveryOptions, OptionError, Rate, read_options
from spinney_cloud.subscriber_queue import (
    MAX_DIGEST_BYTES,
    TURN,
    UNKNOWN_SECONDS,
    Bounds,
    DropReason,
    Item,
    SubscriberQueues,
)

AIR: Key = ("default", "ana", "air")
ROADS: Key = ("default", "ana", "roads")
BOB: Key = ("default", "bob", "air")


class Harness:
    """Queues, what they dropped, and numbered items."""

    def __init__(self, *, count: int = 100, size: int = 10_000, age: float = 60.0) -> None:
        self.dropped: list[tuple[int, DropReason]] = []
        self.queues = SubscriberQueues(Bounds(count, size, age), self._on_drop)
        self.now = 1000.0
        self.next = 0
        for key in (AIR, ROADS, BOB):
            self.queues.set_options(key, DEFAULT, self.now)

    def options(self, key: Key, **options: object) -> None:
        self.queues.set_options(key, read_options(options), self.now)

    def push(self, key: Key = AIR, *, times: int = 1, payload: bytes = b"{}", age: float = 0.0) -> list[int]:
        numbers = []
        for _ in range(times):
            self.next += 1
            numbers.append(self.next)
            self.queues.push(Item(key, payload, ((self.next, 0),), str(self.next), 0.0, age), self.now)
        return numbers

    def pop_all(self) -> list[int]:
        numbers = []
        while (item := self.queues.pop(self.now)) is not None:
            numbers += [sequence for sequence, _ in item.places]
        return numbers

    def advance(self, seconds: float) -> None:
        self.go_to(self.now + seconds)

    def go_to(self, now: float) -> None:
        self.now = now
        self.queues.run_due(now)

    def _on_drop(self, item: Item, reason: DropReason) -> None:
        self.dropped += [(sequence, reason) for sequence, _ in item.places]


def test_what_waits_comes_out_in_order() -> None:
    harness = Harness()
    assert harness.push(times=5) == harness.pop_all()
    assert harness.dropped == []


def test_owners_take_turns_so_that_a_backlog_delays_nobody_else() -> None:
    harness = Harness()
    flood = harness.push(AIR, times=50)
    (late,) = harness.push(BOB)
    assert harness.pop_all().index(late) == TURN
    assert len(flood) == 50


def test_a_full_queue_drops_its_oldest_unless_asked_otherwise() -> None:
    harness = Harness(count=3)
    harness.push(times=5)
    assert harness.dropped == [(1, "queue"), (2, "queue")]
    assert harness.pop_all() == [3, 4, 5]


def test_a_full_queue_drops_the_newest_where_the_subscription_says_so() -> None:
    harness = Harness(count=3)
    harness.options(AIR, drop="newest")
    harness.push(times=5)
    assert harness.dropped == [(4, "queue"), (5, "queue")]
    assert harness.pop_all() == [1, 2, 3]


def test_bytes_bound_a_queue_too() -> None:
    harness = Harness(size=100)
    harness.push(times=3, payload=b"x" * 40)
    assert harness.dropped == [(1, "queue")]
    assert harness.queues.bytes == 80


def test_a_subscription_has_its_own_bound_beside_its_owners_others() -> None:
    harness = Harness()
    harness.options(ROADS, queue=2)
    air = harness.push(AIR, times=4)
    roads = harness.push(ROADS, times=4)
    assert [number for number, _ in harness.dropped] == roads[:2]
    assert sorted(harness.pop_all()) == air + roads[2:]


def test_one_owners_full_queue_is_no_others_business() -> None:
    harness = Harness(count=2)
    harness.push(AIR, times=10)
    bobs = harness.push(BOB, times=2)
    assert set(bobs) <= set(harness.pop_all())


def test_what_waited_too_long_is_dropped_and_age_counts_from_the_log() -> None:
    harness = Harness(age=60)
    harness.push(age=50)
    harness.push(age=0)
    harness.now += 20
    assert harness.pop_all() == [2]
    assert harness.dropped == [(1, "age")]


def test_a_rate_limit_lets_so_many_pass_and_keeps_the_newest_of_the_others() -> None:
    harness = Harness()
    harness.options(AIR, max_per="2/min")
    harness.push(times=5)
    assert harness.pop_all() == [1, 2]
    assert harness.dropped == [(3, "rate"), (4, "rate")]
    assert harness.queues.next_due() == harness.now + 60
    harness.advance(60)
    assert harness.pop_all() == [5]


@given(st.lists(st.floats(0, 30), min_size=1, max_size=60), st.integers(1, 5))
def test_a_rate_limit_holds_in_every_window_and_loses_never_the_last(gaps: list[float], count: int) -> None:
    harness = Harness()
    harness.options(AIR, max_per=f"{count}/10s")
    sent: list[tuple[float, int]] = []
    for gap in gaps:
        end = harness.now + gap
        while (due := harness.queues.next_due()) is not None and due <= end:
            harness.go_to(due)
            sent += [(harness.now, number) for number in harness.pop_all()]
        harness.go_to(end)
        harness.push()
        sent += [(harness.now, number) for number in harness.pop_all()]
    while (due := harness.queues.next_due()) is not None:
        harness.go_to(due)
        sent += [(harness.now, number) for number in harness.pop_all()]
    times = [at for at, _ in sent]
    assert all(later - sooner >= 10 - 1e-6 for sooner, later in zip(times, times[count:], strict=False))
    numbers = [number for _, number in sent]
    assert numbers == sorted(numbers)
    assert numbers[-1] == len(gaps)
    assert len(numbers) + len(harness.dropped) == len(gaps)


def test_a_digest_is_one_message_with_a_list() -> None:
    harness = Harness()
    harness.options(AIR, digest="5m")
    for text in (b'{"a":1}', b'{"a":2}', b'{"a":3}'):
        harness.push(payload=text)
        harness.advance(60)
    assert harness.queues.pop(harness.now) is None
    harness.advance(120)
    item = harness.queues.pop(harness.now)
    assert item is not None
    assert item.places == ((1, 0), (2, 0), (3, 0))
    assert orjson.loads(item.payload) == {"sid": "air", "digest": [{"a": 1}, {"a": 2}, {"a": 3}]}


def test_a_digest_that_is_read_again_after_a_restart_waits_only_for_the_rest_of_its_time() -> None:
    harness = Harness(age=1000)
    harness.options(AIR, digest="5m")
    harness.push(age=290)
    assert harness.queues.next_due() == harness.now + 10


def test_a_digest_is_bounded_and_says_what_it_leaves_out() -> None:
    harness = Harness()
    harness.options(AIR, digest="1m", queue=2)
    harness.push(times=5)
    harness.advance(60)
    item = harness.queues.pop(harness.now)
    assert item is not None
    assert item.places == ((4, 0), (5, 0))
    assert orjson.loads(item.payload)["dropped"] == 3
    assert harness.dropped == [(1, "queue"), (2, "queue"), (3, "queue")]


def test_a_long_digest_is_several_messages() -> None:
    harness = Harness(size=10 * MAX_DIGEST_BYTES)
    harness.options(AIR, digest="1m")
    numbers = harness.push(times=5, payload=b'"' + b"x" * (MAX_DIGEST_BYTES // 2) + b'"')
    harness.advance(60)
    sizes = []
    found = []
    while (item := harness.queues.pop(harness.now)) is not None:
        sizes.append(len(item.payload))
        found += [sequence for sequence, _ in item.places]
    assert found == numbers
    assert len(sizes) > 1
    assert max(sizes) < MAX_DIGEST_BYTES + 100 or len(sizes) == 5


def test_digests_obey_the_rate_limit() -> None:
    harness = Harness()
    harness.options(AIR, digest="10s", max_per="1/min")
    sent = []
    for _ in range(7):
        harness.push()
        harness.advance(10)
        sent.append(harness.pop_all())
    assert sent == [[1], [], [], [], [], [], [6]]
    assert [reason for _, reason in harness.dropped] == ["rate"] * 4


def test_a_subscription_that_is_not_known_yet_waits_for_its_options() -> None:
    harness = Harness()
    new: Key = ("default", "eve", "new")
    harness.push(new, times=3)
    assert harness.pop_all() == []
    assert harness.queues.held == 3
    harness.options(new, max_per="1/min")
    assert harness.pop_all() == [1]
    assert harness.dropped == [(2, "rate")]


def test_and_goes_without_them_after_a_while() -> None:
    harness = Harness()
    harness.push(("default", "eve", "gone"), times=2)
    harness.advance(UNKNOWN_SECONDS)
    assert harness.pop_all() == [1, 2]


def test_the_end_of_a_subscription_ends_what_is_held_for_it() -> None:
    harness = Harness()
    harness.options(AIR, digest="5m")
    harness.push(times=2)
    harness.queues.forget(AIR)
    assert harness.dropped == [(1, "unsubscribed"), (2, "unsubscribed")]
    assert harness.queues.held == 0
    assert harness.queues.bytes == 0


def test_options_that_change_release_what_was_held() -> None:
    harness = Harness()
    harness.options(AIR, digest="5m")
    harness.push(times=2)
    harness.queues.set_options(AIR, DEFAULT, harness.now)
    assert harness.pop_all() == [1, 2]


OPTIONS = st.sampled_from(
    [
        {},
        {"queue": 2},
        {"queue": 1, "drop": "newest"},
        {"digest": "7s"},
        {"digest": "5s", "queue": 2, "drop": "newest"},
        {"max_per": "1/5s"},
        {"max_per": "3/7s", "queue": 2, "digest": "3s"},
        None,
    ]
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "push", "pop", "wait", "options", "forget"]),
        st.sampled_from([AIR, ROADS, BOB]),
        st.integers(0, 60),
        OPTIONS,
    ),
    max_size=80,
)


@given(STEPS)
def test_whatever_happens_each_notification_comes_out_or_is_dropped_once(
    steps: list[tuple[str, Key, int, dict[str, object] | None]],
) -> None:
    harness = Harness(count=5, size=200, age=30)
    out: list[int] = []
    for what, key, size, options in steps:
        match what:
            case "push":
                harness.push(key, payload=b"%0*d" % (size + 1, 0), age=size / 10)
            case "pop":
                item = harness.queues.pop(harness.now)
                out += [sequence for sequence, _ in item.places] if item else []
            case "wait":
                harness.advance(size / 10)
            case "options" if options is not None:
                harness.options(key, **options)
            case _:
                harness.queues.forget(key)
        assert len(harness.dropped) + len(out) <= harness.next
    for _ in range(3):
        harness.advance(30)
        out += harness.pop_all()
    everything = Counter(out + [number for number, _ in harness.dropped])
    assert everything == Counter(range(1, harness.next + 1))
    queues = harness.queues
    assert (queues.ready, queues.held, queues.bytes, queues.longest(), queues.next_due()) == (0, 0, 0, 0, None)


def test_options_are_read_and_others_left_alone() -> None:
    given = {"max_per": "10/min", "digest": "5m", "queue": 7, "drop": "newest", "qos": 0, "density": {"per_cell": 3}}
    assert read_options(given) == DeliveryOptions(Rate(10, 60.0), 300.0, 7, "newest", 0)
    assert read_options({"density": {}}) == DEFAULT
    assert read_options({"max_per": "1/30s"}).max_per == Rate(1, 30.0)


@pytest.mark.parametrize(
    "options",
    [
        {"max_per": "10"},
        {"max_per": "0/min"},
        {"max_per": "10001/min"},
        {"max_per": "1/fortnight"},
        {"max_per": 10},
        {"digest": "5"},
        {"digest": "0s"},
        {"digest": "8d"},
        {"digest": 300},
        {"queue": 0},
        {"queue": True},
        {"queue": "many"},
        {"drop": "all"},
        {"qos": 2},
        {"qos": False},
    ],
)
def test_an_option_that_cannot_be_obeyed_is_refused_by_name(options: dict[str, object]) -> None:
    (name,) = options
    with pytest.raises(OptionError, match=f"^{name}: .*; found "):
        read_options(options)
