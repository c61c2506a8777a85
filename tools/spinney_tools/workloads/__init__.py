"""The workload kit: four workloads for content-based matching, a scan that is oracle and baseline, and the core's run.

README.md has the formats. `spinney workloads` writes and checks the files; `spinney bench matching` uses them.
"""

from .command import main

__all__ = ["main"]
