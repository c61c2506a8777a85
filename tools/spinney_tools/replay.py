"""`spinney replay`: what a subscription would have told, from the pipeline's lake."""

from __future__ import annotations

import sys

from spinney_cloud.pipeline.needs import LAKE, missing


def main(arguments: list[str]) -> int:
    """The command, if what it needs is installed."""
    if text := missing((*LAKE, "orjson", "numpy", "h3")):
        print(f"spinney replay: {text}", file=sys.stderr)
        return 1
    from spinney_cloud.pipeline.replay_command import main as command

    return command(arguments)
