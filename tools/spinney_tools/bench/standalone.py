"""A standalone Spark cluster on loopback: a master and workers, started by `spinney pipeline master` and `worker`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from .running_cloud import ended
from .stuck import Stuck

START_SECONDS = 120.0
LOOK_SECONDS = 0.2
EXECUTORS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -Duser.timezone=UTC",
}
"""Settings of a session on it."""


@contextlib.contextmanager
def standalone(folder: Path, workers: int, cores: int = 1) -> Iterator[str]:
    """The master's URL, once all workers have registered. `folder`: for what they write, logs among it."""
    port, page = _free_ports(2)
    url = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        _start(stack, folder / "master", "master", "--port", str(port), "--webui-port", str(page))
        for number in range(workers):
            words = ["worker", "--cores", str(cores), "--memory", "1g", "--webui-port", "0", url]
            _start(stack, folder / f"worker{number}", *words)
        _wait_for(page, workers)
        yield url


def _start(stack: contextlib.ExitStack, folder: Path, verb: str, *words: str) -> None:
    folder.mkdir(parents=True)
    environment = {**os.environ, "SPINNEY_CLOUD__DATA": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"SPARK_WORKER_DIR": str(folder / "work")}
    command = [sys.executable, "-m", "spinney_tools", "pipeline", verb, "--host", "127.0.0.1", *words]
    log = stack.enter_context((folder / "log").open("wb"))
    stack.enter_context(ended(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)))


def _wait_for(page: int, workers: int) -> None:
    """The master says on its page who is there."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{page}/json/") as answer:
            if json.load(answer)["aliveworkers"] >= workers:
                return
        time.sleep(LOOK_SECONDS)
    raise Stuck(f"{workers} workers of Spark have not registered in {START_SECONDS:g} s")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]
