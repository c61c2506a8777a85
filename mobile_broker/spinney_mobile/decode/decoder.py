"""What a decoder is. Another package adds one by an entry point of the group `spinney.decoders`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from spinney.expression import Value

from ..samples import Ability, Heard


class Decoded(NamedTuple):
    """What an advert says. `battery` among the values is in percent."""

    values: Mapping[str, Value]
    repeat: int | None = None
    """Equal in adverts that are the same sample: a packet id, a measurement's number."""
    counter: int | None = None
    """Of an encrypted advert: it only goes up, so that nobody can send a recorded one again."""
    boot: int | None = None
    sequence: int | None = None
    """The sample's number, where the source has numbers of its own (rule I1)."""
    presence: bool = False
    """It says that the source is there, and nothing else that may be used."""


class DecodeError(ValueError):
    """An advert of this decoder's format that cannot be used: why, and what to do."""


class KeyMissing(DecodeError):
    """It is encrypted, and nobody has said by which key."""


class WrongKey(DecodeError):
    """It is encrypted by another key, or was changed on its way."""


class Decoder(Protocol):
    """Knows one format. What must be remembered from one advert to the next is remembered by DeviceTable."""

    name: str
    abilities: Mapping[str, Ability]
    """What each attribute can be, before anything is heard. `temperature_2` can be what `temperature` can."""

    def decode(self, heard: Heard, key: bytes | None) -> Decoded | None:
        """What it says; None if it is another format; DecodeError if it is this one and cannot be used."""
