"""`spinney mote flash`: from a bare board to a mote that is heard."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

from spinney_tools.client_options import DONE, ERROR, INTERRUPTED, REFUSED, say

from . import advertising, boards, cable, config_file, image, keys, library, ports, writing
from .config_file import DEFAULT_NAME, MoteConfig
from .errors import FlashError
from .steps import Step, Steps
from .table import readings

BAUD = 460_800
LISTEN_SECONDS = 60.0
APPEAR_SECONDS = 30.0
"""For a board that restarts to be on its port again."""
CONFIG = "/config.json"
STARTS = "/main.py"
OTHER_SETS = ("/state/set", "/state/set.new", "/state/set1", "/state/set2")
"""Libraries that came over the air, and what says that they run instead of the one that is flashed."""
_BLOCK = 4096

_EPILOG = """\
examples:
  spinney mote flash --board esp32 --config mote.toml --firmware ESP32_GENERIC-v1.27.0.bin    a bare board
  spinney mote flash --board esp32 --config mote.toml     one that runs MicroPython: library and configuration only
  spinney mote flash --board picow --config mote.toml --firmware RPI_PICO_W-v1.27.0.uf2       hold BOOTSEL, plug it in
  spinney mote flash --board esp32 --driver mine.py --config mote.toml                        with a driver of your own
  spinney mote flash --board esp32 --config mote.toml --adverts open    Home Assistant goes on to read all of it

With --firmware everything on the board is erased. Without it the mote keeps its bonds, its filters, its boot number and
its key. It can be run again after any failure; what is whole on the board is not written again.

On a terminal it asks who is to read the mote's adverts, unless --adverts or mote.toml (advert_mode) says so. A mote
that a mobile broker owns says only that it is there, by default: Home Assistant and other readers of BTHome lose it.
A mote without a key gets one for encrypted adverts: it is shown once, and kept in a file for mobile brokers (--keys).

exit codes: 0 done, 1 written, but the mote was not heard, 2 something was wrong, 130 stopped by Ctrl-C
"""

Hear = Callable[[argparse.Namespace, str], str | None]
"""Waits for the advert of a mote by its name; what it says, None where nothing was heard."""


def main(arguments: list[str], hear: Hear | None = None) -> int:
    """Runs `spinney mote flash` and returns its exit code."""
    options = parser().parse_args(arguments)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _Flash(options, hear or hear_mote).run()
    except keys.KeyFileError as error:
        say(f"spinney mote flash: {error}")
        return ERROR
    except FlashError as error:
        say(f"spinney mote flash: {error}")
        if error.advice:
            say(f"  {error.advice}")
        return ERROR
    except KeyboardInterrupt:
        say("spinney mote flash: stopped. The board may be half written: run it again")
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="spinney mote flash",
        description="Put MicroPython, the mote's library and a configuration onto a board.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--board", required=True, choices=boards.names())
    made.add_argument("--port", default=ports.AUTO, help="serial port, or auto: the only board that is connected")
    made.add_argument("--firmware", type=Path, metavar="FILE", help="MicroPython's image; the board is erased first")
    made.add_argument("--config", type=Path, metavar="FILE", help="mote.toml; without it the board keeps its own")
    made.add_argument(
        "--driver", type=Path, action="append", default=[], metavar="FILE", help="a sensor driver of your own"
    )
    made.add_argument(
        "--adverts", choices=advertising.CHOICES, help="who reads its adverts; auto: open until a broker owns it"
    )
    made.add_argument(
        "--keys", type=Path, metavar="FILE", help=f"where its key is kept (beside --config, {keys.DEFAULT})"
    )
    made.add_argument("--no-key", action="store_true", help="make no key for encrypted adverts")
    made.add_argument("--drive", type=Path, metavar="FOLDER", help="where the Pico is mounted, if it is not found")
    made.add_argument("--baud", type=int, default=BAUD, help="of the image (%(default)s)")
    made.add_argument(
        "--listen",
        type=float,
        default=LISTEN_SECONDS,
        metavar="SECONDS",
        help="for the mote's advert at the end (%(default)g; 0: not at all)",
    )
    made.add_argument("--adapter", metavar="NAME", help="of this computer's Bluetooth, such as hci1 (Linux)")
    return made


class _Flash:
    """One board, step by step."""

    def __init__(self, options: argparse.Namespace, hear: Hear) -> None:
        self._options = options
        self._hear = hear
        self._board = boards.load(options.board)
        self._uses_drive = options.firmware is not None and self._board.method == "uf2"
        writes = 0 if options.firmware is None else 2 if self._uses_drive else 3
        self._steps = Steps(7 + (options.config is not None) + writes + (not options.no_key))
        self._keys: Path = options.keys or (options.config or keys.DEFAULT).with_name(keys.DEFAULT.name)

    def run(self) -> int:
        config = self._check_config()
        if not self._options.no_key:
            keys.read(self._keys)  # what is wrong with it is told before anything is changed
        self._check_image()
        port = "" if self._uses_drive else self._find()
        files = self._compile()
        if self._uses_drive:
            port = self._copy_image()
        elif self._options.firmware is not None:
            self._write_image(port)
        with contextlib.ExitStack() as until_the_restart:
            board = self._connect(port, until_the_restart)
            self._copy(board, files, config)
            name = config.name if config else name_on(board)
            self._give_key(board, name)
            with self._steps.step("restart"):
                board.reset()
        return self._listen(name)

    # ---- before anything is changed

    def _check_config(self) -> MoteConfig | None:
        if self._options.config is None:
            if self._options.adverts is not None:
                raise FlashError("--adverts is for a configuration", "Name it by --config.")
            return None
        with self._steps.step(f"check {self._options.config}") as step:
            options = self._options
            config = config_file.read(options.config, self._board, options.driver, options.adverts)
            step.result = f"the mote is called {config.name}"
        for line in config.fits:
            print(f"  {line}")
        return config

    def _check_image(self) -> None:
        if self._options.firmware is not None:
            with self._steps.step(f"check {self._options.firmware}") as step:
                step.result = image.check(self._options.firmware, self._board)

    def _find(self) -> str:
        with self._steps.step("find the board's port") as step:
            step.result = port = ports.find(self._options.port)
        return port

    def _compile(self) -> dict[str, bytes]:
        with self._steps.step(f"compile the library for {self._board.title}") as step:
            files = library.flashed(self._board, self._options.driver)
            step.result = f"{len(files)} files, {sum(map(len, files.values()))} bytes"
        return files

    # ---- the image

    def _write_image(self, port: str) -> None:
        baud = self._options.baud
        with self._steps.step("ask the chip what it is") as step:
            step.result = writing.check_chip(port, baud, self._board)
        with self._steps.step("erase, and write the image") as step:
            writing.write(port, baud, self._board, self._options.firmware, step.progress)
            step.result = "its MD5 on the flash is right"

    def _copy_image(self) -> str:
        with self._steps.step(f"copy the image onto the {self._board.drive} drive") as step:
            drive = writing.find_drive(self._options.drive, self._board)
            writing.copy(self._options.firmware, drive, step.progress)
        with self._steps.step("wait for the board's port") as step:
            step.result = port = _appearing(self._options.port)
        return port

    # ---- the library

    def _connect(self, port: str, until: contextlib.ExitStack) -> cable.Cable:
        with self._steps.step(f"ask MicroPython on {port}") as step:
            seconds = APPEAR_SECONDS if self._options.firmware else cable.PROMPT_SECONDS
            board = until.enter_context(cable.connect(port, seconds))
            about = board.about()
            about.check(self._board)
            self._free_bytes = about.free_bytes
            step.result = f"{'.'.join(map(str, about.version))} on {about.machine}, {about.free_bytes} bytes free"
        return board

    def _copy(self, board: cable.Cable, files: dict[str, bytes], config: MoteConfig | None) -> None:
        wanted = dict(files)
        if config is not None:
            wanted = {CONFIG: config.text.encode(), **wanted}
        with self._steps.step("copy what differs") as step:
            missing = self._missing(board, wanted, step)
            self._write_files(board, {name: wanted[name] for name in missing}, step)
            step.result = f"{len(missing)} of {len(wanted)} files, {sum(len(wanted[name]) for name in missing)} bytes"
        with self._steps.step("compare hashes") as step:
            found = board.files(list(wanted), lambda done: step.progress(done, len(wanted)))
            wrong = [name for name, file in zip(wanted, found, strict=True) if file.digest != _digest(wanted[name])]
            if wrong:
                board.remove([STARTS])
                raise FlashError(
                    f"{', '.join(wrong)}: what the board reads is not what was written",
                    "Run it again. If it comes again, write the image anew by --firmware; then the flash may be worn.",
                )
            step.result = f"all {len(wanted)} files are as sent"

    def _missing(self, board: cable.Cable, wanted: dict[str, bytes], step: Step) -> list[str]:
        """What is not on the board, or other than it should be; FlashError where there is no room for it."""
        found = board.files(list(wanted), lambda done: step.progress(done, 2 * len(wanted)))
        there = dict(zip(wanted, found, strict=True))
        missing = [name for name in wanted if there[name].digest != _digest(wanted[name])]
        needed = sum(_blocks(len(wanted[name])) - _blocks(there[name].size) for name in missing)
        if needed > self._free_bytes:
            raise FlashError(
                f"{needed} bytes are needed and {self._free_bytes} are free",
                "Remove files of your own (mpremote resume fs ls), or write the image anew by --firmware.",
            )
        return missing

    @staticmethod
    def _write_files(board: cable.Cable, files: dict[str, bytes], step: Step) -> None:
        """While they are written nothing starts: main.py is removed first and written last."""
        shadows = [name.removesuffix(".mpy") + ".py" for name in library_names(files)]
        board.remove([*OTHER_SETS, *shadows, *([STARTS] if files else [])])
        if STARTS not in files and files:
            files[STARTS] = (library.firmware() / "main.py").read_bytes()
        board.make_folders(_folders(files))
        whole, done = sum(map(len, files.values())), 0
        for name, data in files.items():
            start = done
            board.write(name, data, lambda written, start=start: step.progress(start + written, whole))  # type: ignore[misc]
            done += len(data)

    # ---- the key

    def _give_key(self, board: cable.Cable, name: str) -> None:
        """One of its own for encrypted adverts, unless it has one: under that its counter goes on."""
        if self._options.no_key:
            return
        with self._steps.step("make its key") as step:
            if keys.on_board(board) is not None:
                step.result = f"it has one: spinney mote key show {name}"
                return
            address = keys.address_of(board)
            key = keys.make_on_board(board)
            step.result = "made; the board does not say its address, so no file has it"
            if address is not None:
                keys.put(self._keys, keys.Key(address, name, key))
                step.result = f"made, and kept in {self._keys}"
        print(f"  the key of {name}, shown once (BTHome calls it bindkey): {key.hex()}")

    # ---- the end

    def _listen(self, name: str) -> int:
        with self._steps.step(f"wait for the advert of {name}") as step:
            if not self._options.listen:
                step.result = "not waited for"
                return DONE
            heard = self._hear(self._options, name)
            step.result = heard or "written, but not heard"
        if heard is None:
            say(_NOT_HEARD.format(name=name))
            return REFUSED
        return DONE


_NOT_HEARD = """\
the mote {name} was not heard. Perhaps:
  it is out of range of this computer's Bluetooth: try `spinney mote ls` nearer to it
  it stopped: `spinney mote shell` shows its prompt, where `import main` says why"""


def library_names(files: dict[str, bytes]) -> list[str]:
    """Compiled files, beside which MicroPython would take a .py of the same name first."""
    return [name for name in files if name.endswith(".mpy")]


def _appearing(wanted: str) -> str:
    deadline = time.monotonic() + APPEAR_SECONDS
    while True:
        try:
            return ports.find(wanted)
        except FlashError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_LOOK_AGAIN_SECONDS)


_LOOK_AGAIN_SECONDS = 0.5


def name_on(board: cable.Cable) -> str:
    """What the configuration that is on the board calls it."""
    text = board.read(CONFIG)
    try:
        name = json.loads(text or b"{}").get("name", DEFAULT_NAME)
    except (ValueError, AttributeError):
        return DEFAULT_NAME
    return str(name)


def _folders(files: dict[str, bytes]) -> list[str]:
    """Those that files are in, the outer before the inner."""
    found: set[str] = set()
    for name in files:
        parts = name.split("/")[1:-1]
        found.update("/" + "/".join(parts[: depth + 1]) for depth in range(len(parts)))
    return sorted(found)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _blocks(size: int) -> int:
    return (size + _BLOCK - 1) // _BLOCK * _BLOCK


def hear_mote(options: argparse.Namespace, name: str) -> str | None:
    """By this computer's Bluetooth; where there is none, that is what is said."""
    try:
        from . import radio
    except ModuleNotFoundError as missing:
        return f"written; listening needs {missing.name}: pip install 'spinney[flash]'"
    try:
        return asyncio.run(listen(options, name))
    except radio.RadioError as error:
        return f"written; not listened for: {error}"


async def listen(options: argparse.Namespace, name: str) -> str | None:
    """What the mote of this name says: its first advert with readings, or, where none has any, that it is there."""
    from . import radio

    wanted = argparse.Namespace(mote=name, seconds=options.listen, adapter=options.adapter)
    found: list[radio.Heard] = []

    def heard(mote: radio.Heard) -> bool:
        if mote.name == name:
            found[:] = [mote]
        return bool(found and found[0].readings)

    await radio.listen(wanted, heard)
    if not found:
        return None
    mote = found[0]
    return f"{name} at {mote.address}, {mote.rssi} dBm: {readings(mote.readings) or 'no readings yet'}"
