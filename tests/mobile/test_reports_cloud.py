"""Dry runs of what mobile brokers held back, with a real cloud: they say that, and of whom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from clouds import Cloud
from test_mobile_broker import Machine, machine, subscribed
from uplink_kit import REAL, run, until

from spinney_mobile import announcing, reports
from spinney_mobile.settings import Rule

pytestmark = pytest.mark.slow

ROOMS = [f"room{number}" for number in range(8)]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One for all tests; each has brokers and sources of its own."""
    with Cloud(tmp_path_factory.mktemp("cloud") / "data", program=REAL).start() as cloud:
        yield cloud


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """This cloud acts on announcements at once."""
    monkeypatch.setattr(announcing, "SETTLE_SECONDS", 5.0)
    monkeypatch.setattr(reports, "PAUSE_SECONDS", 0.5)


def dry(cloud: Cloud, subscription: str, last: str = "1h", **more: Any) -> dict[str, Any]:
    url = f"http://127.0.0.1:{cloud.port('HTTP')}/v1/subscriptions"
    asked = {"dry_run": 1, "last": last, **more}
    answer = httpx.post(url, params=asked, json={"subscription": subscription}, timeout=30)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def reported(one: Machine) -> None:
    """It has reported what is at work."""
    uplink = one.broker.uplink
    assert uplink is not None
    await until(lambda: uplink.reports.told and uplink.reports.told == one.broker.activations.at_work, "a report")


async def heard(one: Machine, value: float, *sources: str) -> None:
    for source in sources:
        one.measure(source, co2=value, hum=value / 2)
    await one.drained()


def test_a_dry_run_says_that_rooms_nobody_asked_for_were_held_back(cloud: Cloud, tmp_path: Path) -> None:
    """22 from 2 rooms, where all 8 would."""

    async def test() -> None:
        with subscribed(cloud, "ana", "co2 > 10 AND source IN ('room0', 'room1')", "hum > 50 AND hum < 70"):
            async with machine(tmp_path / "pi", "pi", cloud) as pi:
                await heard(pi, 50, *ROOMS)
                for source in ROOMS:
                    await pi.owns(source)
                announcer = pi.broker.announcer
                await until(lambda: len(announcer._said[0].sources) == len(ROOMS), "all of them to be announced")
                await reported(pi)
                begun = time.time()
                for value in range(160, 171):  # too humid for anybody
                    await heard(pi, value, *ROOMS)
                found = dry(cloud, "co2 > 100")
                told = found["completeness"]
                assert found["count"] == 22
                assert (told["verdict"], {one["reason"] for one in told["reasons"]}) == ("at least", {"filters"})
                assert {one["source"] for one in told["reasons"]} == set(ROOMS[2:])
                assert all(one["broker"] == "pi" and one["until"] > begun for one in told["reasons"])
                assert "pi held back what no active subscription wanted (6 sources)" in told["text"]
                assert dry(cloud, "hum BETWEEN 60 AND 65")["completeness"]["verdict"] == "complete"
                assert dry(cloud, "hum > 60")["completeness"]["verdict"] == "at least"
                assert dry(cloud, "temp > 5")["completeness"]["verdict"] == "complete", "nobody announces any"
                whole = dry(cloud, "co2 > 100 AND source = 'room1'")
                assert (whole["count"], whole["completeness"]["verdict"]) == (11, "complete")
                assert whole["completeness"]["text"].startswith("Complete: ")
                page = dry(cloud, "co2 > 100", reasons_limit=4)["completeness"]
                rest = dry(cloud, "co2 > 100", reasons_limit=4, reasons_after=page["next"])["completeness"]
                assert (len(page["reasons"]), len(rest["reasons"]), rest["next"]) == (4, 2, None)
                state = dry(cloud, "WHEN co2 > 100 UNTIL co2 < 90")["completeness"]
                assert state["verdict"] == "unknown", "what is missing might change all that it tells"

    run(test())


def test_a_private_rule_is_said_to_hold_back_and_no_more_of_it(cloud: Cloud, tmp_path: Path) -> None:
    rule = Rule(name="secret-bedroom", when="source = 'room7'", share="never")

    async def test() -> None:
        with subscribed(cloud, "ana", "co2 > 10"):
            async with machine(tmp_path / "quiet", "quiet", cloud, rule=(rule,)) as quiet:
                await heard(quiet, 50, "attic")
                await quiet.owns("attic")
                await reported(quiet)
                answer = dry(cloud, "co2 > 100 AND source = 'attic'")
                told = answer["completeness"]
                assert told["verdict"] == "at least"
                assert [(one["reason"], one["source"], one["text"]) for one in told["reasons"]] == [
                    ("private", None, "quiet may hold back readings")
                ]
                assert "secret" not in str(answer)
                assert "room7" not in str(answer)

    run(test())
