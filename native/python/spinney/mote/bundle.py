"""Library files as one bundle for an update over the air; the mote's ota.py takes it. Format in firmware/README.md."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"SKO1"
_HEAD = struct.Struct("<4sHBB")
_ENTRY = struct.Struct("<I32sB")
_BLOCK_BYTES = 64
MAX_FILES = 255
MAX_MANIFEST_BYTES = 4096
MAX_BUNDLE_BYTES = 400_000

CHUNK_BYTES = 180


class BundleError(ValueError):
    """Files that no mote would take, and why."""


def bundle(files: Mapping[str, bytes], key: bytes = b"") -> bytes:
    """Files by their names below lib/, such as spinney_mote/vm.mpy; `key` is the mote's ota_key."""
    entries = b"".join(_entry(name, files[name]) for name in sorted(files))
    size = _HEAD.size + len(entries)
    if len(files) > MAX_FILES or size > MAX_MANIFEST_BYTES:
        raise BundleError(
            f"{len(files)} files need a manifest of {size} bytes; at most {MAX_MANIFEST_BYTES} are possible"
        )
    manifest = _HEAD.pack(_MAGIC, size, len(files), 0) + entries
    tag = hmac.digest(key.ljust(_BLOCK_BYTES, b"\0"), manifest, hashlib.sha256)
    whole = manifest + tag + b"".join(files[name] for name in sorted(files))
    if len(whole) > MAX_BUNDLE_BYTES:
        raise BundleError(f"a bundle of {len(whole)} bytes; at most {MAX_BUNDLE_BYTES} are possible")
    return whole


def library_files(folder: Path) -> dict[str, bytes]:
    """The files of a library folder, whose name is spinney_mote, as `bundle` takes them."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".mpy"))
    return {path.relative_to(folder.parent).as_posix(): path.read_bytes() for path in found}


def begin_payload(whole: bytes) -> bytes:
    """What `control` takes, after its op and tag, before the first chunk."""
    return struct.pack("<BI", 1, len(whole))


def chunk_payload(whole: bytes, offset: int) -> bytes:
    """The chunk at an offset; the mote answers with the next one."""
    return struct.pack("<BI", 2, offset) + whole[offset : offset + CHUNK_BYTES]


COMMIT_PAYLOAD = b"\x03"
ABORT_PAYLOAD = b"\x04"
WHERE_PAYLOAD = b"\x05"


def answered(payload: bytes) -> tuple[int, int]:
    """What the mote says to each of these: the offset of the next chunk, and the bytes of the bundle it waits for."""
    offset, total = struct.unpack_from("<II", payload)
    return offset, total


@dataclass(frozen=True, slots=True)
class Sets:
    """Sets of library files on a mote: 0 was flashed, 1 and 2 came over the air, 255 is none."""

    running: int
    good: int
    trial: int
    failed: int


def sets(payload: bytes) -> Sets | None:
    """What the mote says of them to WHERE_PAYLOAD; None from one that does not."""
    return Sets(*payload[8:12]) if len(payload) >= 12 else None


def _entry(name: str, content: bytes) -> bytes:
    encoded = name.encode("ascii")
    return _ENTRY.pack(len(content), hashlib.sha256(content).digest(), len(encoded)) + encoded
