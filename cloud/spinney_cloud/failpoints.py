"""Places where a test can have a process killed, as by kill -9: SPINNEY_FAILPOINT=snapshot.written, or ...:3 for the
third time that it comes by. SPINNEY_FAILPOINT=@FILE looks for that text in a file, which is gone once it has worked:
so a failpoint can be set while everything runs, and whoever starts again lives.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

VARIABLE = "SPINNEY_FAILPOINT"

_seen: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Die here, if that is what the environment asks for."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    file = Path(wanted[1:]) if wanted.startswith("@") else None
    if file is not None:
        wanted = _read(file)
    chosen, _, number = wanted.partition(":")
    if chosen != name:
        return
    _seen[wanted] = _seen.get(wanted, 0) + 1
    if _seen[wanted] >= int(number or 1):
        if file is not None:
            file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""
