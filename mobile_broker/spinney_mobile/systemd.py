"""What systemd wants to hear of a service of Type=notify: ready, stopping, alive."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

BEATS: Final = 3
"""In the time in which systemd wants one."""


def notify(state: str) -> bool:
    """`READY=1`, `STATUS=...`: whether systemd has been told. Nothing where it did not start us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
            sock.sendall(state.encode())
    except OSError:
        return False  # it has gone, and we go on
    return True


def beat_seconds() -> float | None:
    """How often systemd has to hear that we are alive; None if it does not watch us."""
    watched = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 / BEATS if watched and microseconds.isdecimal() else None


async def beat(is_well: Callable[[], bool] = lambda: True) -> None:
    """Tells it as long as this loop turns and `is_well`; else systemd ends us and starts us anew."""
    seconds = beat_seconds()
    while seconds:
        if is_well():
            notify("WATCHDOG=1")
        await asyncio.sleep(seconds)
