"""`spinney bench`: chooses the tables, prints them, and puts them into README.md."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..workloads.cache import default_folder
from ..workloads.generate import WORKLOADS, WorkloadError
from ..workloads.programs import CompileError
from .matching import WrongAnswer
from .stuck import Stuck
from .table import ReadmeError, Table, update_readme

_MODULES = {
    "energy": "mote.energy",
    "mobile": "mobile_matching",
    "hearing": "mobile_hearing",
    "adverts": "mobile_hearing_path",
    "footprint": "mobile_footprint",
    "formats": "footprint_formats",
    "idle": "mobile_idle",
    "matcher": "cloud_matcher",
    "delivery": "cloud_delivery",
    "cloud": "cloud_chain",
    "source": "pipeline_source",
    "ingest": "pipeline_ingest",
    "lake": "pipeline_lake",
    "spark": "pipeline_matching",
    "dashboard": "dashboard",
    "up": "up_start",
}
"""Those that need nothing but time; `up` a network, too."""
_BENCHES = ("matching", "forest", "json", "mote", *_MODULES)
_README = Path(__file__).resolve().parents[3] / "README.md"

_EPILOG = """\
examples:
  spinney bench                       the table of the matching core: W1 to W4, all sizes; some minutes
  spinney bench matching --quick      only sizes up to 20,000; a quarter of a minute
  spinney bench all --update-readme   all tables, also put into README.md
  spinney bench matching --only W2 --json
  spinney bench mote --data FOLDER    Table 3.1 of the state-filter thesis, and README's picture of it; FOLDER has the
                                      series of Cambridge's weather and of the Intel lab, which README names; else
                                      the weather is invented. Some minutes
  spinney bench energy                what a mote's battery is used for, by advert mode, with and without filters
  spinney bench cloud                 publish to notify, next to the bare MQTT server; matcher and delivery alone
                                      are `matcher` and `delivery`
  spinney bench adverts               the mobile broker: from bleak's callback to the outbox; `hearing` is that in
                                      parts, `mobile` its matching alone, `idle` the whole process with 50 sensors
  spinney bench footprint             messages and bytes of five ways to gather readings; draws the README's chart
  spinney bench formats               bytes and microseconds of a reading on the uplink: JSON, CBOR, Arrow, packed,
                                      with deflate and zstd, with and without a dictionary
  spinney bench source                from the log to Spark; `ingest` is on into the lake, and how soon, on one machine
                                      and a cluster; `spark` matching there, `lake` what a replay reads
  spinney bench dashboard             the page: 2,000 sources, 20 browsers
  spinney bench up                    ./spinney up from a clone in which nothing is installed, and the same again

Run it on a quiet machine. Figures are ratios to a baseline in the same run; absolute times differ between machines.

exit codes: 0 done, 1 a target is missed and --strict was given, 2 wrong use or nothing to measure with,
            3 the core gave a wrong answer
"""


def main(argv: list[str]) -> int:
    """Runs `spinney bench` and returns its exit code."""
    options = _parser().parse_args(argv)
    chosen = _BENCHES if options.bench == "all" else (options.bench,)
    missed: list[str] = []
    try:
        for bench in chosen:
            table, figures, misses = _run(bench, options)
            print(json.dumps(figures) if options.json else table.markdown(), flush=True)
            if not options.json and bench != chosen[-1]:
                print()
            if options.update_readme:
                update_readme(_README, table)
            missed += misses
    except WrongAnswer as error:
        return _fail(f"wrong answer: {error}", 3)
    except (WorkloadError, CompileError, ReadmeError, Stuck, OSError, subprocess.CalledProcessError) as error:
        return _fail(str(error), 2)
    for text in missed:
        print(f"target missed: {text}", file=sys.stderr)
    return 1 if missed and options.strict else 0


def _fail(text: str, code: int) -> int:
    print(f"spinney bench: {text}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney bench",
        description="Measure each part of Spinney, and print one table per question.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bench", nargs="?", choices=[*_BENCHES, "all"], default="matching", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="matching: small sizes and short runs")
    parser.add_argument(
        "--only", nargs="+", choices=list(WORKLOADS), default=[], metavar="W", help="matching: these only"
    )
    parser.add_argument("--json", action="store_true", help="print figures instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--update-readme", action="store_true", help="put the tables into README.md")
    parser.add_argument("--seed", type=int, default=1, help="mote: what is drawn (default: %(default)s)")
    parser.add_argument("--runs", type=int, help="footprint: how many walks (default: 100)")
    parser.add_argument(
        "--data",
        type=Path,
        default=default_folder(),
        help="where workloads are kept; mote: a folder with temperatures (default: in the user's cache)",
    )
    return parser


def _run(bench: str, options: argparse.Namespace) -> tuple[Table, dict[str, Any], list[str]]:
    """The table, its figures, and the targets that were missed."""
    if bench == "forest":
        from . import forest

        trees = forest.measure(_progress)
        missed = [f"forest {item.size:,}: {text}" for item in trees for text in item.missed()]
        return forest.table(trees), {"forest": [item.as_json() for item in trees]}, missed
    if bench == "json":
        from . import json_door

        door = json_door.measure(options.data, _progress)
        return json_door.table(door), {"json": door.as_json()}, door.missed()
    if bench == "mote":
        from .mote import table31

        filtered = table31.measure(options.data, _progress, seed=options.seed)
        if options.update_readme:
            _write_picture(*table31.picture(filtered))
        return table31.table(filtered), {"mote": filtered.as_json()}, filtered.missed()
    if bench in _MODULES:
        module = importlib.import_module(f".{_MODULES[bench]}", __package__)
        few = {"runs": options.runs} if bench == "footprint" and options.runs else {}
        measured = module.measure(_progress, **few)
        if options.update_readme and hasattr(module, "picture"):
            _write_picture(*module.picture(measured))
        return module.table(measured), {bench: measured.as_json()}, measured.missed()
    from . import matching

    found = list(matching.measure(options.data, options.quick, options.only, _progress))
    missed = [f"{item.workload} {item.size:,}: {text}" for item in found for text in item.missed()]
    return matching.table(found), {"matching": [item.as_json() for item in found]}, missed


def _write_picture(path: Path, text: str) -> None:
    (_README.parent / path).write_text(text, encoding="utf-8")


def _progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
