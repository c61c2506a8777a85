"""The kinds of board that a mote can be, from firmware/boards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from spinney_tools import clone


@dataclass(frozen=True, slots=True)
class Board:
    """One kind. `method` is esptool, which writes at `offset`, or uf2, which is copied onto a drive."""

    name: str
    title: str
    chip: str
    mcu: str
    """The end of what MicroPython calls the board."""
    arch: str
    image: str
    download: str
    micropython: tuple[int, int]
    method: str
    watchdog_max_s: int
    deep_sleep: bool
    offset: int = 0
    chip_id: int = -1
    """In an image for esptool."""
    family: int = -1
    """In an image of kind UF2."""
    drive: str = ""
    """The name of the drive, and what its INFO_UF2.TXT calls the board."""


def folder() -> Path:
    """Where they are described."""
    return clone.root() / "firmware" / "boards"


def names() -> list[str]:
    """What --board takes."""
    return sorted(path.stem for path in folder().glob("*.json"))


def load(name: str) -> Board:
    """One of `names`."""
    found = json.loads((folder() / f"{name}.json").read_text("utf-8"))
    major, minor = found["micropython"].split(".")
    known = {key: found[key] for key in Board.__dataclass_fields__ if key in found}
    return Board(**{**known, "name": name, "micropython": (int(major), int(minor))})
