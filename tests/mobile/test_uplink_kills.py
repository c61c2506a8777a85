"""Killed at random under load: nothing that the broker acknowledged is lost, and nobody hears anything twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clouds import Cloud, wait_until
from uplink_kit import REAL

from spinney import Subscriber

PROGRAM = [sys.executable, str(Path(__file__).parent / "killed_broker.py")]
TESTS = Path(__file__).parents[1]
WAIT_SECONDS = 300.0


def begin(folder: Path, port: int, first: int, last: int) -> subprocess.Popen[bytes]:
    command = [*PROGRAM, str(folder), str(port), str(first), str(last)]
    path = [*(str(TESTS / part) for part in ("mobile", "cloud", "core")), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(path)})


def said(process: subprocess.Popen[bytes]) -> int:
    """The last number that a process has said before it ended."""
    assert process.stdout
    lines = process.stdout.read().split(b"\n")[:-1]
    process.stdout.close()
    process.wait()
    return int(lines[-1]) if lines else 0


def kill_again_and_again(tmp_path: Path, rounds: int, seed: int) -> None:
    """Kills in all phases: at the start, while it sends, while its outbox is long."""
    chance = random.Random(seed)
    found: list[Any] = []
    acknowledged = 0
    with Cloud(tmp_path / "data", program=REAL).start() as cloud:
        port = cloud.port("MQTT")
        with Subscriber("kay", server=f"mqtt://127.0.0.1:{port}") as kay:
            kay.subscribe("source = 'kim-1'", sid="all", callback=found.append)
            for number in range(rounds):
                process = begin(tmp_path / "edge", port, acknowledged + 1, 0)
                assert process.stdout
                if number % 2:  # while it fills its outbox
                    for _ in range(chance.randrange(1, 200)):
                        acknowledged = int(process.stdout.readline())
                else:  # while it sends
                    heard = len(found) + chance.randrange(3_000)
                    wait_until(lambda heard=heard: len(found) > heard, "some to arrive", WAIT_SECONDS)
                process.send_signal(signal.SIGKILL)
                acknowledged = max(acknowledged, said(process))
            last = acknowledged + 100
            process = begin(tmp_path / "edge", port, acknowledged + 1, last)
            last = max(last, said(process))
            assert process.returncode == 0
            wait_until(lambda: len(found) >= last, f"all {last} notifications", WAIT_SECONDS)
    assert sorted(int(each.publication["n"]) for each in found) == list(range(1, len(found) + 1))
    assert len(found) >= acknowledged


@pytest.mark.slow
def test_killed_at_random_under_load_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 5, 1)


@pytest.mark.soak
def test_killed_twenty_times_under_load_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 20, random.randrange(10**6))
