"""`spinney sim`: a virtual radio, virtual motes that run the real firmware, and a city full of them."""

from __future__ import annotations

import sys

COMMANDS = {"city": "moving motes, people and mobile brokers in a polluted city"}

_USAGE = """\
usage: spinney sim city [OPTIONS]

  city    moving motes, people and mobile brokers in a polluted city; spinney sim city --help says more

examples:
  spinney sim city
  spinney sim city --speed max --minutes 60

exit codes: 0 the minutes are over, 2 something was wrong, 130 stopped by Ctrl-C"""


def main(arguments: list[str]) -> int:
    """Runs `spinney sim` and returns its exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"spinney sim: no simulation {name!r}; there is: city", file=sys.stderr)
        return 2
    from .city_command import run  # bumble and bleak come with it

    return run(rest)
