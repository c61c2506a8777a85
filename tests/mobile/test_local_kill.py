"""Local subscriptions of states and top-k over kill -9: nothing that was to be told is lost, nothing told twice."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from clouds import wait_until
from mobile_kit import Mobile
from servers import free_ports

from spinney import PublicationId, Publisher, Subscriber
from spinney_mobile.listening import Taken
from spinney_mobile.local import journal, subscriptions
from spinney_mobile.local.subscriptions import LocalSubscriptions
from spinney_mobile.samples import Sample

NOW = 1_770_000_000.0
HOT = "WHEN temp > 25 UNTIL temp <= 22"
TEXTS = {
    "hot": HOT,
    "rooms": HOT + " EACH room",
    "once": HOT + " ONCE",
    "best": "TOP 2 OVER 30s BY temp DESC",
    "last": "TOP 1 OVER LAST 5 BY temp EACH room",
}


class Process:
    """Local subscriptions of one process. What is told is delivered, or not, as the test says."""

    def __init__(self, folder: Path, clock: list[float]) -> None:
        self.told: list[Mapping[str, Any]] = []
        self.is_dead = False
        self.delivers = True
        self.here = LocalSubscriptions(self._tell, limit=100, clock=lambda: clock[0])
        self.here.load(folder)

    def _tell(self, _owner: str, _sid: str, item: Mapping[str, Any], delivered: Any) -> None:
        if not self.is_dead:
            self.told.append(item)
            if self.delivers:
                delivered()

    def kill(self) -> None:
        """As kill -9 does: nothing is saved, and nobody is told."""
        self.is_dead = True
        self.here._journal.close()

    def hear(self, number: int, temp: float, room: str, at: float) -> None:
        id = PublicationId("m1", 1, number)
        publication = {"id": str(id), "source": "m1", "time": at, "temp": temp, "room": room}
        self.here.taken(Taken(id, publication, Sample("m1", {}, at, at, "test"), wanted=False))


def begun(folder: Path, clock: list[float]) -> Process:
    process = Process(folder, clock)
    for sid, text in TEXTS.items():
        process.here.put("ana", sid, text)
    process.here.save(folder)
    return process


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a process that is gone has open is closed."""
    journals: list[journal.Journal] = []
    begin = journal.Journal.begin

    def noted(self: journal.Journal, save: int) -> None:
        journals.append(self)
        begin(self, save)

    monkeypatch.setattr(journal.Journal, "begin", noted)
    yield
    for one in journals:
        one.close()


@pytest.mark.parametrize("seed", range(4))
def test_whenever_it_is_killed_what_is_told_is_what_one_process_would_have_told(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    times = [NOW + n * chance.choice((0.5, 4.0)) for n in range(60)]
    readings = [(n, chance.uniform(15, 32), chance.choice("ab"), sorted(times)[n]) for n in range(60)]
    clock = [NOW]
    (tmp_path / "one").mkdir()
    (tmp_path / "killed").mkdir()
    steady = begun(tmp_path / "one", clock)
    for reading in readings:
        clock[0] = reading[3]
        steady.hear(*reading)
    clock[0] = NOW
    process = begun(tmp_path / "killed", clock)
    told: dict[str, Mapping[str, Any]] = {}
    for reading in readings:
        clock[0] = reading[3]
        process.delivers = chance.random() < 0.7
        process.hear(*reading)
        if chance.random() < 0.3:
            told |= {item["id"]: item for item in process.told}
            process.kill()
            process = Process(tmp_path / "killed", clock)
    told |= {item["id"]: item for item in process.told}
    expected = {item["id"]: item for item in steady.told}
    assert len(expected) > 20
    assert told == expected


def test_what_was_delivered_is_not_told_again_and_what_was_not_is(tmp_path: Path) -> None:
    clock = [NOW]
    first = begun(tmp_path, clock)
    first.hear(1, 30.0, "a", NOW)
    first.delivers = False
    first.hear(2, 20.0, "a", NOW)
    undelivered = [item["id"] for item in first.told if item["publication"]["temp"] == 20.0]
    assert 3 < len(undelivered) < len(first.told)
    first.kill()
    second = Process(tmp_path, clock)
    assert [item["id"] for item in second.told] == undelivered
    second.kill()
    assert Process(tmp_path, clock).told == []


def test_killed_before_anybody_was_told_it_is_told_after_the_start(tmp_path: Path) -> None:
    clock = [NOW]
    first = begun(tmp_path, clock)
    first.hear(1, 20.0, "a", NOW)
    first.is_dead = True
    first.hear(2, 30.0, "a", NOW)
    first.here._journal.close()
    second = Process(tmp_path, clock)
    assert {(item["sid"], item["why"]) for item in second.told} >= {("hot", "enter"), ("rooms", "enter")}
    second.hear(3, 31.0, "a", NOW)
    assert [item["why"] for item in second.told].count("enter") == 3, "once for each that enters"


def test_the_journal_is_bounded_and_begins_anew_with_each_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_BYTES", 2_000)
    clock = [NOW]
    process = begun(tmp_path, clock)
    for number in range(200):
        process.hear(number, 30.0 if number % 2 else 20.0, "a", NOW)
        assert (tmp_path / journal.FILE).stat().st_size < 6_000
    process.kill()
    again = Process(tmp_path, clock)
    again.hear(201, 31.0, "a", NOW)
    assert "enter" not in [item["why"] for item in again.told], "it knows that it is hot"


def test_more_than_can_be_kept_until_they_arrive_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_UNDELIVERED", 3)
    process = Process(tmp_path, [NOW])
    process.here.put("ana", "hot", HOT)
    process.delivers = False
    for number in range(1, 7):
        process.hear(number, 30.0 if number % 2 else 20.0, "a", NOW)
    assert process.here.dropped == 3


@pytest.mark.parametrize("damage", ["torn", "nonsense", "older", "gone", "empty"])
def test_a_journal_that_is_torn_or_of_another_save_spoils_nothing(tmp_path: Path, damage: str) -> None:
    clock = [NOW]
    process = begun(tmp_path, clock)
    process.hear(1, 30.0, "a", NOW)
    process.kill()
    file = tmp_path / journal.FILE
    kept = file.read_bytes()
    lines = kept.splitlines(keepends=True)
    file.write_bytes(
        {
            "torn": kept + b'{"id": "m1:1:2", "publi',
            "nonsense": kept + b"\xff\n[]\n",
            "older": json.dumps({"save": 0}).encode() + b"\n" + b"".join(lines[1:]),
            "gone": b"",
            "empty": lines[0],
        }[damage]
    )
    if damage == "gone":
        file.unlink()
    again = Process(tmp_path, clock)
    assert len(again.here) == len(TEXTS)
    again.hear(3, 20.0, "a", NOW)
    exits = [item["sid"] for item in again.told if item["why"] == "exit"]
    assert sorted(exits) == (["hot", "once", "rooms"] if damage in ("torn", "nonsense") else [])


@pytest.mark.slow
def test_a_subscriber_is_told_each_enter_and_exit_once_though_the_broker_is_killed(tmp_path: Path) -> None:
    """The whole process, at a port of its own that stays: the SDK's subscriber comes back by itself."""
    found: list[tuple[str, float]] = []
    (port,) = free_ports(1)
    url = f"mqtt://127.0.0.1:{port}"
    expected: list[tuple[str, float]] = []
    mobile = Mobile(tmp_path, "--cloud", "none", ports=("--web-port", "0", "--local-port", str(port)))
    with mobile, Subscriber("ana", server=url, session="kept") as ana:
        ana.subscribe(HOT, sid="hot", callback=lambda note: found.append((note.why, note.publication["temp"])))
        for number, temp in enumerate((30.0, 28.0, 20.0, 31.0)):
            with Publisher("kit", server=url) as kit:
                kit.publish({"source": "window", "temp": temp}).wait(60)
            if temp in (30.0, 31.0):
                expected.append(("enter", temp))
            if temp == 20.0:
                expected.append(("exit", temp))
            if number < 3:
                mobile.stop(signal.SIGKILL)
                mobile.start()
        wait_until(lambda: len(found) >= len(expected), "all to be told")
        assert found == expected
