"""This package for the executors of a cluster, whose Python has its dependencies and not itself: from a wheel.

    python -m pip wheel --no-deps --wheel-dir dist .
    session("matching", folder, master="spark://...", conf=from_wheel(Path("dist/spinney-0.1.0-....whl"), folder))

A wheel that is only put on the path (`--py-files`) stays packed, and nothing can load the C core from there. So it goes
as an archive, which Spark unpacks beside each executor before that starts its first Python.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from .session import PYTHON

UNPACKED = "spinney_wheel"
"""The folder beside each executor."""


def from_wheel(wheel: Path, folder: Path) -> dict[str, str]:
    """Settings for a session; the archive is written into the folder, which must stay as long as the session."""
    if wheel.suffix != ".whl" or not wheel.is_file():
        raise FileNotFoundError(f"there is no wheel {wheel}; make one with: python -m pip wheel --no-deps -w dist .")
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{wheel.stem}.zip"  # Spark goes by the name
    shutil.copyfile(wheel, archive)
    return {**PYTHON, "spark.archives": f"{archive}#{UNPACKED}", "spark.executorEnv.PYTHONPATH": f"./{UNPACKED}"}
