"""`spinney sub` ends at Ctrl-C, whatever it is doing, and whoever does not answer."""

from __future__ import annotations

import array
import fcntl
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

import pytest
from servers import HOST, MosquittoServer
from stand_in import StandIn, wait_until
from test_commands_pub_sub import CLEAN, PATHS, running, url

from spinney_tools.sub import END_SECONDS

STARTED_SECONDS = 20.0
"""For Python to start and to end, on a busy machine."""

PIPE_BYTES = 65_536
"""That Linux keeps for a reader."""
MAX_NOTES = 600

INTERRUPTED_AT = """
import importlib, os, signal, sys, threading
main = importlib.import_module(f"spinney_tools.{sys.argv.pop(1)}").main

class Condition(threading.Condition):
    left = int(sys.argv.pop(1))

    def __enter__(self):
        entered = super().__enter__()
        if threading.get_ident() == threading.main_thread().ident:
            Condition.left -= 1
            if Condition.left == 0:
                os.kill(os.getpid(), signal.SIGINT)
        return entered

threading.Condition = Condition
sys.exit(main(sys.argv[1:]))
"""
"""Ctrl-C comes when the main thread has taken a condition's lock for the so-manieth time."""


def ends(process: subprocess.Popen[str], numbers: Callable[[], object] = lambda: None) -> str:
    """Ctrl-C, and what it says until its end, which must come."""
    process.send_signal(signal.SIGINT)
    numbers()
    _, said = process.communicate(timeout=END_SECONDS + STARTED_SECONDS)
    assert process.returncode == 0, said
    return said


def waiting_bytes(pipe: IO[str]) -> int:
    """Written, and not read."""
    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


@contextmanager
def subscribed(cloud: StandIn, mosquitto: MosquittoServer, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One that waits for notifications."""
    with running("sub", "air: NO2 > 40", "--name", "ana", "--server", url(mosquitto), *arguments) as process:
        wait_until(lambda: cloud.subscriptions)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("air: ")
        process.stderr.readline()  # which session it has
        yield process


@pytest.mark.parametrize("delay", [0.05, 0.2, 0.4])
def test_sub_that_has_just_been_started_ends(delay: float) -> None:
    with socket.create_server((HOST, 0)) as silent:
        command = [sys.executable, "-m", "spinney_tools", "sub", "NO2 > 40", "--server"]
        with subprocess.Popen(
            [*command, f"mqtt://{HOST}:{silent.getsockname()[1]}"],
            env={**CLEAN, **PATHS},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            time.sleep(delay)  # nothing that it says tells how far it is
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=END_SECONDS + STARTED_SECONDS)


def test_sub_that_nobody_answers_ends_while_it_connects() -> None:
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        with running("sub", "NO2 > 40", "--server", f"mqtt://{HOST}:{port}") as process:
            link, _ = silent.accept()
            with link:
                link.recv(1)  # of CONNECT
                ends(process)


def test_sub_ends_while_it_subscribes(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        cloud.deaf = True
        with running("sub", "air: NO2 > 40", "heat: temp > 30", "--server", url(mosquitto)) as process:
            wait_until(lambda: cloud.asked)
            ends(process)
        assert set(cloud.asked) == {"NO2 > 40"}


def test_sub_ends_what_is_granted_after_ctrl_c(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        cloud.deaf = True
        with running("sub", "air: NO2 > 40", "--name", "ana", "--server", url(mosquitto)) as process:
            wait_until(lambda: cloud.asked)

            def grant() -> None:
                cloud.deaf = False
                cloud._subscribe("ana", "air", "NO2 > 40")

            ends(process, grant)
        assert cloud.asked[-1] == ""
        assert not cloud.subscriptions


def test_sub_whose_cloud_is_silent_says_what_goes_on_there(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, subscribed(cloud, mosquitto) as process:
        cloud.deaf = True
        assert "air goes on in the cloud: " in ends(process)


def test_sub_does_not_wait_after_a_second_ctrl_c(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, subscribed(cloud, mosquitto) as process:
        cloud.deaf = True

        def again() -> None:
            wait_until(lambda: cloud.asked[-1] == "")
            process.send_signal(signal.SIGINT)

        assert "without the cloud's word" in ends(process, again)


def test_sub_whose_server_hangs_ends(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, subscribed(cloud, mosquitto) as process:
        mosquitto.pause()
        try:
            assert "air goes on in the cloud: " in ends(process)
        finally:
            mosquitto.resume()


def test_sub_whose_server_is_gone_ends(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, subscribed(cloud, mosquitto) as process:
        mosquitto.kill()
        assert process.stderr is not None
        assert any(line.startswith("the link is lost") for line in process.stderr)
        assert "air goes on in the cloud: " in ends(process)


def test_sub_whose_reader_does_not_read_ends(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, subscribed(cloud, mosquitto, "--json") as process:
        cloud.note("ana", "air", "n1", publication={"text": "x" * 2 * PIPE_BYTES})
        assert process.stdout is not None
        wait_until(lambda: waiting_bytes(process.stdout) == PIPE_BYTES)
        process.send_signal(signal.SIGINT)
        assert process.wait(END_SECONDS + STARTED_SECONDS) == 0
        assert not cloud.subscriptions


@pytest.mark.parametrize("at", [1, 4, 5, 7])
def test_sub_ends_if_ctrl_c_comes_while_its_main_thread_has_a_lock(mosquitto: MosquittoServer, at: int) -> None:
    """A KeyboardInterrupt there would leave it locked."""
    with StandIn(mosquitto.mqtt_port) as cloud:
        arguments = ["sub", str(at), "air: NO2 > 40", "--name", "ana", "--server", url(mosquitto)]
        with subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED_AT, *arguments],
            env={**CLEAN, **PATHS},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                number = 0
                while process.poll() is None and number < MAX_NOTES:
                    cloud.note("ana", "air", f"n{number}")  # each wakes it
                    number += 1
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(0.05)
                assert process.poll() == 0, f"still there after {number} notifications"
            finally:
                process.kill()
