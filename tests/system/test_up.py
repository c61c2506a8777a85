"""`spinney up`: the whole stack as people start it, on free ports and with fewer motes."""

from __future__ import annotations

import json
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from clouds import Cloud, wait_until

from spinney import Subscriber
from spinney.client import Notification
from spinney_tools.bench import up_start
from spinney_tools.bench.stuck import Stuck

pytestmark = pytest.mark.slow
UP = [sys.executable, "-m", "spinney_tools", "up"]
PORTS = ("--http-port", "0", "--mqtt-port", "0")
FEW = ("--motes", "10")
PARTS = ("cloud", "city", "sol", "callao", "cibeles", "atocha", "retiro")
DEADLINE_SECONDS = 60.0
TO_COPY = ("mosquitto_sub", "curl")
NOTIFICATION = re.compile(r"(?:data: ?)?(\{.*\})\n")
"""On a line of what either prints."""


class Up(Cloud):
    """`spinney up` on a data directory; a `with` starts it, and leaves nothing behind."""

    def __init__(self, data: Path, *arguments: str) -> None:
        super().__init__(data, *FEW, *arguments, program=UP, ports=PORTS)

    def subscriptions(self) -> Mapping[str, str]:
        """Those that are at the cloud."""
        found = httpx.get(f"{self.addresses()['HTTP']}/v1/subscriptions", timeout=DEADLINE_SECONDS).json()
        return {one["sid"]: one["subscription"] for one in found["subscriptions"]}

    def part(self, name: str) -> psutil.Process | None:
        """The process of a mobile broker."""
        for process in psutil.Process(self.pid).children():
            with suppress(psutil.NoSuchProcess):
                if name in process.cmdline():
                    return process
        return None


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("up") / "data") as running:
        yield running


def all_gone(family: list[psutil.Process]) -> bool:
    """Whether none of these runs any more; who has ended and waits for its parent counts as gone."""
    return not [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def measured(up: Up, text: str, since: float = 0.0) -> Mapping[str, Any]:
    """The first publication of that time or later that a new subscriber is told of."""
    told: queue.SimpleQueue[Notification] = queue.SimpleQueue()
    with Subscriber("ana", server=up.addresses()["MQTT"]) as ana:
        ana.subscribe(text, callback=told.put)
        while True:
            publication = told.get(timeout=DEADLINE_SECONDS).publication
            assert publication is not None
            if publication["time"] >= since:
                return publication


def test_a_subscriber_is_told_what_the_motes_measure(up: Up) -> None:
    first = measured(up, "temperature > -40")
    assert first["source"].partition("-")[0] in PARTS
    assert 40.40 < first["lat"] < 40.43
    assert first.keys() >= {"NO2", "pm25", "temperature", "humidity"}


def test_what_is_ready_to_try_tells_of_smog(up: Up) -> None:
    assert up.subscriptions() == {"smog": "WHEN pm25 > 45 UNTIL pm25 <= 35", "posts": "source LIKE '%-01'"}
    wait_until(lambda: "smog begins" in up.said, "a notification on the terminal", DEADLINE_SECONDS)
    assert f"{up.addresses()['HTTP']}/dashboard/" in up.said


@pytest.mark.parametrize("program", [pytest.param(name, marks=pytest.mark.needs(name)) for name in TO_COPY])
def test_a_line_to_copy_tells_of_notifications_as_it_stands(up: Up, program: str) -> None:
    [line] = [line.strip() for line in up.said.splitlines() if line.strip().startswith(f"{program} ")]
    command = ["timeout", f"{DEADLINE_SECONDS:.0f}", "sh", "-c", f"exec {line}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        found = next((json.loads(told[1]) for said in process.stdout if (told := NOTIFICATION.fullmatch(said))), None)
        process.terminate()
    assert found is not None, f"nothing was told by: {line}"
    assert found["why"] in ("enter", "exit", "match")
    assert found["publication"]["source"].partition("-")[0] in PARTS


def test_its_page_is_there(up: Up) -> None:
    answer = httpx.get(f"{up.addresses()['HTTP']}/dashboard/", follow_redirects=True, timeout=DEADLINE_SECONDS)
    assert answer.status_code == 200


def test_what_a_second_start_has_not_kept_is_an_error_of_the_bench(up: Up) -> None:
    with pytest.raises(Stuck, match="is not there at the second"):
        up_start.look_that_it_is_kept(up.addresses()["HTTP"])


@pytest.mark.parametrize("name", ["sol", "spinney_tools.up.city", "cloud"])
def test_a_part_that_dies_is_told_of_and_started_again_and_all_goes_on(up: Up, name: str) -> None:
    dead = up.part(name)
    assert dead is not None
    dead.kill()
    told = f"{'city' if 'city' in name else name} was killed by SIGKILL; starts again"
    wait_until(lambda: told in up.said, told)
    wait_until(lambda: (again := up.part(name)) is not None and again.pid != dead.pid, "another process")
    began = time.time()
    assert measured(up, "source LIKE 'sol-%' AND temperature > -40", since=began)["time"] > began


def test_a_second_one_on_the_same_data_is_told_who_has_it(up: Up) -> None:
    done = subprocess.run([*UP, "--data", up.data, *PORTS], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    remedy = f"stop it (kill {up.pid}), or choose another with --data"
    assert done.stderr == f"spinney up: a spinney up runs on {up.data} already: {remedy}\n"


def test_ctrl_c_leaves_nothing_running_and_the_next_one_goes_on(tmp_path: Path) -> None:
    up = Up(tmp_path / "data")
    with up:
        http = up.addresses()["HTTP"]
        httpx.put(f"{http}/v1/subscriptions/mine", json={"subscription": "NO2 > 40"}).raise_for_status()
        httpx.delete(f"{http}/v1/subscriptions/posts").raise_for_status()
        family = up.family()
        assert len(family) >= len(PARTS)
        assert up.stop(signal.SIGINT) == 0, up.said
        assert all_gone(family)
        assert "Traceback" not in up.said
    with up:
        assert up.subscriptions().keys() == {"smog", "mine"}, "what was deleted does not come back"
        family = up.family()
        assert up.stop(signal.SIGTERM) == 0, up.said
        assert all_gone(family)


def test_whose_terminal_is_gone_stops_in_order(tmp_path: Path) -> None:
    command = [*UP, "--data", str(tmp_path), *FEW, *PORTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        assert next((line for line in process.stdout if line.startswith("ready: ")), None)
        family = psutil.Process(process.pid).children(recursive=True)
        process.stdout.close()
        process.send_signal(signal.SIGHUP)
        process.wait(DEADLINE_SECONDS)
    assert all_gone(family)
    assert "supervisor: stopped" in (tmp_path / "log/cloud.log").read_text()


def test_killed_at_once_it_leaves_nothing_running(tmp_path: Path) -> None:
    with Up(tmp_path / "data").begin() as up:
        wait_until(lambda: "waiting for" in up.said or up.ready_line or len(up.family()) >= 2, "some parts")
        family = up.family()
        up.send(signal.SIGKILL)
        wait_until(lambda: all_gone(family), "all parts to end with it")


def test_asked_to_stop_while_it_starts_it_stops(tmp_path: Path) -> None:
    with Up(tmp_path / "data").begin() as up:
        wait_until(up.family, "the first part")
        family = up.family()
        assert up.stop(signal.SIGTERM) == 0
        assert all_gone(family)
