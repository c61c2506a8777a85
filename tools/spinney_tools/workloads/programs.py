"""Compiles the C programs of the kit together with the core that is in this clone."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from pathlib import Path

FLAGS = ("-std=c11", "-O3", "-ffp-contract=off")

_HERE = Path(__file__).resolve().parent / "c"
_NATIVE = Path(__file__).resolve().parents[3] / "native"
_SHARED = ("support.c", "load.c", "scan.c", "engine.c")


class CompileError(Exception):
    """The kit's programs cannot be compiled, and what the compiler said."""


def compiler() -> list[str]:
    """The C compiler's command: $CC, else cc."""
    return shlex.split(os.environ.get("CC", "cc"))


def compiler_version() -> str:
    """The compiler's own first line about itself."""
    return _run([*compiler(), "--version"]).splitlines()[0]


def build(name: str, folder: Path) -> Path:
    """The program `name` (matching, json_door) in `folder`, compiled unless it is there from the same sources."""
    sources = [*(_HERE / file for file in _SHARED), _HERE / f"{name}.c", *core_sources()]
    program = folder / f"{name}-{_stamp(sources)}"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    for older in folder.glob(f"{name}-*"):
        older.unlink(missing_ok=True)
    half_made = program.with_name(f"{program.name}.{os.getpid()}.part")
    includes = [f"-I{_NATIVE / 'include'}", f"-I{_NATIVE / 'src'}"]
    _run([*compiler(), *FLAGS, *includes, "-o", str(half_made), *map(str, sources), "-lm", "-pthread"])
    half_made.replace(program)
    return program


def core_sources() -> list[Path]:
    """The C files of the core, which only a clone or a source distribution has."""
    sources = sorted((_NATIVE / "src").glob("*.c"))
    if not sources:
        raise CompileError(f"no C sources in {_NATIVE / 'src'}: benchmarks of the core need a clone of the project")
    return sources


def _stamp(sources: list[Path]) -> str:
    """Changes whenever another program would come out."""
    digest = hashlib.sha256(compiler_version().encode() + " ".join(FLAGS).encode())
    headers = [*_HERE.glob("*.h"), *(_NATIVE / "include").glob("*.h"), *(_NATIVE / "src").glob("*.h")]
    for path in [*sources, *sorted(headers)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise CompileError(f"no C compiler: {command[0]} is not there; install gcc or set CC") from error
    except subprocess.CalledProcessError as error:
        raise CompileError(f"{shlex.join(command[:2])} ... failed:\n{error.stderr}") from error
    return done.stdout
