"""Which serial port the board is on."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from serial.tools import list_ports

from .errors import FlashError

AUTO = "auto"
_MAKERS = {
    0x303A: "Espressif",
    0x2E8A: "Raspberry Pi",
    0x10C4: "CP210x",
    0x1A86: "CH340",
    0x0403: "FTDI",
    0x067B: "PL2303",
}
"""Of USB ports and of the converters that boards have."""


def find(wanted: str, connected: Callable[[], Iterable[Any]] = list_ports.comports) -> str:
    """The port that is named, or with `auto` the only one that could be a board's; FlashError with what to do."""
    if wanted != AUTO:
        _check(wanted)
        return wanted
    found = sorted(port.device for port in connected() if port.vid in _MAKERS)
    if not found:
        raise FlashError(
            "no board is connected by USB",
            "Use a cable that carries data, not only power; on some boards hold BOOT while you plug it in. If it is"
            " there under another kind of port, name it: --port /dev/ttyS0",
        )
    if len(found) > 1:
        raise FlashError(f"several boards are connected: {', '.join(found)}", f"Name one: --port {found[0]}")
    _check(found[0])
    return str(found[0])


def _check(port: str) -> None:
    """Whether it is there, and for us."""
    if "://" in port or sys.platform == "win32":
        return
    if not Path(port).exists():
        raise FlashError(f"there is no port {port}", "Plug the board in, or leave --port out to find it.")
    if not os.access(port, os.R_OK | os.W_OK):
        raise denied(port)


def denied(port: str) -> FlashError:
    """No permission, and what to do."""
    return FlashError(
        f"{port}: {os.strerror(errno.EACCES)}",
        "On Linux: sudo usermod -aG dialout $USER, then log in again (some systems call the group uucp).",
    )
