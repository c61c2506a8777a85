"""`spinney mote key`: the key of a mote's encrypted adverts: shown, made anew, forgotten."""

from __future__ import annotations

import argparse
from pathlib import Path

from spinney.mote import adverts
from spinney.mote.protocol import LinkError, PairingNeeded, Status
from spinney_tools.client_options import DONE, OptionError, say

from . import cable, flash, keys, ports, radio
from .keys import Key

_EPILOG = """\
examples:
  spinney mote key show balcony                       over the air, paired by the mote's passkey
  spinney mote key show balcony --keys bindkeys.toml  and into the file that a second mobile broker reads
  spinney mote key new balcony                        after a loss of the key: the old one reads nothing any more
  spinney mote key new --port auto                    over a cable, where the mote has no passkey
  spinney mote key forget balcony

Encrypted adverts are BTHome's: Home Assistant and the mobile broker read them with the key (bindkey). A mote tells its
key only to who is paired by its passkey, and over a cable. A new key goes into bindkeys.toml, or the file that --keys
names, which only you can read; copy it to where a mobile broker runs. The key is never sent anywhere else.

exit codes: 0 done, 2 something was wrong
"""
_ACTIONS = ("show", "new", "forget")


def main(arguments: list[str]) -> int:
    """Runs `spinney mote key` and returns its exit code."""
    return radio.run("key", run(parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="spinney mote key",
        description="Show the key of a mote's encrypted adverts, make a new one, or have it forgotten.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("action", choices=_ACTIONS, help="what to do")
    radio.add_radio(made, mote=False)
    made.add_argument("mote", nargs="?", metavar="MOTE", help="its name or its address; none with --port")
    made.add_argument("--port", help="over a cable: serial port, or auto: the only board that is connected")
    made.add_argument("--keys", type=Path, metavar="FILE", help=f"where keys are kept (new and forget: {keys.DEFAULT})")
    return made


async def run(options: argparse.Namespace) -> int:
    if (options.mote is None) == (options.port is None):
        raise OptionError("name the MOTE, or its --port, and not both")
    if options.keys is not None or options.action != "show":
        keys.read(options.keys or keys.DEFAULT)  # what is wrong with it is said before anything is changed
    found = await _over_the_air(options) if options.port is None else _over_the_cable(options)
    file = options.keys or keys.DEFAULT
    if options.action == "forget":
        keys.drop(file, found.address)
        say(f"{found.name}: it has no key any longer, and adverts that were encrypted say only that it is there")
    elif not found.key:
        raise OptionError(f"{found.name} has no key; make one: spinney mote key new {found.name}")
    else:
        if options.action == "new" or options.keys is not None:
            keys.put(file, found)
            say(f"{found.name} at {found.address}: its key is in {file}")
        print(found.key.hex())
    return DONE


async def _over_the_air(options: argparse.Namespace) -> Key:
    async with radio.linked(options) as link:
        name = (await link.info()).name
        try:
            if options.action == "new":
                key = await adverts.new_bind_key(link)
            elif options.action == "forget":
                await adverts.forget_bind_key(link)
                key = b""
            else:
                key = await adverts.bind_key(link) or b""
        except PairingNeeded as error:
            raise _NoPasskey(name, link.address) from error
        return Key(link.address.upper(), name, key)


class _NoPasskey(LinkError):
    def __init__(self, name: str, address: str) -> None:
        super().__init__(
            f"{name} tells its key only to who is paired by its passkey (status {Status.NOT_ALLOWED}): set passkey in"
            " mote.toml and flash it, or use a cable: --port auto",
            address=address,
        )


def _over_the_cable(options: argparse.Namespace) -> Key:
    with cable.connect(ports.find(options.port)) as board:
        name, address = flash.name_on(board), keys.address_of(board)
        key = b""
        if options.action == "new":
            key = keys.make_on_board(board)
        elif options.action == "forget":
            keys.forget_on_board(board)
        else:
            key = keys.on_board(board) or b""
        board.reset()
    if address is None:
        raise OptionError(
            f"{name}: the board does not say its address; `spinney mote ls` shows it, and the key is {key.hex()}"
        )
    return Key(address, name, key)
