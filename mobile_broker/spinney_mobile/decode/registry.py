"""The decoders there are. What one of them raises ends up here, is counted, and harms no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Self

from spinney.publication import RESERVED, read

from ..samples import Heard
from .atc import Atc
from .bthome import BTHome
from .decoder import Decoded, DecodeError, Decoder
from .ruuvi import Ruuvi
from .spinney import Spinney
from .theengs import Theengs

GROUP: Final = "spinney.decoders"
"""The entry points of other packages' decoders."""
MAX_FAILURES: Final = 20
"""After so many failures with nothing decoded between them a decoder is switched off."""
OFF_SECONDS: Final = 300.0
"""Then it is tried once more: nobody may switch a decoder off for good by what he sends."""


@dataclass(slots=True)
class Entry:
    """A decoder, and how it does."""

    decoder: Decoder
    is_foreign: bool = False
    """Another package's: also its answers are looked at."""
    decoded: int = 0
    refused: int = 0
    """Adverts of its format that cannot be used, as it says itself."""
    failed: int = 0
    """Times that it raised what it may not."""
    failures_on_end: int = 0
    error: str | None = None
    off_until: float = 0.0

    @property
    def is_off(self) -> bool:
        """Whether its failures have switched it off."""
        return self.failures_on_end >= MAX_FAILURES

    def may_try(self, now: float) -> bool:
        """Whether it is asked."""
        return not self.is_off or now >= self.off_until


@dataclass(slots=True)
class Registry:
    """Decoders in the order in which they are asked."""

    entries: list[Entry] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Decoders that are installed and could not be loaded, and why."""

    @classmethod
    def of(cls, decoders: Iterable[Decoder]) -> Self:
        """These, and no others."""
        return cls([Entry(decoder) for decoder in decoders])

    @classmethod
    def own(cls, motes: bool = True) -> Self:
        """Those that come along. `motes`: whether this mobile broker connects to motes."""
        return cls.of((Spinney(motes), BTHome(), Ruuvi(), Atc()))

    @classmethod
    def installed(cls, motes: bool = True) -> Self:
        """Our own; those that other packages bring; Theengs' if it is installed, last: it knows the most formats."""
        self = cls.own(motes)
        for point in entry_points(group=GROUP):
            self._load(point)
        if Theengs.is_installed():
            self.entries.append(Entry(Theengs(), is_foreign=True))
        return self

    def _load(self, point: EntryPoint) -> None:
        try:
            found = point.load()
            decoder = found() if isinstance(found, type) else found
            self.entries.append(Entry(_checked(decoder), is_foreign=True))
        except Exception as error:  # noqa: BLE001 - somebody else's package: whatever it is, it is shown
            self.missing[point.name] = _words(error)

    def decode(self, heard: Heard, key: bytes | None, first: Entry | None = None) -> tuple[Entry, Decoded] | None:
        """What it says and who says so, `first` being asked first; None if nobody knows the format.

        DecodeError if it cannot be used. Nothing else is ever raised.
        """
        if first is not None and first.may_try(heard.time):
            decoded = self._ask(first, heard, key)
            if decoded is not None:
                return first, decoded
        for entry in self.entries:
            if entry is not first and entry.may_try(heard.time):
                decoded = self._ask(entry, heard, key)
                if decoded is not None:
                    return entry, decoded
        return None

    def _ask(self, entry: Entry, heard: Heard, key: bytes | None) -> Decoded | None:
        try:
            decoded = entry.decoder.decode(heard, key)
            if entry.is_foreign and decoded is not None:
                decoded = _checked_answer(decoded)
        except DecodeError:
            entry.refused += 1
            raise
        except Exception as error:  # noqa: BLE001 - a decoder that fails must not stop the others
            entry.failed += 1
            entry.failures_on_end += 1
            entry.error = _words(error)
            entry.off_until = heard.time + OFF_SECONDS
            return None
        if decoded is not None:
            entry.decoded += 1
            entry.failures_on_end = 0
        return decoded

    def status(self) -> list[dict[str, Any]]:
        """For pages and the doctor."""
        known = [
            {
                "name": entry.decoder.name,
                "state": "off" if entry.is_off else "on",
                "decoded": entry.decoded,
                "refused": entry.refused,
                "failed": entry.failed,
                "error": entry.error,
            }
            for entry in self.entries
        ]
        missing = [{"name": name, "state": "missing", "error": error} for name, error in self.missing.items()]
        return known + missing


def _checked(decoder: Any) -> Decoder:
    """What another package gives, if it can be a decoder."""
    if not isinstance(getattr(decoder, "name", None), str) or not callable(getattr(decoder, "decode", None)):
        raise TypeError(f"{decoder!r:.80} is no decoder: it needs name, abilities and decode()")
    if not isinstance(getattr(decoder, "abilities", None), Mapping):
        raise TypeError(f"the decoder {decoder.name} has no abilities: a mapping from attribute to Ability")
    checked: Decoder = decoder
    return checked


def _checked_answer(decoded: Any) -> Decoded:
    """What another package's decoder says, if it can be said of an advert."""
    if not isinstance(decoded, Decoded):
        raise TypeError(f"its answer is neither Decoded nor None: {decoded!r:.80}")
    values = read(decoded.values)
    if reserved := values.keys() & RESERVED:
        raise ValueError(f"{', '.join(sorted(reserved))}: reserved, and no attribute that a decoder may tell")
    for name in ("repeat", "counter", "boot", "sequence"):
        number = getattr(decoded, name)
        if not isinstance(number, int | None):
            raise TypeError(f"{name} is an int, or None, not {number!r:.80}")
    return decoded._replace(values=values)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
