"""Real MicroPython without a board: the WebAssembly build, run by node, fetched by npm once into the user's cache.

It has the language and the allocator of a 32-bit board, so what is allocated by it is what a board allocates. It has
no bound on its heap, and no native code: viper runs on boards only.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from spinney_tools import cache

PACKAGE = "@micropython/micropython-webassembly-pyscript"
VERSION = "1.27.0"
RUNNER = Path(__file__).with_name("micropython_runner.mjs")
HEAP_BYTES = 4 * 1024 * 1024
INSTALL_SECONDS = 120


class MicroPythonMissing(Exception):
    """It cannot be had on this machine, and why."""


class MicroPythonFailed(Exception):
    """The script ended with an error; MicroPython's own words, and what was printed before."""


def module() -> Path:
    """MicroPython's JavaScript module, installed if need be."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise MicroPythonMissing(f"needs {program}: sudo apt install nodejs npm")
    folder = cache.folder(f"micropython-{VERSION}")
    found = folder / "node_modules" / PACKAGE / "micropython.mjs"
    if not found.exists():
        _install(folder)
    return found


def _install(folder: Path) -> None:
    """Beside its place first, so that a broken installation is never found, and two at once do no harm."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        words = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", scratch]
        try:
            done = subprocess.run(
                [*words, f"{PACKAGE}@{VERSION}"], capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise MicroPythonMissing(f"npm took longer than {INSTALL_SECONDS} s to install {PACKAGE}") from None
        if done.returncode:
            raise MicroPythonMissing(f"npm cannot install {PACKAGE}: {done.stderr.strip()[-300:]}")
        try:
            Path(scratch, "node_modules").rename(folder / "node_modules")
        except OSError as error:
            if not (folder / "node_modules").exists():
                raise MicroPythonMissing(f"cannot install into {folder}: {error}") from None


def run(*steps: str, files: Mapping[str, bytes] | None = None, timeout_seconds: float = 120.0) -> str:
    """What the steps of a script print. `files` are written first, by absolute path; /lib is on its path.

    This build collects garbage between steps only, and there where gc.collect() was called before.
    """
    content = {path: base64.b64encode(data).decode() for path, data in (files or {}).items()}
    job = {"module": str(module()), "steps": steps, "heap": HEAP_BYTES, "files": content}
    done = subprocess.run(
        ["node", str(RUNNER)],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    if done.returncode:
        raise MicroPythonFailed(f"{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def library(folder: Path, at: str = "/lib") -> dict[str, bytes]:
    """All Python files below a folder, as `run` takes them."""
    return {f"{at}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in folder.rglob("*.py")}
