"""`spinney up`: Spinney at work before your eyes. Plays sample readings through `spinney match`, an hour each second.

The matching is that of the real command, as a process of its own; this only feeds it in time and prints what it says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

SAMPLE = Path(__file__).parent / "sample" / "madrid.jsonl"
SUBSCRIPTIONS = {
    "centre": "NO2 > 150 AND lat BETWEEN 40.40 AND 40.45 AND long BETWEEN -3.72 AND -3.67",
    "smog": "WHEN NO2 > 200 UNTIL NO2 <= 120",
    "worst": "TOP 3 OVER 24h BY NO2 DESC",
}
MEANING = {"match": "matches", "enter": "begins", "exit": "ends", "top": "is now"}
COLOURS = {"match": "36", "enter": "31", "exit": "32", "top": "33"}  # as terminals number them
HOUR_SECONDS = 1.0
MATCHED = (0, 1)  # exit codes of `spinney match` that are no trouble: some matched, none did


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="spinney up",
        description="Show Spinney at work: sample readings of Madrid's air, an hour of them each second, matched live.",
        epilog="Ends with Ctrl-C, or with the sample when --once. Your own readings: spinney match --help",
    )
    parser.add_argument("--once", action="store_true", help="play the sample once, as fast as it goes")
    parser.add_argument("--hour-seconds", type=float, default=HOUR_SECONDS, help="how long an hour takes (%(default)s)")
    options = parser.parse_args(arguments)
    print(introduction(), flush=True)
    screen = Screen()
    status = play(Pace(0.0 if options.once else max(options.hour_seconds, 0.0), forever=not options.once), screen)
    if status not in MATCHED:
        return status  # `spinney match` has said why
    print(f"\n{screen.shown} notifications shown. Next: spinney match -s 'NO2 > 40' your-readings.jsonl")
    return 0


def introduction() -> str:
    rows = "\n".join(f"  {name:<8} {text}" for name, text in SUBSCRIPTIONS.items())
    return (
        "Readings of the 24 air quality stations of Madrid, 7 and 8 February 2011, go by; these subscriptions\n"
        f"say which of them you are told about (Ctrl-C ends it):\n\n{rows}\n"
    )


class Pace:
    """When the next hour may come, until it is stopped."""

    def __init__(self, seconds: float, *, forever: bool) -> None:
        self.seconds = seconds
        self.forever = forever
        self.stopped = Event()

    def over(self) -> bool:
        """Waits for an hour's time; whether it was stopped meanwhile."""
        return self.stopped.wait(self.seconds)


def play(pace: Pace, screen: Screen) -> int:
    """Feeds the sample to `spinney match` and shows what comes back, until its end or Ctrl-C; its exit code."""
    options = [word for name, text in SUBSCRIPTIONS.items() for word in ("-s", f"{name}: {text}")]
    match = subprocess.Popen(
        [sys.executable, "-m", "spinney_tools", "match", *options, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C is for this process, which then lets the other come to its end
    )
    assert match.stdin is not None
    assert match.stdout is not None
    feeder = Thread(target=feed, args=(match.stdin, pace))
    feeder.start()
    try:
        screen.show(match.stdout)
    except KeyboardInterrupt:
        pace.stopped.set()
        screen.show(match.stdout)
    finally:
        pace.stopped.set()
        match.stdout.close()
        feeder.join()
        status = match.wait()
    return status


def feed(out: IO[str], pace: Pace) -> None:
    """Writes the readings, hour by hour, until stopped or until nobody reads on."""
    try:
        with out:
            for hour in hours(forever=pace.forever):
                out.write(hour)
                out.flush()
                if pace.over():
                    return
    except BrokenPipeError:
        return


def hours(*, forever: bool) -> Iterator[str]:
    """The readings of each hour as JSON lines, over and over if forever, dated on from round to round."""
    readings = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    for reading in readings:
        reading["time"] = datetime.fromisoformat(reading["time"]).timestamp()
    span = readings[-1]["time"] - readings[0]["time"] + 3600
    while True:
        for _, hour in groupby(readings, key=lambda reading: reading["time"]):
            yield "".join(f"{json.dumps(reading)}\n" for reading in hour)
        if not forever:
            return
        readings = [{**reading, "time": reading["time"] + span} for reading in readings]


class Screen:
    """Prints what was found, and counts it."""

    def __init__(self) -> None:
        self.shown = 0

    def show(self, lines: IO[str]) -> None:
        for line in lines:
            for text in sentences(json.loads(line)):
                print(text, flush=True)
                self.shown += 1


def sentences(found: dict[str, Any]) -> Iterator[str]:
    """One line for each subscription that a reading is for: when, what, where, how much."""
    reading, why = found["publication"], found["why"]
    when = datetime.fromtimestamp(reading["time"], UTC).strftime("%d %b %H:%M")
    for name in found["ids"]:
        rank = f"no. {found['rank']} " if "rank" in found else ""
        what = coloured(f"{name:<8} {MEANING[why]:<8}", COLOURS[why])
        yield f"{when}  {what} {rank}{reading['source']}  NO2 {reading['NO2']:g} ug/m3"


def coloured(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if sys.stdout.isatty() else text
