"""`spinney mote tail`: a mote's events as they come."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bleak.exc import BleakError

from spinney.mote.link import MoteLink
from spinney.mote.protocol import Event, EventFlag, Info, LinkError, MoteRefused, NotAMote
from spinney_tools.client_options import DONE, say

from . import notes, radio
from .table import as_json, readings

RETRY_SECONDS = 2.0

_EPILOG = """\
examples:
  spinney mote tail balcony
  spinney mote tail balcony --json --count 10
  spinney mote tail balcony --no-ack          look on; whoever else asks the mote gets these events, too

What is printed is acknowledged, and the mote forgets it. A lost connection is made again, and no event is missed: the
mote keeps them as long as it has room. It needs a filter to have events: spinney mote filters.

exit codes: 0 ended by Ctrl-C or --count, 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney mote tail` and returns its exit code."""
    return radio.run("tail", run(parser().parse_args(arguments)), interrupted=DONE)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="spinney mote tail",
        description="Print a mote's events as they come, the waiting ones first, until Ctrl-C.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print each as a JSON object")
    made.add_argument("--count", type=int, metavar="N", help="end after so many events")
    made.add_argument("--no-ack", dest="ack", action="store_false", help="leave the events on the mote")
    radio.add_radio(made)
    return made


async def run(options: argparse.Namespace) -> int:
    return await _Tail(options).run()


class _Tail:
    """From the first event that waits to the end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._left: int | None = options.count
        self._next = 0
        self._has_met = False

    async def run(self) -> int:
        """Connects again whenever the link is lost; a mote that was never reached is an error."""
        while self._left is None or self._left > 0:
            try:
                async with radio.linked(self._options) as link:
                    await self._follow(link)
            except (MoteRefused, NotAMote):
                raise
            except (LinkError, radio.RadioError, BleakError, TimeoutError) as error:
                if not self._has_met:
                    raise
                say(f"{error}; connecting again")
                await asyncio.sleep(RETRY_SECONDS)
        return DONE

    async def _follow(self, link: MoteLink) -> None:
        info = await link.info()
        texts = notes.read()
        names = {number: texts.get(crc, "") for number, crc in (await link.filters()).items()}
        if not self._has_met and not names:
            say(f"{info.name} has no filters, and so no events: spinney mote filters {self._options.mote} --add ...")
        self._has_met = True
        lost = 0
        async for event in link.events(self._next):
            if link.events_lost > lost:
                say(f"{link.events_lost - lost} events were dropped by the mote before")
                lost = link.events_lost
            print(self._line(event, info, names), flush=True)
            self._next = event.number + 1
            self._left = None if self._left is None else self._left - 1
            if self._options.ack:
                await link.ack(event.number)
            if self._left == 0:
                return

    def _line(self, event: Event, info: Info, names: Mapping[int, str]) -> str:
        found = about(event, info, names, time.time())
        if self._options.json:
            return as_json(found)
        at = found["time"]
        when = f"{datetime.fromtimestamp(at).astimezone():%H:%M:%S}" if at is not None else "--:--:--"
        named = f"{found['filter']}{': ' + found['text'] if found['text'] else ''}"
        return f"{when}  {found['why']:<6}  {readings(found['values'])}  ({named})"


def about(event: Event, info: Info, names: Mapping[int, str], now: float) -> dict[str, Any]:
    """An event as JSON has it; its time is in epoch seconds, None where the mote does not know it."""
    values = {}
    for index, raw in event.values.items():
        row = info.attributes[index]
        values[row.name] = raw * row.p / row.q
    is_age = EventFlag.AGE in event.flags
    at = event.time if not is_age or event.time is None else now - event.time
    return {
        "number": event.number,
        "source": info.name,
        "filter": event.filter_id,
        "text": names.get(event.filter_id) or None,
        "why": why(event.flags),
        "boot": event.boot,
        "sequence": event.sequence,
        "time": at,
        "moment": None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
        "values": values,
        "critical": EventFlag.CRITICAL in event.flags,
        "weaker": EventFlag.WEAKER in event.flags,
    }


def why(flags: EventFlag) -> str:
    """Enter or exit where a bit was set, undecided where its owner is to set it, alive for a presence, else match."""
    if EventFlag.LABEL in flags:
        return "enter" if EventFlag.BIT in flags else "exit"
    if EventFlag.PRESENCE in flags:
        return "alive"
    return "undecided" if EventFlag.UNKNOWN in flags else "match"
