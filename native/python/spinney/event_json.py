"""The JSON door in pure Python: what it refuses, and where, is what native/src/json.c refuses."""

from __future__ import annotations

import json
import math
import re

from .errors import PublicationError
from .expression import Value

_SPACE = re.compile(r"[ \t\n\r]*")
_IN_STRING = re.compile(
    r'(?:[^"\\\x00-\x1f]+'
    r'|\\["\\/bfnrt]'
    r"|\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{2}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile("true|false|null")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


class _Bad(Exception):
    """Refused, at a place that counts characters."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


def read_events(data: bytes) -> list[dict[str, Value]]:
    """The events of a flat object, or of an array of them, without what is null."""
    unreadable = None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        text = data[: error.start].decode() + "\0"  # which is refused wherever it stands
        unreadable = len(text) - 1
    try:
        return _Parser(text).document()
    except _Bad as error:
        message = "this is not UTF-8" if error.at == unreadable else str(error)
        raise PublicationError(message, position=len(text[: error.at].encode())) from None


class _Parser:
    """A position in a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> list[dict[str, Value]]:
        if self._accept("["):
            events = [] if self._accept("]") else self._objects()
        elif self._text[self._at : self._at + 1] == "{":
            events = [self._object()]
        else:
            raise self._bad("expected an object or an array of objects")
        self._skip_space()
        if self._at < len(self._text):
            raise self._bad("expected the end of the text")
        return events

    def _objects(self) -> list[dict[str, Value]]:
        events = [self._object()]
        while self._accept(","):
            events.append(self._object())
        self._take("]", "a comma or the closing bracket")
        return events

    def _object(self) -> dict[str, Value]:
        self._take("{", "an object")
        found: dict[str, Value | None] = {}
        if not self._accept("}"):
            self._member(found)
            while self._accept(","):
                self._member(found)
            self._take("}", "a comma or the closing brace")
        return {name: value for name, value in found.items() if value is not None}

    def _member(self, found: dict[str, Value | None]) -> None:
        self._skip_space()
        start = self._at
        if self._text[start : start + 1] != '"':
            raise self._bad("expected a key in double quotes")
        name = self._string()
        self._take(":", "a colon after the key")
        self._skip_space()
        value = self._value()
        if name in found:
            raise _Bad(f'"{name[:60]}" is there twice', start)
        found[name] = value

    def _value(self) -> Value | None:
        first = self._text[self._at : self._at + 1]
        if first == '"':
            return self._string()
        if first and first in "-0123456789":
            return self._number()
        if first and first in "{[":
            raise self._bad("a value is a number, a string, a boolean or null; none is nested")
        word = _WORD.match(self._text, self._at)
        if not word:
            raise self._bad("expected a number, a string, true, false or null")
        self._at = word.end()
        return _WORDS[word[0]]

    def _number(self) -> float:
        match = _NUMBER.match(self._text, self._at)
        if not match:
            raise _Bad("expected a digit", self._at + 1)
        following = self._text[match.end() : match.end() + 2]
        if following.startswith(".") and not match[1] and not match[2]:
            raise _Bad("expected a digit after the decimal point", match.end() + 1)
        if following.startswith(("e", "E")) and not match[2]:
            raise _Bad("expected a digit in the exponent", match.end() + (2 if following[1:] in ("+", "-") else 1))
        number = float(match[0])
        if not math.isfinite(number):
            raise self._bad("the number is too large for a double")
        self._at = match.end()
        return number

    def _string(self) -> str:
        match = _IN_STRING.match(self._text, self._at + 1)
        assert match is not None
        end = match.end()
        if not self._text.startswith('"', end):
            raise self._bad_string(end)
        self._at = end + 1
        written = match[0]
        return str(json.loads(f'"{written}"')) if "\\" in written else written

    def _bad_string(self, at: int) -> _Bad:
        if at == len(self._text):
            return _Bad("the string does not end", at)
        if self._text[at] == "\\":
            return _Bad("no such escape; a backslash itself is written \\\\", at)
        return _Bad("a control character in a string must be escaped", at)

    def _skip_space(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()

    def _accept(self, sign: str) -> bool:
        self._skip_space()
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _take(self, sign: str, expected: str) -> None:
        if not self._accept(sign):
            raise self._bad(f"expected {expected}")

    def _bad(self, message: str) -> _Bad:
        return _Bad(message, self._at)
