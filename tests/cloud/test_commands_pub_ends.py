"""`spinney pub` ends at Ctrl-C, whatever it is doing, and says what is not known to be stored."""

from __future__ import annotations

import fcntl
import json
import operator
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from servers import HOST, MosquittoServer
from stand_in import StandIn, wait_until
from test_commands_pub_sub import CLEAN, PATHS, program, run, url
from test_commands_sub_ends import INTERRUPTED_AT, STARTED_SECONDS, waiting_bytes

from spinney_tools.pub import END_SECONDS

INTERRUPTED = 130
SHORT = ["--timeout", "0.3"]
LONG_SECONDS = 300.0
"""A test that waited for so long would fail."""

INTERRUPTED_IN = """
import os, signal, sys
from spinney.client import Publisher
from spinney_tools.pub import main

name = sys.argv.pop(1)
before = getattr(Publisher, name)

def interrupted(*arguments):
    setattr(Publisher, name, before)
    os.kill(os.getpid(), signal.SIGINT)
    return before(*arguments)

setattr(Publisher, name, interrupted)
sys.exit(main(sys.argv[1:]))
"""
"""Ctrl-C comes when a method of the publisher's is called for the first time."""

SMALL_OUTBOX = """
import sys
from spinney.client import Outbox
from spinney_tools.pub import main

Outbox.__init__.__kwdefaults__["max_count"] = 2
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def started(command: list[str], stderr: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """A process whose standard input stays open."""
    with subprocess.Popen(
        command,
        env={**CLEAN, **PATHS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ends(process: subprocess.Popen[str], meanwhile: Callable[[], object] = lambda: None) -> str:
    """Ctrl-C, and what it says until its end, which must come although its input stays open."""
    process.send_signal(signal.SIGINT)
    meanwhile()
    assert process.wait(END_SECONDS + STARTED_SECONDS) == INTERRUPTED
    assert process.stderr is not None
    said = process.stderr.read()
    assert "Traceback" not in said
    return said


def ends_at_the_second(process: subprocess.Popen[str]) -> str:
    """Ctrl-C once more when it has begun to end."""
    threads = psutil.Process(process.pid).num_threads()

    def again() -> None:
        wait_until(lambda: psutil.Process(process.pid).num_threads() > threads)  # the one that closes
        process.send_signal(signal.SIGINT)

    return ends(process, again)


@contextmanager
def unanswered(cloud: StandIn, mosquitto: MosquittoServer, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One whose first publication is stored without a word, and that waits for more to read."""
    cloud.mute = True
    with started([*program("pub"), "--name", "kit", "--server", url(mosquitto), *arguments]) as process:
        write(process, '{"n": 0}\n')
        wait_until(lambda: cloud.log)
        yield process


def answer(cloud: StandIn) -> None:
    """Say what has been left unsaid."""
    source, boot, sequence = cloud.log[-1]["id"].split(":")
    cloud.say("spinney/kit/reply", {"stored": {source: [int(boot), int(sequence)]}})


def write(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


@pytest.mark.parametrize("delay", [0.05, 0.2, 0.4])
def test_pub_that_has_just_been_started_ends(delay: float) -> None:
    with socket.create_server((HOST, 0)) as silent:
        server = f"mqtt://{HOST}:{silent.getsockname()[1]}"
        with started([sys.executable, "-m", "spinney_tools", "pub", "--server", server]) as process:
            time.sleep(delay)  # nothing that it says tells how far it is
            process.send_signal(signal.SIGINT)
            status = process.wait(END_SECONDS + STARTED_SECONDS)
            assert process.stderr is not None
            assert status != INTERRUPTED or "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("keeps", [False, True])
def test_pub_that_nobody_answers_ends_while_it_connects(tmp_path: Path, keeps: bool) -> None:
    with socket.create_server((HOST, 0)) as silent:
        outbox = ["--outbox", str(tmp_path / "outbox")] if keeps else []
        server = f"mqtt://{HOST}:{silent.getsockname()[1]}"
        with started([*program("pub"), "n=1", "--server", server, *outbox]) as process:
            link, _ = silent.accept()
            with link:
                link.recv(1)  # of CONNECT
                if keeps:  # it reads beside connecting
                    wait_until(lambda: any(b'"n":' in file.read_bytes() for file in tmp_path.glob("outbox/*.seg")))
                said = ends(process)
        assert said.startswith("0 stored in ")
        assert ("1 kept in " in said) is keeps


@pytest.mark.parametrize("method", ["connect", "publish", "flush", "close"])
def test_pub_ends_and_counts_right_if_ctrl_c_comes_in_any_of_its_stages(
    mosquitto: MosquittoServer, method: str
) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        with started([sys.executable, "-c", INTERRUPTED_IN, method, "n=0", "--server", url(mosquitto)]) as process:
            assert process.wait(END_SECONDS + STARTED_SECONDS) == INTERRUPTED
            assert process.stderr is not None
            said = process.stderr.read()
        assert said.startswith(f"{len(cloud.log)} stored in ")
        assert "Traceback" not in said


def test_pub_stores_once_what_it_has_taken_of_a_pipe_that_is_never_empty(mosquitto: MosquittoServer) -> None:
    with (
        StandIn(mosquitto.mqtt_port) as cloud,
        started([*program("pub"), "--server", url(mosquitto)]) as process,
    ):
        assert process.stdin is not None
        number = process.stdin.fileno()

        def feed() -> None:
            n = 0
            with suppress(BrokenPipeError):
                while True:
                    os.write(number, b"".join(b'{"n": %d}\n' % n for n in range(n, n + 100)))
                    n += 100

        feeder = threading.Thread(target=feed)
        feeder.start()
        wait_until(lambda: cloud.log)
        said = ends(process)
        feeder.join()
        assert [item["n"] for item in cloud.log] == list(range(len(cloud.log)))
        assert re.fullmatch(rf"{len(cloud.log):,} stored in \S+ s\n", said)


def test_pub_says_what_is_not_known_to_be_stored(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, unanswered(cloud, mosquitto, *SHORT) as process:
        said = ends(process)
        assert said.startswith("0 stored in ")
        assert said.endswith(", 1 not known to be stored\n")
        assert len(cloud.log) == 1


def test_pub_waits_after_ctrl_c_for_what_is_published_and_reads_no_more(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, unanswered(cloud, mosquitto, "--json") as process:
        threads = psutil.Process(process.pid).num_threads()

        def more() -> None:
            wait_until(lambda: psutil.Process(process.pid).num_threads() > threads)
            write(process, '{"n": 1}\n')
            assert process.stdin is not None
            wait_until(lambda: waiting_bytes(process.stdin) == 0)
            answer(cloud)

        assert ends(process, more) == ""
        assert process.stdout is not None
        assert json.loads(process.stdout.read()) | {"seconds": 0} == {
            "stored": 1,
            "refused": 0,
            "bad": 0,
            "left": 0,
            "seconds": 0,
        }


def test_pub_stores_what_waits_for_room_in_its_outbox_when_ctrl_c_comes(mosquitto: MosquittoServer) -> None:
    command = [sys.executable, "-c", SMALL_OUTBOX, "--name", "kit", "--server", url(mosquitto)]
    with StandIn(mosquitto.mqtt_port) as cloud, started(command) as process:
        cloud.mute = True
        write(process, "".join(f'{{"n": {n}}}\n' for n in range(9)))
        wait_until(lambda: len(cloud.log) == 2)
        threads = psutil.Process(process.pid).num_threads()

        def more() -> None:
            wait_until(lambda: psutil.Process(process.pid).num_threads() > threads)
            answer(cloud)
            wait_until(lambda: len(cloud.log) == 3)
            answer(cloud)

        assert re.fullmatch(r"3 stored in \S+ s\n", ends(process, more))
        assert [item["n"] for item in cloud.log] == [0, 1, 2]


def test_pub_does_not_wait_after_a_second_ctrl_c(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, unanswered(cloud, mosquitto, "--timeout", str(LONG_SECONDS)) as process:
        assert ends_at_the_second(process).endswith(", 1 not known to be stored\n")


def test_pub_keeps_in_its_outbox_what_a_second_ctrl_c_leaves_and_sends_it_with_the_same_id(
    mosquitto: MosquittoServer, tmp_path: Path
) -> None:
    outbox = ["--outbox", str(tmp_path / "outbox")]
    with StandIn(mosquitto.mqtt_port) as cloud:
        with unanswered(cloud, mosquitto, *outbox, "--timeout", str(LONG_SECONDS)) as process:
            assert ", 1 kept in " in ends_at_the_second(process)
        cloud.mute = False
        done = run("pub", "n=1", "--name", "kit", "--server", url(mosquitto), *outbox)
        assert done.returncode == 0, done.stderr
        assert [item["n"] for item in cloud.log] == [0, 0, 1]
        assert len(cloud.ids) == 2


def test_pub_whose_server_hangs_ends(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, unanswered(cloud, mosquitto, *SHORT) as process:
        mosquitto.pause()
        try:
            assert ends(process).endswith(", 1 not known to be stored\n")
        finally:
            mosquitto.resume()


def test_pub_whose_server_is_gone_ends(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, unanswered(cloud, mosquitto, *SHORT) as process:
        mosquitto.kill()
        assert ends(process).endswith(", 1 not known to be stored\n")


@pytest.mark.parametrize("answers", [False, True])
def test_pub_whose_words_nobody_reads_ends_at_the_second_ctrl_c(mosquitto: MosquittoServer, answers: bool) -> None:
    reader, writer = os.pipe()
    os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)))  # it is full
    command = [*program("pub"), "--keep-going", "--server", url(mosquitto)]
    with StandIn(mosquitto.mqtt_port) as cloud, started(command, writer) as process:
        cloud.mute = not answers
        write(process, '{"n": 0}\nnonsense\n')
        wait_until(lambda: cloud.log)
        threads = psutil.Process(process.pid).num_threads()
        began = operator.lt if answers else operator.gt  # the link is closed, or waits for an answer
        process.send_signal(signal.SIGINT)
        wait_until(lambda: began(psutil.Process(process.pid).num_threads(), threads))
        process.send_signal(signal.SIGINT)
        assert process.wait(STARTED_SECONDS) == INTERRUPTED
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("at", [1, 2, 3, 5, 7, 9])
def test_pub_ends_if_ctrl_c_comes_while_its_main_thread_has_a_lock(mosquitto: MosquittoServer, at: int) -> None:
    """A KeyboardInterrupt there would leave it locked."""
    command = [sys.executable, "-c", INTERRUPTED_AT, "pub", str(at), "n=0", "--server", url(mosquitto)]
    with StandIn(mosquitto.mqtt_port) as cloud, started(command) as process:
        assert process.wait(END_SECONDS + STARTED_SECONDS) in (0, INTERRUPTED)
        assert len(cloud.log) <= 1
