"""Compiles the C core into `spinney/_core.abi3.so`, by cffi's API mode.

Run it to build in place, beside the package: `python native/build_core.py`. The build hook of the wheel and the
coverage run of `./spinney check` use its functions. What cffi needs to know is derived from include/spinney.h, so that
there is one header and no second copy. Standard library and cffi only.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NATIVE = Path(__file__).resolve().parent
HEADER = NATIVE / "include" / "spinney.h"
IN_PLACE = NATIVE / "python" / "spinney" / "_core.abi3.so"
FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden")
COMPILERS = ("cc", "gcc", "clang")
_UNDEFINED_OK = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()


class BuildError(Exception):
    """The core cannot be compiled here; says in one line why and what to install."""


def find_compiler() -> list[str]:
    """The C compiler as a command: CC if set, else the first there is."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    for name in COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise BuildError("no C compiler found; install one for the fast core: sudo apt install build-essential")


def python_headers() -> Path:
    """The folder that holds Python.h."""
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").exists():
        raise BuildError("Python.h is missing; install it for the fast core: sudo apt install python3-dev")
    return folder


def sources() -> list[Path]:
    return sorted((NATIVE / "src").glob("*.c"))


def declarations(header: str) -> str:
    """What cffi's parser understands of the header: no comments, no preprocessor lines."""
    without_comments = re.sub(r"//[^\n]*|/\*.*?\*/", "", header, flags=re.DOTALL)
    lines = (line.rstrip() for line in without_comments.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def write_glue(path: Path) -> None:
    """Writes the C file that makes the core a Python module."""
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(declarations(HEADER.read_text(encoding="utf-8")))
    ffi.set_source("spinney._core", '#include "spinney.h"', py_limited_api=True, compiler_verbose=0)
    ffi.emit_c_code(str(path))


def compile_objects(
    files: Sequence[Path], folder: Path, flags: Sequence[str] = FLAGS, *, jobs: int | None = None
) -> list[Path]:
    """Compiles each file into an object in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    compiler = find_compiler()
    include = [f"-I{HEADER.parent}", f"-I{NATIVE / 'src'}", f"-I{python_headers()}"]
    objects = [folder / f"{file.stem}.o" for file in files]

    def compile_one(file: Path, target: Path) -> None:
        _run([*compiler, *flags, *include, "-c", str(file), "-o", str(target)])

    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        list(pool.map(compile_one, files, objects))
    return objects


def link(objects: Sequence[Path], target: Path, flags: Sequence[str] = ()) -> None:
    """Links objects into a module, which appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    whole = target.with_name(f"{target.name}.{os.getpid()}")
    command = [*find_compiler(), "-shared", *_UNDEFINED_OK, *flags, *map(str, objects), "-pthread", "-lm"]
    try:
        _run([*command, "-o", str(whole)])
        whole.replace(target)
    finally:
        whole.unlink(missing_ok=True)


def build(
    target: Path = IN_PLACE,
    *,
    objects: Path | None = None,
    flags: Sequence[str] = FLAGS,
    link_flags: Sequence[str] = (),
) -> Path:
    """Compiles the core into the module `target`, its objects into a folder that is kept if one is named."""
    if not sources():
        raise BuildError(f"no C sources in {NATIVE / 'src'}")
    with tempfile.TemporaryDirectory(prefix="spinney-") as scratch:
        glue = Path(scratch) / "_core.c"
        write_glue(glue)
        link(compile_objects([*sources(), glue], objects or Path(scratch), flags), target, link_flags)
    check_that_it_loads(target)
    return target


def check_that_it_loads(module: Path) -> None:
    """A linker lets undefined names of a module pass, so that only loading it shows that it is whole."""
    loader = importlib.machinery.ExtensionFileLoader("spinney._core", str(module))
    spec = importlib.util.spec_from_file_location("spinney._core", module, loader=loader)
    assert spec is not None
    try:
        importlib.util.module_from_spec(spec)
    except ImportError as error:
        raise BuildError(f"the core was compiled but does not load: {error}") from error


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BuildError(f"no C compiler found: {command[0]} (from CC) is not on PATH") from None
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}".rstrip())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compile the C core of Spinney, in place unless told.")
    parser.add_argument("target", nargs="?", type=Path, default=IN_PLACE, help="the module to write")
    parser.add_argument("--objects", type=Path, help="a folder to keep the objects in")
    parser.add_argument("--flags", type=shlex.split, default=(), help="compiler flags after the usual ones")
    parser.add_argument("--link-flags", type=shlex.split, default=(), help="flags for linking")
    options = parser.parse_args(arguments)
    try:
        build(
            options.target,
            objects=options.objects,
            flags=(*FLAGS, *options.flags),
            link_flags=options.link_flags,
        )
    except BuildError as error:
        options.target.unlink(missing_ok=True)  # an old core under new Python code would be worse than none
        print(f"spinney: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
