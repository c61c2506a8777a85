"""`spinney mote mode`: what a mote advertises, shown and set by hand where no mobile broker owns it."""

from __future__ import annotations

import argparse
from typing import Any

from spinney.mote import adverts
from spinney.mote.adverts import AdvertState, Bits, Mode
from spinney.mote.protocol import InfoFlag
from spinney_tools.client_options import DONE, OptionError

from . import radio
from .table import as_json, pairs

_EPILOG = """\
examples:
  spinney mote mode balcony                              what it advertises, and until when
  spinney mote mode balcony open                         all readings, for Home Assistant and others
  spinney mote mode balcony presence --open-after 0      only that it is there, for good
  spinney mote mode balcony encrypted                    for who has its key; see spinney mote key

A mobile broker that owns the mote sets this, too, and renews it at its visits. A mode in mote.toml (advert_mode) cannot
be changed from here. Without a renewal for --open-after seconds (mote.toml: open_after) presence ends, as
`fallback` says.

exit codes: 0 done, 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney mote mode` and returns its exit code."""
    return radio.run("mode", run(parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="spinney mote mode",
        description="Show what a mote advertises, or set it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    radio.add_radio(made)
    made.add_argument("mode", nargs="?", choices=[one.name.lower() for one in Mode], help="what it is to advertise")
    made.add_argument(
        "--open-after", type=int, metavar="SECONDS", help="without a renewal for so long presence ends; 0: never"
    )
    made.add_argument("--json", action="store_true", help="print it as a JSON object")
    return made


async def run(options: argparse.Namespace) -> int:
    if options.open_after is not None and not 0 <= options.open_after < adverts.AS_CONFIGURED:
        raise OptionError("--open-after is a number of seconds, or 0")
    async with radio.linked(options) as link:
        info = await link.info()
        if InfoFlag.ADVERT_MODES not in info.flags:
            raise OptionError(f"{info.name} has firmware {info.firmware}, which knows no modes: it is open")
        if options.mode is None:
            found = await adverts.state(link)
        else:
            found = await adverts.set_mode(link, Mode[options.mode.upper()], info.table_crc, options.open_after)
    print(as_json(about(found)) if options.json else pairs(_words(found)))
    return DONE


def about(found: AdvertState) -> dict[str, Any]:
    """As JSON has it."""
    return {
        "mode": found.mode.name.lower(),
        "set": found.set.name.lower(),
        "fixed": Bits.FIXED in found.bits,
        "has_key": Bits.HAS_KEY in found.bits,
        "key_spent": Bits.KEY_SPENT in found.bits,
        "fallen_back": Bits.FALLEN in found.bits,
        "open_after": found.open_after,
        "since_renewed": found.since_renewed,
    }


def _words(found: AdvertState) -> dict[str, str]:
    key = "none"
    if Bits.HAS_KEY in found.bits:
        key = "spent: make a new one" if Bits.KEY_SPENT in found.bits else "there is one"
    why = "set in mote.toml" if Bits.FIXED in found.bits else f"{found.set.name.lower()} was set"
    if Bits.FALLEN in found.bits:
        why += ", but its broker has been away for too long"
    elif found.since_renewed is None and Bits.FIXED not in found.bits:
        why = "nobody has set anything"
    renewed = "never" if found.since_renewed is None else f"{found.since_renewed} s ago"
    until = "it lasts" if not found.open_after else f"presence ends {found.open_after} s after it"
    return {"mode": f"{found.mode.name.lower()} ({why})", "key": key, "renewed": f"{renewed}; {until}"}
