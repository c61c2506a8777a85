"""What a mobile broker answers when the cloud asks for what it held back: what there is, in bounds, and no secret."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from deciding_kit import NOW, Edge, active, sample

from spinney_mobile import fetching, whole
from spinney_mobile.fetching import REPORT_SECONDS, Fetches, Question, QuestionError, Stopped, read_question
from spinney_mobile.settings import Rule
from spinney_mobile.whole import MARK_SECONDS, Whole

KNOWN = {"temp": 20.0, "valid_for": 60.0}
ASKS = {"ok": True, "members": ["health", "fetch"]}
REPORT = b'{"session":"s1","report":{"epoch":7}}'
ASKED = {
    "id": "q1", "filter": "temp > 10", "since": 3600, "until": 0, "slack": 5, "readings": 100, "bytes": 100_000,
}  # fmt: skip


class Bench:
    """A broker's readings, and a cloud that asks."""

    def __init__(self, max_payload: int = 1 << 20, **edge: Any) -> None:
        self.edge = Edge(known={**KNOWN}, **edge)
        self.now = NOW
        self.end = 0
        self.fetches = Fetches(lambda: max_payload)
        self.fetches.look = self.look
        self.fetches.opened()

    def take(self, temp: float, source: str = "m1", valid_for: float | None = 3600.0) -> None:
        self.edge.taking.take(replace(sample(source, temp=temp), valid_for=valid_for), self.now)

    def settle(self, seconds: float = 2 * MARK_SECONDS) -> None:
        """Time passes, and nothing waits in the outbox."""
        for _ in range(3):
            self.now += seconds / 3
            self.edge.taking.whole.settle(self.now, self.end, None)

    def look(self, question: Question) -> Stopped:
        taking, now = self.edge.taking, self.now
        stopped = taking.stopped(question.test, now)
        return Stopped(now, stopped, lambda kept: taking.tell(kept, now), self.whole, taking.whole.stored)

    def whole(self) -> dict[str, float]:
        found = {name: self.edge.taking.whole.since(name) for name in ("m1", "m2")}
        return {name: since for name, since in found.items() if since is not None}

    def ask(self, **more: Any) -> list[dict[str, Any]]:
        self.fetches.asked({**ASKED, **more})
        return self.said()

    def said(self) -> list[dict[str, Any]]:
        found = []
        while (message := self.fetches.next("s1")) is not None:
            found.append(json.loads(message))
        return found


def temps(said: list[dict[str, Any]]) -> list[float]:
    return [publication["temp"] for one in said for _, _, publication in one["fetched"]["readings"]]


def test_what_was_held_back_and_is_valid_is_told_with_its_age_and_stays() -> None:
    bench = Bench()
    for temp in (20, 5, 30):
        bench.take(temp)
        bench.now += 10
    for _ in range(2):
        (message,) = bench.ask()
        assert message["session"] == "s1"
        answer = message["fetched"]
        assert (answer["id"], answer["part"], answer["more"]) == ("q1", 0, False)
        assert [(age, publication["temp"]) for age, _, publication in answer["readings"]] == [
            (30.0, 20.0),
            (10.0, 30.0),
        ]
    bench.now += 3600
    assert temps(bench.ask()) == []


def test_only_what_was_taken_within_the_time_is_told_and_a_little_of_before() -> None:
    bench = Bench()
    for temp in range(20, 26):
        bench.take(temp)
        bench.now += 10  # so long ago: 60, 50, ... 10
    assert temps(bench.ask(since=40, until=20, slack=0)) == [22.0, 23.0, 24.0]
    assert temps(bench.ask(since=40, until=20, slack=10)) == [21.0, 22.0, 23.0, 24.0]


@pytest.mark.parametrize(("bound", "value"), [("readings", 2), ("bytes", 150)])
def test_an_answer_is_cut_at_its_bounds_and_says_so_and_claims_nothing(bound: str, value: int) -> None:
    bench = Bench()
    bench.settle()
    for temp in (20, 21, 22):
        bench.take(temp)
    bench.settle()
    whole_answer = bench.ask()
    assert "cut" not in whole_answer[-1]["fetched"]
    assert whole_answer[-1]["fetched"]["whole"]["m1"] > 0
    said = bench.ask(**{bound: value})
    assert 0 < len(temps(said)) < 3
    assert said[-1]["fetched"]["cut"] is True
    assert "whole" not in said[-1]["fetched"]


def test_a_long_answer_comes_in_parts_that_a_cloud_takes() -> None:
    bench = Bench(max_payload=2_048)
    bench.settle()
    for temp in range(20, 80):
        bench.take(temp)
    said = bench.ask()
    assert [one["fetched"]["part"] for one in said] == list(range(len(said)))
    assert [one["fetched"]["more"] for one in said] == [True] * (len(said) - 1) + [False]
    assert len(said) > 3
    assert max(len(json.dumps(one)) for one in said) <= 2_048
    assert temps(said) == [float(temp) for temp in range(20, 80)]


def test_what_cannot_be_a_question_is_answered_so() -> None:
    bench = Bench()
    for bad in ({"filter": "temp >"}, {"filter": 7}, {"since": "x"}, {"readings": True}, {"filter": "a" * 70_000}):
        (message,) = bench.ask(**bad)
        (name,) = bad
        assert message["fetched"]["error"].startswith(name)
        assert (message["fetched"]["readings"], message["fetched"]["more"]) == ([], False)
    for nothing in (None, [], {}, {"id": 7}, {"id": "x" * 65}):
        bench.fetches.asked(nothing)
    assert bench.said() == []
    assert bench.fetches.counts["fetches_refused"] == 10
    with pytest.raises(QuestionError):
        read_question({**ASKED, "since": float("nan")})


def test_answers_that_nobody_takes_are_bounded_and_end_with_their_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_PARTS", 3)
    bench = Bench()
    for _ in range(5):
        bench.fetches.asked(ASKED)
    assert bench.fetches.counts["fetches_refused"] == 2
    assert len(bench.said()) == 3
    bench.fetches.asked(ASKED)
    bench.fetches.opened()
    assert bench.said() == []


def test_only_a_cloud_that_asks_such_questions_is_told_that_it_may_once_on_each_link() -> None:
    fetches = Bench().fetches
    for reply in ({"ok": True}, {"ok": True, "members": ["health"]}, {"ok": False, "members": ["fetch"]}):
        fetches.answered(reply, 0.0)
        assert fetches.offer("s1", 1e9) is None
        assert (fetches.along(REPORT), fetches.due) == (REPORT, None)
    for session in ("s1", "s2"):
        fetches.opened()
        assert fetches.offer(session, 1e9) is None
        fetches.answered(ASKS, 5.0)
        fetches.answered(ASKS, 9.0)
        assert fetches.due == 5.0 + REPORT_SECONDS
        assert fetches.offer(session, 34.9) is None
        assert fetches.offer(session, 35.0) == b'{"session":"%b","fetch":true}' % session.encode()
        assert (fetches.offer(session, 1e9), fetches.along(REPORT), fetches.due) == (None, REPORT, None)


def test_a_report_says_along_that_this_broker_can_be_asked() -> None:
    fetches = Bench().fetches
    fetches.answered(ASKS, 5.0)
    assert fetches.along(REPORT) == b'{"session":"s1","report":{"epoch":7},"fetch":true}'
    fetches.answered(ASKS, 6.0)
    assert (fetches.along(REPORT), fetches.offer("s1", 1e9), fetches.due) == (REPORT, None, None)


# ---- what must not be told


def test_what_private_rules_count_is_told_as_often_as_they_let_it_and_counts_once() -> None:
    bench = Bench(rules=[Rule(name="few", hourly=2)])
    bench.now += 3600 - bench.now % 3600
    for temp in (20, 21, 22):
        bench.take(temp, valid_for=9_000.0)
    assert temps(bench.ask()) == [20.0, 21.0]
    assert temps(bench.ask()) == [20.0, 21.0], "what has been told is no secret any more"
    assert "budget:few" in bench.edge.store.state
    bench.now += 1800
    assert temps(bench.ask()) == [20.0, 21.0]
    bench.now += 1800
    assert temps(bench.ask(since=9_000)) == [20.0, 21.0, 22.0], "of the next hour"


def test_what_a_private_rule_hides_is_never_told() -> None:
    bench = Bench(rules=[Rule(name="secret", when="temp > 25", share="never")])
    for temp in (20, 26):
        bench.take(temp)
    assert temps(bench.ask()) == [20.0]


def test_what_is_another_brokers_now_is_not_told() -> None:
    bench = Bench()
    bench.take(20)
    bench.edge.leases.tell([{"source": "m1", "owner": "other", "epoch": 99}])
    assert temps(bench.ask()) == []


def test_what_was_withdrawn_is_not_told() -> None:
    bench = Bench()
    bench.take(20)
    ((_, _, publication),) = bench.ask()[0]["fetched"]["readings"]
    bench.edge.taking.valid.unpublish(publication["id"])
    assert temps(bench.ask()) == []


# ---- since when all is there


def since(bench: Bench) -> Mapping[str, float]:
    """For each source, how long ago; what is not known is not there."""
    found: Mapping[str, float] = bench.ask()[-1]["fetched"].get("whole", {})
    return found


def gone_by_expiry(bench: Bench) -> None:
    bench.take(20, valid_for=1.0)
    bench.now += 2


def gone_at_once(bench: Bench) -> None:
    bench.take(20, valid_for=None)


def gone_by_withdrawal(bench: Bench) -> None:
    bench.take(20)
    *_, kept = bench.edge.taking.valid.matching(lambda _: True, bench.now)
    bench.edge.taking.valid.unpublish(kept.publication["id"])


def gone_to_another(bench: Bench) -> None:
    bench.edge.leases.tell([{"source": "m1", "owner": "other", "epoch": 99}])
    bench.take(20)
    bench.edge.leases.tell([{"source": "m1", "owner": None}])


def gone_for_want_of_room(bench: Bench) -> None:
    bench.edge.taking.valid._limit = 1
    bench.take(20)
    bench.take(20, "m2")


def gone_as_forgotten(bench: Bench) -> None:
    bench.take(20)
    bench.edge.taking.valid.forget("m1")


def gone_up_late(bench: Bench) -> None:
    """It comes later than it would have: an answer about the time before has it nowhere."""
    bench.take(20)
    bench.edge.taking.change([active("f", "temp > 10")], [], bench.edge.leases.known, bench.now)
    bench.edge.taking.change([], ["f"], bench.edge.leases.known, bench.now)


GONE: list[Callable[[Bench], None]] = [
    gone_by_expiry, gone_at_once, gone_by_withdrawal, gone_to_another, gone_for_want_of_room, gone_as_forgotten,
    gone_up_late,
]  # fmt: skip


@pytest.mark.parametrize("gone", GONE)
def test_all_is_there_from_the_moment_on_by_which_what_is_gone_would_have_come(gone: Callable[[Bench], None]) -> None:
    bench = Bench()
    assert since(bench) == {}, "what was held back before the start is gone"
    bench.settle()
    begun = bench.now
    bench.take(30)
    bench.now += 20
    assert since(bench)["m1"] == pytest.approx(bench.now - begun, abs=2 * MARK_SECONDS)
    taken = bench.now
    gone(bench)
    bench.now += 1
    assert "m1" not in since(bench), "it may be under way yet, had it gone up"
    bench.settle()
    settled = bench.now
    assert bench.now - since(bench)["m1"] > taken
    bench.now += 100
    assert since(bench)["m1"] == pytest.approx(bench.now - settled, abs=2 * MARK_SECONDS)


def test_what_was_taken_before_the_time_that_is_asked_for_may_have_come_within_it() -> None:
    bench = Bench()
    bench.settle()
    bench.now += 100
    bench.take(30)
    bench.now += 50  # the link is down: it would have come now
    assert since(bench)["m1"] > 100
    assert "m1" not in bench.ask(since=10)[-1]["fetched"]["whole"]
    bench.settle()
    settled = bench.now
    bench.now += 9
    assert bench.ask(since=10)[-1]["fetched"]["whole"]["m1"] == pytest.approx(bench.now - settled, abs=2 * MARK_SECONDS)


def test_a_moment_is_settled_once_all_that_waited_then_has_left_the_outbox() -> None:
    one = Whole()
    one.settle(10.0, 5, 3)
    one.settle(11.0, 6, 4)
    assert one.since("m1") is None
    one.settle(12.0, 7, 5)
    assert one.since("m1") == 12.0
    one.gone("m1", 12.5)
    assert (one.since("m1"), one.since("m2")) == (None, 12.0)
    one.settle(13.0, 9, None)
    assert one.since("m1") is None, "that was of 12.0: m1's was taken later"
    one.settle(14.0, 9, None)
    assert one.since("m1") == 14.0
    assert one.stored(11.0) == 13.0


def test_what_is_known_of_moments_and_sources_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MAX_MARKS", 8)
    monkeypatch.setattr(whole, "MAX_SOURCES", 3)
    one = Whole()
    exact = {}
    for at in range(40):
        one.settle(float(at), 0, None)
        exact[at] = at + 1.0
    assert len(one._marks) <= 8
    known = [one.stored(at - 0.5) for at in range(1, 38)]
    assert all(found is not None and found >= exact[at] - 1 for at, found in enumerate(known, 1)), (
        "later, never earlier"
    )
    for at in range(5):
        one.gone(f"m{at}", 100.0 + at)
    assert one.since("never heard of") is None, "too many are gone: nothing is known until later"
