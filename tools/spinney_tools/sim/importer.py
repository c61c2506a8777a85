"""Imports a mote's firmware as MicroPython would: each mote has its own modules, from its own flash."""

from __future__ import annotations

import builtins
import importlib
import os
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .flash import Flash

# What firmware may have of CPython; `os`, `sys`, `time`, `gc` and the hardware's modules are the mote's own.
PLAIN = frozenset(
    ("array", "binascii", "cmath", "collections", "errno", "hashlib", "heapq", "io", "json", "math", "re", "struct",
     "__future__", "traceback", "deflate", "zlib")
)  # fmt: skip
MAX_CODES = 1000

_codes: dict[tuple[str, int, int], types.CodeType] = {}


def compiled(file: str) -> types.CodeType:
    """The code of a file; many motes share one."""
    about = os.stat(file)  # noqa: PTH116 - at each start of each mote
    key = (file, about.st_mtime_ns, about.st_size)
    if key not in _codes:
        if len(_codes) >= MAX_CODES:
            _codes.clear()
        _codes[key] = compile(Path(file).read_text("utf-8"), file, "exec", dont_inherit=True)
    return _codes[key]


class Importer:
    """The modules of one boot. `given` stands in for what the board has built in; `extra` are more files by name;
    `loaded` is told of each module."""

    def __init__(
        self,
        flash: Flash,
        given: Mapping[str, types.ModuleType],
        extra: Mapping[str, Path],
        path: Sequence[str],
        print_line: Callable[..., None],
        loaded: Callable[[types.ModuleType], None],
    ) -> None:
        self._flash = flash
        self._given = given
        self._extra = extra
        self._path = path
        self._loaded = loaded
        self.modules: dict[str, types.ModuleType] = {}
        self._builtins = {
            **vars(builtins), "__import__": self._import, "open": flash.open, "print": print_line,
        }  # fmt: skip

    def run(self, name: str) -> types.ModuleType | None:
        """Runs `boot.py` or `main.py`, if there is one."""
        file = self._flash.program(name)
        return self._load(file, "__main__", "") if file else None

    def _import(
        self,
        name: str,
        names: Mapping[str, Any] | None = None,
        _locals: object = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> types.ModuleType:
        if level:
            package = (names or {}).get("__package__") or ""
            base = package.rsplit(".", level - 1)[0] if level > 1 else package
            if not base:
                raise ImportError("relative import without a package")
            name = f"{base}.{name}" if name else base
        modules = [self._one(name[:end]) for end in _ends(name)]
        for parent, child, part in zip(modules, modules[1:], name.split(".")[1:], strict=False):
            setattr(parent, part, child)
        if not fromlist:
            return modules[0]
        last = modules[-1]
        for wanted in fromlist:
            if wanted != "*" and not hasattr(last, wanted):
                setattr(last, wanted, self._member(name, wanted))
        return last

    def _member(self, package: str, name: str) -> types.ModuleType:
        try:
            return self._one(f"{package}.{name}")
        except ModuleNotFoundError:
            raise ImportError(f"can't import name {name} from {package}") from None

    def _one(self, name: str) -> types.ModuleType:
        known = self._given.get(name) or self.modules.get(name)
        if known is not None:
            return known
        relative = name.replace(".", "/")
        for folder in self._path:
            start = folder.strip("/") + "/" if folder.strip("/.") else ""
            for file, package in ((f"{start}{relative}/__init__.py", name), (f"{start}{relative}.py", "")):
                found = self._flash.program(file)
                if found is not None:
                    return self._load(found, name, package or name.rpartition(".")[0])
        if name in self._extra:
            return self._load(str(self._extra[name]), name, name.rpartition(".")[0])
        if name.split(".")[0].removeprefix("u") in PLAIN:
            return importlib.import_module(name.removeprefix("u"))
        raise ModuleNotFoundError(f"no module named '{name}'", name=name)

    def _load(self, file: str, name: str, package: str) -> types.ModuleType:
        made = types.ModuleType(name)
        made.__dict__.update(__file__=file, __package__=package, __builtins__=self._builtins)
        self.modules[name] = made
        try:
            exec(compiled(file), made.__dict__)  # noqa: S102 - firmware is what this is for
        except BaseException:
            self.modules.pop(name, None)
            raise
        self._loaded(made)
        return made


def _ends(name: str) -> list[int]:
    """Where each package's name ends in a dotted one."""
    return [at for at, letter in enumerate(name) if letter == "."] + [len(name)]
