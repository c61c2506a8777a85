"""mote.toml to config.json, looked at by the mote's own code before anything is written."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import tomllib
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import advertising, library
from .boards import Board
from .errors import FlashError

DEFAULT_NAME = "mote"


@dataclass(frozen=True, slots=True)
class MoteConfig:
    """What is written to the board, and the name it gives the mote."""

    text: str
    name: str
    fits: tuple[str, ...]
    """Lines that say which attributes fit into its adverts."""


def read(file: Path, board: Board, drivers: Iterable[Path] = (), adverts: str | None = None) -> MoteConfig:
    """FlashError with all that is wrong with it; `drivers` are files of the owner's own, `adverts` is --adverts."""
    try:
        with file.open("rb") as opened:
            found = tomllib.load(opened)
        text = json.dumps(found, ensure_ascii=False)
    except OSError as error:
        raise FlashError(
            f"{file}: {error.strerror}", "Copy firmware/mote.toml and set name, pins and sensors."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FlashError(f"{file}: {error}", "It is TOML, as in firmware/mote.toml.") from None
    except TypeError as error:
        raise FlashError(f"{file}: {error}", "Dates and times are nothing that a mote knows.") from None
    wrong, fits = looked_at(text, board, drivers)
    if wrong:
        raise FlashError(
            f"{file}:\n  " + "\n  ".join(wrong), "firmware/README.md lists all entries. Nothing was changed."
        )
    return MoteConfig(advertising.chosen(adverts, text), found.get("name", DEFAULT_NAME), tuple(fits))


def looked_at(text: str, board: Board, drivers: Iterable[Path] = ()) -> tuple[list[str], list[str]]:
    """What the mote would complain about at its start, and what this board cannot; and what fits into its adverts."""
    with _firmware(drivers):
        from spinney_mote import bthome, config, wiring  # type: ignore[import-not-found]

        parsed = config.parse(text)
        sensors = wiring.sensors(parsed, _Anything(), _Anything())
        fits = list(advertising.fits(bthome, [one for sensor in sensors for one in sensor.attributes]))
        wrong = list(parsed.problems)
        if len(text.encode()) > config.FILE_BYTES:
            wrong.append(f"config.json would have more than {config.FILE_BYTES} bytes")
    if parsed.problem_count > len(parsed.problems):
        wrong.append(f"and {parsed.problem_count - len(parsed.problems)} more")
    if parsed.watchdog_s > board.watchdog_max_s:
        wrong.append(f"watchdog_s must be at most {board.watchdog_max_s} on {board.title}")
    if parsed.deep_sleep and not board.deep_sleep:
        wrong.append(f"deep_sleep: {board.title} keeps nothing through it")
    return wrong, fits


class _Anything:
    """A `machine` without hardware: whatever is asked of it is there."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_arguments: Any, **_options: Any) -> Any:
        return self


@contextlib.contextmanager
def _firmware(drivers: Iterable[Path]) -> Iterator[None]:
    """The mote's library can be imported, with these drivers, and finds MicroPython's modules."""
    added = str(library.firmware() / "lib")
    stand_ins = {name: types.ModuleType(name) for name in ("onewire", "machine") if name not in sys.modules}
    for module in stand_ins.values():
        module.__getattr__ = _Anything().__getattr__  # type: ignore[method-assign]
    sys.path.insert(0, added)
    sys.modules.update(stand_ins)
    own: list[str] = []
    try:
        own += [_load(driver) for driver in drivers]
        yield
    finally:
        sys.path.remove(added)
        for name in (*stand_ins, *own):
            sys.modules.pop(name, None)


def _load(driver: Path) -> str:
    """The name by which the mote's library finds it."""
    name = f"spinney_mote.drivers.{driver.stem}"
    spec = importlib.util.spec_from_file_location(name, driver)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return name
