"""`spinney bench up`: the README's first command, from a clone in which nothing is installed, and the same again.

The first `./spinney up` makes the environment, installs without a cache of pip's, compiles, and starts everything; the
second one only starts. What was made in between must be there. The clone is of what is committed here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

from .. import clone
from ..up.folder import UpError
from ..up.ready import subscribe
from .machine import describe
from .stuck import Stuck
from .table import Table, number

FIRST_SECONDS: Final = 180.0
SECOND_SECONDS: Final = 10.0
"""At most, until everything is ready."""
GIVE_UP_SECONDS: Final = 1200.0
STOP_SECONDS: Final = 60.0
ARGUMENTS: Final = ("--no-pipeline", "--http-port", "0", "--mqtt-port", "0")
SID: Final = "kept"
_MB: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Start:
    """One `./spinney up`, from the command to its end."""

    ready_s: float
    """Until the line that says so."""
    setup_s: float
    """Of it: until the launcher has become the command."""
    stop_s: float
    """From Ctrl-C until it has ended."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Both, and what the first has installed."""

    first: Start
    second: Start
    installed_mb: float

    def missed(self) -> list[str]:
        """The targets that are not reached, in words."""
        both = (("first", self.first, FIRST_SECONDS), ("second", self.second, SECOND_SECONDS))
        return [
            f"the {name} ./spinney up is ready after {start.ready_s:.1f} s instead of {most:.0f}"
            for name, start, most in both
            if start.ready_s > most
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {**asdict(self), "missed": self.missed()}


def measure(progress: Callable[[str], None]) -> Measurement:
    """In a new clone; Stuck if it cannot be made or does not start."""
    try:
        here = clone.root()
    except clone.NotACloneError as error:
        raise Stuck(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder:
        top = Path(folder) / "spinney"
        progress("cloning what is committed here")
        subprocess.run(["git", "clone", "--quiet", str(here), str(top)], check=True)
        return measure_in(top, progress)


def measure_in(top: Path, progress: Callable[[str], None], arguments: Sequence[str] = ()) -> Measurement:
    """In a clone in which `up` was never started; `arguments` are more for it."""
    progress("the first ./spinney up: installs, compiles, starts")
    first = _start(top, arguments, _make_what_is_to_be_kept)
    progress("the second one")
    second = _start(top, arguments, look_that_it_is_kept)
    return Measurement(first, second, _bytes_below(top / ".venv") / _MB)


def table(found: Measurement) -> Table:
    """A row for each start."""
    notes = (
        "`./spinney up` with 100 motes, five mobile brokers and the cloud broker, no pipeline. The first time in",
        "a clone in which nothing is installed, and without a cache of pip's, so that the network has its part in it;",
        f"what is installed takes {found.installed_mb:.0f} MB. The second one has what was made at the first.",
    )
    rows = tuple(
        (name, f"{number(start.ready_s)} s", f"{most:.0f} s", f"{number(start.setup_s)} s", f"{number(start.stop_s)} s")
        for name, start, most in (
            ("the first", found.first, FIRST_SECONDS),
            ("the second", found.second, SECOND_SECONDS),
        )
    )
    return Table(
        "up", describe(), ("`./spinney up`", "ready after", "at most", "of it setting up", "Ctrl-C"), rows, notes
    )


def _start(top: Path, arguments: Sequence[str], act: Callable[[str], None]) -> Start:
    """Runs it until it is ready, does `act` with its address, and stops it by Ctrl-C."""
    command = [sys.executable, str(top / "spinney"), "up", *ARGUMENTS, *arguments]
    environment = {**os.environ, "PIP_NO_CACHE_DIR": "1"}
    began = time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, cwd=top, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as process,
    ):
        giving_up = threading.Timer(GIVE_UP_SECONDS, _kill, [process])
        giving_up.start()
        try:
            assert process.stdout
            setup_s, ready_s, http = _until_ready(process.stdout, errors, began)
            act(http)
            stopping = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=STOP_SECONDS)
            return Start(ready_s, setup_s, time.monotonic() - stopping)
        finally:
            giving_up.cancel()
            _kill(process)


def _until_ready(said: IO[str], errors: IO[str], began: float) -> tuple[float, float, str]:
    """Seconds until it had been set up, and until it was ready; where it is."""
    setup_s = 0.0
    for line in said:
        setup_s = setup_s or time.monotonic() - began
        if found := re.match(r"ready: HTTP (\S+?),", line):
            return setup_s, time.monotonic() - began, found[1]
    errors.seek(0)
    raise Stuck(f"./spinney up did not start: {errors.read()[-2000:]}")


def _kill(process: subprocess.Popen[str]) -> None:
    """With what its setup runs; the parts of a stack end with it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _make_what_is_to_be_kept(http: str) -> None:
    try:
        subscribe(http, SID, "NO2 > 40")
    except UpError as error:
        raise Stuck(str(error)) from None


def look_that_it_is_kept(http: str) -> None:
    """Stuck if what was made at the first start is not there."""
    with urllib.request.urlopen(f"{http}/v1/subscriptions", timeout=STOP_SECONDS) as answer:  # noqa: S310 - our own
        found = json.load(answer)["subscriptions"]
    if SID not in {one["sid"] for one in found}:
        raise Stuck("what was made at the first start is not there at the second")


def _bytes_below(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
