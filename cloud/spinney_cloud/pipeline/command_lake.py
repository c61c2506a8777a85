"""`spinney lake`: what is in a lake, keeping it by hand, and carrying it off and back."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from spinney.configuring import ConfigurationError

from ..data_option import add_data_options, configuration_of
from .lake import KEPT_HOURS, Lake, LakeError
from .lake_files import export_lake, import_lake
from .lake_table import TableState
from .lake_write.leftover import delete_leftovers

FAILED = 1

EPILOG = """\
The lake is that of the data directory (--data, --config as for spinney cloud), or the one that --lake names. All but
import may be done while a pipeline writes it.

An export holds all tables, each up to a record of the log; the pipeline that is started on an import goes on with the
log from there. What matching remembers (its checkpoints) is in no export: subscriptions of state and top-k that the
pipeline answers begin empty after an import, and who was told `enter` before is not told the `exit`. To keep that, too,
stop the pipeline and copy the lake's folder as it is, with the checkpoints in it, to be put back in the same place.

examples:
  spinney lake stats
  spinney lake export /backup/lake.tar
  spinney lake import /backup/lake.tar --lake /srv/lake
  spinney lake retain 365 && spinney lake vacuum --hours 0

exit codes: 0 done, 1 refused, 2 wrong use"""


def main(arguments: list[str]) -> int:
    """The command; exit code 0 done, 1 refused, 2 wrong use."""
    options = _parser().parse_args(arguments)
    try:
        place = options.lake or configuration_of(options).settings.lake
        lake = Lake(place if "://" in place else Path(place).expanduser().absolute())
        act: Callable[[argparse.Namespace, Lake], None] = options.act
        if act in (_export, _import) and not lake.is_folder:
            raise LakeError(f"{lake.place} is in an object store: copy it with the store's own tools")
        if options.must_exist and not lake.names():
            raise LakeError(f"there is no lake in {lake.place}: spinney pipeline makes one; --lake says where it is")
        act(options, lake)
    except (LakeError, ConfigurationError, OSError) as error:
        print(f"spinney lake: {error}", file=sys.stderr)
        return FAILED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney lake",
        description="What is in the pipeline's lake, keeping it, and carrying it off and back.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="stats | compact | retain | vacuum | export | import")
    stats = _command(commands, "stats", "say what is in it", _stats)
    stats.add_argument("--json", action="store_true", help="as JSON")
    _command(commands, "compact", "join small files, and order days that are over by place", _compact)
    retain = _command(commands, "retain", "remove the days before the last so many", _retain)
    retain.add_argument("--table", help="of this table alone, such as windows")
    retain.add_argument("days", metavar="DAYS", type=_days, help="that are kept, up to the newest")
    vacuum = _command(commands, "vacuum", "delete files that are no part of a table any more", _vacuum)
    vacuum.add_argument(
        "--hours",
        type=_hours,
        default=KEPT_HOURS,
        help="spare what was part of one so lately, for those who read it (default: %(default)s)",
    )
    export = _command(commands, "export", "write all of it into one file", _export)
    export.add_argument("file", metavar="FILE", type=Path, help="such as lake.tar")
    load = _command(commands, "import", "make a lake of such a file, where there is none", _import, must_exist=False)
    load.add_argument("file", metavar="FILE", type=Path, help="that spinney lake export wrote")
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    act: Callable[[argparse.Namespace, Lake], None],
    *,
    must_exist: bool = True,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--lake", metavar="PLACE", help="a folder, or a URL such as s3://bucket/lake")
    add_data_options(parser)
    parser.set_defaults(act=act, must_exist=must_exist)
    return parser


def _days(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days from 1")
    return int(text)


def _hours(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours from 0")
    return int(text)


def _stats(options: argparse.Namespace, lake: Lake) -> None:
    states = [lake.state(name) for name in lake.names()]
    if options.json:
        tables = [{**asdict(each), "first": _iso(each.first), "last": _iso(each.last)} for each in states]
        print(json.dumps({"lake": lake.place, "tables": tables}))
        return
    print(f"the lake in {lake.place}\n")
    width = max(len(each.name) for each in states)
    print(f"{'table':<{width}} {'rows':>14} {'files':>7} {'size':>10}  {'from':<10} {'to':<10}  up to record")
    for each in states:
        print(_row(each, width))


def _row(state: TableState, width: int) -> str:
    days = f"{_iso(state.first) or '-':<10} {_iso(state.last) or '-':<10}"
    size = _size(state.bytes)
    return f"{state.name:<{width}} {state.rows:>14,} {state.files:>7,} {size:>10}  {days}  {state.sequence or '-'}"


def _iso(day: object) -> str | None:
    return None if day is None else str(day)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _compact(_options: argparse.Namespace, lake: Lake) -> None:
    for name in lake.names():
        done = lake.compact(name)
        ordered = f", {done.ordered_days} days ordered by place" if done.ordered_days else ""
        _say(f"{name}: {done.removed} files joined into {done.added}{ordered}")


def _retain(options: argparse.Namespace, lake: Lake) -> None:
    names = lake.names()
    if options.table not in (None, *names):
        raise LakeError(f"there is no table {options.table!r}; there are {', '.join(names)}")
    for name in names if options.table is None else [options.table]:
        _say(f"{name}: {lake.retain(options.days, name):,} rows removed")
    _say("their files stay for those who still read them, until spinney lake vacuum")


def _vacuum(options: argparse.Namespace, lake: Lake) -> None:
    for name in lake.names():
        _say(f"{name}: {lake.vacuum(name, options.hours) + delete_leftovers(lake, name)} files deleted")


def _export(options: argparse.Namespace, lake: Lake) -> None:
    held = export_lake(lake, options.file)
    _say(f"wrote {options.file}: {_size(options.file.stat().st_size)}; {_held(held)}")
    _say("not in it: what matching remembers; after an import, subscriptions of state and top-k on it begin empty")


def _import(options: argparse.Namespace, lake: Lake) -> None:
    held = import_lake(options.file, lake)
    _say(f"made the lake in {lake.place} of {options.file}; {_held(held)}")


def _held(held: dict[str, object]) -> str:
    tables = held["tables"]
    assert isinstance(tables, dict)
    return ", ".join(f"{name}: {table['rows']:,} rows" for name, table in tables.items())


def _say(text: str) -> None:
    print(text, file=sys.stderr)
