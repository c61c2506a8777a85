"""A running `spinney mobile run`, started as people start it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clouds import Cloud

PROGRAM = [sys.executable, "-m", "spinney_mobile"]
ANY_PORTS = ("--web-port", "0", "--local-port", "0")
NOTHING_HEARD = "acquire = []\n"
"""Readings come by the local port alone."""


class Mobile(Cloud):
    """`spinney mobile run` on a data directory; a `with` starts it, and leaves nothing behind."""

    def __init__(
        self, folder: Path, *arguments: str, config: str = NOTHING_HEARD, ports: Sequence[str] = ANY_PORTS
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.config = folder / "mobile.toml"
        self.config.write_text(config)
        program = [*PROGRAM, "run", "--config", str(self.config)]
        super().__init__(folder / "data", *arguments, program=program, ports=ports)

    @property
    def local(self) -> str:
        """The local MQTT port's URL."""
        return self.addresses()["local"]

    @property
    def page(self) -> str:
        """The web page's URL."""
        return self.addresses()["page"]

    def status(self) -> dict[str, Any]:
        """As `spinney mobile status --json` gives it."""
        done = command("status", "--json", "--data", str(self.data))
        assert done.returncode in (0, 3), done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found


def command(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """`spinney mobile ...`, until its end."""
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=120, **{"input": "", **more}
    )
