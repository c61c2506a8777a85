"""The steps of a setup: each is a command, with its seconds or its progress on a line, and its output if it fails.

Readable by old Pythons, as the launcher is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

PROGRESS = "SPINNEY_PROGRESS"
"""`json`: progress is printed as JSON, too, on lines of standard output."""
NO_NETWORK = (
    "name resolution",
    "NewConnectionError",
    "ConnectTimeout",
    "Network is unreachable",
    "Connection refused",
    "No matching distribution found",
)
NO_ROOM = ("No space left on device", "Disk quota exceeded")
MAY_NOT = ("Permission denied", "Read-only file system")
TICK_SECONDS = 1.0


class SetupError(Exception):
    """What stopped the setup, and what to do about it."""


def run(what: str, command: list[str], environment: dict[str, str] | None = None, progress: Any = None) -> None:
    """Runs one step, saying what it is and how long it took; its output is shown only if it fails. `progress` is told
    each line, and asked for more than seconds."""
    say(f"{what} ...")
    start = time.monotonic()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        start_new_session=True,  # a Ctrl-C is for us, who end it with all that it has started
        close_fds=False,  # it holds the lock of the setup as long as it runs
    ) as process:
        try:
            output = output_of(process, what, start, progress)
        finally:
            if process.poll() is None:  # only if we were interrupted: else it has ended
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    took = "failed" if process.returncode else f"{time.monotonic() - start:.1f} s"
    tell_end(what, took)
    if process.returncode:
        raise SetupError(with_hint(output.replace("spinney: ", "", 1) or f"{command[0]} failed without a word"))


def output_of(process: subprocess.Popen[bytes], what: str, start: float, progress: Any) -> str:
    """All that it says until its end; seconds, or what the progress says, go by on a terminal meanwhile."""
    lines: list[str] = []

    def listen() -> None:
        for line in process.stdout or ():
            lines.append(line.decode(errors="replace"))
            if progress:
                progress.said(lines[-1])

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    while listening.is_alive():
        listening.join(TICK_SECONDS)
        if os.environ.get(PROGRESS) == "json":
            now = progress.look() if progress else {"text": f"{what}, {time.monotonic() - start:.0f} s"}
            print(json.dumps(now), flush=True)
        if sys.stderr.isatty() and listening.is_alive():
            now = progress.look()["text"] if progress else what
            say(f"{now} ... {time.monotonic() - start:.0f} s", again=True)
    process.wait()
    return "".join(lines).strip()


def tell_end(what: str, how: str) -> None:
    """Where seconds have gone by, in their place."""
    if sys.stderr.isatty():
        say(f"{what} ... {how} \n", again=True)
    else:
        print(f" {how}", file=sys.stderr, flush=True)


def with_hint(output: str) -> str:
    """What a step said; of what is known, the line that says it and what to do about it."""
    lines = output.splitlines()
    for signs, remedy in (
        (NO_ROOM, "make room on that disk, and start again"),
        (MAY_NOT, "this clone and what is in it must be yours to write: clone it to a folder of yours"),
        (NO_NETWORK, "is there a network? It is needed once, to install what pyproject.toml names"),
    ):
        found = [line for line in lines if any(sign in line for sign in signs)]
        if found:
            return f"{found[-1].removeprefix('ERROR: ')}; {remedy}"
    return output


def say(text: str, *, again: bool = False) -> None:
    """On a line that is not ended; `again` writes over it."""
    clear = "\r\033[K" if again else ""
    print(f"{clear}spinney: {text}", end="", file=sys.stderr, flush=True)
