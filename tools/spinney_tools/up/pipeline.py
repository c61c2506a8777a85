"""The pipeline of `spinney up`: installed in the background, it joins the cloud broker that runs meanwhile.

The launcher installs it into an environment of its own, and goes on there with what a stop has left. How far it is
stands on the terminal, and in a file of the cloud's data directory for the page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from spinney_cloud.child import before_exec
from spinney_cloud.data_dir import write_whole
from spinney_cloud.setup_status import FILE

from .folder import Folder, UpError
from .stack import Stack

LAUNCHER: Final = "SPINNEY_LAUNCHER"
PYTHON: Final = "SPINNEY_PIPELINE_PYTHON"
PROGRESS: Final = "SPINNEY_PROGRESS"
MIN_MEMORY_BYTES: Final = 4 * 1000**3
"""What is sold as 4 GB shows less than 4 GiB."""
MIN_FREE_BYTES: Final = 5 * 1000**3
TELL_SECONDS: Final = 15.0
"""Between two lines on the terminal."""
RETRY_SECONDS: Final = 60.0
"""After an attempt that failed; twice as long after each further one, up to..."""
MOST_RETRY_SECONDS: Final = 960.0
NICENESS: Final = 10
"""Of the installation: the city goes first."""
STOP_SECONDS: Final = 10.0
LAST_BYTES: Final = 4_000
"""Of what the launcher says, to tell why it failed."""
HAVE_IT: Final = "./spinney up --pipeline has it"


def why_not(options: argparse.Namespace, folder: Path, environment: Mapping[str, str] | None = None) -> str | None:
    """Why the pipeline is left out unless somebody asks for it; None if it is not."""
    environment = os.environ if environment is None else environment
    if options.source == "ble":
        return "not with --source ble"
    if environment.get("CI"):
        return "CI is set"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory < MIN_MEMORY_BYTES:
        return f"{memory / 1000**3:.1f} GB of memory, and 4 GB are needed"
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        return f"{free / 1000**3:.1f} GB of disk are free, and 5 GB are needed"
    return None


def launcher() -> Path | None:
    """The launcher that has started us, which can install; None if we are installed ourselves."""
    found = os.environ.get(LAUNCHER)
    return Path(found) if found else None


def installed() -> Path | None:
    """The Python of the environment that has it, as the launcher found it at the start."""
    found = os.environ.get(PYTHON)
    return Path(found) if found else None


class Joining:
    """The pipeline, from what has to be installed to the process that runs beside the others."""

    def __init__(self, folder: Folder, stack: Stack, say: Callable[[str], None]) -> None:
        self._stack = stack
        self._say = say
        self._folder = folder
        self._data = folder.part("cloud")
        self._file = self._data / FILE
        self._told = ""
        self._told_at = float("-inf")
        self._failure = ""

    async def run(self) -> None:
        """Until it has joined, or cannot; cancelled, it leaves what is there for the next time."""
        try:
            python = await self._python()
            self._show({"text": "starting the pipeline"})
            await self._stack.join_pipeline(python, self._data)
        except UpError as error:
            self._say(f"the pipeline does not run: {error}; all else goes on")
        else:
            self._folder.note(pipeline=True)
            self._say(f"the pipeline runs: history is kept in {self._data / 'lake'}")
        finally:
            self._file.unlink(missing_ok=True)

    async def _python(self) -> Path:
        """That of the environment which has it, installed until then."""
        program = launcher()
        if (python := installed()) is not None or program is None:
            return python or Path(sys.executable)
        seconds = RETRY_SECONDS
        while (found := await self._install(program)) is None:
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, MOST_RETRY_SECONDS)
        return found

    async def _install(self, program: Path) -> Path | None:
        """One attempt; None if it failed, which is told."""
        process = await asyncio.create_subprocess_exec(
            getattr(sys, "_base_executable", sys.executable),
            str(program),
            "--install",
            "pipeline",
            env={**os.environ, PROGRESS: "json"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for us
            preexec_fn=_before_installing(os.getpid()),
        )
        assert process.stdout is not None
        assert process.stderr is not None
        reading = asyncio.create_task(process.stderr.read())
        found: Path | None = None
        try:
            async for line in process.stdout:
                told = json.loads(line)
                found = Path(told["python"]) if "python" in told else found
                self._show(told)
            code = await process.wait()
        finally:
            await _end(process)
            said = (await reading)[-LAST_BYTES:].decode(errors="replace").strip()
        if code or found is None:
            last = said.splitlines()[-1].removeprefix("spinney: ") if said else f"exit code {code}"
            self._show({"text": f"not installed yet: {last}; it is tried again"}, failure=last)
            return None
        return found

    def _show(self, told: Mapping[str, Any], failure: str = "") -> None:
        """On the terminal now and then, each failure once, and for the page."""
        text = told.get("text")
        if text is None:
            return
        with suppress(OSError):  # the page goes without it
            write_whole(self._file, json.dumps(told).encode())
        now, step = asyncio.get_running_loop().time(), text.partition(",")[0]
        if failure:
            is_news = failure != self._failure
            self._failure = failure
        elif self._failure:  # another attempt: worth a word once it comes further
            is_news = bool(told.get("done"))
        else:
            is_news = step != self._told or now - self._told_at > TELL_SECONDS
        if is_news:
            self._told, self._told_at = step, now
            self._failure = failure
            self._say(f"pipeline: {text}")


def _before_installing(parent: int) -> Callable[[], None]:
    prepare = before_exec(parent)

    def nicely() -> None:
        prepare()
        os.nice(NICENESS)

    return nicely


async def _end(process: asyncio.subprocess.Process) -> None:
    """It puts aside what it has, and ends."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
