"""What a broker says of itself: the newest, not too often, before it is over, and under a session per link."""

from __future__ import annotations

import json
from typing import Any

from spinney_mobile.presence import ANNOUNCE_SECONDS, ANSWER_SECONDS, FULL_SET_SECONDS, Presence

BODY = {"sources": [{"name": "m1"}, {"name": "m2"}], "validity": 600}


class Bench:
    def __init__(self) -> None:
        self.have: int | None = None
        self.is_lost = False
        self.wanted = {"m2", "m1", "gone"}
        self.now = 1_000.0
        self.presence = Presence(lambda: self.have, lambda: self.is_lost, lambda: self.wanted)

    def link(self) -> dict[str, Any]:
        will: dict[str, Any] = json.loads(self.presence.will())
        self.presence.opened(self.now)
        return will

    def said(self) -> dict[str, Any] | None:
        data = self.presence.next(self.now)
        return None if data is None else json.loads(data)

    def answer(self, ok: bool = True, **more: Any) -> Any:
        return self.presence.replied({"request": "ann", "ok": ok, **more})


def test_nothing_is_said_before_there_is_something_to_say() -> None:
    bench = Bench()
    bench.link()
    assert bench.said() is None
    assert bench.presence.due is None


def test_session_epoch_and_leases_are_filled_in() -> None:
    bench = Bench()
    will = bench.link()
    bench.presence.announce(BODY, bench.now)
    assert bench.said() == {**BODY, "session": will["session"], "have": 0, "lease": ["m1", "m2"]}
    assert will == {"session": will["session"], "away": True}
    bench.have = 7
    bench.now += ANNOUNCE_SECONDS
    bench.presence.lease_changed(bench.now)
    said = bench.said()
    assert said is not None
    assert said["have"] == 7


def test_what_goes_along_is_of_the_time_when_it_goes() -> None:
    bench = Bench()
    bench.presence = Presence(lambda: 7, lambda: False, lambda: (), lambda now: {"counts": {"sent": now}})
    bench.link()
    bench.presence.announce(BODY, bench.now)
    bench.now += 5
    assert (bench.said() or {})["counts"] == {"sent": 1_005.0}


def test_the_newest_wins_and_none_follows_another_at_once() -> None:
    bench = Bench()
    bench.link()
    bench.presence.announce(BODY, bench.now)
    assert bench.said()
    bench.now += 0.1
    for validity in (100, 200, 300):
        bench.presence.announce({**BODY, "validity": validity}, bench.now)
        assert bench.said() is None
    assert bench.presence.due == 1_000.0 + ANNOUNCE_SECONDS
    bench.now += ANNOUNCE_SECONDS
    said = bench.said()
    assert said is not None
    assert said["validity"] == 300
    assert bench.said() is None


def test_each_link_has_a_session_of_its_own_and_the_announcement_goes_out_on_it_at_once() -> None:
    bench = Bench()
    first = bench.link()["session"]
    bench.presence.announce(BODY, bench.now)
    bench.said()
    second = bench.link()["session"]
    said = bench.said()
    assert said is not None
    assert said["session"] == second != first
    assert json.loads(bench.presence.over()) == {"session": second, "over": True}


def test_unanswered_it_is_said_again_later_and_later_answered_before_it_is_over() -> None:
    bench = Bench()
    bench.link()
    bench.presence.announce(BODY, bench.now)
    pauses = []
    for _ in range(4):
        assert bench.said()
        assert bench.presence.due is not None
        pauses.append(bench.presence.due - bench.now)
        bench.now = bench.presence.due
    assert pauses[0] <= ANSWER_SECONDS < pauses[-1] <= 300
    bench.said()
    for _ in range(4):
        bench.answer()
    assert bench.presence.due == bench.now + 300  # half of its validity
    bench.now += 300
    assert bench.said()


def test_a_refusal_is_told_and_not_repeated_all_the_time() -> None:
    bench = Bench()
    bench.link()
    bench.presence.announce(BODY, bench.now)
    bench.said()
    assert bench.answer(ok=False, error={"message": "sources[0].name: no"}) is None
    assert bench.presence.error == "the cloud refuses the announcement: sources[0].name: no"
    assert bench.presence.due == bench.now + 300
    bench.presence.announce(BODY, bench.now)
    assert bench.presence.error is None


def test_the_answer_to_an_earlier_session_is_none() -> None:
    bench = Bench()
    bench.link()
    bench.presence.announce(BODY, bench.now)
    bench.said()
    due = bench.presence.due
    assert bench.answer(session="another") is None
    assert bench.presence.due == due


def test_while_an_activation_is_missing_it_asks_again_and_again() -> None:
    bench = Bench()
    bench.link()
    bench.presence.announce(BODY, bench.now)
    bench.said()
    bench.answer()
    bench.is_lost = True
    bench.now += 10
    bench.presence.lost_count(bench.now)
    assert bench.said()
    bench.answer()
    assert bench.presence.due == bench.now + FULL_SET_SECONDS
    bench.now += FULL_SET_SECONDS
    assert bench.said()


def test_an_answer_does_not_put_off_what_is_new() -> None:
    bench = Bench()
    bench.link()
    bench.presence.announce(BODY, bench.now)
    bench.said()
    newer = {**BODY, "validity": 300}
    bench.presence.announce(newer, bench.now)
    assert bench.answer() is BODY  # which announcement the cloud has
    assert bench.presence.due == bench.now + ANNOUNCE_SECONDS
    bench.now += ANNOUNCE_SECONDS
    assert bench.said()
    assert bench.answer() is newer
    assert bench.answer() is None


def test_a_lost_answer_is_not_taken_for_a_later_ones() -> None:
    bench = Bench()
    bench.link()
    bench.presence.announce(BODY, bench.now)
    bench.said()
    newer = {**BODY, "validity": 300}
    bench.presence.announce(newer, bench.now)
    bench.now += ANNOUNCE_SECONDS
    bench.said()
    assert bench.answer() is BODY  # or the answer to the newer one: nobody can tell
    assert bench.presence.due is not None
    bench.now = bench.presence.due
    assert bench.said()
    assert bench.answer() is newer
