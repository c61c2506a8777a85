"""Valid readings that mobile brokers held back, asked for by a dry run, with a real cloud and real mobile brokers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clouds import Cloud
from test_mobile_broker import Machine, machine, subscribed
from test_reports_cloud import dry, reported
from uplink_kit import REAL, run, until

from spinney_cloud.names import LOG, NOTES, REQUESTS
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.service import read_run
from spinney_mobile import announcing, fetching, reports
from spinney_mobile.samples import Sample
from spinney_mobile.settings import AcquireMotes, Rule

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One for all tests; each has brokers and sources of its own."""
    with Cloud(tmp_path_factory.mktemp("cloud") / "data", program=REAL).start() as cloud:
        yield cloud


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """This cloud acts on announcements at once."""
    monkeypatch.setattr(announcing, "SETTLE_SECONDS", 1.0)
    monkeypatch.setattr(reports, "PAUSE_SECONDS", 0.5)


def measure(one: Machine, source: str, *, valid_for: float | None = 3600.0, **values: float) -> None:
    now = one.broker._clock()
    found = {name: float(value) for name, value in values.items()}
    one.broker.sampled(Sample(source, found, now, now, "test", rssi=-60, valid_for=valid_for))


async def settled(one: Machine, *sources: str, **values: float) -> None:
    """The sources are announced and ours, the announcement is in force, and all of it is reported."""
    for source in sources:
        measure(one, source, **values)
    for source in sources:
        await one.owns(source)
    announcer = one.broker.announcer
    await until(lambda: set(sources) <= announcer._said[0].sources.keys(), "all of them to be announced")
    await one.drained()
    await reported(one)
    uplink = one.broker.uplink
    assert uplink is not None
    await until(lambda: uplink.fetches._is_told, "the cloud to know that it can be asked")


async def fetch(cloud: Cloud, subscription: str, **more: Any) -> dict[str, Any]:
    """In a thread: the brokers live in this one."""
    return await asyncio.to_thread(dry, cloud, subscription, **{"fetch": 1, **more})


async def ends(cloud: Cloud) -> list[int]:
    """Of the streams in which anything could be kept."""
    _, endpoints = read_run(cloud.data / "run" / "run.json")
    async with await NatsLog.connect(endpoints, name="test") as log:
        return [(await log.state(stream)).last for stream in (LOG, REQUESTS, NOTES)]


def _nothing() -> fetching.Stopped:
    return fetching.Stopped(0.0, (), lambda _: False, dict, lambda _: None)


def test_a_dry_run_fetches_what_was_held_back_and_leaves_no_trace(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        async with machine(tmp_path / "pi", "pi", cloud) as pi:
            await settled(pi, "room1", "room2", co2=10, hum=5)
            for value in (110, 120, 130):
                measure(pi, "room1", co2=value, hum=5)
            measure(pi, "room2", co2=140, hum=5, valid_for=None)
            before = await asyncio.to_thread(dry, cloud, "co2 > 100")
            assert (before["count"], before["completeness"]["verdict"]) == (0, "at least")
            logged = await ends(cloud)
            found = await fetch(cloud, "co2 > 100")
            assert [note["publication"]["co2"] for note in found["notifications"]] == [110, 120, 130]
            assert (found["count"], found["fetched"]["readings"]) == (3, 3)
            assert found["fetched"]["text"] == "3 readings fetched from 1 mobile broker."
            times = [note["time"] for note in found["notifications"]]
            assert times == sorted(times)
            assert found["since"] is not None
            assert (await fetch(cloud, "co2 > 100", fetch=0))["count"] == 0
            assert await ends(cloud) == logged, "nothing was written, of the readings or of the question"
            assert pi.count("spared") >= 3
            assert (pi.count("fetches"), pi.count("fetched")) == (1, 3)

    run(test())


def test_what_is_all_there_is_complete_and_what_is_not_is_not(cloud: Cloud, tmp_path: Path) -> None:
    """room2 has a reading that is not valid any longer: of it nobody can say what it was."""

    async def test() -> None:
        async with machine(tmp_path / "all", "all", cloud) as one:
            await settled(one, "whole1", "gone1", co2=10, hum=5)
            begun = time.time() + 1.5  # later than what went before, as far as clocks tell
            await until(lambda: time.time() > begun + 1.5, "the time that is asked for to have begun")
            for value in (110, 120):
                measure(one, "whole1", co2=value, hum=5)
            measure(one, "gone1", co2=140, hum=5, valid_for=None)
            for text, count, verdict in (
                ("co2 > 100 AND source = 'whole1'", 2, "complete"),
                ("co2 > 115 AND source = 'whole1'", 1, "complete"),
                ("co2 > 500 AND source = 'whole1'", 0, "complete"),
                ("co2 > 100 AND source = 'gone1'", 0, "at least"),
            ):
                last = f"{math.ceil((time.time() - begun) * 1000)}ms"
                found = await fetch(cloud, text, last=last)
                assert (found["count"], found["completeness"]["verdict"]) == (count, verdict), text
                without = await fetch(cloud, text, last=last, fetch=0)
                assert (without["count"], without["completeness"]["verdict"]) == (0, "at least"), text
            one.broker.settings = replace(one.broker.settings, acquire=(AcquireMotes(),))
            found = await fetch(cloud, "co2 > 100 AND source = 'whole1'", last=last)
            assert found["count"] == 2
            assert found["completeness"]["verdict"] == "at least", "motes may have held back more"

    run(test())


def test_what_goes_up_later_is_the_logs_and_counts_once(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        async with machine(tmp_path / "late", "late", cloud) as late:
            await settled(late, "late1", co2=10, hum=5)
            measure(late, "late1", co2=110, hum=5)
            text = "co2 > 100 AND source = 'late1'"
            assert (await fetch(cloud, text))["fetched"]["readings"] == 1
            with subscribed(cloud, "ana", text) as notes:
                await until(lambda: notes, "what is valid (rule L2)")
            found = await fetch(cloud, text)
            assert (found["count"], found["fetched"]["readings"]) == (1, 0)

    run(test())


def test_what_private_rules_hold_back_never_leaves(cloud: Cloud, tmp_path: Path) -> None:
    rules = (
        Rule(name="secret", when="co2 > 125", share="never"),
        Rule(name="few", when="source = 'shy1'", hourly=3),
    )

    async def test() -> None:
        async with machine(tmp_path / "shy", "shy", cloud, rule=rules) as shy:
            await settled(shy, "shy1", co2=10, hum=5)
            left = 3 - shy.count("sent")
            for value in (110, 115, 120, 130):
                measure(shy, "shy1", co2=value, hum=5)
            found = await fetch(cloud, "co2 > 100 AND source = 'shy1'")
            told = [note["publication"]["co2"] for note in found["notifications"]]
            assert told == [110, 115, 120][:left]
            assert left < 3, "what is announced at first has gone up, and counts"
            assert [one["reason"] for one in found["completeness"]["reasons"] if one["reason"] == "private"]
            assert found["completeness"]["verdict"] == "at least"

    run(test())


def test_a_broker_that_ends_meanwhile_is_named(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        async with machine(tmp_path / "ends", "ends", cloud) as one:
            await settled(one, "ends1", co2=10, hum=5)
            measure(one, "ends1", co2=110, hum=5)
            uplink = one.broker.uplink
            assert uplink is not None
            uplink.fetches.look = lambda _: one.task.cancel() or _nothing()  # its power fails when it is asked
            found = await fetch(cloud, "co2 > 100 AND source = 'ends1'", fetch_seconds=1)
            assert found["count"] == 0
            assert found["fetched"]["brokers"][0]["answered"] is False
            assert "ends did not answer in time" in found["fetched"]["text"]

    run(test())


def test_a_broker_that_is_away_is_named_and_asked_when_it_is_back(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        one = Machine(tmp_path / "away", "away", cloud)
        one.start()
        await settled(one, "away1", co2=10, hum=5)
        await one.abandon()
        text = "co2 > 100 AND source = 'away1'"

        async def named() -> bool:
            return "away was not asked: it is not connected" in (await fetch(cloud, text))["fetched"]["text"]

        while not await named():
            await asyncio.sleep(0.05)
        one.start()
        await settled(one, "away1", co2=10, hum=5)
        measure(one, "away1", co2=110, hum=5)
        assert (await fetch(cloud, text))["count"] == 1
        await one.stop()

    run(test())
