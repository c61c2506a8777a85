"""Types of the firmware, by pyright with MicroPython's stubs: what CPython has and a board has not is an error.

Each board's family is checked with the oldest and the newest MicroPython that firmware/README.md promises.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from spinney_tools import cache
from spinney_tools.check.step import Place, StepFailed, StepSkipped


class Stubs(NamedTuple):
    """What one firmware has, as packages."""

    firmware: str
    packages: tuple[str, str]


_STDLIB_OLDEST: Final = "micropython-stdlib-stubs==1.24.1.post2"
_STDLIB_NEWEST: Final = "micropython-stdlib-stubs==1.29.0.post2"
STUBS: Final = (
    Stubs("esp32-1.24", ("micropython-esp32-stubs==1.24.1.post2", _STDLIB_OLDEST)),
    Stubs("picow-1.24", ("micropython-rp2-rpi_pico_w-stubs==1.24.1.post2", _STDLIB_OLDEST)),
    Stubs("esp32-1.29", ("micropython-esp32-stubs==1.29.0.post1", _STDLIB_NEWEST)),
    Stubs("picow-1.29", ("micropython-rp2-rpi_pico_w-stubs==1.29.0.post1", _STDLIB_NEWEST)),
)
"""Each in a folder of its own, for beside CPython's packages they would hide modules of other code."""
INSTALL_SECONDS = 180
_OFFLINE = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT": "1"}


def firmware_types(place: Place) -> str:
    """Checks everything under firmware/ with each set of stubs; they are installed into the user's cache once."""
    counts, errors = set(), []
    for stubs in STUBS:
        try:
            counts.add(checked(stubs, place))
        except StepFailed as failed:
            errors.append(f"with {' and '.join(stubs.packages)}:\n{failed}")
    if errors:
        raise StepFailed("\n".join(errors))
    return f"{max(counts)} files with {', '.join(stubs.firmware for stubs in STUBS)}"


def checked(stubs: Stubs, place: Place) -> int:
    """How many files have no error with these stubs; StepFailed with all errors."""
    folder = place.folder(f"firmware-types-{stubs.firmware}")
    project = folder / "pyrightconfig.json"
    project.write_text(json.dumps(settings(place.top / "firmware", installed(stubs), folder)), encoding="utf-8")
    words: list[str | Path] = [sys.executable, "-m", "pyright", "--project", project, "--outputjson"]
    return judge(pyright(words, place))


def settings(firmware: Path, stubs: Path, project: Path) -> dict[str, object]:
    """The stubs' own standard library stands in for CPython's. What is included is named as seen from the project."""
    return {
        "include": [os.path.relpath(firmware, project)],
        # viper's pointers are no types of Python's
        "ignore": [os.path.relpath(firmware / "lib" / "spinney_mote" / "vm_viper.py", project)],
        "extraPaths": [str(firmware / "lib")],
        "typeshedPath": str(stubs),
        "stubPath": str(stubs),
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
        "reportMissingModuleSource": False,
        # A fallback for the other Python, as in `try: const = ... except ImportError`, is declared twice on purpose.
        "reportRedeclaration": False,
    }


def installed(stubs: Stubs) -> Path:
    """The folder of the stubs; StepSkipped, or StepFailed where CI=true, if they cannot be had."""
    folder = cache.folder("-".join(["stubs", *(package.replace("==", "-") for package in stubs.packages)]))
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", scratch]
            try:
                done = subprocess.run(
                    [*words, *stubs.packages], capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                raise missing(f"pip took longer than {INSTALL_SECONDS} s to install MicroPython's stubs") from None
            if done.returncode:
                raise missing(f"pip cannot install {' '.join(stubs.packages)}: {done.stderr.strip()[-300:]}")
            keep(Path(scratch), folder)
    return folder


def keep(scratch: Path, folder: Path) -> None:
    """Two checks at once install twice, and one of them wins."""
    staged = folder.with_name(f"{folder.name}.{os.getpid()}")
    scratch.rename(staged)
    scratch.mkdir()  # its owner removes it
    try:
        staged.rename(folder)
    except OSError:
        if not folder.exists():
            raise


def missing(why: str) -> Exception:
    return StepFailed(why) if os.environ.get("CI") == "true" else StepSkipped(why)


def pyright(words: list[str | Path], place: Place) -> str:
    """Pyright's report, which is on stdout whether it found errors or not."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=place.top,
        env={**os.environ, **_OFFLINE},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout.startswith("{"):
        raise StepFailed(f"{done.stdout}{done.stderr}".strip())
    return done.stdout


def judge(report: str) -> int:
    """How many files were looked at; StepFailed with all errors."""
    found = json.loads(report)
    errors = [one for one in found["generalDiagnostics"] if one["severity"] == "error"]
    if errors:
        lines = [
            f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']} ({one.get('rule', '')})"
            for one in errors
        ]
        raise StepFailed("\n".join(lines))
    files = found["summary"]["filesAnalyzed"]
    if not files:
        raise StepFailed("no file of the firmware was looked at")
    return int(files)
