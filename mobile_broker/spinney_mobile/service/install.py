"""`spinney mobile install-service`: the unit for systemd, where it goes, and what is to be done then."""

from __future__ import annotations

import grp
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

NAME: Final = "spinney-mobile"
GROUPS: Final = ("bluetooth", "dialout")
"""Whoever is in them may use BlueZ, and serial ports."""

_FENCES: Final = """\
ProtectSystem=strict
ProtectHome={home}
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
# Not ProcSubset=pid: by /proc/sys/kernel/random/boot_id a kill is told from a power cut.
CapabilityBoundingSet=
DevicePolicy=closed
DeviceAllow=char-ttyUSB rw
DeviceAllow=char-ttyACM rw
DeviceAllow=char-ttyAMA rw"""
"""What a user's own systemd may not do."""


class UnitError(Exception):
    """Why no unit can be made, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be written, and what is to be called then."""

    path: Path
    text: str
    commands: tuple[tuple[str, ...], ...]


def plan(config: Path | None, data: Path | None, *, user_unit: bool, run_as: str | None) -> Plan:
    """For this installation. `data`: where the configuration puts it, None for the usual place.

    UnitError for what a unit cannot say.
    """
    if user_unit:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
        systemctl: tuple[str, ...] = ("systemctl", "--user")
    else:
        folder, systemctl = Path("/etc/systemd/system"), ("systemctl",)
    text = unit(_program(), config, data, user_unit=user_unit, run_as=run_as)
    reload, enable = (*systemctl, "daemon-reload"), (*systemctl, "enable", "--now", f"{NAME}.service")
    linger = (("loginctl", "enable-linger"),) if user_unit else ()
    return Plan(folder / f"{NAME}.service", text, (reload, enable, *linger))


def unit(
    program: Sequence[str], config: Path | None, data: Path | None, *, user_unit: bool, run_as: str | None = None
) -> str:
    """The unit's text. `run_as`: the user of a system unit; a user of its own, made by systemd, if None."""
    command = [*program, "run", "--data", str(data) if data else f"%S/{NAME}"]
    command += ["--config", str(config)] if config else []
    paths = [Path(program[0]), *([data] if data else []), *([config] if config else [])]
    home = "read-only" if any(_is_at_home(path) for path in paths) else "yes"
    replaced = {
        "<command>": " ".join(map(_quoted, command)),
        "<identity>": "\n".join(_identity(data, user_unit=user_unit, run_as=run_as)),
        "<fences>": "" if user_unit else _FENCES.format(home=home),
        "<target>": "default.target" if user_unit else "multi-user.target",
    }
    template = files("spinney_mobile.service").joinpath(f"{NAME}.service").read_text(encoding="utf-8")
    lines = template.splitlines()
    lines[0] = "# Spinney's mobile broker, written by `spinney mobile install-service`: changes go into a drop-in."
    text = "\n".join(lines) + "\n"
    for mark, value in replaced.items():
        text = text.replace(mark, value)
    return text.replace("\n\n\n", "\n\n")


def _identity(data: Path | None, *, user_unit: bool, run_as: str | None) -> Iterator[str]:
    yield f"StateDirectory={NAME}" if data is None else f"ReadWritePaths={_quoted(str(data))}"
    if data is None:
        yield "StateDirectoryMode=0700"
    if user_unit:
        return
    yield f"User={run_as}" if run_as else "DynamicUser=yes"
    if there := [name for name in GROUPS if _exists(name)]:
        yield f"SupplementaryGroups={' '.join(there)}"


def _exists(group: str) -> bool:
    try:
        grp.getgrnam(group)
    except KeyError:
        return False
    return True


def _program() -> list[str]:
    """How to start this installation again."""
    return [sys.executable, "-m", "spinney_mobile"]


def _is_at_home(path: Path) -> bool:
    return path.is_relative_to("/home") or path.is_relative_to("/root")


def _quoted(word: str) -> str:
    """As systemd reads a command line; `%S` is meant as it stands."""
    if "\n" in word:
        raise UnitError(f"a path with a line break cannot stand in a unit: {word!r}")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    escaped = escaped if escaped.startswith("%S/") else escaped.replace("%", "%%")
    return f'"{escaped}"' if any(sign in word for sign in " \"\\;'") else escaped


def write(made: Plan) -> None:
    """Put the unit into its place; UnitError if that may not be."""
    try:
        made.path.parent.mkdir(parents=True, exist_ok=True)
        part = made.path.with_suffix(".part")
        part.write_text(made.text)
        part.chmod(0o644)
        part.replace(made.path)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise UnitError(f"{made.path} may not be written: use sudo, or --user") from None
        raise UnitError(f"{made.path}: {error.strerror}") from None


def has_systemd() -> bool:
    """Whether there is one to hand the unit to."""
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None
