"""Backup of a lake: all its tables, each at one version, in one tar file; and the way back.

Matching's checkpoints are no part of it: Spark changes them all the time while a pipeline runs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from .lake import OBSERVATIONS, Lake, LakeError
from .lake_table import paths

VERSION = 1
MANIFEST = "lake.json"
_LOG = "_delta_log"
_CHUNK = 1024 * 1024

Progress = Callable[[str, int], None]
"""Told a table's name, and how many bytes of it have been copied."""


def _quiet(_table: str, _size: int) -> None:
    return None


def export_lake(lake: Lake, target: Path, progress: Progress = _quiet) -> dict[str, Any]:
    """Write a lake to a file, whole or not at all, while others may go on with it; what the file holds."""
    tables = _opened(lake)
    if not tables:
        raise LakeError(f"there is no lake in {lake.place}: nothing to export")
    manifest: dict[str, Any] = {"format": "spinney lake", "version": VERSION, "tables": {}}
    part = target.with_name(f"{target.name}.part")
    try:
        with tarfile.open(part, "w") as archive:
            for name, table in tables.items():
                manifest["tables"][name] = _add_table(archive, Path(lake.path(name)), table, progress)
            text = json.dumps(manifest, indent=1).encode()
            entry = tarfile.TarInfo(MANIFEST)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(target)
    except OSError as error:
        raise LakeError(f"the lake cannot be exported to {target}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return manifest


def _opened(lake: Lake) -> dict[str, DeltaTable]:
    """All tables as they are now, before the first is copied, which may take long.

    The observations are opened first: an ingest goes on after what is in them. The others it writes before them, or
    they are made of them; what is further than the observations knows its own place, and takes nothing twice.
    """
    names = sorted(lake.names(), key=lambda name: name != OBSERVATIONS)
    try:
        return {name: DeltaTable(lake.path(name)) for name in names}
    except (DeltaError, OSError) as error:
        raise LakeError(f"the lake {lake.place} cannot be exported: {error}") from error


def _add_table(archive: tarfile.TarFile, folder: Path, table: DeltaTable, progress: Progress) -> dict[str, Any]:
    """The files of a version, and a checkpoint of the log that names just these."""
    name, version = folder.name, table.version()
    table.create_checkpoint()
    log = [f"{_LOG}/{version:020}.checkpoint.parquet", f"{_LOG}/{version:020}.json"]
    files: dict[str, str] = {}
    size = 0
    for path in (*paths(table), *(each for each in log if (folder / each).exists())):
        files[path] = _add_file(archive, folder / path, f"{name}/{path}")
        size += (folder / path).stat().st_size
        progress(name, size)
    hint = json.dumps({"version": version, "size": len(files)}).encode()
    entry = tarfile.TarInfo(f"{name}/{_LOG}/_last_checkpoint")
    entry.size = len(hint)
    archive.addfile(entry, io.BytesIO(hint))
    return {"version": version, "rows": table.count(), "bytes": size, "files": files}


def _add_file(archive: tarfile.TarFile, path: Path, name: str) -> str:
    with path.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
        source.seek(0)
        archive.addfile(archive.gettarinfo(arcname=name, fileobj=source), source)
    return digest


def import_lake(source: Path, lake: Lake, progress: Progress = _quiet) -> dict[str, Any]:
    """Make the lake that a file holds, where there is none; what it holds. A file that is damaged makes none."""
    place = Path(lake.place)
    if lake.names():
        raise LakeError(f"there is a lake in {place} already: import into an empty folder, or move it away first")
    part = place.with_name(f"{place.name}.importing")
    if part.exists():
        raise LakeError(f"{part} is left of an import that broke off: remove it first")
    try:
        part.mkdir(parents=True)
        manifest = _unpack(source, part, progress)
        _check(manifest, part)
        part.rename(place)  # an empty folder may be there already
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        raise LakeError(f"{source} cannot be imported: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return manifest


def _unpack(source: Path, part: Path, progress: Progress) -> dict[str, Any]:
    manifest: dict[str, Any] | None = None
    with tarfile.open(source) as archive:
        for entry in archive:
            if not entry.isfile():
                raise ValueError(f"it holds {entry.name!r:.100}, which is no file")
            content = archive.extractfile(entry)
            assert content is not None
            if entry.name == MANIFEST:
                manifest = json.load(content)
                continue
            target = (part / entry.name).resolve()
            if not target.is_relative_to(part.resolve()):
                raise ValueError(f"it holds {entry.name!r:.100}, which is outside of the lake")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                _copy(content, out)
            progress(entry.name.split("/")[0], entry.size)
    if manifest is None or manifest.get("format") != "spinney lake":
        raise ValueError("it is no export of a lake, or it is cut")
    if manifest["version"] > VERSION:
        raise ValueError(f"an export of version {manifest['version']}; this Spinney reads up to {VERSION}")
    return manifest


def _copy(source: IO[bytes], out: IO[bytes]) -> None:
    while chunk := source.read(_CHUNK):
        out.write(chunk)


def _check(manifest: dict[str, Any], part: Path) -> None:
    for name, table in manifest["tables"].items():
        for path, digest in table["files"].items():
            with (part / name / path).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    raise ValueError(f"{name}/{path} is damaged")
