"""`spinney mote ls`: the motes in range, from their adverts alone."""

from __future__ import annotations

import argparse
from typing import Any

from spinney_tools.client_options import DONE, REFUSED, say

from . import radio
from .table import as_json, readings, table

LISTEN_SECONDS = 8.0

_EPILOG = """\
examples:
  spinney mote ls                     what is heard within 8 seconds, the strongest first
  spinney mote ls --seconds 70        those that sleep for a minute, too
  spinney mote ls --json | jq .name

exit codes: 0 done, 1 no mote was heard, 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney mote ls` and returns its exit code."""
    return radio.run("ls", run(parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="spinney mote ls",
        description="List the motes in range; nothing is sent to them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print each as a JSON object")
    radio.add_radio(made, mote=False, seconds=LISTEN_SECONDS)
    return made


async def run(options: argparse.Namespace) -> int:
    motes: dict[str, radio.Heard] = {}

    def heard(mote: radio.Heard) -> bool:
        motes[mote.address] = mote
        return False

    await radio.listen(options, heard)
    found = sorted(motes.values(), key=lambda mote: -mote.rssi)
    if not found:
        say(f"no mote was heard for {options.seconds:g} s; one that sleeps is heard once in its sample interval")
        return REFUSED
    if options.json:
        for mote in found:
            print(as_json(about(mote)))
    else:
        print(table(("name", "address", "rssi", "boot", "sample", "event", "readings"), map(_row, found)))
    return DONE


def about(mote: radio.Heard) -> dict[str, Any]:
    """What its adverts say. Boot and event are the low 16 bits of their numbers, the sample the low 24."""
    assert mote.scan is not None
    return {
        "name": mote.name,
        "address": mote.address,
        "rssi": mote.rssi,
        "boot": mote.scan.boot,
        "sequence": mote.scan.sequence,
        "last_event": mote.scan.last_event,
        "filter_table_crc": f"{mote.scan.table_crc:08x}",
        "adverts": mote.mode.name.lower(),
        "readings": mote.readings,
    }


def _row(mote: radio.Heard) -> tuple[Any, ...]:
    found = about(mote)
    numbers = (found["boot"], found["sequence"], found["last_event"])
    return (mote.name, mote.address, f"{mote.rssi} dBm", *numbers, readings(mote.readings) or f"({found['adverts']})")
