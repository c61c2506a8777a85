"""`spinney mote filters`: what a mote lets through; filters are added and dropped by hand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import spinney
from spinney.known import Known
from spinney.mote import Attribute, Compiled, Delivery
from spinney.mote import compile as compile_filter
from spinney.mote.link import MoteLink
from spinney.mote.protocol import program_crc
from spinney_tools.client_options import DONE, OptionError, say

from . import notes, radio
from .table import as_json, table

HIGHEST_ID = 0xFFFF

_EPILOG = """\
examples:
  spinney mote filters balcony                                                        what is there
  spinney mote filters balcony --add 'WHEN temperature > 25 UNTIL temperature <= 22'
  spinney mote filters balcony --add 'co2 > 1200' --critical --heartbeat 600
  spinney mote filters balcony --drop 3 --drop 4
  spinney mote filters balcony --drop all

All changes of one call are made at once, or none. A mobile broker that owns the mote puts its own filters there, and
drops others. A mote knows programs, not their texts: those that this computer has sent are shown.

exit codes: 0 done, 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney mote filters` and returns its exit code."""
    return radio.run("filters", run(parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="spinney mote filters",
        description="List the filters of a mote; add some, drop some.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--add", action="append", default=[], metavar="TEXT", help="a content or state subscription")
    made.add_argument("--drop", action="append", default=[], metavar="ID", help="the id of a filter, or all")
    made.add_argument("--id", type=int, metavar="N", help="for the first that is added; else the lowest that is free")
    made.add_argument(
        "--heartbeat", type=float, default=0.0, metavar="SECONDS", help="the longest silence of what is added"
    )
    made.add_argument("--critical", action="store_true", help="each event of what is added is confirmed by the radio")
    made.add_argument("--json", action="store_true", help="print each filter as a JSON object")
    radio.add_radio(made)
    return made


async def run(options: argparse.Namespace) -> int:
    wanted = [_parsed(text) for text in options.add]
    async with radio.linked(options) as link:
        there = await link.filters()
        drop = _dropped(options.drop, there)
        programs = await _compiled(options, wanted, link, set(there) - set(drop)) if wanted else {}
        if programs or drop:
            await link.change_filters(programs, drop)
            there = await link.filters()
    _show(there, options.json)
    return DONE


def _parsed(text: str) -> tuple[str, Any]:
    try:
        return text, spinney.parse(text)
    except spinney.SyntaxError as error:
        raise OptionError(f"--add {text!r}: {error}") from None


def _dropped(words: Sequence[str], there: dict[int, int]) -> list[int]:
    if "all" in words:
        return list(there)
    found = [int(word) for word in words if word.isdecimal()]
    missing = [word for word in words if not word.isdecimal() or int(word) not in there]
    if missing:
        known = ", ".join(map(str, there)) or "none"
        raise OptionError(f"--drop {missing[0]}: there is no such filter; there are: {known}")
    return found


async def _compiled(
    options: argparse.Namespace, wanted: Sequence[tuple[str, Any]], link: MoteLink, taken: set[int]
) -> dict[int, bytes]:
    """Programs by their ids; what is not quite the subscription is said."""
    info = await link.info()
    attributes = [Attribute(row.name, row.p, row.q, row.low, row.high) for row in info.attributes]
    programs: dict[int, bytes] = {}
    for text, subscription in wanted:
        number = options.id if options.id is not None and not programs else _free(taken)
        if not 0 <= number <= HIGHEST_ID:
            raise OptionError(f"--id {number}: from 0 to {HIGHEST_ID}")
        delivery = Delivery(number, heartbeat=options.heartbeat, critical=options.critical)
        made = compile_filter(subscription, Known({}), attributes, delivery, version=info.program_version)
        if not isinstance(made, Compiled):
            names = ", ".join(item.name for item in attributes) or "nothing"
            raise OptionError(f"--add {text!r}: {made.why}; {info.name} measures {names}")
        for reason in made.reasons:
            say(f"{number}: the mote sends more than is wanted: {reason}")
        programs[number] = made.program
        taken.add(number)
        _remember(program_crc(made.program), text)
    return programs


def _free(taken: set[int]) -> int:
    return next(number for number in range(1, HIGHEST_ID + 2) if number not in taken)


def _remember(crc: int, text: str) -> None:
    try:
        notes.write(crc, text)
    except OSError as error:
        say(f"{notes.file()}: {error.strerror}; this filter's text will not be shown later")


def _show(there: dict[int, int], is_json: bool) -> None:
    texts = notes.read()
    rows = [{"id": number, "crc": f"{crc:08x}", "text": texts.get(crc)} for number, crc in there.items()]
    if is_json:
        for row in rows:
            print(as_json(row))
    elif rows:
        print(
            table(
                ("id", "crc", "text"),
                [(row["id"], row["crc"], row["text"] or "(not sent by this computer)") for row in rows],
            )
        )
    else:
        say("no filters: the mote sends no events")
