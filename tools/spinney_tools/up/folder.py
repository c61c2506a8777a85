"""The data directory of `spinney up`, which one run holds, with the configurations of mobile brokers."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from spinney.errors import SpinneyError

from .plan import Plan, Square

MARK: Final = "spinney-up.json"
"""Says that the directory is ours, and what was made in it."""
FORMAT: Final = 1
BEFORE_MARK: Final = {"lock", f"{MARK}.part", "pipeline-wanted"}
"""What may be there before the mark: of a start that was cut short, and what the launcher remembers of the pipeline."""
PARTS: Final = ("cloud", "city", "brokers", "log", "run")
CONNECTIONS: Final = 6
"""Of a mobile broker at one time: what good adapters manage."""
MIN_FREE_BYTES: Final = 1024**3
"""The cloud broker refuses publications with less than half of it."""


class UpError(SpinneyError):
    """Why `spinney up` cannot go on, and what to do about it: one line for each cause."""


class Folder:
    """The directory, held until it is closed or the process ends. UpError says why it cannot be had."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path.absolute()
        try:
            self._take(fresh)
        except OSError as error:
            raise UpError(f"{self.path}: {error.strerror or error}; choose another directory with --data") from None

    def _take(self, fresh: bool) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.path / MARK).exists() and not {each.name for each in self.path.iterdir()} <= BEFORE_MARK:
            raise UpError(f"{self.path} has other files in it; choose another directory with --data")
        with ExitStack() as exits:
            self._lock = exits.enter_context(self._locked())
            self._make(fresh)
            exits.pop_all()

    def _make(self, fresh: bool) -> None:
        self.notes = self._read()
        if fresh:
            self.notes = {}
            for part in PARTS:
                shutil.rmtree(self.path / part, ignore_errors=True)
        self._look_at_room()
        self.note(format=FORMAT)  # before there is anything that would look like somebody else's
        for part in PARTS:
            (self.path / part).mkdir(exist_ok=True)

    def _locked(self) -> IO[str]:
        lock = os.fdopen(os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = lock.read().strip()
            lock.close()
            raise UpError(
                f"a spinney up runs on {self.path} already: stop it (kill {pid}), or choose another with --data"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock

    def _read(self) -> dict[str, Any]:
        try:
            notes = json.loads((self.path / MARK).read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            notes = None
        if not isinstance(notes, dict) or notes.get("format") != FORMAT:
            raise UpError(f"{self.path} was made by another version of Spinney; choose another with --data")
        return notes

    def _look_at_room(self) -> None:
        free = shutil.disk_usage(self.path).free
        if free < MIN_FREE_BYTES:
            mib = 1024**2
            raise UpError(
                f"{self.path}: {free // mib:,} MiB free, and {MIN_FREE_BYTES // mib:,} MiB are needed; "
                "make room, or choose another disk with --data"
            )

    def note(self, **more: Any) -> None:
        """Remember something for the next run."""
        self.notes |= more
        part = self.path / f"{MARK}.part"
        part.write_text(json.dumps(self.notes, indent=1), "utf-8")
        part.replace(self.path / MARK)

    def part(self, name: str) -> Path:
        """The directory of one of PARTS."""
        assert name in PARTS
        return self.path / name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.close()

    # ---- configurations of mobile brokers

    def write_broker(self, square: Square, plan: Plan, mqtt: str) -> Path:
        """The configuration of a square's mobile broker; it knows where each post of the city stands."""
        lines = [
            f"name = {_text(square.name)}",
            f"data = {_text(str(self.part('brokers') / square.name))}",
            "[cloud]",
            f"url = {_text(mqtt)}",
            "[place]",
            'kind = "fixed"',
            f"lat = {square.lat}",
            f"long = {square.long}",
            "[web]",
            "port = 0",
            "[[acquire]]",
            'kind = "ble"',
            "[[acquire]]",
            'kind = "motes"',
            f"connections = {CONNECTIONS}",
        ]
        for spot in plan.spots():
            lines += ["[[device]]", f"address = {_text(spot.address)}", f"name = {_text(spot.name)}"]
            lines += [f"lat = {spot.lat}", f"long = {spot.long}"]
        return self._write(f"{square.name}.toml", lines)

    def write_own_broker(self, mqtt: str) -> Path:
        """The configuration of a mobile broker on this machine's own adapter: whatever it hears goes up, with the place
        that was noted."""
        lines = [
            'name = "here"',
            'send = "all"',
            f"data = {_text(str(self.part('brokers') / 'here'))}",
            "[cloud]",
            f"url = {_text(mqtt)}",
            "[web]",
            "port = 0",
        ]
        if place := self.notes.get("place"):
            lines += ["[place]", 'kind = "fixed"', f"lat = {place[0]}", f"long = {place[1]}"]
        return self._write("here.toml", lines)

    def _write(self, name: str, lines: list[str]) -> Path:
        file = self.part("brokers") / name
        file.write_text("\n".join([*lines, ""]), "utf-8")
        return file


def _text(value: str) -> str:
    """As TOML has it; JSON's strings are valid there."""
    return json.dumps(value)
