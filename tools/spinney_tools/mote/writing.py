"""MicroPython's image onto a board: by esptool, or copied onto the drive that a Pico in its boot loader is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from .boards import Board
from .errors import FlashError

MAX_LINES = 200
"""Kept of what esptool says."""
_PER_CENT = re.compile(r"(\d+(?:\.\d+)?)\s?%")
_CHIP = re.compile(r"Detecting chip type\.\.\. (\S+)")
INFO = "INFO_UF2.TXT"
_COPY_BYTES = 16 * 1024

Progress = Callable[[int, int], None]
"""Told what is done, and of how much."""


def esptool_words(port: str, baud: int, board: Board, image: Path | None) -> list[str]:
    """The command: what erases and writes, or without an image only asks the chip what it is.

    That at the speed at which every boot loader begins: a board without a reset circuit stays at it in between.
    """
    words = [sys.executable, "-m", "esptool", "--port", port]
    if image is None:
        return [*words, "--after", "no-reset", "chip-id"]
    return [
        *words,
        "--baud",
        str(baud),
        "--chip",
        board.chip,
        "write-flash",
        "--erase-all",
        hex(board.offset),
        str(image),
    ]


def check_chip(port: str, baud: int, board: Board) -> str:
    """Which chip is there; FlashError for another one than the board's."""
    lines = _esptool(esptool_words(port, baud, board, None), lambda _done, _whole: None)
    found = next((match[1] for line in lines if (match := _CHIP.search(line))), "")
    if not found:
        raise FlashError("esptool does not say which chip is there: " + _end(lines), _BUTTON)
    if found.lower().replace("-", "") != board.chip:
        raise FlashError(
            f"the chip on {port} is an {found}, not an {board.title}",
            "Name the board that it is by --board, or another port by --port. Nothing was changed.",
        )
    return found


def write(port: str, baud: int, board: Board, image: Path, progress: Progress) -> None:
    """Erases everything, writes, and compares the MD5 of what is on the flash."""
    _esptool(esptool_words(port, baud, board, image), progress)


def _esptool(words: list[str], progress: Progress) -> list[str]:
    """Runs it to its end; all that it said."""
    lines: deque[str] = deque(maxlen=MAX_LINES)
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                lines.append(line.rstrip())
                if line.startswith("Writing") and (found := _PER_CENT.search(line)):
                    progress(round(float(found[1])), 100)
        except KeyboardInterrupt:
            running.terminate()
            raise
    if running.returncode:
        raise _failed(list(lines))
    return list(lines)


_BUTTON = (
    "Hold the board's BOOT button, press and release its reset button (EN), let BOOT go, and run it again. Close what"
    " else has the port open. A cable must carry data; a lower --baud helps with a bad one."
)
_HALF_WRITTEN = "The board has no whole image now. Run it again: it starts from the beginning. "
_ADVICE = (
    ("Permission denied", "On Linux: sudo usermod -aG dialout $USER, then log in again."),
    ("busy", "Another program has the port open: close it and run it again."),
    ("This chip is", "Name the board that it is by --board. Nothing was changed."),
    ("MD5", "What is on the flash is not what was sent: run it again, with a lower --baud such as 115200."),
)


def _failed(lines: list[str]) -> FlashError:
    text = "\n".join(lines)
    started = any(line.startswith("Writing") for line in lines)
    advice = next((words for sign, words in _ADVICE if sign in text), _BUTTON)
    where = _HALF_WRITTEN if started else ""
    return FlashError(f"esptool: {_end(lines)}", where + advice)


def _end(lines: Iterable[str]) -> str:
    said = [line.strip() for line in lines if line.strip()]
    fatal = [line for line in said if "error" in line.lower()]
    return (fatal or said or ["it said nothing"])[-1]


# ---- UF2


def find_drive(wanted: Path | None, board: Board, roots: Iterable[Path] | None = None) -> Path:
    """The drive that the board is while it waits for an image; FlashError with how to get there."""
    found = [wanted] if wanted else [path for root in roots or _roots() for path in _folders(root)]
    for path in found:
        about = _about(path)
        if f"Board-ID: {board.drive}" in about:
            return path
        if wanted:
            raise FlashError(
                f"{path}: no {board.drive} drive: {INFO} says {about.strip()[-60:] or 'nothing'!r}", _BOOTSEL
            )
    raise FlashError(f"no {board.drive} drive was found", _BOOTSEL)


_BOOTSEL = (
    "Hold the board's BOOTSEL button while you plug it in: it appears as a drive. If it is mounted elsewhere, name it:"
    " --drive FOLDER"
)


def _roots() -> list[Path]:
    user = os.environ.get("USER", "")
    if sys.platform == "win32":
        return [Path(f"{letter}:/") for letter in "DEFGHIJKLMNOPQRSTUVWXYZ"]
    return [Path("/media"), Path("/media", user), Path("/run/media", user), Path("/Volumes"), Path("/mnt")]


def _folders(root: Path) -> list[Path]:
    try:
        return [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    except OSError:
        return []


def _about(drive: Path) -> str:
    try:
        return (drive / INFO).read_text("utf-8", "replace")
    except OSError:
        return ""


def copy(image: Path, drive: Path, progress: Progress) -> None:
    """Copies the image. When the last block has come the board restarts by itself, and the drive is gone."""
    data = image.read_bytes()
    try:
        with (drive / image.name).open("wb") as target:
            for at in range(0, len(data), _COPY_BYTES):
                target.write(data[at : at + _COPY_BYTES])
                progress(min(at + _COPY_BYTES, len(data)), len(data))
            target.flush()
            os.fsync(target.fileno())
    except OSError as error:
        if not (drive / INFO).exists():
            return  # it has restarted; whether with the image, MicroPython will say
        raise FlashError(
            f"{drive}: {error.strerror}", "Unplug the board, hold BOOTSEL, plug it in, run it again."
        ) from error
