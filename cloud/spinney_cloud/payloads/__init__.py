"""What clients publish, in whichever form: JSON, SenML in JSON or CBOR, an Arrow IPC stream, or packed."""

from __future__ import annotations

from spinney.packed import is_packed

from .arrow_payload import read_arrow
from .batch import Batch, Kind, PayloadError, Refusal
from .json_payload import read_json
from .packed import Earlier, Kept, NotKept, read_packed
from .senml import read_cbor

__all__ = ["CONTENT_TYPES", "Batch", "Kept", "Kind", "NotKept", "PayloadError", "Refusal", "read_payload"]

_ARROW_MARK = b"\xff\xff\xff\xff"
_CBOR_ARRAYS = range(0x80, 0xA0)

CONTENT_TYPES = (
    "application/json",
    "application/senml+json",
    "application/senml+cbor",
    "application/vnd.apache.arrow.stream",
)
"""What HTTP may say it sends. The payload itself tells as well; MQTT 3.1.1 has no other way."""


def _nothing_earlier(_digest: int) -> None:
    return None


def read_payload(payload: bytes, received: float, earlier: Earlier = _nothing_earlier) -> Batch:
    """The rows of a payload, whose form its first bytes tell; PayloadError if nothing of it can be used.

    JSON begins with a bracket, an Arrow stream with four bytes 255, CBOR with the head of an array, a packed batch with
    byte 241, and none of these is how another begins. `earlier` finds what the sender has asked to keep; NotKept if it
    is not there.
    """
    if not payload:
        raise PayloadError("an empty payload")
    if payload.startswith(_ARROW_MARK):
        return read_arrow(payload)
    if is_packed(payload):
        return read_packed(payload, earlier)
    if payload[0] in _CBOR_ARRAYS:
        return read_cbor(payload, received)
    return read_json(payload, received)
