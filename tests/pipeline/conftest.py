"""One Spark session for all tests of the part (its start costs seconds), and a log's server for each test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cloud"))

pytest.importorskip("pyspark", reason="needs spinney[pipeline]")

from pyspark.sql import SparkSession
from servers import NatsServer

from spinney_cloud.pipeline.direct_get import close_connections
from spinney_cloud.pipeline.session import session, stop
from spinney_cloud.pipeline.source import register

os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1"
"""A JVM that lives for a minute compiles quickly rather than well."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A quiet local session with the heap that the pipeline promises to be content with."""
    made = session("tests", tmp_path_factory.mktemp("spark"), heap="1g")
    register(made)
    yield made
    stop(made)


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server of this test's own, with JetStream."""
    with NatsServer(tmp_path / "nats") as server:
        yield server
    close_connections()
