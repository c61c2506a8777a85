"""Withdrawals on their way to the cloud: told until it has answered, bounded, and kept over a restart."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from spinney_mobile import withdrawals as module
from spinney_mobile.withdrawals import ANSWER_SECONDS, Withdrawals


class Disk:
    """What is kept."""

    def __init__(self) -> None:
        self.state: dict[str, bytes] = {"other": b"x"}

    def keep(self, changes: Mapping[str, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                del self.state[key]
            else:
                self.state[key] = value

    def withdrawals(self) -> Withdrawals:
        return Withdrawals(self.state, self.keep)


def ids(found: Withdrawals, now: float) -> list[str]:
    told = []
    while (payload := found.next(now)) is not None:
        told.append(json.loads(payload)["id"])
    return told


def test_each_is_told_until_it_is_answered_whatever_the_answer() -> None:
    disk = Disk()
    found = disk.withdrawals()
    found.add("m:1:1")
    found.add("m:1:2")
    assert ids(found, 100.0) == ["m:1:1", "m:1:2"]
    assert ids(found, 100.0 + ANSWER_SECONDS / 2) == []
    assert found.due == 100.0 + ANSWER_SECONDS
    found.replied({"request": "unpub", "id": "m:1:1", "ok": True})
    found.replied({"request": "unpub", "id": "m:9:9", "ok": True})
    assert ids(found, 100.0 + ANSWER_SECONDS) == ["m:1:2"]
    found.opened()
    assert ids(found, 100.0 + ANSWER_SECONDS) == ["m:1:2"], "a new link"
    found.replied({"request": "unpub", "id": "m:1:2", "ok": False, "error": {"message": "another's"}})
    assert (len(found), found.due, list(disk.state)) == (0, None, ["other"])


def test_what_was_not_answered_outlives_a_restart() -> None:
    disk = Disk()
    disk.withdrawals().add("m:1:1")
    assert ids(disk.withdrawals(), 0.0) == ["m:1:1"]


def test_of_too_many_the_oldest_are_given_up_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WITHDRAWALS", 2)
    disk = Disk()
    found = disk.withdrawals()
    for number in range(3):
        found.add(f"m:1:{number}")
    assert found.dropped == 1
    assert ids(disk.withdrawals(), 0.0) == ["m:1:1", "m:1:2"]
