"""On what a benchmark ran: the line above every table."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path


def cpu_model() -> str:
    """The processor's own name, or its architecture where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def describe(*versions: str) -> str:
    """Processor, cores, system, Python, and what else took part."""
    parts = [f"{cpu_model()}, {os.cpu_count()} cores", f"{platform.system()} {platform.machine()}"]
    parts += [f"Python {platform.python_version()}", *versions]
    return "; ".join(parts)


def pinned(command: list[str]) -> list[str]:
    """The command kept on one core, where that can be asked for."""
    taskset = shutil.which("taskset")
    if not taskset or sys.platform != "linux":
        return command
    return [taskset, "--cpu-list", str(max(os.sched_getaffinity(0))), *command]
