"""`spinney workloads`: the files of the workload kit, for this and for other engines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .cache import default_folder
from .generate import WORKLOADS, WorkloadError, check, checksums, generate

_EPILOG = """\
examples:
  spinney workloads list
  spinney workloads generate data W1 W2 --max 100000
  spinney workloads verify data

exit codes: 0 done, 1 a file differs from its checksum, 2 wrong use
"""


def main(argv: list[str]) -> int:
    """Runs `spinney workloads` and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="spinney workloads",
        description="Write, check and list the workloads for content-based matching.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    more: dict[str, Any] = {"epilog": _EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands.add_parser("list", help="what there is", description="List what there is.", **more)
    for name, text in (("generate", "write what is missing"), ("verify", "compare what is there with the checksums")):
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", **more)
        command.add_argument(
            "folder", nargs="?", type=Path, default=default_folder(), help="default: in the user's cache"
        )
    generating = commands.choices["generate"]
    generating.add_argument("workloads", nargs="*", metavar="W", help="default: all")
    generating.add_argument("--max", type=int, metavar="N", help="leave out more than N subscriptions")
    options = parser.parse_args(argv)
    try:
        if options.command == "list":
            return _list()
        if options.command == "generate":
            return _generate(options.folder, options.workloads or list(WORKLOADS), options.max)
        return _verify(options.folder)
    except WorkloadError as error:
        print(f"spinney workloads: {error}", file=sys.stderr)
        return 1


def _list() -> int:
    for workload in WORKLOADS.values():
        print(f"{workload.name}  {workload.about:14} {', '.join(f'{size:,}' for size in workload.sizes)}")
    return 0


def _generate(folder: Path, names: list[str], largest: int | None) -> int:
    for name in names:
        known = WORKLOADS[name].sizes if name in WORKLOADS else ()
        sizes = [size for size in known if largest is None or size <= largest]
        generate(folder, name, sizes, lambda text: print(text, file=sys.stderr))
    return 0


def _verify(folder: Path) -> int:
    there = [name for name in sorted(checksums()) if (folder / name).exists()]
    for name in there:
        check(folder / name)
    print(f"{len(there)} files of {len(checksums())} are there, all as they should be")
    return 0
