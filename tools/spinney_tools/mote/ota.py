"""`spinney mote ota`: new library files over the air, verified; a mote that is not well with them goes back."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from spinney.mote.bundle import WHERE_PAYLOAD, BundleError, Sets, bundle, sets
from spinney.mote.link import MoteLink
from spinney.mote.protocol import ControlOp, LinkError, MoteRefused
from spinney.mote.update import update
from spinney_tools.client_options import DONE, REFUSED, OptionError, first_line, say

from . import boards, library, radio

MAX_RECONNECTS = 20
LOOK_SECONDS = 15.0
MAX_LOOKS = 20
"""A start on trial lasts half a minute, and there are three of them."""
_RETRY_SECONDS = 2.0

_EPILOG = """\
examples:
  spinney mote ota balcony --board esp32                  compiled for its chip: a third of the size
  spinney mote ota balcony                                as .py files, which every board takes
  spinney mote ota balcony --board esp32 --key-file key   for a mote whose ota_key is that file's first line

The mote reads every file back and compares its SHA-256 before it tries it. A lost connection is taken up again where it
was cut off. If the mote is not well with the new library within three starts, its last good one runs again.

exit codes: 0 the mote runs it, 1 the mote fell back to its old library, 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney mote ota` and returns its exit code."""
    return radio.run("ota", run(parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="spinney mote ota",
        description="Update a mote's library over the air.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--board", choices=boards.names(), help="compile for it; as it is if left out")
    made.add_argument("--key-file", type=Path, metavar="FILE", help="whose first line is the mote's ota_key")
    made.add_argument(
        "--driver", type=Path, action="append", default=[], metavar="FILE", help="one of your own, as in flash"
    )
    made.add_argument("--library", type=Path, metavar="FOLDER", help="another spinney_mote folder than this clone's")
    radio.add_radio(made)
    return made


async def run(options: argparse.Namespace) -> int:
    whole = _bundle(options)
    mote = await radio.find(options)
    trial = await _send(mote, options, whole)
    say("the mote has verified it, restarts, and tries it for half a minute")
    return await _prove(options, trial)


def _bundle(options: argparse.Namespace) -> bytes:
    board = boards.load(options.board) if options.board else None
    files = library.over_the_air(board, options.library, options.driver)
    try:
        whole = bundle(files, _key(options))
    except BundleError as error:
        raise OptionError(str(error)) from None
    say(f"{len(files)} files, {len(whole)} bytes")
    return whole


def _key(options: argparse.Namespace) -> bytes:
    if options.key_file is None:
        return b""
    text = first_line(options.key_file)
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise OptionError(f"{options.key_file}: an ota_key has 64 digits of 0-9a-f") from None


async def _send(mote: radio.Heard, options: argparse.Namespace, whole: bytes) -> int:
    """Until the mote has verified it and restarts; the number of the set that it tries."""
    for turn in range(MAX_RECONNECTS + 1):
        try:
            async with radio.link_to(mote, options) as link:
                await update(link, whole, _show)
                found = await _sets(link)
                await link.reboot()
            return found.trial
        except MoteRefused:
            raise
        except LinkError as error:
            if turn == MAX_RECONNECTS:
                raise
            say(f"{error}; going on where it was cut off")
            await asyncio.sleep(_RETRY_SECONDS)
    raise AssertionError("unreachable")


async def _sets(link: MoteLink) -> Sets:
    found = sets(await link.control(ControlOp.OTA, WHERE_PAYLOAD))
    if found is None:
        raise radio.RadioError("the mote's library is too old to say what became of an update; see spinney mote info")
    return found


def _show(done: int, whole: int) -> None:
    radio.progress(f"sent {done} of {whole} bytes ({done * 100 // whole} %)", last=done == whole)


async def _prove(options: argparse.Namespace, trial: int) -> int:
    """Asks the mote, again and again, until it has kept the new library or gone back."""
    for _ in range(MAX_LOOKS):
        await asyncio.sleep(LOOK_SECONDS)
        try:
            async with radio.linked(options) as link:
                found, info = await _sets(link), await link.info()
                crash = await link.last_crash() if info.last_crash else ""
        except (LinkError, radio.RadioError) as error:
            say(f"{error}; asking again")
            continue
        if found.trial == trial:
            continue
        if found.good == trial == found.running:
            print(f"{options.mote} runs the new library, {info.firmware}")
            return DONE
        say(f"{options.mote} was not well with the new library and runs its last good one, {info.firmware}")
        say(crash.strip() or "no crash was recorded; perhaps its watchdog ended it")
        return REFUSED
    raise radio.RadioError(f"{options.mote} took the update, but does not say what became of it; see spinney mote info")
