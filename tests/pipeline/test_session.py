"""Sessions: what runs here, and what their workers begin with. (How quiet and small they are: test_java.)"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from spinney_cloud.pipeline import workers
from spinney_cloud.pipeline.session import CLUSTER, is_local, settings_of
from spinney_cloud.pipeline.state import SHARDS

CLOUD = Path(__file__).parents[2] / "cloud"


@pytest.mark.parametrize(
    ("master", "local"),
    [(None, True), ("local", True), ("local[4]", True), ("local-cluster[2,1,1024]", True), ("spark://h:7077", False)],
)
def test_what_runs_here_is_local(master: str | None, local: bool) -> None:
    assert is_local(master) is local


def test_a_cluster_is_given_as_many_tasks_as_by_its_manifests(tmp_path: Path) -> None:
    """Spark's 200 are far more than matching has shards, and stay in its checkpoint."""
    found = settings_of("spark://h:7077", tmp_path)
    assert int(found["spark.sql.shuffle.partitions"]) <= SHARDS
    for file in ("spark-submit.sh", "kubernetes/pipeline-cluster.yaml", "kubernetes/pipeline-connect.yaml"):
        for name in CLUSTER:
            assert f"{name}={found[name]}" in (CLOUD / file).read_text()


def test_workers_are_forked_from_a_process_without_other_threads() -> None:
    code = "import os, sys; from spinney_cloud.pipeline import workers; workers.preload()\n"
    code += "print(len(os.listdir('/proc/self/task')) if os.path.isdir('/proc/self/task') else 1, *sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert out[0] == "1"
    assert "pyarrow" not in out
    assert set(workers.MODULES) <= set(out)


WORKER = """
import sys
from pyspark.serializers import read_int
from pyspark.util import handle_worker_exception
from spinney_cloud.pipeline.source import LogSource

def main(infile, outfile):  # as all of Spark's that plan
    LogSource({})
    try:
        read_int(infile)
    except EOFError as error:
        handle_worker_exception(error, outfile)
        sys.exit(-1)
    raise ValueError("a fault")
"""


@pytest.mark.parametrize("daemon", workers.DAEMONS)
@pytest.mark.parametrize(("sent", "said"), [(b"", False), (b"\0\0\0\1", True)], ids=["closed", "at fault"])
def test_java_that_hangs_up_is_no_fault_to_be_shown(daemon: str, sent: bytes, said: bool, tmp_path: Path) -> None:
    (tmp_path / "pyspark_hanging.py").write_text(WORKER)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {
        "PYTHONPATH": path,
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    words = [sys.executable, "-m", daemon, "pyspark_hanging"]
    with (
        TemporaryDirectory() as sockets,  # their names must be short
        subprocess.Popen(
            words,
            env={**os.environ, **settings, "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as started,
    ):
        assert started.stdin
        assert started.stdout
        assert started.stderr
        try:
            place = started.stdout.read(int.from_bytes(started.stdout.read(4), "big"))
            with socket.socket(socket.AF_UNIX) as java:
                java.connect(place)
                worker = psutil.Process(int.from_bytes(java.recv(4), "big"))
                java.sendall(sent)
            worker.wait(60)
        finally:
            started.stdin.close()  # which ends it
        errors = started.stderr.read().decode()
    assert ("ValueError: a fault" in errors) == said
    assert ("Traceback" in errors) == said


def test_spark_forks_its_workers_from_ours(spark: SparkSession) -> None:
    def loaded(_batches: object) -> object:
        import pyarrow as pa

        names = [name for name in ("spinney_cloud.log_reader", "spinney_cloud.engine.repeats") if name in sys.modules]
        names += [name for name in os.environ if name == "PYTHON_UNIX_DOMAIN_ENABLED"]
        yield pa.record_batch({"name": pa.array(names, pa.string())})

    found = [row.name for row in spark.range(1).coalesce(1).mapInArrow(loaded, "name string").collect()]
    assert found == ["spinney_cloud.log_reader", "spinney_cloud.engine.repeats", "PYTHON_UNIX_DOMAIN_ENABLED"]


def test_a_worker_looks_for_garbage_in_what_its_later_tasks_make_only(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append("kept"))
    worker = workers.keeping(lambda _socket, authenticated: done.append("a task") or int(authenticated))
    with socket.socket() as java:
        assert [worker(java, True), worker(java, False), worker(java, False)] == [1, 0, 0]
    assert done == ["a task", "kept", "a task", "a task"]


def test_these_tests_have_the_heap_that_a_pipeline_is_promised_to_be_content_with(spark: SparkSession) -> None:
    java: Any = spark._jvm
    assert java.Runtime.getRuntime().maxMemory() <= 2**30


def test_java_reads_arrow_batches_without_looking_twice(spark: SparkSession) -> None:
    java: Any = spark._jvm
    assert java.org.apache.arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED is False
    assert java.org.apache.arrow.vector.NullCheckingForGet.NULL_CHECKING_ENABLED is False
