"""The process of a mobile broker on the virtual radio: `spinney mobile run`, over an adapter of the city's process."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from spinney_mobile.command import main as spinney_mobile

from ..sim.remote_adapter import install


def main(arguments: list[str]) -> int:
    """SOCKETS NAME ADDRESS, then what `spinney mobile` gets. Without its adapter it ends, to be started again."""
    sockets, name, address, *rest = arguments
    os.chdir(sockets)  # a socket's path must be short
    with install(Path(f"{name}.hci"), address, lambda: os.kill(os.getpid(), signal.SIGTERM)):
        return spinney_mobile(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
