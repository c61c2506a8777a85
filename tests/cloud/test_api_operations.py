"""Health, readiness and metrics, with the real process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_kit import Cloud, cloud, wait_for
from prometheus_client.parser import text_string_to_metric_families

from spinney_cloud.api.routes_operations import PROCESSES
from spinney_cloud.names import DEAD, dead_subject
from spinney_cloud.nats_log import NatsLog


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """HTTP without the other processes."""
    with cloud(tmp_path_factory.mktemp("alone"), "http") as running:
        yield running


def test_a_process_that_does_not_answer_is_named_by_readiness_and_metrics(alone: Cloud) -> None:
    with alone.client() as client:
        assert client.get("/healthz").json() == {"alive": True}
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert "gateway: does not answer" in ready.json()["why"]
        assert ready.json()["processes"]["http"]["ready"] is True
        metrics = client.get("/metrics").text
        assert 'spinney_up{process="matcher"} 0\n' in metrics
        assert 'spinney_up{process="http"} 1\n' in metrics


@pytest.mark.slow
def test_sigterm_ends_the_process_in_order(tmp_path: Path) -> None:
    with cloud(tmp_path, "http") as running:
        process = running.processes.pop("http")
        assert process.stop() == 0
        assert "Traceback" not in process.log()


def letters() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        ("intake", "m1", {"tenant": "default", "reason": "one"}),
        ("intake", "m2", {"tenant": "other", "reason": "two"}),
        ("request", "m1", {"reason": "three"}),
        ("delivery", "ana", {"tenant": "default", "reason": "four"}),
    ]


def bury(cloud: Cloud) -> None:
    async def buried() -> None:
        async with await NatsLog.connect(cloud.endpoints, name="test") as log:
            writer = log.writer(DEAD)
            for stage, client, letter in letters():
                await (await writer.put(dead_subject(stage, client), orjson.dumps(letter)))

    asyncio.run(buried())


def test_dead_letters_are_listed_newest_first_page_by_page_for_the_tenant(alone: Cloud) -> None:
    bury(alone)
    with alone.client() as client:
        told = client.get("/v1/dead-letters").json()
        assert [each["letter"]["reason"] for each in told["letters"]] == ["four", "three", "one"]
        assert (told["letters"][0]["stage"], told["letters"][0]["client"], told["next"]) == ("delivery", "ana", None)
        first = client.get("/v1/dead-letters", params={"limit": 2}).json()
        rest = client.get("/v1/dead-letters", params={"limit": 2, "before": first["next"]}).json()
        assert [each["letter"]["reason"] for each in first["letters"] + rest["letters"]] == ["four", "three", "one"]
        told = client.get("/v1/dead-letters", params={"stage": "intake"}).json()
        assert [each["letter"]["reason"] for each in told["letters"]] == ["one"]
        told = client.get("/v1/dead-letters", params={"client": "ana"}).json()
        assert [each["letter"]["reason"] for each in told["letters"]] == ["four"]


def test_an_answer_of_metrics_is_what_prometheus_reads(alone: Cloud) -> None:
    with alone.client() as client:
        client.get("/v1/dead-letters")
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    routes = {sample.labels["route"] for sample in families["spinney_http_requests"].samples}
    assert "/v1/dead-letters" in routes
    assert {sample.labels["process"] for sample in families["spinney_up"].samples} == set(PROCESSES)


def test_unknown_paths_and_methods_get_problems(alone: Cloud) -> None:
    with alone.client() as client:
        for path in ("/v1/nothing", "/v2", "/nothing", "/docs", "/v1/subscriptions/"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path
        answer = client.delete("/v1/explain")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.slow
def test_readiness_comes_back_with_the_log_server(tmp_path: Path) -> None:
    with cloud(tmp_path, "http") as running, running.client() as client:
        running.nats.kill()
        told = wait_for(lambda: (found := client.get("/readyz").json()["processes"]["http"])["ready"] or found["why"])
        assert "log" in told
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/subscriptions").status_code == 503
        running.nats.start()
        wait_for(lambda: client.get("/readyz").json()["processes"]["http"]["ready"])
