"""`spinney cloud health`: what a container's health check and scripts are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from clouds import Cloud

from spinney_cloud.certs_command import main as certs
from spinney_cloud.health_command import main

REAL = [sys.executable, "-m", "spinney_tools", "cloud"]


def health(data: Path) -> int:
    return main(["--data", str(data)])


@pytest.mark.slow
def test_it_says_whether_the_cloud_is_ready_and_who_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert certs(["server", "127.0.0.1", "--data", str(data)]) == 0
    tls = ("--http-tls-certificate", f"{data}/certs/server.crt", "--http-tls-key", f"{data}/certs/server.key")
    capsys.readouterr()
    with Cloud(data, *tls, program=REAL) as cloud:
        assert "HTTP https://" in cloud.ready_line
        assert health(data) == 0
        assert capsys.readouterr().out == "ready\n"
        matcher = cloud.child("matcher")
        assert matcher is not None
        matcher.suspend()
        assert health(data) == 1
        assert capsys.readouterr().out == "matcher: does not answer\n"
        matcher.resume()
        assert cloud.stop() == 0
    assert health(data) == 1
    assert "is it running?" in capsys.readouterr().err


def test_a_folder_on_which_nothing_has_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert health(tmp_path) == 1
    said = capsys.readouterr().err
    assert (
        said
        == f"spinney cloud health: no cloud has run on {tmp_path}: No such file or directory; --data names another\n"
    )
