"""Passwords, certificates and keys that settings name: read, or said which of them will not do, and why."""

from __future__ import annotations

import re
import ssl
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from spinney.errors import SpinneyError

MAX_KEYS_BYTES: Final = 1 << 20
"""Of a file of bind keys."""
OTHERS: Final = 0o077
"""Of a file's mode: that others may read it."""
_KEY: Final = re.compile("[0-9A-Fa-f]{32}")


class BindKeysError(SpinneyError, ValueError):
    """A file of bind keys that will not do, and why; no key is in it."""


def bind_keys(file: Path | None) -> Mapping[str, str]:
    """By address, from a file that only its user may read; BindKeysError."""
    if file is None:
        return {}
    try:
        if file.stat().st_mode & OTHERS:
            raise BindKeysError(f"devices.bindkeys {file}: others can read it: chmod 600 {file}")
        with file.open("rb") as opened:
            content = opened.read(MAX_KEYS_BYTES + 1)
        if len(content) > MAX_KEYS_BYTES:
            raise BindKeysError(f"devices.bindkeys {file}: more than {MAX_KEYS_BYTES} bytes")
        devices = tomllib.loads(content.decode()).get("device", [])
    except OSError as error:
        raise BindKeysError(f"devices.bindkeys {file}: {_reason(error)}") from None
    except ValueError as error:
        if isinstance(error, BindKeysError):
            raise
        raise BindKeysError(f"devices.bindkeys {file}: it is no TOML") from None
    if not isinstance(devices, list):
        raise BindKeysError(f"devices.bindkeys {file}: expected [[device]] tables")
    return dict(_pair(file, index, device) for index, device in enumerate(devices))


def _pair(file: Path, index: int, device: Any) -> tuple[str, str]:
    match device:
        case {"address": str(address), "bindkey": str(key)} if _KEY.fullmatch(key):
            return address, key
    raise BindKeysError(f"devices.bindkeys {file}: [[device]] {index + 1} needs address, and bindkey of 32 hex digits")


def password_of(section: str, file: Path | None) -> str | None:
    """The first line of a password file; ValueError with the setting and the reason."""
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].strip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{section}.password_file {file}: {_reason(error)}") from None


def check_authority(section: str, ca: Path | None) -> None:
    """ValueError, with the setting and the reason, if nothing can be trusted because of it."""
    if ca is not None:
        try:
            ssl.create_default_context(cafile=ca)
        except OSError as error:
            raise ValueError(f"{section}.ca {ca}: {_reason(error)}") from None


def server_context(section: str, certificate: Path, key: Path) -> ssl.SSLContext:
    """What a server shows; ValueError with the settings and the reason."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, section, certificate, key)
    return context


def check_certificate(section: str, certificate: Path | None, key: Path | None) -> None:
    """ValueError, with the settings and the reason, if it cannot be shown."""
    if certificate is not None and key is not None:
        _load(ssl.create_default_context(), section, certificate, key)


def _load(context: ssl.SSLContext, section: str, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key, password="")  # else it would ask, where nobody answers
    except OSError as error:
        raise ValueError(f"{section}.certificate {certificate}, {section}.key {key}: {_reason(error)}") from None


def _reason(error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not in PEM, or not of each other ({error.reason or 'PEM'})"
    return str(getattr(error, "strerror", None) or error)
