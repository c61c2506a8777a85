"""`spinney pipeline`: the log into the lake, by Spark."""

from __future__ import annotations

import sys

from spinney_cloud.pipeline.needs import missing


def main(arguments: list[str]) -> int:
    """The command, if what it needs is installed."""
    if text := missing():
        print(f"spinney pipeline: {text}", file=sys.stderr)
        return 1
    from spinney_cloud.pipeline.command import main as command

    return command(arguments)
