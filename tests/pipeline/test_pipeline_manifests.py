"""Manifests of the pipeline for clusters: what they run is what there is, and what they share is shared."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from kit import city, make_log, put, wait_until
from servers import NatsServer, free_ports
from test_lake import fill

from spinney_cloud.pipeline import command
from spinney_cloud.pipeline.lake import Lake
from spinney_cloud.pipeline.running_cluster import CLASSES

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cloud/kubernetes"
FILES = ("pipeline.yaml", "pipeline-cluster.yaml")
CONNECT = "pipeline-connect.yaml"
PIPELINE = [sys.executable, "-m", "spinney_tools", "pipeline"]
SPARK_SECONDS = 300.0


def objects(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / file).read_text()))


def pods(file: str) -> dict[str, dict[str, Any]]:
    """The pods of its deployments, by name."""
    found = objects(file)
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in found if each["kind"] == "Deployment"
    }


def arguments(file: str, name: str) -> list[str]:
    [container] = pods(file)[name]["containers"]
    first, *rest = container["args"]
    assert first == "pipeline"
    return list(rest)


@pytest.mark.parametrize("file", FILES)
def test_what_the_driver_is_told_holds(file: str) -> None:
    found = command._wanted(command._parser().parse_args(arguments(file, "spinney-pipeline"))).job()
    assert found.lake.startswith("/lake/")
    assert found.matching is not None
    assert found.matching.checkpoint.startswith("/lake/")
    assert found.policy.retain_days == 365


@pytest.mark.parametrize("file", [*FILES, CONNECT])
def test_labels_volumes_and_secrets_go_together(file: str) -> None:
    beside = [*objects(file), *(objects("pipeline-cluster.yaml") if file == CONNECT else ())]
    claims = {each["metadata"]["name"] for each in beside if each["kind"] == "PersistentVolumeClaim"}
    for each in objects(file):
        if each["kind"] == "Deployment":
            spec = each["spec"]
            labels = spec["template"]["metadata"]["labels"]
            assert spec["selector"]["matchLabels"].items() <= labels.items()
            pod = spec["template"]["spec"]
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            for container in pod["containers"]:
                assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
                assert container["securityContext"]["readOnlyRootFilesystem"]
                assert container["resources"]["limits"]["memory"]
            for volume in volumes.values():
                if claim := volume.get("persistentVolumeClaim"):
                    assert claim["claimName"] in claims
            assert pod["securityContext"]["runAsNonRoot"]


def test_one_lake_has_one_pipeline() -> None:
    for file in FILES:
        [driver] = [each["spec"] for each in objects(file) if each["metadata"]["name"] == "spinney-pipeline"]
        assert (driver["replicas"], driver["strategy"]["type"]) == (1, "Recreate")


def test_all_of_a_cluster_see_the_lake_and_the_password() -> None:
    found = pods("pipeline-cluster.yaml")
    mounts = [
        {mount["name"]: mount["mountPath"] for mount in found[name]["containers"][0]["volumeMounts"]}
        for name in ("spinney-pipeline", "spinney-spark-worker")
    ]
    assert mounts[0]["lake"] == mounts[1]["lake"] == "/lake"
    assert mounts[0]["nats"] == mounts[1]["nats"]
    [claim] = [each for each in objects("pipeline-cluster.yaml") if each["kind"] == "PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_worker_and_the_driver_find_the_master() -> None:
    [service] = [each for each in objects("pipeline-cluster.yaml") if each["kind"] == "Service"]
    address = f"spark://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert arguments("pipeline-cluster.yaml", "spinney-spark-worker")[-1] == address
    assert f"--master={address}" in arguments("pipeline-cluster.yaml", "spinney-pipeline")
    assert arguments("pipeline-cluster.yaml", "spinney-spark-master")[0] in CLASSES


def test_connect_is_an_application_of_the_cluster_that_only_reads_the_lake() -> None:
    words = arguments(CONNECT, "spinney-spark-connect")
    assert words[0] in CLASSES
    driver = arguments("pipeline-cluster.yaml", "spinney-pipeline")
    assert [word for word in words if word.startswith("--master=")] == [
        word for word in driver if word.startswith("--master=")
    ]
    service, policy = objects(CONNECT)[:2]
    [container] = pods(CONNECT)["spinney-spark-connect"]["containers"]
    port = service["spec"]["ports"][0]["port"]
    assert f"--conf=spark.connect.grpc.binding.port={port}" in words
    assert container["ports"] == [{"name": "connect", "containerPort": port}]
    assert policy["spec"]["podSelector"]["matchLabels"] == service["spec"]["selector"]
    assert {"name": "lake", "mountPath": "/lake", "readOnly": True} in container["volumeMounts"]


# ---- run, as far as one machine goes


@contextmanager
def here(file: str, name: str, changes: dict[str, str], environment: dict[str, str]) -> Iterator[None]:
    """What a pod runs, on loopback."""
    words = [changes.get(word, word) for word in arguments(file, name)]
    started = subprocess.Popen([*PIPELINE, *words], env=environment)
    try:
        yield
    finally:
        started.terminate()
        started.wait(60)


@pytest.mark.soak
def test_a_cluster_fills_the_lake(nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    put(nats, city(30))
    port, master_page, worker_page = map(str, free_ports(3))
    file, master = "pipeline-cluster.yaml", f"spark://127.0.0.1:{port}"
    changes = {"$(POD_IP)": "127.0.0.1", "7077": port, "8080": master_page, "2g": "1g"}
    changes |= {"spark://spinney-spark-master:7077": master, "--cores": "--webui-port", "2": worker_page}
    environment = {**os.environ, "SPINNEY_CLOUD__DATA": str(tmp_path / "data")}
    words = [
        word for word in arguments(file, "spinney-pipeline") if not word.startswith(("--nats", "--lake", "--check"))
    ]
    words = [
        word.replace("spark://spinney-spark-master:7077", master).replace("$(POD_IP)", "127.0.0.1") for word in words
    ]
    words += ["--nats", nats.url, "--lake", str(tmp_path / "lake"), "--once", "--conf", "spark.executor.memory=512m"]
    with (
        here(file, "spinney-spark-master", changes, environment),
        here(file, "spinney-spark-worker", changes, environment),
    ):
        subprocess.run([*PIPELINE, *words], env=environment, check=True, timeout=SPARK_SECONDS)
    assert Lake(tmp_path / "lake").state("observations").rows == 600


@pytest.mark.soak
def test_spark_submit_fills_the_lake(nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    put(nats, city(30))
    home = str(Path(pyspark.__file__).parent)
    environment = {**os.environ, "SPARK_HOME": home, "PYTHON": sys.executable}
    words = ["local[2]", "--nats", nats.url, "--lake", str(tmp_path / "lake"), "--once", "--matching", "false"]
    command_line = [str(ROOT / "cloud/spark-submit.sh"), *words]
    subprocess.run(command_line, env=environment, cwd=tmp_path, check=True, timeout=SPARK_SECONDS)
    assert Lake(tmp_path / "lake").state("observations").rows == 600


READING = """
import sys
from pathlib import Path
from spinney import parse_filter
from spinney.filter_bytes import filter_bytes
from spinney_cloud.pipeline.lake import Lake
from spinney_cloud.pipeline.matching import match_frame
from spinney_cloud.pipeline.session import session
from spinney_cloud.pipeline.source import register
master, log, lake = sys.argv[1:]
spark = session("notebook", Path(), master=master)
register(spark)
print(spark.read.format("spinney").option("url", log).load().count())
frame = Lake(lake).frame(spark)
print(frame.count(), match_frame(frame, {"high": filter_bytes(parse_filter("NO2 > 40"))}).count())
"""


@pytest.mark.soak
def test_a_notebook_reads_over_connect(nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    put(nats, city(3))
    fill(Lake(tmp_path / "lake"), days=1, batches=2)
    rows = Lake(tmp_path / "lake").dataset().to_table(columns=["numbers"]).to_pylist()
    high = sum(dict(row["numbers"])["NO2"] > 40 for row in rows)
    [port] = free_ports(1)
    changes = {"--master=spark://spinney-spark-master:7077": "--master=local[2]"}
    changes["--conf=spark.driver.host=$(POD_IP)"] = "--conf=spark.connect.grpc.binding.address=127.0.0.1"
    changes["--conf=spark.connect.grpc.binding.port=15002"] = f"--conf=spark.connect.grpc.binding.port={port}"
    environment = {**os.environ, "SPINNEY_CLOUD__DATA": str(tmp_path / "data")}
    with here(CONNECT, "spinney-spark-connect", changes, environment):
        wait_until(lambda: answers(port), "Spark Connect", SPARK_SECONDS)
        words = [sys.executable, "-c", READING, f"sc://127.0.0.1:{port}", nats.url, str(tmp_path / "lake")]
        read = subprocess.run(words, capture_output=True, text=True, timeout=SPARK_SECONDS, check=False)
    assert read.stdout.split() == ["60", "80", str(high)], read.stderr


def answers(port: int) -> bool:
    with closing(socket.socket()) as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def test_spark_submit_says_what_it_needs() -> None:
    script = str(ROOT / "cloud/spark-submit.sh")
    asked = subprocess.run([script], capture_output=True, text=True, check=False)
    assert asked.returncode == 2
    assert "usage: SPARK_HOME=/opt/spark" in asked.stderr
    environment = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "PYTHONPATH": ":".join(sys.path)}
    asked = subprocess.run([script, "yarn"], capture_output=True, text=True, check=False, env=environment)
    assert asked.returncode != 0
    assert "where is Spark?" in asked.stderr
