"""Where a lake is, as tasks are told; and its token, which says that driver and executor see the same storage.

The driver writes a new token into the lake at every start, and every process of a task compares it before its first
file: a path that exists on each machine, but is not shared, would else take files that nobody finds again.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs as pa_fs

from ..lake import OBSERVATIONS, TABLES, Lake, LakeError

TOKEN_FILE = "_ingest"  # noqa: S105  # a file's name; readers of Delta pass over what begins so
"""In the folder of the observations: there is one, of the ingest that started last."""
PIECE_BYTES = 1024**2
MAX_PLACES = 16
"""Of which a process keeps connections."""


class LakeNotShared(LakeError):
    """Somebody who is to write the lake's files does not see the lake."""


class Place(NamedTuple):
    """Goes to the tasks."""

    lake: str
    """An absolute path or a URL."""
    storage: tuple[tuple[str, str], ...] = ()
    """Options of the lake's object store."""
    token: str = ""
    """Of the ingest that writes."""
    have: tuple[tuple[str, int], ...] = ()
    """By table, the record up to which it has the log already."""

    @classmethod
    def of(cls, lake: Lake) -> Place:
        """Without a token: for this process itself."""
        path = str(Path(lake.place).absolute()) if lake.is_folder else lake.place
        return cls(path, tuple(sorted(lake.storage.items())))


def opened(lake: Lake) -> Place:
    """For the tasks of an ingest that starts, with a new token, which is in the lake from now on; LakeError if the lake
    cannot be written."""
    have = tuple((name, lake.sequence(name)) for name in TABLES)
    place = Place.of(lake)._replace(token=secrets.token_hex(16), have=have)
    try:
        put(filesystem(place, OBSERVATIONS), TOKEN_FILE, place.token.encode())
    except OSError as error:
        raise LakeError(f"the lake {lake.place} cannot be written: {one_line(error)}") from error
    return place


@lru_cache(MAX_PLACES)
def filesystem(place: Place, table: str) -> pa_fs.FileSystem:
    """The files of a table, by their paths below its folder."""
    path = f"{place.lake.rstrip('/')}/{table}"
    if "://" not in path:
        return pa_fs.SubTreeFileSystem(path, pa_fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return pa_fs.PyFileSystem(DeltaStorageHandler(path, dict(place.storage) or None))


def put(files: pa_fs.FileSystem, path: str, content: bytes | pa.Buffer) -> None:
    """Write a file. In pieces that fit into a buffer: what is larger passes it by, as an object of Arrow, and the
    streams of deltalake take bytes alone."""
    view = memoryview(content)
    with files.open_output_stream(path, buffer_size=2 * PIECE_BYTES) as out:
        for begin in range(0, len(view), PIECE_BYTES):
            out.write(view[begin : begin + PIECE_BYTES])


def problem_of(place: Place) -> str:
    """Why this process must not write there; empty if it may."""
    try:
        return _other_token(place)
    except OSError as error:
        return one_line(error)


def _other_token(place: Place) -> str:
    with filesystem(place, OBSERVATIONS).open_input_file(TOKEN_FILE) as file:
        is_ours = bytes(file.read()) == place.token.encode()
    return "" if is_ours else "it sees another storage there, or another pipeline has begun to write this lake"


@lru_cache(MAX_PLACES)
def require(place: Place) -> None:
    """LakeNotShared unless this process sees the lake. Asked once by each process.

    Storage that fails is not another storage: what is wrong with it is said by the first file that is written.
    """
    try:
        problem = _other_token(place)
    except FileNotFoundError as error:
        problem = one_line(error)
    except OSError:
        return
    if problem:
        raise LakeNotShared(told(place.lake, {"a task": problem}))


def told(lake: str, problems: dict[str, str]) -> str:
    """Who does not see the lake, why, and what to do, in one line: it comes back from tasks in a traceback."""
    who = "; ".join(f"{each}: {why}" for each, why in sorted(problems.items()))
    if "://" in lake:
        what = "give the executors the same AWS_... variables (or what else the store needs) as the driver has"
    else:
        what = (
            "driver and executors need one storage, at the same path on every machine: mount it there, choose a "
            "shared folder or an object store with --lake, or run without a cluster"
        )
    return f"not every executor sees the lake {lake} ({who}). What to do: {what}"


def one_line(error: OSError) -> str:
    """What went wrong."""
    return " ".join(str(error).split())
