"""What has happened to local subscriptions since they were saved: the readings that were fed, and what was delivered.

It is written before anybody is told, so that the next start comes to the same state, and to the same notifications,
whenever this process is killed. Those that were not delivered are told again, under the same ids.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from spinney import PublicationId
from spinney.errors import SpinneyError

log = logging.getLogger(__name__)

FILE: Final = "local-subscriptions.log"
MAX_BYTES: Final = 1024 * 1024
"""Then all is saved, and it begins anew."""

Read = tuple[PublicationId, Mapping[str, Any], float]
"""A reading that was fed, and the log's time then."""


class Journal:
    """One file: its first line says which save it follows. Without a folder nothing is written."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to save."""
        return self._size > MAX_BYTES

    def begin(self, save: int) -> None:
        """Anew, after this save."""
        self.close()
        if self._folder is not None:
            try:
                self._file = (self._folder / FILE).open("wb", buffering=0)
            except OSError as error:
                log.error("local notifications may be told twice after a crash: %s: %s", FILE, error.strerror)
        self._write({"save": save})

    def close(self) -> None:
        """It is not written any more."""
        if self._file is not None:
            self._file.close()
        self._file, self._size = None, 0

    def fed(self, id: PublicationId, publication: Mapping[str, Any], log_time: float) -> None:
        """A reading is about to be fed."""
        self._write({"id": str(id), "publication": dict(publication), "time": log_time})

    def delivered(self, note: str) -> None:
        """A notification has arrived, or nobody is there to hear it."""
        self._write({"delivered": note})

    def _write(self, item: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        line = json.dumps(item, separators=(",", ":")).encode() + b"\n"
        try:
            self._file.write(line)
        except OSError as error:
            log.error("local notifications may be told twice after a crash: %s: %s", FILE, error.strerror)
            self.close()
        else:
            self._size += len(line)


def read(folder: Path, save: int) -> Iterator[Read | str]:
    """What has happened since this save: readings, and ids of notifications that were delivered. The last line may be
    half of one.
    """
    try:
        lines = (folder / FILE).read_bytes().splitlines()
        items = [json.loads(line) for line in lines[:1]]
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        log.error("%s cannot be read: local notifications may be told twice: %s", folder / FILE, error)
        return
    if items != [{"save": save}]:
        return  # it was killed between saving and beginning anew
    for line in lines[1:]:
        try:
            yield _item(json.loads(line))
        except (ValueError, KeyError, TypeError, SpinneyError):
            return


def _item(item: Mapping[str, Any]) -> Read | str:
    if "delivered" in item:
        return str(item["delivered"])
    return PublicationId.parse(item["id"]), dict(item["publication"]), float(item["time"])
