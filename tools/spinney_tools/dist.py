"""`spinney dist`: what is given to others: a source distribution, wheels made of it, and what is in them."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spinney_tools import clone, sbom

FAILED = 1
SUMS = "SHA256SUMS"
SMOKE = """\
import spinney, sys
from spinney import native
matcher = spinney.Matcher()
matcher.add("dirty", "NO2 > 40 AND type = 'air'")
assert matcher.match({"NO2": 41, "type": "air"}) == ["dirty"], "it does not match what it must"
assert matcher.match({"NO2": 39, "type": "air"}) == [], "it matches what it must not"
assert (native.core() is not None) == (sys.argv[1] == "core"), "the C core is not where it should be"
"""
"""Run in an empty environment; its argument says whether the wheel has the core."""


_LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "SPINNEY_REQUIRE_NATIVE")
"""Of the environment: what is built and tried stands alone, in pure Python too."""


class DistError(Exception):
    """What could not be made, and what the tool that was to make it said."""


def main(arguments: list[str]) -> int:
    """The command; exit code 0 done, 1 failed, 2 called wrongly."""
    parser = argparse.ArgumentParser(
        prog="spinney dist",
        description="Make a source distribution, of it a wheel with the C core (for every Python from 3.11) and one "
        "without (for every machine), a list of what they install with licences (CycloneDX and text), and checksums. "
        "Each wheel is installed in an empty environment and tried.",
        epilog="examples:\n  spinney dist\n  spinney dist --to /tmp/release\n  spinney dist --no-try\n\n"
        "exit codes: 0 done, 1 failed, 2 wrong use",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--to", type=Path, metavar="DIR", help="where the files go (default: dist in the clone)")
    parser.add_argument("--no-try", action="store_true", help="do not install the wheels, which needs a network")
    options = parser.parse_args(arguments)
    try:
        top = clone.root()
    except clone.NotACloneError as error:
        parser.error(str(error))
    try:
        make(top, (options.to or top / "dist").absolute(), tried=not options.no_try)
    except (DistError, sbom.SbomError, OSError) as error:
        print(f"spinney dist: {error}", file=sys.stderr)
        return FAILED
    return 0


def make(top: Path, target: Path, *, tried: bool) -> None:
    """All files, in a folder of their own making, which holds nothing else of an earlier run."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spinney-dist-") as scratch:
        new = Path(scratch) / "new"
        with step("source distribution"):
            source = build(top, new, "sdist")
        unpacked = unpack(source, Path(scratch) / "source")
        with step("wheel with the C core"):
            compiled = build(unpacked, new, "wheel", {"SPINNEY_REQUIRE_NATIVE": "1", "SPINNEY_BUILD_CORE": ""})
        with step("wheel in pure Python"):
            pure = build(unpacked, new, "wheel", {"SPINNEY_REQUIRE_NATIVE": "", "SPINNEY_BUILD_CORE": "0"})
        if tried:
            with step("installing and trying both wheels"):
                try_wheels(Path(scratch) / "empty", compiled, pure)
        write_contents(new)
        write_sums(new)
        replace(target, new)
    for file in sorted(target.iterdir()):
        print(f"{file.stat().st_size:>10}  {file}")


@contextmanager
def step(what: str) -> Iterator[None]:
    """Says what is done, and how long it took."""
    print(f"{what} ...", end="", file=sys.stderr, flush=True)
    start = time.monotonic()
    try:
        yield
    except BaseException:
        print(" failed", file=sys.stderr, flush=True)
        raise
    print(f" {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def build(top: Path, folder: Path, kind: str, environment: dict[str, str] | None = None) -> Path:
    """One distribution of the tree `top`."""
    before = set(folder.glob("*"))
    run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)], top, environment)
    (made,) = set(folder.glob("*")) - before
    return made


def unpack(source: Path, folder: Path) -> Path:
    """The tree in a source distribution: wheels made of it show that it lacks nothing."""
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


def try_wheels(folder: Path, compiled: Path, pure: Path) -> None:
    """Each wheel in an environment that holds nothing else; the second finds the first's dependencies there."""
    venv.create(folder, with_pip=True)
    for wheel, kind in ((compiled, "core"), (pure, "pure")):
        try_wheel(folder / "bin", wheel, kind)


def try_wheel(bin_folder: Path, wheel: Path, kind: str) -> None:
    """Install it, match with it, and run its command."""
    python = str(bin_folder / "python")
    quiet = ["--quiet", "--disable-pip-version-check"]
    run([python, "-m", "pip", "uninstall", *quiet, "--yes", "spinney"], bin_folder)
    run([python, "-m", "pip", "install", *quiet, str(wheel)], bin_folder)
    # The pure wheel warns that it is slower; that it does is tested elsewhere.
    run([python, "-I", "-W", "ignore", "-c", SMOKE, kind], bin_folder)
    for words in (["--version"], ["--help"], ["match", "--help"]):
        run([str(bin_folder / "spinney"), *words], bin_folder)


def write_contents(folder: Path) -> None:
    """What an installation brings with it: an SBOM and the licences."""
    found = sbom.contents("spinney", sbom.EXTRAS)
    version = found.parts["spinney"].version
    (folder / f"spinney-{version}.cdx.json").write_text(sbom.cyclonedx(found), encoding="utf-8")
    (folder / f"spinney-{version}-licences.txt").write_text(sbom.licences(found), encoding="utf-8")
    for extra, missing in found.left_out.items():
        print(f"not listed: the extra {extra}, since {', '.join(missing)} is not installed here", file=sys.stderr)


def write_sums(folder: Path) -> None:
    """As `sha256sum --check` reads them."""
    files = sorted(folder.iterdir())
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def replace(target: Path, new: Path) -> None:
    """The new files instead of those of an earlier run; nothing is touched that is not ours."""
    for file in target.glob("spinney-*"):
        file.unlink()
    for file in new.iterdir():
        (target / file.name).write_bytes(file.read_bytes())


def run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Runs a program; what it said is in the error if it fails. Nothing of the clone's Python is seen by it."""
    clean = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**clean, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise DistError(f"{' '.join(command[:6])}\n{done.stdout.strip() or 'failed without a word'}")
    return done.stdout
