"""`spinney up`: everything on this machine, to look at: a city of motes, mobile brokers, a cloud broker, its page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

DONE, FAILED, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130
MOST_MOTES = 1_000

_EPILOG = """\
The first time it makes two subscriptions, `smog` and `posts`; they run on the motes, and what they let through is what
is sent. Everything is kept in the data directory and is there again the next time. Ctrl-C stops all of it in order.

examples:
  ./spinney up                                  a city with 100 motes; the page is at http://127.0.0.1:8080/dashboard/
  ./spinney up --open --no-pipeline             open the page in a browser; no Spark, now and from now on
  ./spinney up --source ble --place 45.81,15.98 what this machine's own Bluetooth adapter hears, in place of the city
  ./spinney up --http-port 0 --mqtt-port 0      on free ports, beside another one: --data elsewhere
  ./spinney up --fresh                          begin anew: forget all data of the last time

exit codes: 0 stopped by Ctrl-C or SIGTERM, 1 it could not start, 2 wrong use, 130 stopped at once by a second Ctrl-C
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney up` and returns its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.place is not None and options.source != "ble":
        parser.error("--place is for --source ble: the city has a place of its own")
    try:
        from .running import run
    except ModuleNotFoundError as error:
        remedy = "./spinney up in a clone installs it; else pip install 'spinney[cloud,mobile,sim]'"
        print(f"spinney up: {error.name} is not installed; {remedy}", file=sys.stderr)
        return FAILED
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney up",
        description="Run all of Spinney on this machine: a city of motes with the real firmware, five mobile brokers, "
        "a cloud broker with its page. The radio and the city's air are simulated, all else is what you would run.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="where everything is kept (default: .spinney)")
    parser.add_argument("--fresh", action="store_true", help="begin anew: delete what is kept there")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--source", choices=("city", "ble"), default="city", help="what is heard (default: %(default)s)"
    )
    parser.add_argument(
        "--place",
        type=_place,
        metavar="LAT,LONG",
        help="with --source ble: where this machine is, for the map; kept for the next time",
    )
    parser.add_argument(
        "--pipeline",
        action=argparse.BooleanOptionalAction,
        help="keep the history in a lake, by Spark: installed in the background where it is not there yet (default: "
        "yes from ./spinney, but not with --source ble, below 4 GB of memory or 5 GB of free disk, or where CI is set; "
        "what is said is remembered)",
    )
    parser.add_argument("--motes", type=_count, default=100, metavar="N", help="of the city (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another one is another city (default: %(default)s)")
    parser.add_argument("--http-port", type=_port, default=8080, metavar="PORT", help="of the page (default: 8080)")
    parser.add_argument("--mqtt-port", type=_port, default=1883, metavar="PORT", help="0: any free (default: 1883)")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MOST_MOTES:
        raise argparse.ArgumentTypeError(f"from 1 to {MOST_MOTES}")
    return number


def _place(text: str) -> tuple[float, float]:
    lat, long = (float(part) for part in text.split(","))
    if not (abs(lat) <= 90 and abs(long) <= 180):
        raise argparse.ArgumentTypeError("LAT is from -90 to 90, LONG from -180 to 180")
    return lat, long


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError("from 0 (any free one) to 65535")
    return number
