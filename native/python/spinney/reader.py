"""One reader of the C core: marshals publications in and numbers out, for one call at a time."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from .errors import MatcherError, PublicationError
from .native import Core
from .publication import attribute

Buffer = bytes | bytearray | memoryview

_FIRST_CAPACITY = 32
_KEPT_TEXTS = 4096
"""Strings whose UTF-8 a reader keeps from one publication to the next: sensors say the same few words."""

_KEPT_LENGTH = 256
"""Longer ones are not kept."""

_LARGEST = sys.float_info.max


class BadColumn(Exception):
    """A batch that the core refuses, and the number of the column."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(message)
        self.column = column


class _Text(NamedTuple):
    """A string in UTF-8, for as long as `memory` is there."""

    address: int
    length: int
    memory: Any


_Id = TypeVar("_Id")


class Rows(NamedTuple, Generic[_Id]):
    """The answer for an array of which few objects match."""

    objects: int
    """In the array."""
    matches: list[tuple[int, list[_Id]]]
    """Those that something matches, counted from 0, and what."""
    texts: list[bytes]
    """The JSON of each of these."""


class Tags:
    """What a value begins with: its attribute's number and its type."""

    def __init__(self, core: Core) -> None:
        self._number_type = core.lib.SPINNEY_NUMBER
        number = _tag(0, self._number_type)
        self.numbers: dict[str, int] = {}
        """For numbers, by the attribute's name."""
        self.to_string = _tag(0, core.lib.SPINNEY_STRING) - number
        """Added to a number's tag, makes it a string's."""
        self.to_boolean = _tag(0, core.lib.SPINNEY_BOOLEAN) - number

    def add(self, name: str, attribute: int) -> None:
        """From now on the attribute's values are passed to the core."""
        self.numbers[name] = _tag(attribute, self._number_type)


def _tag(attribute: int, kind: int) -> int:
    """The first two members of spinney_value, as one number."""
    return int(struct.unpack("=Q", struct.pack("=II", attribute, kind))[0])


def check_name(name: object) -> None:
    """An attribute has a string as its name."""
    if not isinstance(name, str):
        raise PublicationError(f"an attribute's name is a string, not {name!r}")


class Reader:
    """Owns a spinney_reader; whoever made it closes it."""

    def __init__(self, core: Core, matcher: Any, tags: Tags) -> None:
        self._ffi, self._lib = core
        self._tags = tags
        self._error = self._ffi.new("spinney_error *")
        made = self._ffi.new("spinney_reader **")
        if self._lib.spinney_reader_new(matcher, made, self._error):
            self._fail()
        self._reader = made[0]
        self._matches = self._ffi.new("spinney_matches *")
        self._ids = self._ffi.new("const uint32_t **")
        self._count = self._ffi.new("size_t *")
        self._texts: dict[str, _Text] = {}
        self._passing: list[_Text] = []
        self._lay_out()
        self._reserve(_FIRST_CAPACITY)

    def close(self) -> None:
        """Frees it."""
        self._lib.spinney_reader_free(self._reader)

    # ---- memory

    def _lay_out(self) -> None:
        """Where the members of spinney_value are. Tags and numbers take 8 bytes each, words are as wide as pointers."""
        ffi = self._ffi
        size, word = ffi.sizeof("spinney_value"), ffi.sizeof("size_t")
        self._stride = size // 8
        self._number_at = ffi.offsetof("spinney_value", "number") // 8
        self._words_each = 8 // word
        self._text_at = ffi.offsetof("spinney_value", "text") // word
        self._length_at = ffi.offsetof("spinney_value", "length") // word

    def _reserve(self, capacity: int) -> None:
        self._capacity = capacity
        self._values = self._ffi.new("spinney_value[]", capacity)
        values = memoryview(self._ffi.buffer(self._values))
        self._as_tags, self._as_numbers, self._as_words = values.cast("Q"), values.cast("d"), values.cast("P")

    # ---- matching

    def match(self, publication: Mapping[str, Any]) -> list[int]:
        """The numbers of what matches."""
        if len(publication) > self._capacity:
            self._reserve(2 * len(publication))
        if self._passing or len(self._texts) > _KEPT_TEXTS:
            self._forget()
        count = self._fill(publication)
        ids, found = self._ids, self._count
        if self._lib.spinney_match(self._reader, self._values, count, ids, found, self._error):
            self._fail()
        return self._unpack(ids[0], found[0])

    def _fill(self, publication: Mapping[str, Any]) -> int:
        """Checks every value and writes those whose attributes filters name; how many that were."""
        tags, numbers, words, tag_of = self._as_tags, self._as_numbers, self._as_words, self._tags.numbers.get
        at = 0
        value: Any
        for name, value in publication.items():
            kind = value.__class__
            if kind is not str and (kind is not float or not -_LARGEST <= value <= _LARGEST):
                value = attribute(publication, name)
                kind = value.__class__
            tag = tag_of(name)
            if tag is None:
                if kind is str and not value.isascii():
                    attribute(publication, name)  # refuses what is not Unicode
                if name.__class__ is not str:
                    check_name(name)
                continue
            if kind is float:
                numbers[at + self._number_at] = value
            elif kind is str:
                text = self._texts.get(value) or self._keep(attribute(publication, name))
                words[at * self._words_each + self._text_at] = text.address
                words[at * self._words_each + self._length_at] = text.length
                tag += self._tags.to_string
            elif value is None:
                continue
            else:
                numbers[at + self._number_at] = value
                tag += self._tags.to_boolean
            tags[at] = tag
            at += self._stride
        count: int = at // self._stride
        return count

    def _keep(self, text: Any) -> _Text:
        """The text in UTF-8, which stays where it is until the call is over, and longer if it is short."""
        encoded = text.encode()
        memory = self._ffi.from_buffer(encoded)
        kept = _Text(int(self._ffi.cast("size_t", memory)), len(encoded), memory)
        if len(encoded) > _KEPT_LENGTH:
            self._passing.append(kept)
        else:
            self._texts[text] = kept
        return kept

    def _forget(self) -> None:
        """Between calls: what need not be kept."""
        self._passing.clear()
        if len(self._texts) > _KEPT_TEXTS:
            self._texts.clear()

    def match_json(self, json: Buffer) -> list[list[int]]:
        """The numbers for each object."""
        text = self._ffi.from_buffer(json)
        if self._lib.spinney_match_json(self._reader, text, len(text), self._matches, self._error):
            self._fail()
        offsets = self._ffi.unpack(self._matches.offsets, self._matches.events + 1)
        ids = self._unpack(self._matches.ids, offsets[-1])
        return [ids[start:end] for start, end in pairwise(offsets)]

    def match_rows(self, json: Buffer) -> Rows[int]:
        """The numbers for each object that has any."""
        text = self._ffi.from_buffer(json)
        if self._lib.spinney_match_json(self._reader, text, len(text), self._matches, self._error):
            self._fail()
        matches, data = self._matches, bytes(json)
        offsets, hits = matches.offsets, self._ffi.unpack(matches.hits, matches.n_hits) if matches.n_hits else ()
        ids = self._unpack(matches.ids, offsets[matches.events])
        found = [(hit.event, ids[offsets[hit.event] : offsets[hit.event + 1]]) for hit in hits]
        return Rows(matches.events, found, [data[hit.begin : hit.end] for hit in hits])

    def match_arrow(self, schema: int, array: int) -> tuple[bytes, bytes]:
        """Offsets as 64-bit and numbers as 32-bit integers, of a batch at the addresses of its C structures."""
        ffi, matches = self._ffi, self._matches
        schema_pointer, array_pointer = ffi.cast("struct ArrowSchema *", schema), ffi.cast("struct ArrowArray *", array)
        if self._lib.spinney_match_arrow(self._reader, schema_pointer, array_pointer, matches, self._error):
            self._fail()
        offsets = bytes(ffi.buffer(matches.offsets, 8 * (matches.events + 1)))
        found = matches.offsets[matches.events]
        return offsets, bytes(ffi.buffer(matches.ids, 4 * found)) if found else b""

    def _unpack(self, ids: Any, count: int) -> list[int]:
        found: list[int] = self._ffi.unpack(ids, count) if count else []
        return found

    def _fail(self) -> NoReturn:
        raise_error(self._ffi, self._lib, self._error)


def raise_error(ffi: Any, lib: Any, error: Any) -> NoReturn:
    """Raises what a spinney_error says."""
    message = ffi.string(error.message).decode(errors="replace")
    if error.status == lib.SPINNEY_BAD_EVENT:
        raise PublicationError(message, position=error.position)
    if error.status == lib.SPINNEY_BAD_BATCH:
        raise BadColumn(message, error.position)
    raise MatcherError(message)
