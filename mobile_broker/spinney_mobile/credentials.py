"""Passwords and certificates that settings name: read, or said which of them will not do, and why."""

from __future__ import annotations

import ssl
from pathlib import Path


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
