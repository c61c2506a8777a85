"""MicroPython's `cryptolib`: AES, as far as a mote needs it."""

from __future__ import annotations

import types

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

_ECB = 1


class aes:  # noqa: N801 - MicroPython's name
    """Each block by itself; an object encrypts or decrypts, never both, as on a board."""

    def __init__(self, key: bytes, mode: int) -> None:
        if mode != _ECB:
            raise ValueError("only mode 1, ECB, is here")
        self._encryptor = Cipher(AES(bytes(key)), ECB()).encryptor()  # noqa: S305 - one block of CCM at a time

    def encrypt(self, data: bytes) -> bytes:
        return self._encryptor.update(bytes(data))


def module() -> types.ModuleType:
    """The `cryptolib` that a firmware imports."""
    made = types.ModuleType("cryptolib")
    made.__dict__.update(aes=aes)
    return made
