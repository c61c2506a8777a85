"""In which form messages go up: packed, once the cloud has said on this link that it reads that; else JSON. No I/O.

A packed batch refers to the last one that the cloud was asked to keep and has stored, so that what readings repeat is
said once. A cloud that has started anew keeps nothing, says so, and gets all of it again without.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from spinney.packed import BATCH, FORMAT, MAX_KEPT, TEXT, Contents, Unpackable, is_packed, pack, unpack, write_rows

MAX_FORGOTTEN: Final = 4
"""Times on one link that the cloud did not keep what it was asked to; then it is asked no more."""


class Packing:
    """Of one uplink."""

    def __init__(self) -> None:
        self.agreed = False
        """Whether the cloud has named the format on this link."""
        self.packed = 0
        """Messages that went up packed."""
        self.forgotten = 0
        """How often the cloud did not keep what it was asked to."""
        self._earlier: bytes | None = None
        self._asked: tuple[str, bytes] | None = None
        """Batch and contents that are to be kept, until it is known that they are."""
        self._left = MAX_FORGOTTEN

    # ---- what the cloud says

    def opened(self) -> None:
        """A new link: JSON until the cloud says more. It may be another cloud, or an older one."""
        self.agreed = False
        self._left = MAX_FORGOTTEN
        self.again()
        self._earlier = None

    def told(self, reply: Mapping[str, Any]) -> None:
        """A cloud that says how much it takes says in which formats, too; an older one says none."""
        if "max_payload" in reply:
            formats = reply.get("formats")
            self.agreed = isinstance(formats, list) and FORMAT in formats

    def again(self) -> None:
        """All that is not stored goes again, under other names."""
        self._asked = None

    def forgot(self) -> None:
        """The cloud does not have what a batch referred to."""
        self.forgotten += 1
        self._left -= 1
        self._earlier = None
        self.again()

    def refused(self) -> None:
        """The cloud cannot read a message as a whole, whatever it has said: JSON for the rest of this link."""
        self.agreed = False

    def stored(self, names: Collection[str]) -> None:
        """These batches are stored."""
        if self._asked is not None and self._asked[0] in names:
            self._earlier, self._asked = self._asked[1], None

    # ---- what goes up

    def batch(
        self, name: str, publications: Sequence[bytes], epochs: Mapping[str, int], labels: Sequence[Any]
    ) -> bytes | None:
        """A batch; None if it must go up as JSON."""
        if not self.agreed:
            return None
        try:
            data = write_rows(Contents(list(map(json.loads, publications)), epochs, labels, name))
            keep = self._asked is None and self._left > 0 and len(data) <= MAX_KEPT
            payload = pack(BATCH, data, earlier=self._earlier, keep=keep)
        except Unpackable:
            return None
        if keep:
            self._asked = (name, data)
        self.packed += 1
        return payload

    def text(self, payload: bytes) -> bytes:
        """A JSON text, packed if the cloud reads that."""
        if not self.agreed:
            return payload
        try:
            packed = pack(TEXT, payload)
        except Unpackable:
            return payload
        self.packed += 1
        return packed


def unpacked(payload: bytes) -> bytes:
    """The JSON text that a message of the cloud is; ValueError if it cannot be unpacked."""
    return unpack(payload).data if is_packed(payload) else payload
