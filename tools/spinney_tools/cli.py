"""The `spinney` command: a list of subcommands, each imported only when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable

COMMANDS = {
    "up": "run all of it here: a city of motes, five mobile brokers, a cloud broker and its page",
    "match": "print the readings of files that match subscriptions, as JSON lines",
    "mote": "flash a mote over a cable, or talk to it over the air",
    "mobile": "run the mobile broker on a Raspberry Pi or a laptop, or see what it does",
    "cloud": "run the cloud broker, or manage one: users, certificates, backups",
    "pipeline": "keep a cloud broker's publications in a lake, by Spark",
    "lake": "look into the pipeline's lake, keep it, carry it off and back",
    "replay": "what a subscription would have told, from the lake",
    "homeassistant": "show a cloud broker's sources and notifications in Home Assistant",
    "pub": "publish readings to a cloud broker",
    "sub": "subscribe at a cloud broker, and print what it tells",
    "ls": "list a cloud broker's subscriptions, sources or mobile brokers",
    "sim": "simulate a city of motes and brokers on a virtual radio",
    "test": "run the tests: all, or of core, mote, mobile, cloud, pipeline, system",
    "check": "check format, lint, types, sanitizers, a short fuzzing, coverage",
    "bench": "measure each part, as tables",
    "soak": "run the long tests and longer fuzzing",
    "workloads": "make the benchmark's workloads",
    "reference": "write commands and settings into each part's README, or check them",
    "dist": "build what is given to others: source distribution, wheels, list of parts",
    "doctor": "look at this machine, and say what is missing and what to do about it",
    "completion": "print what makes a shell complete this command: bash, zsh or fish",
}
EXAMPLES = """\
examples:
  spinney up                                            look at it: a city on this machine, until Ctrl-C
  spinney cloud                                         a cloud broker
  spinney mobile run --cloud mqtt://cloud.example       a mobile broker for it, where the sensors are
  spinney sub 'smog: WHEN pm25 > 45 UNTIL pm25 <= 35'   be told

exit codes: 0 done, 1 failed, 2 wrong use, 130 ended by Ctrl-C; each command's --help names its own"""
USAGE_ERROR = 2
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    try:
        status = run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read this (`| head`) has had enough; what is still buffered must not complain at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        from spinney_tools.version import version

        print(f"spinney {version()}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"spinney: no command {name!r}{suggestion(name, COMMANDS)}; see spinney --help", file=sys.stderr)
        return USAGE_ERROR
    status = importlib.import_module(f"spinney_tools.{name}").main(rest)
    assert isinstance(status, int)
    return status


def overview() -> str:
    rows = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: spinney COMMAND [ARGUMENTS]\n\n"
        "Publish and subscribe for sensor data; filters run where the data grows.\n\n"
        f"commands:\n{rows}\n\n{EXAMPLES}\n\n"
        "spinney COMMAND --help says more about one; spinney --version names version and commit."
    )


def suggestion(word: str, known: Iterable[str]) -> str:
    """The nearest of those that there are, to be appended to what is wrong."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1)
    return f", perhaps {close[0]!r}" if close else ""
