"""What a broker reports of what it evaluates: when, and how long ago it may have lost anything."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pytest

from spinney_mobile import reports
from spinney_mobile.reports import (
    LOOK_SECONDS,
    MAX_PENDING,
    MOTE_SECONDS,
    SETTLE_SECONDS,
    Reports,
    State,
)

PAUSE_SECONDS: Final = 5.0
LONGEST = 7 * 24 * 3600.0
ASKED = {"request": "ann", "ok": True, "reports": 1}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests go on second by second."""
    monkeypatch.setattr(reports, "PAUSE_SECONDS", PAUSE_SECONDS)


class Uplink:
    """As much of one as reports need: an outbox of places, and a clock that goes on second by second."""

    def __init__(self, *, asked: bool = True) -> None:
        self.end = 0
        self.oldest: int | None = None
        self.now = 0.0
        self.state = State(1)
        self.reports = Reports(lambda: self.end, lambda: self.oldest, LONGEST)
        self.reports.look = lambda: self.state
        self.open(asked=asked)

    def open(self, *, asked: bool = True) -> None:
        self.reports.opened()
        self.reports.replied(ASKED if asked else {"request": "ann", "ok": True}, self.now)

    def said(self, seconds: float = 60.0) -> list[tuple[float, dict[str, Any]]]:
        """What is said until then, and when."""
        found = []
        until = self.now + seconds
        while self.now < until:
            told = self.reports.next("s1", self.now)
            if told is not None:
                found.append((self.now, json.loads(told)["report"]))
            self.now += LOOK_SECONDS
        return found


def test_a_cloud_that_does_not_ask_is_told_nothing() -> None:
    assert Uplink(asked=False).said() == []


def test_what_is_at_work_is_said_once_after_it_has_settled_and_again_when_it_changes() -> None:
    uplink = Uplink()
    ((at, report),) = uplink.said()
    assert (at, report["epoch"], "pending" in report, "lost" in report) == (SETTLE_SECONDS, 1, False, False)
    uplink.state = State(2, pending=("m2", "m1"), is_private=True, with_motes=("m1", "m2"))
    begun = uplink.now
    ((at, report),) = uplink.said()
    assert (at, report["epoch"], report["pending"]) == (begun + SETTLE_SECONDS, 2, ["m1", "m2"])
    assert (report["private"], report["motes"]) == (True, True)
    uplink.open()
    assert [report["epoch"] for _, report in uplink.said()] == [2], "a new link is told anew"


def test_nothing_is_said_while_no_activation_is_at_work() -> None:
    uplink = Uplink()
    uplink.state = State(None)
    assert uplink.said() == []


def test_it_waits_until_what_was_decided_before_has_left_the_outbox() -> None:
    uplink = Uplink()
    uplink.end, uplink.oldest = 7, 3
    assert uplink.said() == []
    uplink.end, uplink.oldest = 20, 7  # all that came before the change has gone; what came since may wait
    assert len(uplink.said()) == 1


def test_changes_on_end_do_not_make_a_report_each() -> None:
    uplink = Uplink()
    found = []
    for epoch in range(2, 62):
        uplink.state = State(epoch // 3)
        found += uplink.said(LOOK_SECONDS)
    found += uplink.said()
    assert found[-1][1]["epoch"] == 61 // 3
    assert all(later - earlier >= PAUSE_SECONDS for (earlier, _), (later, _) in pairwise(found))


def test_what_was_lost_is_said_once_and_may_be_as_old_as_what_waited_since_the_report_before() -> None:
    uplink = Uplink()
    uplink.state = replace(uplink.state, lost=3)
    ((_, first),) = uplink.said()
    assert (first["lost"], first["seconds"]) == (3, LONGEST), "it may have waited since before the start"
    settled = uplink.now - 60.0
    uplink.state = replace(uplink.state, lost=5)
    ((at, second),) = uplink.said()
    assert second["lost"] == 2
    assert "thinned" not in second
    assert second["seconds"] == at - settled
    uplink.state = replace(uplink.state, lost=6, lost_by_motes=1)
    ((_, third),) = uplink.said()
    assert (third["lost"], third["seconds"]) == (1, MOTE_SECONDS)


def test_too_many_motes_that_are_behind_are_all_of_them() -> None:
    uplink = Uplink()
    uplink.state = State(1, pending=tuple(f"m{number}" for number in range(MAX_PENDING + 1)))
    assert uplink.said()[0][1]["pending"] is None


def test_it_is_fresh_only_while_all_that_is_heard_goes_up() -> None:
    uplink = Uplink()
    uplink.state = State(1, is_fresh=True)
    assert uplink.said()[0][1].get("fresh") is True
    uplink.open()
    uplink.state = State(2, is_fresh=True)
    uplink.said(LOOK_SECONDS)
    uplink.state = State(3)  # before it was reported, and not all goes up any more
    assert "fresh" not in uplink.said()[0][1]
