"""`spinney cloud` with its real processes, each with a wall clock that a test can step: DATA/clock-NAME has seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

STEP = "clock-"
LOOK_SECONDS = 0.01
"""How old the step may be that is known."""


def stepped_process(name: str, run_file: Path) -> Sequence[str]:
    from spinney_cloud.service import TETHERED

    return [sys.executable, __file__, "--process", name, str(run_file), TETHERED]


def step_clock(file: Path) -> None:
    """From now on `time.time` is off by what the file says."""
    real = time.time
    known = [0.0, 0.0]

    def stepped() -> float:
        if time.monotonic() > known[0]:
            known[:] = [time.monotonic() + LOOK_SECONDS, float(file.read_text() or 0) if file.exists() else 0.0]
        return real() + known[1]

    time.time = stepped


if __name__ == "__main__":
    if sys.argv[1] == "--process":
        _, _, name, run_file, *more = sys.argv
        step_clock(Path(run_file).parents[1] / f"{STEP}{name}")
        from spinney_cloud import service  # whatever it loads finds the stepped clock

        sys.exit(service.main([name, run_file, *more]))
    from spinney_cloud.command import main
    from spinney_cloud.supervisor import STAGES, Processes

    sys.exit(main(sys.argv[1:], processes=Processes(STAGES, stepped_process)))
