"""`spinney pipeline master` and `worker`: Spark's own cluster, on the Java and with the packages that this one has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pyspark

from ..configuration import configure
from .session import prepare

CLASSES = {
    "master": "org.apache.spark.deploy.master.Master",
    "worker": "org.apache.spark.deploy.worker.Worker",
}
ELSEWHERE = "spark://"
"""Not within this machine: so nothing is bound to loopback."""


def become(verb: str, *arguments: str) -> NoReturn:
    """Be a master or a worker from now on, with Spark's own arguments."""
    data = configure({}, os.environ).settings.data
    prepare(data / "run" / "spark", ELSEWHERE)
    os.environ.setdefault("SPARK_WORKER_DIR", str(data / "run" / "work"))
    home = Path(pyspark.__file__).parent
    os.environ["SPARK_HOME"] = str(home)
    program = str(home / "bin" / "spark-class")
    os.execv(program, [program, CLASSES[verb], *arguments])  # noqa: S606  # it is to take over, signals included
