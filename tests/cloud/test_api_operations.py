"""Health, readiness and metrics, with the real process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_kit import Cloud, cloud


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


def test_sigterm_ends_the_process_in_order(tmp_path: Path) -> None:
    with cloud(tmp_path, "http") as running:
        process = running.processes.pop("http")
        assert process.stop() == 0
        assert "Traceback" not in process.log()
