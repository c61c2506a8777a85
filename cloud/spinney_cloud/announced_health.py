"""Battery and silence of sources, as mobile brokers tell them with an announcement or after it (see source_health)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spinney.source_health import decode

MAX_CODES: Final = 10_000
"""Sources of one message: as many as an announcement may have."""
UNKNOWN: Final = "A"
"""The character that tells nothing."""

Codes = str | Mapping[str, str]
"""One character for each source of the announcement in their order, or by source."""


@dataclass(frozen=True, slots=True)
class ToldHealth:
    """What a broker tells of the sources of its current announcement."""

    session: str
    codes: Codes


def read_codes(codes: Any) -> Codes:
    """Check what JSON gave; ValueError says what is wrong."""
    if not isinstance(codes, str | dict) or len(codes) > MAX_CODES:
        raise ValueError(f"expected a string, or an object, of at most {MAX_CODES} sources")
    for code in codes if isinstance(codes, str) else codes.values():
        if not isinstance(code, str):
            raise ValueError("expected one character for each source")
        decode(code)
    return codes


def by_source(codes: Codes, sources: Collection[str]) -> dict[str, str]:
    """The characters of these sources, which are the announcement's; ValueError if there are more or fewer of them."""
    if not isinstance(codes, str):
        return {source: code for source, code in codes.items() if source in sources}
    if len(codes) != len(sources):
        raise ValueError(f"expected {len(sources)} characters, one for each source")
    return dict(zip(sources, codes, strict=True))


def to_string(codes: Mapping[str, str], sources: Collection[str]) -> str:
    """As it is kept with the announcement."""
    return "".join(codes.get(source, UNKNOWN) for source in sources)
