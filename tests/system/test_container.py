"""The image of cloud/Dockerfile: its very steps done, then run as its user with a read-only root; and compose.yaml."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import image_kit
import pytest
import yaml

SCRIPTS = Path(sysconfig.get_path("scripts"))
COMPOSE = image_kit.TOP / "cloud" / "compose.yaml"


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Any]]:
    """What building and running the image gave."""
    if reason := image_kit.refusal():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="spinney-image-") as place:
        yield image_kit.outside(Path(place))


def test_a_linter_of_dockerfiles_finds_nothing() -> None:
    done = subprocess.run([SCRIPTS / "hadolint", image_kit.DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_compose_yaml_follows_its_schema_and_asks_for_nothing_that_is_not_there() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    compose = yaml.safe_load(COMPOSE.read_text())
    assert set(compose["services"]) == {"access", "nats", "cloud", "pipeline"}
    made = {service["image"] for service in compose["services"].values() if "build" in service}
    for service in compose["services"].values():
        assert service["image"] in made or service["image"].startswith("nats:")
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert all(port.startswith("${SPINNEY_ADDRESS:-127.0.0.1}:") for port in service.get("ports", ()))
        for volume in service["volumes"]:
            source, target, *_ = volume.split(":")
            assert source in compose["volumes"] or (COMPOSE.parent / source).exists()
            # A new volume belongs to root, unless the image has the folder.
            assert service["image"].startswith("nats:") or target in image_kit.DOCKERFILE.read_text()
        assert set(service.get("depends_on", {})) <= set(compose["services"])


def test_only_what_an_image_is_built_of_is_sent_to_the_engine() -> None:
    sent = list(image_kit.context())
    assert {path.split("/")[0] for path in sent} == {
        "LICENSE",
        "README.md",
        "cloud",
        "mobile_broker",
        "native",
        "pyproject.toml",
        "tools",
    }
    assert "native/src/arena.c" in sent or any(path.startswith("native/src/") for path in sent)
    assert not [path for path in sent if path.endswith((".so", ".pyc"))]


@pytest.mark.slow
@pytest.mark.needs("cc", "unshare", "chroot", "useradd")
def test_the_image_is_built_of_the_source_alone_and_has_the_core(found: dict[str, Any]) -> None:
    assert found["core"] == {"code": 0, "out": "True\n", "err": ""}
    assert found["volumes"] == ["/var/lib/spinney"]
    assert found["ports"] == ["8080", "1883"]
    assert found["megabytes"] < 300


@pytest.mark.slow
@pytest.mark.needs("cc", "unshare", "chroot", "useradd")
def test_it_runs_as_nobody_in_particular_on_a_read_only_root(found: dict[str, Any]) -> None:
    assert found["id"]["out"] == "10001\n"
    assert found["writing"]["code"] == 1
    assert found["writing"]["err"].count("Read-only file system") == 3


@pytest.mark.slow
@pytest.mark.needs("cc", "unshare", "chroot", "useradd")
def test_without_users_it_says_what_to_do_first(found: dict[str, Any]) -> None:
    assert found["stranger"]["code"] == 2
    assert "there are no users: first `spinney cloud user add`" in found["stranger"]["err"]


@pytest.mark.slow
@pytest.mark.needs("cc", "unshare", "chroot", "useradd")
def test_its_health_check_passes_while_it_runs_and_only_then(found: dict[str, Any]) -> None:
    assert found["user"]["code"] == 0
    served = found["served"]
    assert served["health"] == {"code": 0, "out": "ready\n", "err": ""}, served["log"]
    assert served["code"] == 0
    assert found["afterwards"]["code"] == 1
    assert "is it running?" in found["afterwards"]["err"]


def test_instructions_are_read_as_docker_reads_them() -> None:
    text = '# no\nFROM a AS b\nRUN x \\\n # within\n && y\n\nCMD ["z", "1"]\n'
    assert list(image_kit.instructions(text)) == [("FROM", "a AS b"), ("RUN", "x   && y"), ("CMD", '["z", "1"]')]
    assert image_kit.words('["z", "1"]') == ["z", "1"]
    assert image_kit.words("z 1") == ["/bin/sh", "-ec", "z 1"]
    assert image_kit.expand("python:${PYTHON}-$X", {"PYTHON": "3.11", "X": "slim"}) == "python:3.11-slim"
    patterns = ["*", "!native", "**/*.so"]
    assert [image_kit.is_ignored(path, patterns) for path in ("tests/x", "native/x.c", "native/a/x.so")] == [
        True,
        False,
        True,
    ]
