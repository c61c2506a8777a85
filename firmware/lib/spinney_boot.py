"""Which set of library files runs, the checked files that say so, and the record of a crash.

This file is never replaced over the air: whatever is wrong with a new set, it finds the last good one.
"""

import binascii
import io
import json
import os
import struct
import sys
from errno import EEXIST, ENOENT

STATE_FOLDER = "state"
POINTER = "set"  # the checked file that says which set runs
CRASH = "crash"
FACTORY = 0  # the set that was flashed, in /lib or frozen
SLOTS = (1, 2)
NO_SET = 255
TRIAL_BOOTS = 3  # a new set must be healthy within so many starts
CRASH_BYTES = 400  # of a traceback's end
CONFIG = "config.json"
HELD_S = 600  # for how long the watchdog is fed while somebody works at the prompt
WATCHDOG_MS = 8000  # until the library has read its configuration; more than 8388 the Pico cannot

_MAGIC = b"SK1"
_HEAD = "<3sII"  # magic, bytes of data, CRC-32 of data
FRAME_BYTES = 11


class Files:
    """The flash below one folder. Counts what is written and erased, since flash wears."""

    def __init__(self, folder: str):
        self.folder = folder
        self.writes = 0

    def path(self, name: str) -> str:
        return self.folder + "/" + name if self.folder else name

    def read(self, name: str):
        """The bytes of a file, None where there is none."""
        try:
            with open(self.path(name), "rb") as file:
                return file.read()
        except OSError as error:
            if error.args[0] != ENOENT:
                raise
            return None

    def write(self, name: str, data) -> None:
        self._write(name, data, "wb")

    def append(self, name: str, data) -> None:
        self._write(name, data, "ab")

    def _write(self, name: str, data, mode: str) -> None:
        self.writes += 1
        with open(self.path(name), mode) as file:
            file.write(data)
            file.flush()

    def rename(self, old: str, new: str) -> None:
        """Takes the place of `new` in one step, as littlefs and POSIX do it."""
        self.writes += 1
        os.rename(self.path(old), self.path(new))

    def remove(self, name: str) -> None:
        self.writes += 1
        try:
            os.remove(self.path(name))
        except OSError as error:
            if error.args[0] != ENOENT:
                raise

    def make_folder(self, name: str) -> None:
        """Makes a folder, and those above it, unless they are there; "" is the folder of these files."""
        path = self.path(name) if name else self.folder
        for end in [at for at, letter in enumerate(path) if letter == "/" and at] + [len(path)]:
            try:
                os.mkdir(path[:end])
            except OSError as error:
                if error.args[0] != EEXIST:
                    raise
            else:
                self.writes += 1

    def remove_folder(self, name: str) -> None:
        """Removes a folder with all that is in it."""
        for below in self.names(name):
            inner = name + "/" + below
            if self.is_folder(inner):
                self.remove_folder(inner)
            else:
                self.remove(inner)
        if self.is_folder(name):
            self.writes += 1
            os.rmdir(self.path(name))

    def names(self, folder: str) -> list:
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError as error:
            if error.args[0] != ENOENT:
                raise
            return []

    def is_folder(self, name: str) -> bool:
        try:
            return os.stat(self.path(name))[0] & 0x4000 != 0
        except OSError as error:
            if error.args[0] != ENOENT:
                raise
            return False


def framed(data) -> bytes:
    """Data behind a head by which `unframed` knows it whole."""
    return struct.pack(_HEAD, _MAGIC, len(data), binascii.crc32(data)) + data


def unframed(frame):
    """What was framed, None if that is not whole. What follows the frame is left out."""
    if frame is None or len(frame) < FRAME_BYTES:
        return None
    magic, length, crc = struct.unpack(_HEAD, frame[:FRAME_BYTES])
    data = bytes(frame[FRAME_BYTES : FRAME_BYTES + length])
    if magic != _MAGIC or len(data) != length or binascii.crc32(data) != crc:
        return None
    return data


def read_checked(files: Files, name: str):
    """The last data that was written whole under a name, None where there is none."""
    data = unframed(files.read(name))
    return unframed(files.read(name + ".new")) if data is None else data


def write_checked(files: Files, name: str, data) -> None:
    """Writes data so that a loss of power at any byte leaves the old or the new."""
    files.make_folder("")
    files.write(name + ".new", framed(data))
    files.rename(name + ".new", name)


class Pointer:
    """The set that is known to be good, the one on trial, how many starts that has left, and the last that failed."""

    def __init__(self, good: int = FACTORY, trial: int = NO_SET, tries: int = 0, failed: int = NO_SET):
        self.good = good
        self.trial = trial
        self.tries = tries
        self.failed = failed


def read_pointer(files: Files) -> Pointer:
    data = read_checked(files, POINTER)
    return Pointer(*data[:4]) if data is not None and len(data) >= 4 else Pointer()


def write_pointer(files: Files, pointer: Pointer) -> None:
    write_checked(files, POINTER, bytes((pointer.good, pointer.trial, pointer.tries, pointer.failed)))


def slot_folder(slot: int) -> str:
    """Where the files of a set are, below the state's folder."""
    return "set%d" % slot


def choose(files: Files) -> int:
    """The set to run at this start; one on trial loses one of its starts, and its place with the last of them."""
    pointer = read_pointer(files)
    if pointer.trial not in SLOTS:
        return pointer.good
    if pointer.tries == 0:
        write_pointer(files, Pointer(pointer.good, failed=pointer.trial))
        return pointer.good
    pointer.tries -= 1
    write_pointer(files, pointer)
    return pointer.trial


def distrust(files: Files, running: int) -> None:
    """A good set that cannot even be loaded, as flash ages, gives way to the one that was flashed."""
    if running in SLOTS and read_pointer(files).good == running:
        write_pointer(files, Pointer(FACTORY, failed=running))


running = FACTORY
"""The set that this start took."""


def start(files=None) -> int:
    """Puts the chosen set before all others on the path; returns which it is."""
    global running
    files = files or Files(STATE_FOLDER)
    running = choose(files)
    if running in SLOTS:
        sys.path.insert(0, files.path(slot_folder(running)))
    return running


def traceback_text(error: BaseException) -> str:
    """The end of a traceback, where it says what went wrong."""
    out = io.StringIO()
    if hasattr(sys, "print_exception"):
        sys.print_exception(error, out)  # pyright: ignore[reportArgumentType, reportCallIssue]  # stubs: StringIO
    else:
        import traceback

        traceback.print_exception(error, file=out)
    return out.getvalue()[-CRASH_BYTES:]  # pyright: ignore[reportAttributeAccessIssue]


def record_crash(error: BaseException, files=None) -> None:
    """Keeps what went wrong for `info`. The same crash again and again is written once."""
    files = files or Files(STATE_FOLDER)
    data = traceback_text(error).encode()
    if read_checked(files, CRASH) != data:
        write_checked(files, CRASH, data)


def watchdog(machine):
    """The watchdog of a start, so that a library that hangs is given up, too. None where config.json turns it off."""
    try:
        off = json.loads(Files("").read(CONFIG) or b"{}")["watchdog_s"] == 0
    except (ValueError, KeyError, TypeError):
        off = False
    return None if off else machine.WDT(timeout=WATCHDOG_MS)


def hold(machine, watched) -> None:
    """Feeds a watchdog that cannot be stopped for a while: somebody interrupted the mote to work at the prompt."""
    left = [HELD_S]

    def feed(_timer):
        if left[0]:
            left[0] -= 1
            watched.feed()

    if watched is not None:
        try:
            timer = machine.Timer(-1)
        except ValueError:
            timer = machine.Timer(0)
        timer.init(period=1000, mode=machine.Timer.PERIODIC, callback=feed)
