"""`spinney up` while the pipeline is being installed, and when it joins. A launcher and a pipeline of a few lines stand
in for 1 GB of Spark: what they print and how they end is what ours do."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from clouds import wait_until
from test_up import Up, all_gone

from spinney_cloud import setup_status
from spinney_tools.up import pipeline
from spinney_tools.up.pipeline import HAVE_IT, LAUNCHER, PYTHON, why_not

pytestmark = pytest.mark.slow
PROGRESS = {"text": "downloading pyspark.tar.gz, 120 of 434 MB (1 of 6)", "done": 120, "size": 480, "left": 3}
INSTALLER = """
import json, os, sys
from pathlib import Path
folder = Path({folder!r})
assert sys.argv[1:] == ["--install", "pipeline"]
(folder / "installing").write_text(str(os.getpid()))
print({progress!r}, flush=True)
if not (folder / "go on").exists():
    os.read(os.open(folder / "pipe", os.O_RDONLY), 1)
print(json.dumps({{"python": str(folder / "python")}}), flush=True)
"""
INTERPRETER = """#!/bin/sh
[ "$4" = cloud ] && touch {folder}/cloud && exec {python} "$@"
echo "$@" > {folder}/called
echo "ready: the log into the lake"
exec cat > {folder}/rest
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a launcher that waits in the middle of a download, unless told to go on."""
    os.mkfifo(tmp_path / "pipe")
    text = INSTALLER.format(folder=str(tmp_path), progress=json.dumps(PROGRESS))
    (tmp_path / "launcher").write_text(text)
    (tmp_path / "python").write_text(INTERPRETER.format(folder=tmp_path, python=sys.executable))
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv(LAUNCHER, str(tmp_path / "launcher"))
    return tmp_path


def test_all_goes_on_while_it_is_installed_and_the_next_one_takes_it_up_again(folder: Path) -> None:
    up = Up(folder / "data", "--pipeline")
    with up:
        wait_until(lambda: "pipeline: downloading pyspark.tar.gz, 120 of 434 MB" in up.said, "it is told of")
        assert setup_status.read(folder / "data/cloud") == {"text": PROGRESS["text"], "share": 0.25}
        assert up.subscriptions().keys() == {"smog", "posts"}, "all else is there"
        installer = psutil.Process(int((folder / "installing").read_text()))
        assert up.stop(signal.SIGINT) == 0, up.said
        assert all_gone([installer])
        assert "Traceback" not in up.said
    assert setup_status.read(folder / "data/cloud") is None
    (folder / "go on").touch()
    with up:
        wait_until(lambda: "the pipeline runs: history is kept in" in up.said, "it joins")
        assert (folder / "called").read_text().split() == [
            *("-P", "-m", "spinney_tools", "pipeline", "--data", str(folder / "data/cloud"))
        ]
        assert setup_status.read(folder / "data/cloud") is None
        family = up.family()
        assert up.stop(signal.SIGINT) == 0, up.said
        assert all_gone(family)
    assert json.loads((folder / "data/spinney-up.json").read_text())["pipeline"] is True


def test_what_is_installed_at_the_start_is_what_the_cloud_runs_with_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PYTHON, str(folder / "python"))
    with Up(folder / "data", "--pipeline") as up:
        wait_until(lambda: "the pipeline runs: history is kept in" in up.said, "it joins")
        assert (folder / "cloud").exists(), "so that its dry runs reach back into the lake"
        assert not (folder / "installing").exists()
        assert up.stop(signal.SIGINT) == 0, up.said


@pytest.mark.parametrize(
    ("source", "environment", "memory", "free", "reason"),
    [
        ("city", {}, 8e9, 50e9, None),
        ("ble", {}, 8e9, 50e9, "not with --source ble"),
        ("city", {"CI": "true"}, 8e9, 50e9, "CI is set"),
        ("city", {}, 3.9e9, 50e9, "3.9 GB of memory, and 4 GB are needed"),
        ("city", {}, 8e9, 4.9e9, "4.9 GB of disk are free, and 5 GB are needed"),
    ],
)
def test_it_is_left_out_where_it_has_no_place(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: str,
    environment: Mapping[str, str],
    memory: float,
    free: float,
    reason: str | None,
) -> None:
    sizes = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": round(memory)}
    monkeypatch.setattr(pipeline.os, "sysconf", sizes.__getitem__)
    monkeypatch.setattr(pipeline.shutil, "disk_usage", lambda _: argparse.Namespace(free=free))
    assert why_not(argparse.Namespace(source=source), tmp_path, environment) == reason
    assert "--pipeline" in HAVE_IT


@pytest.mark.parametrize("text", ["", "{", "[]", '{"text": 1}', '{"share": 1}'])
def test_half_a_status_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / setup_status.FILE).write_text(text)
    assert setup_status.read(tmp_path) is None


def test_a_status_without_sizes_has_no_share(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / setup_status.FILE).write_text(json.dumps({"text": "starting the pipeline"}))
    assert setup_status.read(tmp_path) == {"text": "starting the pipeline", "share": None}
