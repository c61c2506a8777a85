"""A mote's flash: a folder, what is written to it counted, and a power cut at any byte of it."""

from __future__ import annotations

import errno
import io
import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

FLASH_BYTES = 2 * 1024 * 1024
_BLOCK_BYTES = 4096
_FOLDER, _FILE = 0x4000, 0x8000
_MAX_NAME = 255


class PowerCut(BaseException):
    """The power is gone: nothing on the mote can catch it, or go on after it."""


class Flash:
    """The files below `folder`, and read-only below `underlay`, where `folder` has none of that name.

    With `cut_after_bytes` the power is cut when so many more bytes are written; renames and removals count as one.
    """

    def __init__(self, folder: Path, underlay: Path | None = None) -> None:
        self.folder = folder
        self.underlay = underlay
        self.writes = 0
        self.bytes_written = 0
        self.cut_after_bytes: int | None = None
        self.is_powered = True
        self.current = "/"
        folder.mkdir(parents=True, exist_ok=True)

    def spend(self, size: int) -> int:
        """Of `size` bytes to be written, those that are before the power cut; PowerCut if there is no power."""
        if not self.is_powered:
            raise PowerCut
        if self.cut_after_bytes is None:
            self.bytes_written += size
            return size
        allowed = min(size, self.cut_after_bytes)
        self.cut_after_bytes -= allowed
        self.bytes_written += allowed
        if allowed < size:
            self.is_powered = False
        return allowed

    def step(self) -> None:
        """One change of the folder itself."""
        self.writes += 1
        if self.spend(1) < 1:
            raise PowerCut

    def path(self, name: str) -> Path:
        """Where a name of the mote's is; never outside the flash."""
        return self.folder / self._inside(name)

    def _inside(self, name: str) -> str:
        return os.path.normpath("/" + (name if name.startswith("/") else f"{self.current}/{name}")).lstrip("/")

    def found(self, name: str) -> Path:
        """Where it can be read."""
        inside = self._inside(name)
        path = f"{self.folder}/{inside}"
        if self.underlay is not None and not os.access(path, os.F_OK):
            below = f"{self.underlay}/{inside}"
            return Path(below if os.access(below, os.F_OK) else path)
        return Path(path)

    def program(self, inside: str) -> str | None:
        """The file of a module, by its path below the flash's top; fast, for there are many at each start."""
        for top in (self.folder, self.underlay):
            if top is not None and os.path.isfile(file := f"{top}/{inside}"):  # noqa: PTH113 - as said
                return file
        return None

    # ---- what the firmware calls

    def open(self, name: str, mode: str = "r", *_rest: Any, **_named: Any) -> IO[Any]:
        is_text = "b" not in mode
        plain = mode.replace("b", "").replace("t", "")
        if plain == "r":
            return self.found(name).open("r", encoding="utf-8") if is_text else self.found(name).open("rb")
        if not self.is_powered:
            raise PowerCut
        self.writes += 1
        raw = _Written(self, self.path(name), plain)
        return io.TextIOWrapper(raw, "utf-8", newline="", write_through=True) if is_text else raw  # type: ignore

    def module(self) -> types.ModuleType:
        """The `os` of a firmware."""
        made = types.ModuleType("os")
        names = {name: getattr(self, f"_{name}") for name in _NAMES}
        made.__dict__.update(names, remove=self._remove, unlink=self._remove, sep="/")
        return made

    def _listdir(self, name: str = "") -> list[str]:
        path = self.path(name)
        names = _names(path) if path.is_dir() else set()
        below = self.underlay / path.relative_to(self.folder) if self.underlay is not None else None
        if below is not None and below.is_dir():
            names |= _names(below)
        elif not path.is_dir():
            raise OSError(errno.ENOENT)
        return sorted(names)

    def _ilistdir(self, name: str = "") -> Iterator[tuple[str, int, int, int]]:
        for each in self._listdir(name):
            path = self.found(f"{name}/{each}" if name else each)
            is_folder = path.is_dir()
            yield each, _FOLDER if is_folder else _FILE, 0, 0 if is_folder else path.stat().st_size

    def _stat(self, name: str) -> tuple[int, ...]:
        path = self.found(name)
        if not path.exists():
            raise OSError(errno.ENOENT)
        size = 0 if path.is_dir() else path.stat().st_size
        return (_FOLDER if path.is_dir() else _FILE, 0, 0, 0, 0, 0, size, 0, 0, 0)

    def _mkdir(self, name: str) -> None:
        path = self.path(name)
        if path.exists():
            raise OSError(errno.EEXIST)
        self.step()
        path.mkdir()

    def _rmdir(self, name: str) -> None:
        self.step()
        self.path(name).rmdir()

    def _remove(self, name: str) -> None:
        path = self.path(name)
        if not path.exists():
            raise OSError(errno.ENOENT)
        self.step()
        path.unlink()

    def _rename(self, old: str, new: str) -> None:
        path = self.path(old)
        if not path.exists():
            raise OSError(errno.ENOENT)
        self.step()
        path.replace(self.path(new))

    def _getcwd(self) -> str:
        return self.current

    def _chdir(self, name: str) -> None:
        if not self.path(name).is_dir():
            raise OSError(errno.ENOENT)
        self.current = "/" + str(self.path(name).relative_to(self.folder)).lstrip(".")

    def _sync(self) -> None:
        if not self.is_powered:
            raise PowerCut

    def _statvfs(self, _name: str) -> tuple[int, ...]:
        used = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        blocks = FLASH_BYTES // _BLOCK_BYTES
        free = max(0, blocks - -(-used // _BLOCK_BYTES))
        return (_BLOCK_BYTES, _BLOCK_BYTES, blocks, free, free, 0, 0, 0, 0, _MAX_NAME)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


_NAMES = ("listdir", "ilistdir", "stat", "mkdir", "rmdir", "rename", "getcwd", "chdir", "sync", "statvfs")


class _Written(io.RawIOBase):
    """A file that is written to, byte for byte as far as the power goes."""

    def __init__(self, flash: Flash, path: Path, mode: str) -> None:
        super().__init__()
        self._flash = flash
        self._file = path.open(mode + "b", buffering=0)

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return self._file.readable()

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)  # type: ignore[attr-defined, no-any-return]

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: Any) -> int:
        whole = memoryview(data).cast("B")
        allowed = self._flash.spend(len(whole))
        self._file.write(whole[:allowed])
        if allowed < len(whole):
            raise PowerCut
        return allowed

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
