"""Motes over the air: finding them, connecting, and what goes wrong, in words that say what to do."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from bleak import BleakClient, BleakScanner
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData
from bleak.exc import BleakBluetoothNotAvailableError, BleakError

from spinney.errors import SpinneyError
from spinney.mote import advert
from spinney.mote.adverts import Mode
from spinney.mote.link import MoteLink
from spinney.mote.protocol import (
    INFO,
    ControlOp,
    Info,
    InfoFlag,
    LinkError,
    LinkLost,
    MoteRefused,
    PairingNeeded,
    ProtocolError,
    Status,
)
from spinney_tools.client_options import ERROR, INTERRUPTED, say

FIND_SECONDS = 15.0
CONNECT_SECONDS = 20.0
CONNECT_TRIES = 3
MAX_MOTES = 10_000
"""Remembered while listening; others are not shown."""


class NotConnected(LinkLost):
    """A mote that was heard and could not be connected to."""


class RadioError(SpinneyError):
    """No Bluetooth, no such mote, or one that will not talk; says what to do."""


@dataclass
class Heard:
    """A mote, from its adverts and its scan response."""

    device: BLEDevice
    name: str | None = None
    rssi: int = 0
    scan: advert.ScanData | None = None
    readings: dict[str, Any] = field(default_factory=dict)
    mode: Mode = Mode.OPEN
    """What its last advert was."""

    @property
    def address(self) -> str:
        return self.device.address

    def take(self, data: AdvertisementData) -> None:
        """What does not fit into one advert comes in turns, so readings add up."""
        self.name = data.local_name or self.name
        self.rssi = data.rssi
        with contextlib.suppress(ProtocolError):
            self.scan = advert.ScanData.decode(data.manufacturer_data.get(advert.COMPANY, b""))
        if advert.PRESENCE in data.service_data:
            self.mode = Mode.PRESENCE
            self.readings.clear()
            return
        with contextlib.suppress(ProtocolError):
            found = advert.Advert.decode(data.service_data.get(advert.BTHOME, b""))
            self.mode = Mode.ENCRYPTED if found.encrypted else Mode.OPEN
            self.readings.update((reading.name, reading.value) for reading in found.readings)


def add_radio(parser: argparse.ArgumentParser, *, mote: bool = True, seconds: float = FIND_SECONDS) -> None:
    """MOTE, --seconds and --adapter."""
    if mote:
        parser.add_argument("mote", metavar="MOTE", help="its name or its address, as spinney mote ls shows them")
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=seconds,
        metavar="N",
        help="how long to listen for it (%(default)g); one that sleeps is heard once in its sample interval",
    )
    parser.add_argument("--adapter", metavar="NAME", help="of this computer, such as hci1 (Linux)")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return seconds


def _adapter(options: argparse.Namespace) -> dict[str, Any]:
    return {"bluez": {"adapter": options.adapter}} if options.adapter else {}


# ---- hearing


async def listen(options: argparse.Namespace, heard: Callable[[Heard], bool]) -> None:
    """Hears motes for --seconds, or until `heard` says that it is enough."""
    motes: dict[str, Heard] = {}
    enough = asyncio.Event()

    def on_advert(device: BLEDevice, data: AdvertisementData) -> None:
        if device.address not in motes and len(motes) >= MAX_MOTES:
            return
        mote = motes.setdefault(device.address, Heard(device))
        mote.take(data)
        if mote.scan is not None and heard(mote):
            enough.set()

    with contextlib.suppress(TimeoutError):
        async with available(), BleakScanner(on_advert, **_adapter(options)):
            async with asyncio.timeout(options.seconds):
                await enough.wait()


async def find(options: argparse.Namespace) -> Heard:
    """The mote that is named, the first that is heard; RadioError where none is."""
    wanted, found = options.mote, {}

    def heard(mote: Heard) -> bool:
        if wanted.lower() in ((mote.name or "").lower(), mote.address.lower()):
            found[mote.address] = mote
        return bool(found)

    await listen(options, heard)
    if not found:
        raise RadioError(
            f"no mote {wanted!r} was heard for {options.seconds:g} s. Is it in range, and has it power? One that sleeps"
            " needs --seconds above its sample interval. `spinney mote ls` shows what is heard"
        )
    return next(iter(found.values()))


@contextlib.asynccontextmanager
async def available() -> AsyncIterator[None]:
    """Where there is no Bluetooth, or it is not for us, that is said in words."""
    try:
        yield
    except BleakBluetoothNotAvailableError as error:
        raise RadioError(f"Bluetooth cannot be used: {error.args[0]}. {_BLUETOOTH}") from error
    except PermissionError as error:
        raise RadioError(f"no permission to use Bluetooth: {error.strerror}. {_PERMISSION}") from error
    except (FileNotFoundError, ConnectionError) as error:
        raise RadioError(f"there is no Bluetooth service here ({error.strerror}). {_BLUETOOTH}") from error
    except BleakError as error:
        words = str(error)
        advice = _PERMISSION if "AccessDenied" in words or "NotAuthorized" in words else _BLUETOOTH
        raise RadioError(f"Bluetooth: {words}. {advice}") from error


_BLUETOOTH = (
    "It needs an adapter that is switched on; on Linux: sudo apt install bluez, sudo systemctl start bluetooth,"
    " bluetoothctl power on"
)
_PERMISSION = "On Linux: sudo usermod -aG bluetooth $USER, then log in again; on macOS: allow it in System Settings"


# ---- connecting


@contextlib.asynccontextmanager
async def linked(options: argparse.Namespace, *, writes: bool = True) -> AsyncIterator[MoteLink]:
    """A connection to the mote that is named, paired where `writes` needs that.

    One that sleeps is there for a moment only: what comes too late is tried again when it is heard again.
    """
    async with contextlib.AsyncExitStack() as until_the_end:
        for turn in range(CONNECT_TRIES):
            mote = await find(options)
            try:
                link = await until_the_end.enter_async_context(link_to(mote, options, writes=writes))
                break
            except NotConnected:
                if turn == CONNECT_TRIES - 1:
                    raise
        yield link


@contextlib.asynccontextmanager
async def link_to(mote: Heard, options: argparse.Namespace, *, writes: bool = True) -> AsyncIterator[MoteLink]:
    """A connection to a mote that was heard."""
    client = BleakClient(mote.device, timeout=CONNECT_SECONDS, **_adapter(options))
    try:
        await client.connect()
    except (BleakError, TimeoutError, OSError, EOFError) as error:
        raise NotConnected(
            f"cannot connect ({error or 'no answer'}); go nearer and try again", address=mote.address
        ) from error
    try:
        async with MoteLink(client) as link:
            if writes:
                await _pair(client, link)
            yield link
    finally:
        with contextlib.suppress(BleakError, OSError, EOFError):
            await client.disconnect()


async def _pair(client: BleakClient, link: MoteLink) -> None:
    """Pairs where only those who have may write; where the system does so by itself, it is left to it.

    Who has not paired while that was open is disconnected by the mote.
    """
    info = Info.decode(bytes(await client.read_gatt_char(INFO)))
    if InfoFlag.BONDED_WRITES not in info.flags:
        return
    try:
        await client.pair()
    except NotImplementedError:
        pass
    except (BleakError, EOFError, OSError) as error:
        raise _not_paired(client, error) from error
    try:
        await link.control(ControlOp.PING)
    except LinkLost as error:
        if InfoFlag.PAIRING_OPEN in info.flags:
            raise
        raise _not_paired(client, error) from error


def _not_paired(client: BleakClient, error: Exception) -> PairingNeeded:
    return PairingNeeded("pair", Status.NOT_ALLOWED, f"{error or 'refused'}; {_PAIRING}", address=client.address)


_PAIRING = (
    "a mote lets others pair for `pairing_s` (120 s) after a start: reset it and try again. One with a passkey is"
    " paired in the system's Bluetooth settings first"
)


# ---- running


def run(name: str, work: Coroutine[Any, Any, int], *, interrupted: int = INTERRUPTED) -> int:
    """Runs a command to its end, or to SIGTERM or Ctrl-C, which disconnect first; its exit code."""

    async def until_the_end() -> int:
        with contextlib.suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _task().cancel)
        return await guarded(name, work)

    try:
        return asyncio.run(until_the_end())
    except (KeyboardInterrupt, asyncio.CancelledError):
        return interrupted


def _task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def guarded(name: str, work: Awaitable[int]) -> int:
    """The exit code; what went wrong is said in a line."""
    try:
        return await work
    except SpinneyError as error:
        say(f"spinney mote {name}: {error}{_advice(error)}")
    except (BleakError, TimeoutError) as error:
        say(f"spinney mote {name}: Bluetooth: {error or 'no answer'}; try again")
    return ERROR


def _advice(error: SpinneyError) -> str:
    if isinstance(error, PairingNeeded):
        return "" if _PAIRING in str(error) else f"; {_PAIRING}"
    if isinstance(error, LinkLost):
        return "; nothing is half done: try again"
    if isinstance(error, MoteRefused) or not isinstance(error, LinkError):
        return ""
    return "; try again"


def progress(text: str, *, last: bool = False) -> None:
    """A line that is written over again and again; on no terminal only its last."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)
    elif last:
        say(text)
