"""`spinney mote info`: what a mote says of itself."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from spinney.mote import adverts
from spinney.mote.link import MoteLink
from spinney.mote.protocol import AttributeRow, Info, InfoFlag, MoteTime
from spinney_tools.client_options import DONE

from . import radio
from .table import as_json, pairs, table

_EPILOG = """\
examples:
  spinney mote info balcony
  spinney mote info C0:49:EF:12:34:56 --json | jq .free_heap

exit codes: 0 done, 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney mote info` and returns its exit code."""
    return radio.run("info", run(parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="spinney mote info",
        description="Show what a mote says of itself: versions, attributes, events, memory, clock, last crash.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print it as a JSON object")
    radio.add_radio(made)
    return made


async def run(options: argparse.Namespace) -> int:
    async with radio.linked(options) as link:
        info = await link.info()
        crash = await link.last_crash() if info.last_crash else ""
        found = about(link, info, await link.clock(), await link.filters(), crash)
    print(as_json(found) if options.json else _text(found))
    return DONE


def about(link: MoteLink, info: Info, clock: MoteTime, filters: dict[int, int], crash: str) -> dict[str, Any]:
    """All of it, as JSON has it."""
    return {
        "name": info.name,
        "address": link.address,
        "firmware": info.firmware,
        "protocol": info.version,
        "boot": info.boot,
        "boot_cause": info.boot_cause,
        "sequence": info.sequence,
        "sampling": InfoFlag.SAMPLING_ON in info.flags,
        "battery": info.battery,
        "free_heap": info.free_heap,
        "time": None if clock.epoch_ms is None else _moment(clock.epoch_ms),
        "drift_ppm": None if clock.epoch_ms is None else clock.drift_ppm,
        "filters": len(filters),
        "filter_table_crc": f"{info.table_crc:08x}",
        "first_event": info.first_event,
        "next_event": info.next_event,
        "events_dropped": info.events_dropped,
        "writes_refused": info.writes_refused,
        "adverts": (adverts.in_force(info) or adverts.Mode.OPEN).name.lower(),
        "bonded_writes": InfoFlag.BONDED_WRITES in info.flags,
        "pairing_open": InfoFlag.PAIRING_OPEN in info.flags,
        "last_crash": crash,
        "attributes": [_attribute(row) for row in info.attributes],
    }


def _moment(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _attribute(row: AttributeRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "unit": row.unit,
        "step": row.p / row.q,
        "low": row.low * row.p / row.q,
        "high": row.high * row.p / row.q,
        "bthome": row.object_id,
    }


def _text(found: dict[str, Any]) -> str:
    waiting = found["next_event"] - found["first_event"]
    battery = "not known" if found["battery"] is None else f"{found['battery']} %"
    clock = "not set" if found["time"] is None else f"{found['time']}, drift {found['drift_ppm']} ppm"
    writes = (
        "paired only" + (", pairing is open" if found["pairing_open"] else "") if found["bonded_writes"] else "anyone"
    )
    shown = {
        "name": f"{found['name']} ({found['address']})",
        "firmware": f"{found['firmware']}, protocol {found['protocol']}",
        "boot": f"{found['boot']}, cause {found['boot_cause']}",
        "sample": f"{found['sequence']}, sampling {'on' if found['sampling'] else 'off'}",
        "battery": battery,
        "free heap": f"{found['free_heap']} bytes",
        "clock": clock,
        "filters": f"{found['filters']} (table {found['filter_table_crc']})",
        "events": f"{waiting} wait, {found['events_dropped']} dropped, next {found['next_event']}",
        "writes": f"{writes}; {found['writes_refused']} refused",
        "adverts": found["adverts"],
        "last crash": found["last_crash"].strip().replace("\n", "\n" + " " * 12) or "none",
    }
    names = ("name", "unit", "step", "low", "high", "bthome")
    rows = [
        [f"{one[name]:g}" if isinstance(one[name], float) else one[name] for name in names]
        for one in found["attributes"]
    ]
    attributes = (
        table(("attribute", *names[1:]), rows)
        if rows
        else "no attributes: no sensor is configured, or none could be made"
    )
    return f"{pairs(shown)}\n\n{attributes}"
