"""`spinney up --pipeline`: what the city's motes measure comes to be in the lake."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from clouds import wait_until
from test_up import Up, all_gone

pytestmark = pytest.mark.soak
LAKE_SECONDS = 240.0
"""Spark starts, and makes all that it runs."""


def test_readings_of_the_city_come_into_the_lake_and_ctrl_c_leaves_nothing_running(tmp_path: Path) -> None:
    observations = tmp_path / "data/cloud/lake/observations"
    with Up(tmp_path / "data", "--pipeline") as up:
        wait_until(lambda: any(observations.rglob("*.parquet")), "readings in the lake", LAKE_SECONDS)
        family = up.family()
        assert [each for each in family if "java" in each.name()]
        assert up.stop(signal.SIGINT) == 0, up.said
        assert all_gone(family)
