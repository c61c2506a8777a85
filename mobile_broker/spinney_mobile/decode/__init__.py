"""What adverts mean: one decoder for each format, behind a registry that nothing hostile gets through."""

from .decoder import Decoded, DecodeError, Decoder
from .registry import Registry

__all__ = ["DecodeError", "Decoded", "Decoder", "Registry"]
