"""cloud/kubernetes: the schemas of Kubernetes, the names that manifests call each other by, and the cluster itself."""

from __future__ import annotations

import json
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml
from clouds import Cloud, wait_until
from servers import HOST, NatsServer, Server, free_ports

from spinney_cloud.acl_command import main as acl
from spinney_cloud.users_command import main as user
from spinney_tools import cli

FOLDER = Path(__file__).parents[2] / "cloud" / "kubernetes"
VERSIONS = ("1.30", "1.34")
WORKLOADS = ("Deployment", "StatefulSet", "Job")


def documents() -> list[dict[str, Any]]:
    files = [file for file in sorted(FOLDER.glob("*.yaml")) if file.name != "kustomization.yaml"]
    return [item for file in files for item in yaml.safe_load_all(file.read_text()) if item]


def pods() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each workload, and its pod's spec."""
    for item in documents():
        if item["kind"] in WORKLOADS:
            yield item, item["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_follows_the_schema(version: str) -> None:
    for item in documents():
        kubernetes_validate.validate(item, version, strict=True)


def test_the_kustomization_names_every_manifest_of_the_broker_and_its_log() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    named = [*kustomization["resources"], *kustomization["configMapGenerator"][0]["files"]]
    assert all((FOLDER / name).exists() for name in named)
    here = {file.name for file in FOLDER.glob("*.yaml") if not file.name.startswith(("pipeline", "kustomization"))}
    assert here == set(kustomization["resources"])


def test_every_container_is_unprivileged_and_its_root_read_only() -> None:
    for workload, pod in pods():
        name = workload["metadata"]["name"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["capabilities"]["drop"] == ["ALL"], name


def test_what_a_pod_mounts_and_selects_is_there() -> None:
    for workload, pod in pods():
        claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())]
        volumes = {*claims, *(volume["name"] for volume in pod.get("volumes", ()))}
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
        labels = workload["spec"]["template"]["metadata"]["labels"]
        selector = workload["spec"].get("selector", {}).get("matchLabels", {})
        assert selector.items() <= labels.items()


def test_the_settings_in_manifests_are_settings_that_there_are() -> None:
    from spinney_cloud.configuration import KEYS

    known = {key.variable for key in KEYS.values()}
    files = [*FOLDER.glob("*.yaml"), FOLDER.parent / "compose.yaml", FOLDER.parent / "Dockerfile"]
    used = {name for file in files for name in re.findall(r"SPINNEY_CLOUD__\w+", file.read_text())}
    assert len(used) > 5
    assert used <= known


def test_services_that_are_called_by_name_are_there() -> None:
    services = {item["metadata"]["name"] for item in documents() if item["kind"] == "Service"}
    text = "".join(file.read_text() for file in FOLDER.iterdir() if file.is_file())
    called = set(re.findall(r"(?:nats|mqtt)://(?:spinney-nats-\d\.)?([a-z-]+):\d", text))
    assert called == {"spinney-nats", "spinney-mqtt", "spinney-nats-cluster"}
    assert called <= services


def test_commands_in_the_readme_are_commands_that_there_are() -> None:
    for words in re.findall(r"\./spinney (\w+)", (FOLDER / "README.md").read_text()):
        assert words in cli.COMMANDS


class ClusterServer(Server):
    """One server of the cluster, by the very configuration of the manifests; only places are this machine's."""

    def __init__(self, folder: Path, index: int, cluster: list[int], access: Path) -> None:
        super().__init__(folder, free_ports(3))
        self.port, self.mqtt_port, self.monitor_port = self.ports
        text = (FOLDER / "nats.conf").read_text().replace("$POD_NAME", f"spinney-nats-{index}")
        places = {"4222": self.port, "1883": self.mqtt_port, "8222": self.monitor_port, "6222": cluster[index]}
        for usual, ours in places.items():
            text = text.replace(f'"0.0.0.0:{usual}"', f'"{HOST}:{ours}"')
        for other, port in enumerate(cluster):
            text = text.replace(f"spinney-nats-{other}.spinney-nats-cluster:6222", f"{HOST}:{port}")
        text = text.replace("/var/lib/nats", str(folder / "store"))
        assert "0.0.0.0" not in text
        (folder / "access").mkdir()
        shutil.copy(access, folder / "access" / access.name)
        (folder / "nats.conf").write_text(text)

    command = NatsServer.command  # type: ignore[assignment]  # of the same folder, by the same name


@pytest.mark.slow
def test_the_cluster_of_the_manifests_keeps_the_log_when_a_server_fails(tmp_path: Path) -> None:
    users, data = tmp_path / "users", tmp_path / "data"
    password = tmp_path / "password"
    password.write_text("a long and secret one")
    added = ["add", "ana", "--role", "operator", "--data", str(users), "--password-file", str(password)]
    assert user(added) == 0
    assert acl(["nats", "--data", str(users), "--to", str(tmp_path)]) == 0
    data.mkdir(mode=0o700)
    for name in ("users.json", "secrets.json"):  # as the first container of the pod does
        shutil.copy(users / name, data / name)
    cluster = free_ports(3)
    access = tmp_path / "spinney-nats.conf"
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ClusterServer(tmp_path / f"nats-{index}", index, cluster, access)) for index in range(3)
        ]
        wait_until(lambda: all(leader(server) for server in servers), "the servers to have found each other")
        urls = ",".join(f"nats://{HOST}:{server.port}" for server in servers)
        given = ["--nats", urls, "--nats-user", "spinney-core", "--nats-replicas", "3", "--http-port", "0"]
        given += ["--mqtt", f"mqtt://{HOST}:{servers[0].mqtt_port}", "--mqtt-user", "spinney-mqtt"]
        program = [sys.executable, "-m", "spinney_tools", "cloud"]
        cloud = stack.enter_context(Cloud(data, *given, program=program, ports=()))
        http = re.search(r"HTTP (http://[^,]+)", cloud.ready_line)
        assert http, cloud.ready_line
        wait_until(lambda: publish(http[1], 1) == 200, "a first publication to be stored")
        wait_until(lambda: replicas(servers[1]) == {3}, "every stream to be there three times")
        servers[2].kill()
        wait_until(lambda: publish(http[1], 2) == 200, "publications to be stored by the two that are left")


def leader(server: ClusterServer) -> str | None:
    """Whom this server takes for the leader of the log's servers."""
    found = monitor(server, "jsz").get("meta_cluster") or {}
    name = found.get("leader")
    return name if isinstance(name, str) else None


def replicas(server: ClusterServer) -> set[int]:
    """How often the broker's streams are kept, as far as this server knows."""
    accounts = monitor(server, "jsz?streams=true&config=true&accounts=true")["account_details"]
    streams = [stream for account in accounts for stream in account["stream_detail"]]
    ours = [stream for stream in streams if stream["name"].startswith(("SPINNEY", "KV_spinney"))]
    return {stream["config"]["num_replicas"] for stream in ours}


def monitor(server: ClusterServer, what: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{HOST}:{server.monitor_port}/{what}", timeout=60) as answer:
        found = json.loads(answer.read())
    assert isinstance(found, dict)
    return found


def publish(url: str, value: int) -> int:
    """The status of a publication by HTTP."""
    reading = {"source": "m", "value": value}
    answer = httpx.post(f"{url}/v1/publications", json=reading, auth=("ana", "a long and secret one"), timeout=60)
    return answer.status_code
