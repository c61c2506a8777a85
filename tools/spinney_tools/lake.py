"""`spinney lake`: the tables that the pipeline keeps."""

from __future__ import annotations

import sys

from spinney_cloud.pipeline.needs import LAKE, missing


def main(arguments: list[str]) -> int:
    """The command, if what it needs is installed."""
    if text := missing(LAKE):
        print(f"spinney lake: {text}", file=sys.stderr)
        return 1
    from spinney_cloud.pipeline.command_lake import main as command

    return command(arguments)
