"""`spinney sim city`: a city that runs until Ctrl-C, with a live line, publications as JSON lines, and a summary."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import spinney
from spinney.errors import SpinneyError

from . import clock
from .battery import UC_PER_MAH
from .beacons import RECORDED
from .city import AREAS, City, Plan
from .field import SCENARIOS
from .sniffer import ENCRYPTED, OPEN, Traffic

_EPILOG = """\
examples:
  spinney sim city                                    200 motes and 5 brokers in Zagreb's rush hour, in real time
  spinney sim city --speed max --minutes 60           an hour, as fast as this machine can
  spinney sim city --filter "WHEN NO2 > 60 UNTIL NO2 < 40"   the filter runs on the motes; what does it save?
  spinney sim city --replay series.csv --out -        real series, publications on standard output
  spinney sim city --replay series.csv --columns time=Date NO2="NO2 (ug/m3)"    whose columns are called otherwise

The same seed gives the same city and the same publications. With --filter motes advertise only that they are there.
What is on the air is counted by a scanner that hears all; mAh are modelled (an ESP32-C3's, see battery.py).
exit codes: 0 the minutes are over, 2 something was wrong, 130 stopped by Ctrl-C
"""
WRONG, INTERRUPTED = 2, 130
_REAL_S_PER_LINE = 1.0
_SLICE_S = 1.0
EACH_MOTE = "each mote on the air"
"""Of the summary: only as JSON."""


def run(arguments: list[str]) -> int:
    """Runs the command and returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        plan = _plan(options)
        with tempfile.TemporaryDirectory(prefix="spinney-city-") as folder:
            command = _Command(options, plan, Path(folder))
            return command.run()
    except (SpinneyError, OSError) as error:
        print(f"spinney sim city: {error}", file=sys.stderr)
        return WRONG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney sim city",
        description="Simulate motes that run the real firmware, their radio, brokers, people and the city's air.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--motes", type=_count, default=200, metavar="N", help="(%(default)s)")
    parser.add_argument("--brokers", type=_count, default=5, metavar="N", help="(%(default)s)")
    parser.add_argument("--area", choices=sorted(AREAS), default="zagreb", help="(%(default)s)")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="rush-hour", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--interval", type=_count, default=60, metavar="SECONDS", help="between samples (%(default)s)")
    parser.add_argument("--speed", type=_speed, default=1.0, metavar="X", help="times real time, or max (%(default)g)")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="N", help="of the city's time; else Ctrl-C")
    parser.add_argument("--filter", metavar="TEXT", help="a subscription that runs on the motes")
    parser.add_argument("--replay", type=Path, metavar="CSV", help="series with a column time, in place of the field")
    parser.add_argument(
        "--columns", type=_renamed, nargs="+", default=[], metavar="NAME=COLUMN", help="what the CSV calls otherwise"
    )
    parser.add_argument("--others", type=Path, nargs="?", const=RECORDED, metavar="FILE", help="other makers' adverts")
    parser.add_argument("--out", metavar="FILE", help="publications as JSON lines (-: standard output)")
    parser.add_argument("--json", action="store_true", help="the summary as a JSON object, with each mote's counts")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must not be below 0")
    return number


def _renamed(text: str) -> tuple[str, str]:
    name, _, column = text.partition("=")
    if not name or not column:
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=COLUMN, such as temperature=temp_c")
    return name, column


def _speed(text: str) -> float:
    speed = clock.AS_FAST_AS_POSSIBLE if text == "max" else float(text)
    if not speed > 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return speed


def _plan(options: argparse.Namespace) -> Plan:
    return Plan(
        motes=options.motes,
        brokers=options.brokers,
        area=options.area,
        scenario=options.scenario,
        seed=options.seed,
        interval_s=max(1, options.interval),
        series=options.replay,
        columns=dict(options.columns),
        recorded=options.others,
        subscription=spinney.parse(options.filter) if options.filter else None,
    )


class _Command:
    def __init__(self, options: argparse.Namespace, plan: Plan, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._out: IO[str] | None = None
        self._plan = plan
        self._summary: dict[str, Any] = {}
        self._began_s = time.monotonic()
        self._told_s = 0.0

    def run(self) -> int:
        name = self._options.out
        if name is None:
            return self._run()
        if name == "-":
            self._out = sys.stdout
            return self._run()
        with Path(name).open("w", encoding="utf-8") as self._out:
            return self._run()

    def _run(self) -> int:
        status = 0
        try:
            clock.run(self._simulate(), self._options.speed)
        except KeyboardInterrupt:
            status = INTERRUPTED
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        stream = sys.stderr if self._out is sys.stdout else sys.stdout
        found = {name: value for name, value in self._summary.items() if name != EACH_MOTE}
        print(json.dumps(self._summary) if self._options.json else _table(found), file=stream)
        return status

    async def _simulate(self) -> None:
        async with City(self._plan, self._folder, self._publish) as city:
            try:
                left_s = self._options.minutes * 60.0
                while left_s > 0:
                    await city.run(min(_SLICE_S, left_s))
                    left_s -= _SLICE_S
                    self._tell(city)
            finally:
                self._summary = summary(city, time.monotonic() - self._began_s)

    def _publish(self, publication: dict[str, Any]) -> None:
        if self._out is not None:
            print(json.dumps(publication), file=self._out, flush=True)

    def _tell(self, city: City) -> None:
        """The live line; on no terminal, it is left out."""
        now_s = time.monotonic()
        if not sys.stderr.isatty() or now_s - self._told_s < _REAL_S_PER_LINE:
            return
        self._told_s = now_s
        moment = datetime.fromtimestamp(city.now_s, UTC).strftime("%H:%M:%S")
        heard = len({address for broker in city.brokers for address in broker.heard})
        text = (
            f"{moment}  {heard} of {len(city.motes) + len(city.beacons)} heard  "
            f"{city.air.counts['adverts']:,} adverts  {city.counts['publications']:,} publications  "
            f"{sum(mote.battery.used_mah for mote in city.motes):.1f} mAh"
        )
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def summary(city: City, real_s: float) -> dict[str, Any]:
    """What happened, by name."""
    simulated_s = asyncio.get_running_loop().time()
    used_mah = sum(mote.battery.used_mah for mote in city.motes)
    days = max(simulated_s, 1e-9) / 86400.0
    brokers: dict[str, int] = {}
    for broker in city.brokers:
        for name, count in broker.counts.items():
            brokers[name] = brokers.get(name, 0) + count
    motes: dict[str, int] = {}
    for mote in city.motes:
        for name, count in mote.counts.items():
            motes[name] = motes.get(name, 0) + count
    on_air = sum((mote.radio.traffic for mote in city.motes), Traffic())
    samples = sum(mote.battery.ledger.samples for mote in city.motes)
    return {
        "simulated seconds": round(simulated_s, 1),
        "real seconds": round(real_s, 1),
        "motes": len(city.motes),
        "motes heard": len({address for broker in city.brokers for address in broker.heard}),
        "publications": city.counts["publications"],
        "heard again or late": city.counts["heard again or late"],
        "air": dict(sorted(city.air.counts.items())),
        "brokers": dict(sorted(brokers.items())),
        "boards": dict(sorted(motes.items())),
        "flash writes": sum(mote.flash.writes for mote in city.motes),
        "samples": samples,
        "on the air, of motes": {name.replace("_", " "): _rounded(count) for name, count in on_air.counts().items()},
        "on the air, of the median mote": _median([mote.radio.traffic.counts() for mote in city.motes]),
        "of samples": _shares(samples, on_air),
        "mAh": round(used_mah, 3),
        "mAh per mote and day": round(used_mah / max(1, len(city.motes)) / days, 3),
        "mAh by what took it (modelled)": _by_use(city),
        EACH_MOTE: {mote.name: mote.radio.traffic.counts() for mote in city.motes},
    }


def _median(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for one in counts for name in one)
    return {name.replace("_", " "): _rounded(statistics.median(one.get(name, 0) for one in counts)) for name in names}


def _shares(samples: int, on_air: Traffic) -> dict[str, int]:
    """A sample whose values were broadcast was transmitted, whatever a filter held back."""
    in_clear, encrypted = on_air.readings[OPEN], on_air.readings[ENCRYPTED]
    return {
        "broadcast in clear": in_clear,
        "broadcast encrypted": encrypted,
        "not broadcast": max(0, samples - in_clear - encrypted),
    }


def _by_use(city: City) -> dict[str, float]:
    found: dict[str, float] = {}
    for mote in city.motes:
        for name, charge_uc in mote.battery.consumption.shares(mote.battery.ledger).items():
            found[name] = found.get(name, 0.0) + charge_uc / UC_PER_MAH
    return {name: round(used_mah, 3) for name, used_mah in found.items()}


def _rounded(count: float) -> float:
    return round(count, 1) if isinstance(count, float) else count


def _table(found: dict[str, Any]) -> str:
    rows = []
    for name, value in found.items():
        if isinstance(value, dict):
            rows += [(f"{name}: {part}", count) for part, count in value.items()]
        else:
            rows.append((name, value))
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:<{width}}  {value:>14,}" for name, value in rows)
