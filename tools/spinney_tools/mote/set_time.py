"""`spinney mote set-time`: this computer's time for a mote's clock."""

from __future__ import annotations

import argparse
import time

from spinney_tools.client_options import DONE

from . import radio

_EPILOG = """\
examples:
  spinney mote set-time balcony

Two settings an hour apart or more tell the mote how fast its clock drifts; from then on it makes up for it.

exit codes: 0 done, 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney mote set-time` and returns its exit code."""
    return radio.run("set-time", run(parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="spinney mote set-time",
        description="Set a mote's clock to this computer's time.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    radio.add_radio(made)
    return made


async def run(options: argparse.Namespace) -> int:
    async with radio.linked(options) as link:
        before, asked = await link.clock(), time.time()
        await link.set_time()
        after = await link.clock()
    was = "was not set" if before.epoch_ms is None else f"was {before.epoch_ms / 1000 - asked:+.1f} s off"
    print(f"{options.mote}: the clock {was} and is set; drift {after.drift_ppm} ppm")
    return DONE
