"""Sessions: what runs here, and what their workers begin with. (How quiet and small they are: test_java.)"""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_spark_forks_its_workers_from_ours(spark: SparkSession) -> None:
    def loaded(_batches: object) -> object:
        import pyarrow as pa

        names = [name for name in ("spinney_cloud.log_reader", "spinney_cloud.engine.repeats") if name in sys.modules]
        yield pa.record_batch({"name": pa.array(names, pa.string())})

    found = [row.name for row in spark.range(1).coalesce(1).mapInArrow(loaded, "name string").collect()]
    assert found == ["spinney_cloud.log_reader", "spinney_cloud.engine.repeats"]


def test_a_worker_looks_for_garbage_in_what_its_later_tasks_make_only(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append("kept"))
    worker = workers.keeping(lambda _socket, authenticated: done.append("a task") or int(authenticated))
    with socket.socket() as java:
        assert [worker(java, True), worker(java, False), worker(java, False)] == [1, 0, 0]
    assert done == ["a task", "kept", "a task", "a task"]


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux has it")
def test_a_worker_acknowledges_at_once_what_java_sends_before_each_task() -> None:
    """The system puts it off again by itself, sooner or later."""
    option = (socket.IPPROTO_TCP, socket.TCP_QUICKACK)
    found: list[int] = []

    def work(java: socket.socket, _authenticated: bool) -> int:
        found.append(java.getsockopt(*option))
        java.setsockopt(*option, 0)
        return 0

    worker = workers.keeping(work)
    with socket.socket() as java, socket.socket(socket.AF_UNIX) as local:
        assert [worker(java, True) for _ in range(3)] == [0, 0, 0]
        assert workers.keeping(lambda *_: 0)(local, True) == 0
    assert found == [1, 1, 1]


def test_these_tests_have_the_heap_that_a_pipeline_is_promised_to_be_content_with(spark: SparkSession) -> None:
    java: Any = spark._jvm
    assert java.Runtime.getRuntime().maxMemory() <= 2**30


def test_java_reads_arrow_batches_without_looking_twice(spark: SparkSession) -> None:
    java: Any = spark._jvm
    assert java.org.apache.arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED is False
    assert java.org.apache.arrow.vector.NullCheckingForGet.NULL_CHECKING_ENABLED is False
