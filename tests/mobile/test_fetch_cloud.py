"""Valid readings that mobile brokers held back, asked for by a dry run, with a real cloud and real mobile brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clouds import Cloud
from test_mobile_broker import Machine, machine
from test_reports_cloud import dry, reported
from uplink_kit import REAL, run, until

from spinney_mobile import announcing, reports
from spinney_mobile.samples import Sample

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


def test_a_dry_run_fetches_what_was_held_back_and_leaves_no_trace(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        async with machine(tmp_path / "pi", "pi", cloud) as pi:
            await settled(pi, "room1", "room2", co2=10, hum=5)
            for value in (110, 120, 130):
                measure(pi, "room1", co2=value, hum=5)
            measure(pi, "room2", co2=140, hum=5, valid_for=None)
            before = dry(cloud, "co2 > 100")
            assert (before["count"], before["completeness"]["verdict"]) == (0, "at least")
            found = await fetch(cloud, "co2 > 100")
            assert [note["publication"]["co2"] for note in found["notifications"]] == [110, 120, 130]
            assert found["count"] == 3
            print(found["fetched"], found["completeness"])
            assert dry(cloud, "co2 > 100")["count"] == 0

    run(test())
