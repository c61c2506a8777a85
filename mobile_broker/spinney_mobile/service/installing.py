"""The dialogue of `spinney mobile install-service`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from .install import Plan, UnitError, has_systemd, plan, write


def install(
    config: Path | None, data: Path | None, *, user_unit: bool, run_as: str | None, dry_run: bool, asks: bool
) -> int:
    """Show, ask, write, start; the exit code. UnitError for what cannot be."""
    made = plan(config, data, user_unit=user_unit, run_as=run_as)
    commands = [shlex.join(command) for command in made.commands]
    print(f"{made.text}\n# goes to {made.path}; then:\n#   " + "\n#   ".join(commands))
    if dry_run:
        return 0
    if asks and not _agrees():
        print("nothing was changed")
        return 1
    write(made)
    print(f"wrote {made.path}")
    return _call(made)


def _agrees() -> bool:
    if not sys.stdin.isatty():
        raise UnitError("nobody can be asked here: say --yes")
    return input("Write it, and start the service? [y/N] ").strip().lower() in ("y", "yes")


def _call(made: Plan) -> int:
    if not has_systemd():
        print("systemd does not run here; call those commands where it does")
        return 0
    for command in made.commands:
        if status := subprocess.run(command, check=False).returncode:
            raise UnitError(f"{shlex.join(command)} ended with {status}; journalctl -u spinney-mobile says more")
    return 0
