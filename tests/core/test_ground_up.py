"""`spinney up` shows real matches of real readings, and ends when it is asked to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import islice, pairwise
from subprocess import PIPE

from spinney import parse
from spinney_tools import up

COMMAND = [sys.executable, "-m", "spinney_tools", "up"]
ENDLESS = [*COMMAND, "--hour-seconds", "0.01"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_the_sample_shows_every_kind_of_subscription() -> None:
    done = subprocess.run([*COMMAND, "--once"], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = done.stdout.split("\n\n")
    for name, text in up.SUBSCRIPTIONS.items():
        assert f"{name:<8} {text}" in done.stdout
    for meaning in up.MEANING.values():
        assert f" {meaning} " in rows[1], f"nothing {meaning}"
    assert "Madrid" in head
    shown = len(rows[1].splitlines())
    assert f"{shown} notifications shown" in rows[-1]


def test_ctrl_c_ends_it_in_good_order() -> None:
    with subprocess.Popen(ENDLESS, env=ENVIRONMENT, stdout=PIPE, stderr=PIPE, text=True) as running:
        assert running.stdout is not None
        shown = len(list(islice(running.stdout, 200)))
        running.send_signal(signal.SIGINT)
        rest, errors = running.communicate()
    assert shown == 200, f"it goes on and on: {errors}"
    assert (running.returncode, errors) == (0, "")
    assert "notifications shown" in rest.splitlines()[-1]


def test_a_reader_that_has_had_enough_ends_it_quietly() -> None:
    with subprocess.Popen(ENDLESS, env=ENVIRONMENT, stdout=PIPE, stderr=PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 0


def test_readings_go_on_in_time_from_round_to_round() -> None:
    times = [json.loads(hour.splitlines()[0])["time"] for hour in islice(up.hours(forever=True), 100)]
    assert [later - earlier for earlier, later in pairwise(times)] == [3600.0] * 99


def test_the_subscriptions_say_what_they_do() -> None:
    kinds = [type(parse(text)).__name__ for text in up.SUBSCRIPTIONS.values()]
    assert kinds == ["ContentSubscription", "StateSubscription", "TopKSubscription"]
