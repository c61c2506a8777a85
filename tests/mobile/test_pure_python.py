"""Without a C core the mobile broker does all that it does with one: its own tests, once more, in pure Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODULES = (
    "activations", "deciding_edge", "decode", "devices", "local_life", "mobile_announcing", "mobile_clock",
    "mobile_deciding", "mobile_privacy", "mobile_rules", "mobile_taking", "motes_configured", "motes_local",
)  # fmt: skip
"""Those in which readings are decoded, matched, ruled and decided upon, on motes, too; and that take little time."""


@pytest.mark.slow
def test_what_decides_on_readings_is_the_same_in_pure_python() -> None:
    kept = {name: value for name, value in os.environ.items() if name != "SPINNEY_REQUIRE_NATIVE"}
    environment = {**kept, "SPINNEY_CORE": "/nowhere/core.so", "SPINNEY_HYPOTHESIS": "quick"}
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-p",
        "no:cacheprovider",
        *(f"{HERE}/test_{one}.py" for one in MODULES),
    ]
    done = subprocess.run(
        line, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert "pure Python, no C core" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
