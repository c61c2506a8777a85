"""A standalone cluster's executors write the lake: not at all where they do not see it, else each reading once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from kit import city, expected_ids, make_log, messages, put
from servers import NatsServer
from test_lake import ids
from test_lake_write import keep, named, on_disk

from spinney_cloud.pipeline.lake import OBSERVATIONS, Lake
from spinney_tools.bench.standalone import EXECUTORS, standalone

SECONDS = 600.0
MOMENT = 0.3
"""Between two things that are done to Spark's workers."""
PIPELINE = [sys.executable, "-m", "spinney_tools", "pipeline", "--matching", "false", "--windows", "false"]


def command(nats: NatsServer, master: str, lake: str, **conf: str) -> list[str]:
    """A pipeline on that cluster, which ends when the lake has the log."""
    settings = {**EXECUTORS, "spark.executor.memory": "512m", **conf}
    words = [f"--conf={name}={value}" for name, value in settings.items()]
    return [*PIPELINE, "--master", master, "--nats", nats.url, "--lake", lake, "--cores", "2", "--once", *words]


@pytest.mark.slow
def test_executors_that_do_not_see_the_lake_are_refused_at_the_start(nats: NatsServer, tmp_path: Path) -> None:
    """The lake's path is one that means another folder in each process, as on machines that share no storage."""
    make_log(nats)
    put(nats, city(3))
    driver = tmp_path / "driver"
    driver.mkdir()
    with standalone(tmp_path / "spark", workers=1) as master:
        words = command(nats, master, "/proc/self/cwd/lake")
        ran = subprocess.run(words, cwd=driver, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 1, ran.stderr
    assert "not every executor sees the lake /proc/self/cwd/lake" in ran.stderr
    assert "mount it there" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert Lake(driver / "lake").state(OBSERVATIONS).rows == 0
    assert not list((tmp_path / "spark").rglob("*.parquet"))


@pytest.mark.soak
def test_each_reading_is_there_once_though_tasks_are_killed_stopped_and_run_twice(
    nats: NatsServer, tmp_path: Path
) -> None:
    make_log(nats)
    put(nats, [*city(400, rows=500, sources=40), b"junk"])
    chance, lake = random.Random(5), Lake(tmp_path / "lake")
    twice = {"spark.speculation": "true", "spark.speculation.interval": "50ms", "spark.speculation.multiplier": "1.01"}
    twice |= {"spark.speculation.quantile": "0.1", "spark.speculation.minTaskRuntime": "0ms"}
    twice |= {"spark.task.maxFailures": "50", "spark.python.daemon.module": "spinney_cloud.pipeline.workers"}
    with standalone(tmp_path / "spark", workers=2) as master:
        words = [*command(nats, master, lake.place, **twice), "--max-rows", "10000"]
        with subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}) as pipeline:
            while pipeline.poll() is None:
                trouble(chance)
                with suppress(subprocess.TimeoutExpired):
                    pipeline.wait(MOMENT)
    assert pipeline.returncode == 0
    assert ids(lake) == sorted(expected_ids([one for one in messages(nats) if one.sequence != 401]))
    left = on_disk(lake) - named(lake)
    print(f"{len(left)} files of attempts that did not count", flush=True)
    keep(lake)
    assert on_disk(lake) == named(lake)
    assert len(ids(lake)) == 200_000


def trouble(chance: random.Random) -> None:
    """Kill a Python worker of an executor, or have it stand still, so that its task is given to another, too."""
    workers = [each for daemon in daemons() for each in daemon.children()]
    if not workers:
        return
    worker = chance.choice(workers)
    with suppress(psutil.NoSuchProcess):
        if chance.random() < 0.2:
            worker.kill()
        else:
            worker.send_signal(signal.SIGSTOP)
            with suppress(psutil.TimeoutExpired):
                worker.wait(5 * MOMENT)
            worker.send_signal(signal.SIGCONT)


def daemons() -> list[psutil.Process]:
    """From which the executors fork their workers; they are below the workers of Spark that this test has started."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            parent = each.parent()
            if parent and "CoarseGrainedExecutorBackend" in " ".join(parent.cmdline()) and each.name() != "java":
                found.append(each)
    return found
