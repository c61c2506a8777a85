"""Executors that have nothing of ours get the package by wheel, the C core with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kit import city, engine_says, for_pipeline, in_order, make_log, put, told
from servers import NatsServer

from spinney_cloud.pipeline.matching_wheel import UNPACKED, from_wheel

ROOT = Path(__file__).parents[2]
DRIVER = str(Path(__file__).parent / "cluster_driver.py")
SECONDS = 900.0


def build(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=SECONDS)
    return next(folder.glob("*.whl"))


def test_a_wheel_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make one with"):
        from_wheel(tmp_path / "spinney.whl", tmp_path)


@pytest.mark.soak
def test_two_executors_match_with_the_core_from_the_wheel(nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    put(nats, [for_pipeline("c", "NO2 > 80"), for_pipeline("s", "WHEN NO2 > 80 UNTIL NO2 < 20 EACH room")])
    end = put(nats, city(500))
    command = [sys.executable, DRIVER, nats.url, str(tmp_path), str(build(tmp_path / "dist")), str(end)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert len({place for place, _, _ in said["executors"]}) == 2
    for place, file, native in said["executors"]:
        assert Path(file).resolve().is_relative_to((Path(place) / UNPACKED).resolve())
        assert native
    assert in_order(told(nats)) == in_order(engine_says(nats))
