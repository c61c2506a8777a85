"""Which mobile brokers speak the packed format: those whose last announcement was packed. They are told so, too.

Packed go activations, answers to announcements, and `stored` of packed batches; all else is JSON, since others may
listen to the same client's topics. It is known as long as this process runs. Who is not known gets JSON.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from spinney.packed import TEXT, PackedError, Unpackable, pack, unpack

MAX_PACKERS: Final = 100_000
"""Brokers that are known; beyond them those that have announced least recently get JSON."""


class Packers:
    """All of one gateway."""

    def __init__(self) -> None:
        self.packed = 0
        """Messages that were packed."""
        self._clients: OrderedDict[str, None] = OrderedDict()

    def heard(self, client: str, *, packed: bool) -> None:
        """An announcement of a client's."""
        self._clients.pop(client, None)
        if packed:
            self._clients[client] = None
            if len(self._clients) > MAX_PACKERS:
                self._clients.popitem(last=False)

    def pack(self, client: str, message: bytes) -> bytes:
        """What goes to this client, in the form that it reads and that is shorter."""
        if client not in self._clients:
            return message
        try:
            packed = pack(TEXT, message)
        except Unpackable:
            return message
        if len(packed) >= len(message):
            return message
        self.packed += 1
        return packed


def unpack_text(payload: bytes) -> bytes:
    """A packed announcement as JSON; PackedError says why it is none."""
    message = unpack(payload)
    if message.form != TEXT:
        raise PackedError("this is a packed batch, not a packed text")
    return message.data
