"""`spinney pipeline master`, `worker` and `connect`: Spark's own, on the Java and with the packages that are here."""

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
    "connect": "org.apache.spark.sql.connect.service.SparkConnectServer",
}
"""The last is an application of a cluster: it is submitted."""
ELSEWHERE = "spark://"
"""Not within this machine: so nothing is bound to loopback."""


def become(verb: str, *arguments: str) -> NoReturn:
    """Be a master, a worker or a Connect server from now on, with Spark's own arguments."""
    data = configure({}, os.environ).settings.data
    prepare(data / "run" / "spark", ELSEWHERE)
    os.environ.setdefault("SPARK_WORKER_DIR", str(data / "run" / "work"))
    home = Path(pyspark.__file__).parent
    os.environ["SPARK_HOME"] = str(home)
    submit = ["spark-submit", "--class"] if verb == "connect" else ["spark-class"]
    program = str(home / "bin" / submit[0])
    os.execv(program, [program, *submit[1:], CLASSES[verb], *arguments])  # noqa: S606  # it is to take over, signals too
