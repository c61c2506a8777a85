"""`spinney cloud` with processes that do nothing but write down what happens to them, in DATA/events.

`--few` as the first argument: with two of them, which is quicker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from spinney_cloud import service
from spinney_cloud.command import main

FEW = (("http",), ("matcher",))


def small_process(name: str, run_file: Path) -> Sequence[str]:
    return [sys.executable, __file__, "--process", name, str(run_file), service.TETHERED]


async def serve(this: service.Service) -> None:
    def write(event: str) -> None:
        with (this.settings.data / "events").open("a") as events:
            events.write(f"{this.name} {event} {os.getpid()}\n")

    this.on_reload = lambda settings: write(f"reload:{settings.logging.level}")
    write("start")
    if (this.settings.data / f"break-{this.name}").exists():
        sys.exit(3)
    this.ready()
    await this.stopping.wait()
    write("stop")
    if (this.settings.data / f"break-stop-{this.name}").exists():
        sys.exit(4)


def run_process(arguments: list[str]) -> int:
    sys.modules[f"spinney_cloud.{arguments[0]}"] = sys.modules[__name__]
    return service.main(arguments)


if __name__ == "__main__":
    if sys.argv[1] == "--process":
        sys.exit(run_process(sys.argv[2:]))
    from spinney_cloud.supervisor import STAGES, Processes  # which the small processes need not load

    few = sys.argv[1] == "--few"
    sys.exit(main(sys.argv[1 + few :], processes=Processes(FEW if few else STAGES, small_process)))
