"""`spinney mote shell`: MicroPython's prompt on a board, over a cable. Over the air there is none, on purpose."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys

from spinney_tools.client_options import ERROR, say

from . import ports
from .errors import FlashError

_EPILOG = """\
examples:
  spinney mote shell
  spinney mote shell --port /dev/ttyUSB0
  spinney mote shell --run 'import os; print(os.listdir("state"))'

The mote is interrupted and its watchdog is fed for ten minutes; Ctrl-D at the prompt starts it again, Ctrl-] leaves the
shell. Useful there: `import main` runs the mote and shows what stops it.

exit codes: those of mpremote; 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney mote shell` and returns its exit code."""
    options = parser().parse_args(arguments)
    if importlib.util.find_spec("mpremote") is None:
        raise ModuleNotFoundError(name="mpremote")
    try:
        words = command(ports.find(options.port), options.run)
    except FlashError as error:
        say(f"spinney mote shell: {error}\n  {error.advice}")
        return ERROR
    return subprocess.run(words, check=False).returncode


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="spinney mote shell",
        description="MicroPython's prompt on a board, over a cable.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--port", default=ports.AUTO, help="serial port, or auto: the only board that is connected")
    made.add_argument("--run", metavar="CODE", help="run this there and print what it prints, instead of a prompt")
    return made


def command(port: str, code: str | None) -> list[str]:
    """mpremote's; `resume`, since a soft reset would leave nobody to feed the watchdog."""
    action = ["repl"] if code is None else ["exec", code]
    return [sys.executable, "-m", "mpremote", "connect", port, "resume", *action]
