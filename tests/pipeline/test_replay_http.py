"""The HTTP dry run beyond the log's retention: what the log has no more comes from the lake; nothing comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_kit import Cloud, cloud
from kit import messages, purge, put
from replay_kit import Entry, LogMaker, lake_of

from spinney_cloud.pipeline.lake import OBSERVATIONS
from spinney_cloud.records import decode

RECORDS, PURGED, IN_LAKE = 300, 150, 220
SUBSCRIPTIONS: list[str | dict[str, Any]] = [
    "temp > 25",
    "WHEN temp > 25 UNTIL temp <= 22 EACH room",
    {"text": "WHEN temp > 24 UNTIL temp < 23", "debounce": 5},
    "TOP 3 OVER 24h BY temp DESC EACH room",
    "TOP 2 OVER LAST 9 BY temp",
]


def dry(client: httpx.Client, subscription: Any, last: str = "1d") -> dict[str, Any]:
    parameters = {"dry_run": 1, "last": last}
    answer = client.post("/v1/subscriptions", params=parameters, json={"sid": "dry", "subscription": subscription})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("dry"), "http") as running:
        put(running.nats, [entry.record for entry in LogMaker(5).make(RECORDS)])
        yield running


@pytest.fixture(scope="module")
def before(running: Cloud) -> list[dict[str, Any]]:
    """What dry runs tell while the log has everything."""
    with running.client() as client:
        return [dry(client, subscription) for subscription in SUBSCRIPTIONS]


def test_what_was_purged_is_told_from_the_lake(running: Cloud, before: list[dict[str, Any]]) -> None:
    log = [Entry(message.time, decode(message.data)) for message in messages(running.nats)]
    purge(running.nats, PURGED)
    with running.client() as client:
        assert {"retention"} == {cut for each in SUBSCRIPTIONS for cut in dry(client, each)["cut"]}
        lake = lake_of(Path(running.settings.lake), log[:IN_LAKE])
        assert lake.sequence(OBSERVATIONS) == IN_LAKE
        for subscription, told in zip(SUBSCRIPTIONS, before, strict=True):
            now = dry(client, subscription)
            assert now["cut"] == []
            assert now["notifications"] == told["notifications"]
            assert told["count"] == now["count"] > 0
            assert told["readings"] >= now["readings"] > told["readings"] - 100  # without duplicates
        purge(running.nats, IN_LAKE + 10)  # and now a part is nowhere
        told = dry(client, SUBSCRIPTIONS[0])
    assert told["cut"] == ["retention"]
    assert 0 < told["count"] < before[0]["count"]
