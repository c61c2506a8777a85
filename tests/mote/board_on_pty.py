"""A board on a pseudo-terminal: real MicroPython (the WebAssembly build) behind its serial port.

It says that it is an ESP32. What the build lacks of a board's modules is `machine` and `bluetooth`: there is as much of
them as the firmware needs to start, and `bluetooth` ends it as Ctrl-C would; it says an address when it is asked.
"""

from __future__ import annotations

import base64
import json
import os
import pty
import selectors
import subprocess
import tempfile
import threading
import tty
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol

from spinney_tools import micropython

ESP32 = "Generic ESP32 module with ESP32"
REPL = Path(__file__).with_name("board_repl.mjs")
END_SECONDS = 30.0
_XTENSAWIN = 10
_MPY_VERSION = 6

_DISGUISE = """
import builtins, js, os, sys
from collections import namedtuple

class _Disguised:
    def __init__(self, real, **own):
        self.real = real
        for name in own:
            setattr(self, name, own[name])
    def __getattr__(self, name):
        return getattr(self.real, name)

class _Machine:
    SOFT_RESET = 5
    class WDT:
        def __init__(self, timeout): pass
        def feed(self): pass
    class Timer:
        PERIODIC = 1
        def __init__(self, id): pass
        def init(self, **options): pass
    def reset_cause(self): return 1
    def reset(self):
        js.boardReset()
        raise SystemExit

class _Bluetooth:
    def BLE(self):
        return self
    def active(self, on=None):
        return False
    def config(self, name):
        return 0, b"\\xc0\\x49\\xef\\x12\\x34\\x56"
    def irq(self, handler):
        raise KeyboardInterrupt
    def __getattr__(self, name):
        raise KeyboardInterrupt

_about = namedtuple("implementation", ("name", "version", "_machine", "_mpy"))
sys.modules["machine"] = _Machine()
sys.modules["bluetooth"] = _Bluetooth()
sys.modules["sys"] = _Disguised(
    sys, platform={platform!r}, implementation=_about("micropython", {version!r}, {machine!r}, {mpy})
)

_codes = {{20: 17, 28: 22, 31: 21, 44: 2, 51: 28, 54: 20, 55: 39}}  # WASI's numbers of errors, and those of a board
def _as_on_a_board(function):
    def call(*arguments):
        try:
            return function(*arguments)
        except OSError as error:
            raise OSError(_codes.get(error.args[0], error.args[0]))
    return call

class _File:
    def __init__(self, real, name, left):
        self.real = real
        self.name = name
        self.left = left
    def __getattr__(self, name):
        return getattr(self.real, name)
    def __enter__(self):
        return self
    def __exit__(self, *_about):
        self.real.close()
    def write(self, data):
        self.left[0] -= len(data)
        if self.left[0] < 0:
            raise OSError(28)
        return self.real.write(bytes(len(data)) if self.name == {spoils!r} else data)

_open, _left = open, [{room}]
def _limited(name, mode="r"):
    real = _as_on_a_board(_open)(name, mode)
    return _File(real, name, _left) if "w" in mode or "a" in mode else real
builtins.open = _limited

_names = ("ilistdir", "listdir", "mkdir", "remove", "rename", "rmdir", "stat")
sys.modules["os"] = _Disguised(os, **{{name: _as_on_a_board(getattr(os, name)) for name in _names}})
sys.modules["os"].statvfs = lambda path: (4096, 4096, 512, {free_blocks}, {free_blocks}) + (0,) * 5
"""


class Loader(Protocol):
    """What speaks before MicroPython is there."""

    @property
    def is_done(self) -> bool:
        """Whether there is MicroPython on the flash."""
        ...

    def feed(self, data: bytes) -> bytes: ...


class BoardOnPty:
    """Use it as a context; `port` is its serial port, `taken` the bytes that came by it.

    The cable is pulled after `cut_after` bytes. Writes fail beyond `room` bytes; those of the file `spoils` are zeros.
    """

    def __init__(
        self,
        files: Mapping[str, bytes] | None = None,
        *,
        machine: str = ESP32,
        platform: str = "esp32",
        version: tuple[int, int, int] = (1, 27, 0),
        arch: int = _XTENSAWIN,
        free_blocks: int = 500,
        loader: Loader | None = None,
        cut_after: int | None = None,
        room: int = 1 << 30,
        spoils: str = "",
    ) -> None:
        self.taken = 0
        self.cut_after = cut_after
        self.port = ""
        self._loader = loader
        self._disguise = _DISGUISE.format(
            platform=platform,
            version=version,
            machine=machine,
            mpy=arch << 10 | _MPY_VERSION,
            free_blocks=free_blocks,
            room=room,
            spoils=spoils,
        )
        self._files = {path: base64.b64encode(data).decode() for path, data in (files or {}).items()}
        self._process: subprocess.Popen[bytes] | None = None
        self._master = self._slave = -1
        self._is_cut = False
        self._bell = os.pipe()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BoardOnPty:
        self._folder = tempfile.TemporaryDirectory(prefix="spinney-board-")
        if self._loader is None:
            self._start()
        self.plug_in()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pull()
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait(END_SECONDS)
            self._process.stdout.close()
        for end in self._bell:
            os.close(end)
        self._folder.cleanup()

    def cut_now(self) -> None:
        """Pulls the cable behind what is just being taken."""
        self._is_cut = True

    def plug_in(self) -> None:
        """Gives it a port; MicroPython goes on where it was."""
        self._is_cut = False
        self._master, self._slave = pty.openpty()
        tty.setraw(self._slave)
        self.port = os.ttyname(self._slave)
        self._thread = threading.Thread(target=self._carry, name="board")
        self._thread.start()

    def pull(self) -> None:
        """Pulls the cable."""
        if self._thread is not None:
            os.write(self._bell[1], b"!")
            self._thread.join(END_SECONDS)
            self._thread = None
            os.read(self._bell[0], 1)

    def _start(self) -> None:
        job = Path(self._folder.name, "job.json")
        job.write_text(
            json.dumps({"module": str(micropython.module()), "files": self._files, "disguise": self._disguise}), "utf-8"
        )
        self._process = subprocess.Popen(
            ["node", str(REPL), str(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def _carry(self) -> None:
        """Until the cable is pulled: bytes between the port and what runs on the board."""
        with selectors.DefaultSelector() as ready:
            ready.register(self._master, selectors.EVENT_READ)
            ready.register(self._bell[0], selectors.EVENT_READ)
            self._watch(ready)
            while True:
                found = {key.fd for key, _ in ready.select()}
                if self._bell[0] in found:
                    break
                if self._master in found:
                    if not self._to_board(os.read(self._master, 4096)):
                        break
                    self._watch(ready)
                if self._process is not None and self._process.stdout and self._process.stdout.fileno() in found:
                    os.write(self._master, os.read(self._process.stdout.fileno(), 4096))
        os.close(self._master)
        os.close(self._slave)

    def _watch(self, ready: selectors.BaseSelector) -> None:
        if self._process is not None and self._process.stdout not in ready.get_map():
            ready.register(self._process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]

    def _to_board(self, data: bytes) -> bool:
        """False where the cable was cut meanwhile."""
        if self.cut_after is not None and self.taken + len(data) >= self.cut_after:
            data = data[: self.cut_after - self.taken]
            self.cut_after = None
            self._pass_on(data)
            return False
        self._pass_on(data)
        return not self._is_cut

    def _pass_on(self, data: bytes) -> None:
        self.taken += len(data)
        if self._process is None and self._loader is not None:
            if b"\x03" not in data or not self._loader.is_done:
                os.write(self._master, self._loader.feed(data))
                return
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(data)
