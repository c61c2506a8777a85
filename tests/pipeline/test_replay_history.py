"""How complete a replay is: from the lake the same is said as from the log; and what the lake alone must say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit import TENANT, publications
from replay_kit import BEGIN, Entry, lake_of, wanted

from spinney_cloud.announcements import Announcement, read_announcement
from spinney_cloud.completeness import Answer, entries
from spinney_cloud.completeness.reading import Saying, judge_of, tell
from spinney_cloud.completeness.recorder import EVERYBODY
from spinney_cloud.pipeline.lake import Lake
from spinney_cloud.pipeline.replay_history import completeness_of
from spinney_cloud.records import History, Publications, decode, encode
from spinney_tools.replay import main

STEP = 60.0
CO2 = {"co2": {"min": 0, "max": 2000}}


def announced(client: str, *sources: str) -> Announcement:
    item = {"session": "s1", "sources": [{"name": name, "attributes": CO2} for name in sources]}
    found = read_announcement(item, TENANT, client, 0.0)
    assert isinstance(found, Announcement)
    return found


def activated(epoch: int, *texts: str) -> dict[str, Any]:
    add = [{"filter": f"{at:016x}", "kind": "content", "subscription": {"text": text}} for at, text in enumerate(texts)]
    return entries.activated("pi", {"epoch": epoch, "full": True, "add": add, "drop": []}, frozenset())


def said(value: dict[str, Any], tenant: str = TENANT) -> History:
    """As it comes out of the log."""
    record = decode(encode(History(tenant, value)))
    assert isinstance(record, History)
    return record


def heard(source: str, number: int, value: float, client: str) -> Publications:
    return publications(source, number, [{"co2": value}], client=client)


def log() -> list[Entry]:
    """A broker that is asked for co2 > 100 at first, later for co2 > 500; a direct publisher that lost number 8."""
    records: list[History | Publications] = [
        said(entries.kept(3600), EVERYBODY),
        said(entries.announced(announced("pi", "m1", "m2"))),
        said(activated(1, "co2 > 100")),
        said(entries.reported("pi", {"run": "r1", "epoch": 1})),
        *(heard("m1", number, 300, "pi") for number in range(10)),
        said(activated(2, "co2 > 500")),
        said(entries.reported("pi", {"run": "r1", "epoch": 2})),
        *(heard("m2", number, 700, "pi") for number in range(10)),
        *(heard("plain", number, 50, "plain") for number in (5, 6, 7, 9, 10)),
        *(heard("other", 1, 50, "pi") for _ in range(1)),
    ]
    return [Entry(BEGIN + at * STEP, record) for at, record in enumerate(records)]


def by_log(text: str, since: float, until: float) -> Answer:
    """As a dry run would say it."""
    what = wanted(text, since, until)
    judge = judge_of(what.form, since, until)
    judge.nothing_before(BEGIN)
    whole = [
        Saying(at, one.time, one.record.tenant, one.record.value)
        for at, one in enumerate(log(), 1)
        if isinstance(one.record, History)
    ]
    tell(judge, whole)
    for one in log():
        if isinstance(one.record, Publications) and since <= one.time < until:
            judge.heard(one.time, one.record.runs)
    return judge.answer()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history") / "lake"
    lake_of(folder, log(), batch=7)
    return folder


@pytest.mark.parametrize(
    ("text", "first", "last", "verdict", "why"),
    [
        ("co2 > 200", 4, 13, "complete", set()),
        ("co2 > 50", 4, 13, "at least", {"filters"}),
        ("co2 > 200", 4, 20, "at least", {"filters"}),
        ("co2 > 600", 4, 25, "complete", set()),
        ("co2 > 600", 4, 31, "at least", {"gap"}),
        ("WHEN co2 > 600 UNTIL co2 < 550", 4, 25, "unknown", {"filters"}),
        ("TOP 3 OVER 1h BY co2 DESC", 4, 13, "unknown", {"filters"}),
        ("temp > 0", 4, 25, "complete", set()),
    ],
)
def test_the_lake_says_what_the_log_says(
    place: Path, text: str, first: int, last: int, verdict: str, why: set[str]
) -> None:
    since, until = BEGIN + first * STEP, BEGIN + last * STEP
    answer = completeness_of(Lake(place), wanted(text, since, until))
    assert (answer.verdict, {one.why for one in answer.reasons}) == (verdict, why)
    expected = by_log(text, since, until)
    assert (answer.verdict, answer.sources) == (expected.verdict, expected.sources)
    assert {one[:3] for one in answer.reasons} == {one[:3] for one in expected.reasons}


def test_what_the_lake_does_not_have_yet_is_said(place: Path) -> None:
    ends = BEGIN + (len(log()) - 1) * STEP
    answer = completeness_of(Lake(place), wanted("co2 > 600 AND source = 'm2'", BEGIN + 900, ends + 600))
    assert [(one.why, one.since, one.until) for one in answer.reasons] == [("lake", ends, ends + 600)]


def test_a_lake_that_begins_in_the_middle_of_the_log_says_so(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", log()[3:], first=4)
    answer = completeness_of(lake, wanted("co2 > 600", BEGIN, BEGIN + 20 * STEP))
    assert {one.why for one in answer.reasons} >= {"retention", "before"}
    assert answer.verdict == "unknown"


def test_another_tenants_history_is_not_looked_at(place: Path) -> None:
    answer = completeness_of(Lake(place), wanted("co2 > 50", BEGIN + 240, BEGIN + 780, "other"))
    assert (answer.verdict, answer.sources) == ("complete", 0)


def test_the_command_says_it_in_words(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = ("--from", "2024-10-03T22:04", "--to", "2024-10-03T22:13")
    assert main(["co2 > 200", "--lake", str(place), *times]) == 0
    assert "Complete: nothing that it would have been told of was held back (2 sources)." in capsys.readouterr().out
    assert main(["co2 > 50", "--lake", str(place), *times, "--reasons", "1"]) == 0
    told = capsys.readouterr().out
    assert "At least so many: pi held back what no active subscription wanted (2 sources)." in told
    assert "  m1, 2024-10-03 22:04:00Z to 2024-10-03 22:13:00Z: pi held back" in told
    assert "  and 1 more reason" in told
    assert main(["co2 > 50", "--lake", str(place), *times, "--out", "-"]) == 0
    told_beside = capsys.readouterr()
    assert "At least so many" in told_beside.err
    assert "At least" not in told_beside.out
