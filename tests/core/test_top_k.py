"""Top-k queries against a model that looks at the whole log each time (rules T1 to T4)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import SpinneyError, parse, window
from spinney import top_k as top_k_module
from spinney.evaluate import value
from spinney.feed import feed
from spinney.identity import PublicationId
from spinney.notification import scope_key
from spinney.subscription import TopKSubscription
from spinney.top_k import TopK

Publication = dict[str, Any]
Told = tuple[int, str, int]
"""Which publication, in which scope, at which place."""


def query(text: str, **options: Any) -> TopKSubscription:
    subscription = parse(text)
    assert isinstance(subscription, TopKSubscription)
    return replace(subscription, **options)


def numbered(sequence: int) -> PublicationId:
    return PublicationId("mote", 0, sequence)


def scores(top: TopK, *arrivals: tuple[float, float]) -> list[list[float]]:
    """What is told after each arrival (log time, x): the scores, best first."""
    return [
        [told.publication["x"] for told in top.feed(numbered(n), {"x": x}, time) if told.publication]
        for n, (time, x) in enumerate(arrivals)
    ]


class EverythingRemembered:
    """The rules, word by word: the whole feed is kept, and every window is sorted anew after each record."""

    def __init__(self, subscription: TopKSubscription) -> None:
        self.subscription = subscription
        self.feed: list[tuple[float, int, str, Publication]] = []
        self.told: set[int] = set()

    def record(self, time: float, publication: Publication | None) -> list[Told]:
        if publication is not None:
            if feed(self.subscription).evaluate(publication) is not True:
                return []
            each = self.subscription.each
            scope = scope_key(None if each is None else value_of(publication, each))
            self.feed.append((time, len(self.feed), scope, publication))
        news = [found for scope in {entry[2] for entry in self.feed} for found in self.best(scope, time)]
        news = [found for found in sorted(news) if found[2][0] not in self.told]
        self.told.update(found[2][0] for found in news)
        return [found[2] for found in news]

    def best(self, scope: str, time: float) -> list[tuple[float, int, Told]]:
        within = [entry for entry in self.feed if entry[2] == scope]
        if self.subscription.last is not None:
            within = within[-self.subscription.last :]
        else:
            assert self.subscription.seconds is not None
            within = [entry for entry in within if entry[0] + self.subscription.seconds > time]
        sign = -1.0 if self.subscription.descending else 1.0
        ranked = []
        for _, place, _, publication in within:
            score = value(self.subscription.score, publication)
            if isinstance(score, float):
                ranked.append((sign * score, -place))
        best = sorted(ranked)[: self.subscription.k]
        return [(score, minus, (-minus, scope, rank)) for rank, (score, minus) in enumerate(best, 1)]


def value_of(publication: Publication, name: str) -> float | str | bool:
    found = publication[name]
    return float(found) if isinstance(found, int) and not isinstance(found, bool) else found


SUBSCRIPTIONS = st.builds(
    query,
    st.sampled_from(
        [
            f"TOP {k} OVER {over} BY {by}{where}{each}"
            for k in (1, 2, 3)
            for over in ("3s", "10s", "LAST 1", "LAST 4", "LAST 30")
            for by in ("x", "x DESC", "abs(x)")
            for where in ("", " WHERE y > 0")
            for each in ("", " EACH room")
        ]
    ),
)
PUBLICATIONS = st.fixed_dictionaries(
    {"x": st.sampled_from([-2, -1.0, 0, -0.0, 1.0, 2, 3, 4, 5, 6.5, None, "seven", True]), "n": st.just(0)},
    optional={"y": st.sampled_from([0, 1, 1.0]), "room": st.sampled_from(["a", "b", 1, True, 0.0, -0.0])},
)
LOGS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0, 7.0]), st.one_of(st.none(), PUBLICATIONS, PUBLICATIONS)),
    max_size=60,
)


def told_by(top: TopK, log: list[tuple[float, Publication | None]]) -> list[list[Told]]:
    told: list[list[Told]] = []
    arrived, time = -1, 0.0
    for delay, publication in log:
        time += delay
        if publication is None:
            notifications = top.tick(time)
        else:
            arrived += feed(top.subscription).evaluate(publication) is True
            notifications = top.feed(numbered(arrived), publication, time)
        told.append([(one.publication_id.sequence, scope_key(one.scope), one.rank or 0) for one in notifications])
    return told


def told_by_model(subscription: TopKSubscription, log: list[tuple[float, Publication | None]]) -> list[list[Told]]:
    model, time, told = EverythingRemembered(subscription), 0.0, []
    for delay, publication in log:
        time += delay
        told.append(model.record(time, publication))
    return told


@given(SUBSCRIPTIONS, LOGS)
def test_top_k_tells_what_a_model_that_remembers_everything_tells(
    subscription: TopKSubscription, log: list[tuple[float, Publication | None]]
) -> None:
    assert told_by(TopK(subscription), log) == told_by_model(subscription, log)


@given(SUBSCRIPTIONS, LOGS)
def test_pruning_all_the_time_changes_nothing_t4(
    subscription: TopKSubscription, log: list[tuple[float, Publication | None]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "MIN_PRUNED", 0)
        patch.setattr(top_k_module, "MIN_COMPACTED", 0)
        assert told_by(TopK(subscription), log) == told_by_model(subscription, log)


@given(SUBSCRIPTIONS, LOGS, st.integers(0, 60))
def test_a_restored_snapshot_goes_on_as_if_nothing_had_happened(
    subscription: TopKSubscription, log: list[tuple[float, Publication | None]], cut: int
) -> None:
    whole = TopK(subscription)
    expected = told_by(whole, log)
    first, second = TopK(subscription), TopK(subscription)
    start = sum(delay for delay, _ in log[:cut])
    told = told_by(first, log[:cut])
    second.restore(json.loads(json.dumps(first.snapshot())))
    arrived = sum(p is not None and feed(subscription).evaluate(p) is True for _, p in log[:cut])
    for delay, publication in log[cut:]:
        start += delay
        notifications = second.tick(start) if publication is None else []
        if publication is not None:
            notifications = second.feed(numbered(arrived), publication, start)
            arrived += feed(subscription).evaluate(publication) is True
        told.append([(one.publication_id.sequence, scope_key(one.scope), one.rank or 0) for one in notifications])
    assert told == expected
    assert second.next_wake() == whole.next_wake()


@given(SUBSCRIPTIONS, LOGS)
def test_a_tick_before_the_next_wake_does_nothing(
    subscription: TopKSubscription, log: list[tuple[float, Publication | None]]
) -> None:
    top, time = TopK(subscription), 0.0
    for n, (delay, publication) in enumerate(log):
        wake = top.next_wake()
        time += delay
        if wake is None or time < wake:
            assert top.tick(time) == []
        if publication is not None:
            top.feed(numbered(n), publication, time)
    while (wake := top.next_wake()) is not None:
        top.tick(wake)
    if subscription.seconds is not None:
        assert top.snapshot()["scopes"] == []


def test_lower_is_better_unless_desc_t1() -> None:
    arrivals = ((0, 5), (1, 7), (2, 3))
    assert scores(TopK(query("TOP 1 OVER 1h BY x")), *arrivals) == [[5], [], [3]]
    assert scores(TopK(query("TOP 1 OVER 1h BY x DESC")), *arrivals) == [[5], [7], []]


def test_of_equal_scores_the_later_is_better_t1() -> None:
    top = TopK(query("TOP 1 OVER 1h BY x"))
    assert scores(top, (0, 5), (0, 5), (0, 6)) == [[5], [5], []]


def test_a_window_is_open_at_its_beginning_t2() -> None:
    top = TopK(query("TOP 1 OVER 10s BY x"))
    assert scores(top, (0, 1), (1, 2)) == [[1], []]
    assert top.next_wake() == 10
    assert top.tick(9.999) == []
    assert [told.publication_id for told in top.tick(10)] == [numbered(1)]


def test_a_window_of_the_last_n_counts_per_each_value_t2() -> None:
    top = TopK(query("TOP 1 OVER LAST 2 BY x EACH room"))
    rooms = [("a", 1), ("b", 5), ("b", 6), ("a", 2), ("a", 3)]
    told = [top.feed(numbered(n), {"x": x, "room": room}, 0.0) for n, (room, x) in enumerate(rooms)]
    assert [[(one.scope, one.publication_id.sequence) for one in each] for each in told] == [
        [("a", 0)],
        [("b", 1)],
        [],
        [],
        [("a", 3)],
    ]


def test_an_expiry_precedes_an_arrival_at_the_same_time_t3() -> None:
    """The second best would be promoted by the expiry alone, but a better one arrives at that very time."""
    top = TopK(query("TOP 1 OVER 10s BY x"))
    assert scores(top, (0, 1), (5, 9), (10, 4)) == [[1], [], [4]]


def test_promotions_come_best_first_with_their_places_t3() -> None:
    top = TopK(query("TOP 2 OVER 10s BY x"))
    scores(top, (0, 1), (0, 2), (1, 8), (1, 7), (1, 9))
    assert [(told.rank, told.why, told.publication) for told in top.tick(10)] == [
        (1, "top", {"x": 7}),
        (2, "top", {"x": 8}),
    ]


def test_a_publication_is_told_once_even_if_it_comes_back_t3() -> None:
    top = TopK(query("TOP 1 OVER 10s BY x"))
    assert scores(top, (0, 3), (1, 2), (2, 1)) == [[3], [2], [1]]
    top = TopK(query("TOP 1 OVER LAST 2 BY x"))
    assert scores(top, (0, 3), (0, 5), (0, 4)) == [[3], [], [4]]


def test_a_publication_outside_the_feed_is_no_record_at_all() -> None:
    top = TopK(query("TOP 1 OVER 10s BY x WHERE y > 0"))
    first = top.feed(numbered(0), {"x": 1, "y": 1}, 0.0) + top.feed(numbered(1), {"x": 2, "y": 1}, 0.0)
    assert [told.publication_id.sequence for told in first] == [0]
    assert top.feed(numbered(2), {"x": 0, "y": 0}, 20.0) == []
    assert top.next_wake() == 10


def test_what_can_never_come_to_be_among_the_k_best_is_not_kept_t4() -> None:
    improving = TopK(query("TOP 3 OVER 24h BY x"))
    for n in range(10_000):
        improving.feed(numbered(n), {"x": 10_000 - n}, float(n))
    (scope,) = improving.snapshot()["scopes"]
    assert len(scope["best"]) + len(scope["others"]) <= 3 + 2 * window.MIN_PRUNED


def test_candidates_beyond_the_bound_are_dropped_worst_first_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MAX_CANDIDATES", 10)
    top = TopK(query("TOP 1 OVER 24h BY x"))
    for n in range(1000):
        top.feed(numbered(n), {"x": n}, float(n))
    assert top.dropped > 0
    assert [told.publication for told in top.tick(86_400.0)] == [{"x": 1}]
    kept = len(top.snapshot()["scopes"][0]["others"])
    assert kept <= 2 * 10 + window.MIN_PRUNED + 1


def test_each_values_beyond_the_bound_are_forgotten_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_k_module, "MAX_SCOPES", 3)
    top = TopK(query("TOP 1 OVER LAST 5 BY x EACH room"))
    for n in range(5):
        top.feed(numbered(n), {"x": n, "room": str(n)}, 0.0)
    assert top.forgotten == 2
    assert [scope["value"] for scope in top.snapshot()["scopes"]] == ["2", "3", "4"]


def test_a_snapshot_of_something_else_is_refused() -> None:
    with pytest.raises(SpinneyError, match="expected a snapshot of top-k, version 1, not of lateness, version 1"):
        TopK(query("TOP 1 OVER 1h BY x")).restore({"format": "lateness", "version": 1})
