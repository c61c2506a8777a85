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
FEW = 1_000
"""Spared, until a broker's filters are held to be in force."""


def begin(folder: Path, port: int, send: str, first: int, last: int) -> subprocess.Popen[bytes]:
    command = [*PROGRAM, str(folder), str(port), send, str(first), str(last)]
    path = [*(str(TESTS / part) for part in ("mobile", "cloud", "core")), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(path)})


def said(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """What a process has said last before it ended: a number, and how many it has spared."""
    assert process.stdout
    lines = process.stdout.read().split(b"\n")[:-1]
    process.stdout.close()
    process.wait()
    number, spared = lines[-1].split() if lines else (0, 0)
    return int(number), int(spared)


WANTED = {
    "all": {"all": "source = 'kim-1'"},
    "wanted": {
        "three": "source = 'kim-1' AND level = 3",
        "high": "WHEN level > 5 UNTIL level <= 2 FOR source = 'kim-1'",
    },
}
"""Subscriptions, by what the broker sends."""


def expected(send: str, last: int) -> list[tuple[str, str, int]]:
    """What follows from the numbers up to this one: subscription, why, number."""
    if send == "all":
        return [("all", "match", n) for n in range(1, last + 1)]
    three = [("three", "match", n) for n in range(1, last + 1) if n % 10 == 3]
    enter = [("high", "enter", n) for n in range(1, last + 1) if n % 10 == 6]
    return sorted([*three, *enter, *(("high", "exit", n) for n in range(10, last + 1, 10))])


def kill_again_and_again(tmp_path: Path, send: str, rounds: int, seed: int) -> None:
    """Kills in all phases: at the start, while it sends, while its outbox is long."""
    chance = random.Random(seed)
    found: list[Any] = []
    acknowledged = spared = 0
    with Cloud(tmp_path / "data", program=REAL).start() as cloud:
        port = cloud.port("MQTT")
        with Subscriber("kay", server=f"mqtt://127.0.0.1:{port}") as kay:
            for sid, text in WANTED[send].items():
                kay.subscribe(text, sid=sid, callback=found.append)
            for number in range(rounds):
                process = begin(tmp_path / "edge", port, send, acknowledged + 1, 0)
                assert process.stdout
                if number % 2:  # while it fills its outbox
                    for _ in range(chance.randrange(1, 200)):
                        acknowledged = int(process.stdout.readline().split()[0])
                else:  # while it sends, and by filters if it is to
                    while send == "wanted" and int(process.stdout.readline().split()[1]) < FEW:
                        pass
                    heard = len(found) + chance.randrange(3_000)
                    wait_until(lambda heard=heard: len(found) > heard, "some to arrive", WAIT_SECONDS)
                process.send_signal(signal.SIGKILL)
                number_said, spared_now = said(process)
                acknowledged, spared = max(acknowledged, number_said), spared + spared_now
            process = begin(tmp_path / "edge", port, send, acknowledged + 1, acknowledged + 100)
            last = max(acknowledged + 100, said(process)[0])
            assert process.returncode == 0
            wanted = expected(send, last)
            wait_until(lambda: len(found) >= len(wanted), f"{len(wanted)} notifications", WAIT_SECONDS)
    assert sorted((each.sid, each.why, int(each.publication["n"])) for each in found) == wanted
    assert bool(spared) == (send == "wanted")
    states = [each.why for each in found if each.sid == "high"]
    assert states == (["enter", "exit"] * len(states))[: len(states)]


@pytest.mark.slow
@pytest.mark.parametrize(("send", "rounds"), [("wanted", 5), ("all", 2)])
def test_killed_at_random_under_load_nothing_acknowledged_is_lost(tmp_path: Path, send: str, rounds: int) -> None:
    kill_again_and_again(tmp_path, send, rounds, 1)


@pytest.mark.soak
@pytest.mark.parametrize("send", WANTED)
def test_killed_twenty_times_under_load_nothing_acknowledged_is_lost(tmp_path: Path, send: str) -> None:
    kill_again_and_again(tmp_path, send, 20, random.randrange(10**6))
