"""AES-CCM as sensors use it: a key of 16 bytes, a tag of 4."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from .decoder import DecodeError, KeyMissing, WrongKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESCCM

TAG_BYTES: Final = 4
KEY_BYTES: Final = 16
MAC_BYTES: Final = 6
MAX_CIPHERS: Final = 256


def opened(key: bytes | None, nonce: bytes, sealed: bytes, with_it: bytes | None = None) -> bytes:
    """The plain text of `sealed`, which ends with its tag; DecodeError if it is not what the key's owner sealed."""
    if key is None:
        raise KeyMissing("encrypted: set this device's bindkey")
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(nonce, sealed, with_it)
    except InvalidTag:
        raise WrongKey("encrypted with another key: check this device's bindkey") from None


def mac(address: str) -> bytes:
    """The bytes of a Bluetooth address; DecodeError where the system hides it."""
    try:
        found = bytes.fromhex(address.replace(":", ""))
    except ValueError:
        found = b""
    if len(found) != MAC_BYTES:
        raise DecodeError("encrypted: its Bluetooth address is needed, which this system does not tell")
    return found


@lru_cache(MAX_CIPHERS)
def _cipher(key: bytes) -> AESCCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESCCM
    except ImportError:
        raise DecodeError("encrypted: `pip install cryptography` to open it") from None
    if len(key) != KEY_BYTES:
        raise DecodeError(f"a bindkey has {KEY_BYTES} bytes, not {len(key)}")
    return AESCCM(key, tag_length=TAG_BYTES)
