"""A board that runs MicroPython, at the other end of a cable; mpremote's transport does the talking."""

from __future__ import annotations

import ast
import contextlib
import errno
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mpremote.transport import TransportError, TransportExecError  # type: ignore[import-untyped]
from mpremote.transport_serial import SerialTransport  # type: ignore[import-untyped]

from .boards import Board
from .errors import FlashError
from .ports import denied

T = TypeVar("T")
ANSWER_SECONDS = 15.0
"""The longest that a board takes to say anything: erasing flash for a file."""
PROMPT_SECONDS = 20.0
CHUNK_BYTES = 512
ARCHES = (
    "",
    "x86",
    "x64",
    "armv6",
    "armv6m",
    "armv7m",
    "armv7em",
    "armv7emsp",
    "armv7emdp",
    "xtensa",
    "xtensawin",
    "rv32imc",
)
"""MicroPython's numbers for what native code is compiled for."""
_MPY_VERSION = 6
_AGAIN = "Run it again: what is whole on the board is not written again."

_ABOUT = """
import os, sys
_spinney = sys.implementation
_free = os.statvfs("/")
print((tuple(_spinney.version[:3]), _spinney._machine, _spinney._mpy, _free[0] * _free[3]))
"""
_HASHES = """
import binascii, hashlib
for _name in {names!r}:
    _hash, _size = hashlib.sha256(), 0
    try:
        with open(_name, "rb") as _file:
            _part = _file.read(512)
            while _part:
                _hash.update(_part)
                _size += len(_part)
                _part = _file.read(512)
        print(_size, binascii.hexlify(_hash.digest()).decode())
    except OSError:
        print(0, "-")
"""
_REMOVE = """
import os
def _remove(path):
    try:
        os.remove(path)
    except OSError:
        try:
            for entry in os.ilistdir(path):
                _remove(path + "/" + entry[0])
            os.rmdir(path)
        except OSError:
            pass
for _path in {paths!r}:
    _remove(_path)
"""
_FOLDERS = """
import os
for _path in {paths!r}:
    try:
        os.mkdir(_path)
    except OSError:
        pass
"""
_NAMES = """
import os
_found = []
def _walk(folder):
    try:
        for entry in os.ilistdir(folder):
            path = folder + "/" + entry[0]
            if entry[1] & 0x4000:
                _walk(path)
            else:
                _found.append(path)
    except OSError:
        pass
_walk({folder!r})
print(_found)
"""


@dataclass(frozen=True, slots=True)
class About:
    """What MicroPython says of the board."""

    version: tuple[int, int, int]
    machine: str
    mpy: int
    free_bytes: int

    @property
    def arch(self) -> str:
        """What its native code is compiled for."""
        number = self.mpy >> 10 & 0x3F
        return ARCHES[number] if number < len(ARCHES) else f"number {number}"

    def check(self, board: Board) -> None:
        """FlashError where it is another board than was named, or too old."""
        if self.machine.split(" with ")[-1] != board.mcu:
            raise FlashError(
                f"this board is {self.machine!r}, not an {board.title}",
                "Name the board that it is by --board, or another port by --port. Nothing was changed.",
            )
        if self.version[:2] < board.micropython:
            oldest = ".".join(map(str, board.micropython))
            raise FlashError(
                f"it runs MicroPython {'.'.join(map(str, self.version))}; {oldest} is the oldest that will do",
                f"Download {board.image} from {board.download} and give it by --firmware.",
            )
        if self.mpy & 0xFF != _MPY_VERSION or self.arch not in ("", board.arch):  # "": it runs no native code
            raise FlashError(
                f"its MicroPython takes .mpy files of version {self.mpy & 0xFF} for {self.arch or 'no processor'},"
                f" not of version {_MPY_VERSION} for {board.arch}",
                f"Download {board.image} from {board.download} and give it by --firmware.",
            )


@dataclass(frozen=True, slots=True)
class BoardFile:
    """A file on the board; the hash is SHA-256 in hexadecimal, - where there is no such file."""

    size: int
    digest: str


def _silent(_count: int) -> None:
    pass


class Cable:
    """A connection to MicroPython's prompt. Whatever ran there is interrupted; its watchdog goes on being fed."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def about(self) -> About:
        """Which MicroPython, on which board, with how much room."""
        return About(*self._value("ask the board what it is", _ABOUT))

    def files(self, names: Sequence[str], done: Callable[[int], None] = _silent) -> list[BoardFile]:
        """Size and hash of each, read back by the board. `done` is told how many there are."""
        lines = bytearray()

        def take(data: bytes) -> None:
            lines.extend(data.replace(b"\x04", b""))
            done(lines.count(b"\n"))

        self.execute("read files back", _HASHES.format(names=tuple(names)), take)
        rows = [line.split() for line in lines.decode().splitlines()]
        if len(rows) != len(names):
            raise FlashError("read files back: the board did not answer for all of them", _AGAIN)
        return [BoardFile(int(size), digest) for size, digest in rows]

    def names(self, folder: str) -> list[str]:
        """All files below a folder."""
        found: list[str] = self._value(f"list {folder}", _NAMES.format(folder=folder))
        return found

    def make_folders(self, paths: Iterable[str]) -> None:
        """Those that are not there; a folder comes before what is in it."""
        self.execute("make folders", _FOLDERS.format(paths=tuple(paths)))

    def remove(self, paths: Iterable[str]) -> None:
        """Files, and folders with all that is in them, if they are there."""
        self.execute("remove files", _REMOVE.format(paths=tuple(paths)))

    def write(self, name: str, data: bytes, done: Callable[[int], None] = _silent) -> None:
        """A file, whole or with an error. `done` is told bytes written."""

        def write() -> None:
            self._transport.fs_writefile(name, data, CHUNK_BYTES, lambda written, _size: done(written))

        self._try(f"write {name}", write)

    def read(self, name: str) -> bytes | None:
        """A file, None where there is none."""
        if name not in self.names(name.rpartition("/")[0]):
            return None
        return bytes(self._try(f"read {name}", lambda: self._transport.fs_readfile(name)))

    def reset(self) -> None:
        """Restarts the board as its button does; the cable is of no use afterwards."""
        self._try("reset", lambda: self._transport.exec_raw_no_follow("import machine\nmachine.reset()"))

    def execute(self, what: str, code: str, output: Callable[[bytes], None] | None = None) -> bytes:
        """Runs code at the prompt; what it prints."""
        return bytes(self._try(what, lambda: self._transport.exec(code, output)) or b"")

    def _value(self, what: str, code: str) -> Any:
        """What code prints, as a value."""
        printed = self.execute(what, code).decode("utf-8", "replace")
        try:
            return ast.literal_eval(printed)
        except (SyntaxError, ValueError):
            raise FlashError(
                f"{what}: the board says {printed[:80]!r}", "Press its reset button and run it again."
            ) from None

    def _try(self, what: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except TransportExecError as error:
            raise _refused(what, error.error_output) from error
        except (TransportError, OSError, struct.error, SyntaxError) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise _full(what) from error
            raise FlashError(f"the board went away ({what}: {error})", f"Is the cable loose? {_AGAIN}") from error


def _refused(what: str, traceback: str) -> FlashError:
    last = traceback.strip().splitlines()[-1] if traceback.strip() else "no reason"
    if last in ("OSError: 28", "OSError: [Errno 28] ENOSPC"):
        return _full(what)
    if last.startswith("MemoryError"):
        return FlashError(f"{what}: the board has no memory left", "Unplug it, plug it in, and run it again.")
    return FlashError(f"{what}: {last}", "Run it again; if that does not help, write the image anew by --firmware.")


def _full(what: str) -> FlashError:
    return FlashError(
        f"{what}: the board's flash is full",
        "Remove files of your own (mpremote resume fs ls), or write the image anew by --firmware, which erases all.",
    )


@contextlib.contextmanager
def connect(port: str, seconds: float = PROMPT_SECONDS) -> Iterator[Cable]:
    """Tries until the board answers, which after its image was written takes seconds; FlashError if it does not."""
    transport = _prompt(port, time.monotonic() + seconds)
    try:
        yield Cable(transport)
        with contextlib.suppress(OSError):
            transport.exit_raw_repl()
    finally:
        with contextlib.suppress(OSError):
            transport.close()


def _prompt(port: str, deadline: float) -> Any:
    while True:
        try:
            return _raw_repl(port)
        except (TransportError, OSError) as error:
            if isinstance(error, PermissionError):
                raise denied(port) from error
            if time.monotonic() >= deadline:
                raise FlashError(
                    f"no MicroPython answers on {port} ({error})",
                    "Close what else has the port open (a terminal, an IDE), and press the board's reset button. If it"
                    " has no MicroPython yet, give its image by --firmware. A mote that sleeps answers only while it"
                    " is awake: reset it just before.",
                ) from error
            time.sleep(_RETRY_SECONDS)


_RETRY_SECONDS = 0.5
_GREETING_SECONDS = 3


def _raw_repl(port: str) -> Any:
    with contextlib.redirect_stdout(None):  # mpremote prints what it did not expect
        transport: Any = SerialTransport(port, baudrate=115200)
        try:
            transport.serial.timeout = _GREETING_SECONDS
            transport.enter_raw_repl(soft_reset=False)
            transport.serial.timeout = ANSWER_SECONDS
        except (TransportError, OSError):
            with contextlib.suppress(OSError):
                transport.close()
            raise
    return transport
