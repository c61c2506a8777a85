"""Packed messages: what mobile brokers and the cloud say to each other, in fewer bytes than JSON takes.

`rows` puts publications into columns, `columns` numbers into differences, `cbor` both into bytes, and `frame` deflates
them with a `dictionary`. A sender uses the format only if the receiver has said its name. Every double, text and
boolean comes out as it went in. cloud/README.md describes the format for those who write their own.
"""

from __future__ import annotations

from .errors import PackedError, UnknownDictionary, Unpackable
from .frame import BATCH, MAX_KEPT, MAX_UNPACKED, TEXT, Unpacked, digest, is_packed, pack, unpack
from .rows import Contents
from .rows import read as read_rows
from .rows import write as write_rows

FORMAT = "packed-1"
"""The name by which the cloud says that it reads this, and writes it to those who do."""

__all__ = [
    "BATCH",
    "FORMAT",
    "MAX_KEPT",
    "MAX_UNPACKED",
    "TEXT",
    "Contents",
    "PackedError",
    "UnknownDictionary",
    "Unpackable",
    "Unpacked",
    "digest",
    "is_packed",
    "pack",
    "read_rows",
    "unpack",
    "write_rows",
]
