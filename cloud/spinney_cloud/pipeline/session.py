"""Spark sessions: a quiet local one, an existing cluster's, or one behind Spark Connect."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .java import Java, find_java

CORES = 2
HEAP = "1g"
"""Half of that is too small for Spark."""
_CONF = Path(__file__).parent / "conf"

TRUSTING = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Of each value in an Arrow batch Java asks neither again whether it is null nor whether it is within its bounds."""

LOCAL: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Duser.timezone=UTC {TRUSTING}",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # a file is made by one rename: without the checksum files beside each, there is half the work for the disk
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
"""Of a session within this machine, where nothing else says otherwise."""

PYTHON: dict[str, str] = {"spark.python.daemon.module": "spinney_cloud.pipeline.workers"}
"""Of every session whose executors have this package before they start (a wheel that comes with a job is too late)."""

CLUSTER: dict[str, str] = {"spark.sql.shuffle.partitions": "8"}
"""Of a session that a cluster's master is given to: of Spark's 200, most had nothing to do at each batch of matching,
and its checkpoint keeps their number for good. (As in cloud/spark-submit.sh and the manifests.)"""

COMMON: Mapping[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # each operation on a Column would else tell Java its line in Python: that doubles what planning takes
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""Of every session."""


SMALL_BATCHES: dict[str, str] = {"spark.sql.codegen.wholeStage": "false"}
"""Of streaming queries: what there is to compile at each batch takes longer than it saves, a third of a small batch."""


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """For what is started meanwhile: a query keeps the settings that there were when it was started."""
    before = spark.conf.getAll
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            if name in before:
                spark.conf.set(name, before[name])
            else:
                spark.conf.unset(name)


def is_local(master: str | None) -> bool:
    """Whether Spark is to run within this machine, started by us."""
    return master is None or master == "local" or master.startswith(("local[", "local-cluster["))


def session(
    app: str,
    folder: Path,
    *,
    master: str | None = None,
    cores: int = CORES,
    heap: str = HEAP,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session, with its own files below `folder`. `master`: spark://, k8s://, yarn, sc:// for Spark Connect, or
    local[N]; None: local with `cores`, or what spark-submit was told. NoJavaError if Spark is to run here and cannot.
    """
    if master is not None and master.startswith("sc://"):
        builder = SparkSession.builder.remote(master).appName(app)
        chosen = {**COMMON, **(conf or {})}
        chosen.pop("spark.ui.showConsoleProgress", None)  # of the server, set where it was started
        for key, value in chosen.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    builder = SparkSession.builder.appName(app)
    if is_submitted():
        settings = {**COMMON, **(conf or {})}
    else:
        prepare(folder, master)
        settings = {**settings_of(master, folder), **(conf or {})}
        builder = builder.master(master or f"local[{cores}]")
        settings.setdefault("spark.driver.memory", heap)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def settings_of(master: str | None, folder: Path) -> dict[str, str]:
    """Of a session that is started here."""
    return {**COMMON, **(LOCAL | PYTHON if is_local(master) else CLUSTER), **_places(folder)}


def is_submitted() -> bool:
    """Whether spark-submit has started this process, and Java before it: then it has been told where to run."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def prepare(folder: Path, master: str | None = None) -> Java:
    """Set what Spark takes from the environment of this process: which Java, which Python, how much it says."""
    java = find_java(folder)
    os.environ["JAVA_HOME"] = str(java.home)
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(_CONF))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java


def _places(folder: Path) -> dict[str, str]:
    """Spark would write below the current directory."""
    scratch = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    return {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": scratch}


def leave(code: int) -> NoReturn:
    """End this process where Java is gone: what other threads have under way there comes back to a Python that is no
    more, and aborts it."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def stop(spark: SparkSession) -> None:
    """End a session, also where its JVM is gone already."""
    with suppress(PySparkException, OSError):
        spark.stop()
