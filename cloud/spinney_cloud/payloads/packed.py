"""Packed batches of mobile brokers (see `spinney.packed`), and the earlier ones that they refer to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from spinney.packed import BATCH, PackedError, UnknownDictionary, digest, read_rows, unpack

from .batch import Batch, PayloadError
from .json_payload import epochs_of, name_of

MAX_BYTES: Final = 32 * 1024**2
"""That are kept of all clients; beyond them what is of the one that was not heard for the longest time is dropped."""
ENTRY_BYTES: Final = 400
"""That a kept message takes beside its own bytes, about."""
MAX_EACH: Final = 3
"""Messages that are kept of one client: it asks for another while it refers to the last, and may ask once in vain."""

Earlier = Callable[[int], bytes | None]


class NotKept(Exception):
    """A message that refers to an earlier one that is not kept: nothing is wrong with it, it must come again."""


class Kept:
    """What clients have asked to keep, so that later messages may refer to it; gone with the process."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.bytes = 0
        self.dropped = 0
        """Clients of which nothing is kept any longer, for want of room."""
        self._max_bytes = max_bytes
        self._clients: OrderedDict[Any, OrderedDict[int, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clients)

    def find(self, client: Any, wanted: int) -> bytes | None:
        """What this client's message with this digest unpacked to."""
        mine = self._clients.get(client)
        if mine is None:
            return None
        self._clients.move_to_end(client)
        return mine.get(wanted)

    def keep(self, client: Any, data: bytes) -> None:
        """Keep this, and no longer the oldest of this client."""
        mine = self._clients.setdefault(client, OrderedDict())
        self._clients.move_to_end(client)
        key = digest(data)
        if (before := mine.pop(key, None)) is not None:
            self.bytes -= _size(before)
        mine[key] = data
        self.bytes += _size(data)
        if len(mine) > MAX_EACH:
            self.bytes -= _size(mine.popitem(last=False)[1])
        while self.bytes > self._max_bytes:
            self.bytes -= sum(map(_size, self._clients.popitem(last=False)[1].values()))
            self.dropped += 1


def _size(data: bytes) -> int:
    return len(data) + ENTRY_BYTES


def read_packed(payload: bytes, earlier: Earlier) -> Batch:
    """The rows of a packed batch; PayloadError if nothing of it can be used, NotKept if it must come again."""
    try:
        message = unpack(payload, earlier)
        if message.form != BATCH:
            raise PackedError("this is a packed text, not a packed batch")
        contents = read_rows(message.data)
    except UnknownDictionary as error:
        raise NotKept(str(error)) from None
    except PackedError as error:
        raise PayloadError(f"packed: {error}") from None
    return Batch(
        contents.rows,
        range(len(contents.rows)),
        from_door=True,
        batch=name_of(contents.name),
        epochs=epochs_of(contents.epochs),
        labels=list(contents.labels),
        is_packed=True,
        kept=message.data if message.keep else None,
    )
