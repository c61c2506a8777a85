"""Writes the workloads' files and checks them against checksums.sha256.

The sums were made with numpy 2.4; any numpy with the same bit streams gives the same bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from . import w1_air_quality, w2_geo_alerts, w3_ranges, w4_conjunctions
from .model import Workload

WORKLOADS: dict[str, Workload] = {
    module.WORKLOAD.name: module.WORKLOAD for module in (w1_air_quality, w2_geo_alerts, w3_ranges, w4_conjunctions)
}

Progress = Callable[[str], None]


class WorkloadError(Exception):
    """A file that is not what the kit's checksums say, or a workload or size that does not exist."""


def checksums() -> dict[str, str]:
    """File name to SHA-256, of every file of every workload."""
    text = Path(__file__).with_name("checksums.sha256").read_text(encoding="ascii")
    return {name: digest for digest, name in (line.split() for line in text.splitlines())}


def file_names(name: str, sizes: Sequence[int] | None = None) -> list[str]:
    """The files of a workload: its schema, its events, and its subscriptions in these sizes, or in all."""
    sizes = WORKLOADS[name].sizes if sizes is None else sizes
    return [f"{name}.schema", f"{name}.events", *(f"{name}.{size}.subs" for size in sizes)]


def generate(folder: Path, name: str, sizes: Sequence[int] | None = None, progress: Progress | None = None) -> None:
    """Makes what is missing of a workload. A file that is there and has the right sum is left alone."""
    if name not in WORKLOADS:
        raise WorkloadError(f"no workload {name!r}: there are {', '.join(WORKLOADS)}")
    for size in sizes or ():
        if size not in WORKLOADS[name].sizes:
            raise WorkloadError(f"{name} has no size {size}: there are {', '.join(map(str, WORKLOADS[name].sizes))}")
    folder.mkdir(parents=True, exist_ok=True)
    for file_name in file_names(name, sizes):
        if not is_right(folder / file_name):
            if progress:
                progress(f"generating {file_name}")
            _write_lines(folder / file_name, _lines(WORKLOADS[name], file_name))
            check(folder / file_name)


def is_right(path: Path) -> bool:
    """Whether the file is there with the bytes that it should have."""
    return path.is_file() and _digest(path) == checksums()[path.name]


def check(path: Path) -> None:
    """Raises WorkloadError unless the file is as it should be."""
    if not path.is_file():
        raise WorkloadError(f"{path} is missing")
    if not is_right(path):
        raise WorkloadError(f"{path} differs from the kit's checksum {checksums()[path.name]}")


def _lines(workload: Workload, file_name: str) -> Iterator[str]:
    match file_name.split("."):
        case [_, "schema"]:
            return workload.schema()
        case [_, "events"]:
            return workload.events()
        case [_, size, "subs"]:
            return workload.subscriptions(int(size))
    raise WorkloadError(f"{file_name} is no file of {workload.name}")


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Under another name first, so that an interrupted run leaves nothing that looks whole."""
    half_made = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with half_made.open("w", encoding="ascii", newline="\n") as out:
            out.writelines(f"{line}\n" for line in lines)
        half_made.replace(path)
    finally:
        half_made.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
