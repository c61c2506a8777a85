"""Places where a test can have a process killed, as by kill -9: SPINNEY_FAILPOINT=snapshot.written, or ...:3 for the
third time that it comes by."""

from __future__ import annotations

import os
import signal

VARIABLE = "SPINNEY_FAILPOINT"

_seen: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Die here, if that is what the environment asks for."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    chosen, _, number = wanted.partition(":")
    if chosen != name:
        return
    _seen[name] = _seen.get(name, 0) + 1
    if _seen[name] >= int(number or 1):
        os.kill(os.getpid(), signal.SIGKILL)
