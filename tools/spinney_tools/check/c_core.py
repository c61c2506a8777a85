"""The C core: without a warning under each compiler, and its C tests under sanitizers and on ARM's processors."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spinney_tools.check.step import Place, StepFailed, StepSkipped, command

STRICT = ("-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")
SANITIZED = ("-std=c11", "-ffp-contract=off", "-g", "-O1", "-fno-omit-frame-pointer")
C_TESTS = "tests/core/c"
THREADED = "thread"  # in the name of the tests that run under the thread sanitizer


def installed(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise StepSkipped(f"{name} is not installed")
    return found


def warnings(name: str, place: Place) -> str:
    """Compiles as for real, since some warnings need the optimiser."""
    build_objects([installed(name), *STRICT, "-O3"], place, place.folder(f"warnings-{name}"))
    return f"{len(place.sources())} files"


def build_objects(compile_command: Sequence[str], place: Place, folder: Path) -> list[Path]:
    """Compiles the core's sources, two at a time."""
    objects = [folder / f"{source.stem}.o" for source in place.sources()]
    include = f"-I{place.top / 'native' / 'include'}"

    def compile_one(source: Path, target: Path) -> None:
        command([*compile_command, include, "-c", source, "-o", target], place)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, place.sources(), objects))
    return objects


def c_tests(place: Place) -> list[Path]:
    return sorted((place.top / C_TESTS).glob("test_*.c"))


def run_c_tests(
    tests: Sequence[Path],
    flags: Sequence[str],
    place: Place,
    folder: Path,
    *,
    compiled_by: str = "gcc",
    run_by: Sequence[str] = (),
) -> str:
    """Builds the core once and each test with it, and runs them."""
    if not tests:
        raise StepFailed(f"no such C tests in {C_TESTS}")
    compile_command = [installed(compiled_by), *flags]
    objects = build_objects(compile_command, place, folder)
    native = place.top / "native"
    include = [f"-I{native / 'include'}", f"-I{native / 'src'}", f"-I{place.top / C_TESTS}"]
    for test in tests:
        program = folder / test.stem
        command([*compile_command, *include, test, *objects, "-o", program, "-pthread", "-lm"], place)
        command([*run_by, program], place)
    return f"{len(tests)} programs"


def memory(place: Place) -> str:
    flags = [*SANITIZED, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    return run_c_tests(c_tests(place), flags, place, place.folder("memory"))


def threads(place: Place) -> str:
    tests = [test for test in c_tests(place) if THREADED in test.stem]
    return run_c_tests(tests, [*SANITIZED, "-fsanitize=thread"], place, place.folder("threads"))


def arm(place: Place) -> str:
    """NEON's kernels, by an emulator: everything else here runs those of the machine at hand."""
    emulator = installed("qemu-aarch64")
    flags = ["-std=c11", "-ffp-contract=off", "-O2", "-static"]
    tests = c_tests(place)
    return run_c_tests(tests, flags, place, place.folder("arm"), compiled_by="aarch64-linux-gnu-gcc", run_by=[emulator])
