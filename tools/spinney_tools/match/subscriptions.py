"""Subscriptions from options and files: text lines, JSON lines or a JSON array, with where each of them stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from spinney import SyntaxError, parse
from spinney.subscription import Subscription

from .errors import InputError

_ID = re.compile(r"[ \t]*([A-Za-z0-9_.-]+):[ \t]+")
_BLANK = re.compile(r"\s+|#[^\n]*")


class _Place(NamedTuple):
    """Where a text begins: the file or option, and line and column from 1."""

    name: str
    line: int
    column: int

    def plus(self, line: int, column: int) -> _Place:
        """A place within the text, itself counted from 1:1."""
        return _Place(self.name, self.line + line - 1, column + (self.column - 1 if line == 1 else 0))

    def __str__(self) -> str:
        return f"{self.name}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class _Source:
    """One subscription as it is written."""

    place: _Place
    text: str
    id: str | None


def load(texts: list[str], files: list[str]) -> dict[str, Subscription]:
    """Id to subscription, in the order given. One without an id is called by its number, from 1."""
    loaded: dict[str, Subscription] = {}
    places: dict[str, _Place] = {}
    for source in _sources(texts, files):
        subscription = _parse(source)
        name = source.id or subscription.id or str(len(loaded) + 1)
        if name in loaded:
            raise InputError(str(source.place), f"there is a subscription {name!r} already, at {places[name]}")
        loaded[name] = replace(subscription, id=name)
        places[name] = source.place
    return loaded


def _sources(texts: list[str], files: list[str]) -> Iterator[_Source]:
    for number, text in enumerate(texts, 1):
        yield _with_id(_Place(f"-s {number}" if len(texts) > 1 else "-s", 1, 1), text)
    for file in files:
        yield from _read_file(file)


def _read_file(name: str) -> Iterator[_Source]:
    try:
        text = Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(name, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InputError(name, f"not UTF-8 at byte {error.start + 1}") from error
    yield from _Scanner(name, text).sources()


def _with_id(place: _Place, text: str) -> _Source:
    """Takes `id: ` off the front of a text."""
    found = _ID.match(text)
    if not found:
        return _Source(place, text, None)
    return _Source(place.plus(1, found.end() + 1), text[found.end() :], found[1])


def _parse(source: _Source) -> Subscription:
    try:
        return parse(source.text)
    except SyntaxError as error:
        place = source.place.plus(error.line, error.column)
        raise InputError(str(place), f"{error.path}: {error.message}" if error.path else error.message) from error


class _Scanner:
    """Reads a file of subscriptions from front to back; JSON values may take several lines, text takes one."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._at = 0
        self._line = 1
        self._line_start = 0

    def sources(self) -> Iterator[_Source]:
        """Every subscription of the file."""
        while self._skip_blank():
            start = self._text[self._at]
            if start == "[":
                yield from self._array()
            elif start == "{":
                yield self._value()
            else:
                yield self._text_line()

    def _array(self) -> Iterator[_Source]:
        opening = self._place()
        if self._next() == "]":
            self._next()
            return
        while True:
            yield self._value()
            self._skip_blank()
            separator = self._character()
            if not separator:
                raise InputError(str(opening), "this array is not closed")
            if separator not in ",]":
                raise InputError(str(self._place()), "expected ',' or ']'")
            self._next()
            if separator == "]":
                return

    def _value(self) -> _Source:
        """A JSON value: an object, or a string with a subscription's text."""
        place, start = self._place(), self._at
        try:
            value, end = json.JSONDecoder().raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            self._forward(error.pos)
            raise InputError(str(self._place()), error.msg) from error
        except RecursionError:
            raise InputError(str(place), "nested too deeply") from None
        self._forward(end)
        if isinstance(value, str):
            return _with_id(place.plus(1, 2), value)
        if not isinstance(value, dict):
            raise InputError(str(place), "expected a subscription: an object, or a string with its text")
        return _Source(place, self._text[start:end], None)

    def _text_line(self) -> _Source:
        place, end = self._place(), self._text.find("\n", self._at)
        line = self._text[self._at : end if end >= 0 else len(self._text)]
        self._forward(self._at + len(line))
        return _with_id(place, line.rstrip())

    def _character(self) -> str:
        """What stands here, nothing at the end."""
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        """Past this character and what is blank behind it; what stands there."""
        self._forward(self._at + 1)
        self._skip_blank()
        return self._character()

    def _skip_blank(self) -> bool:
        """Past white space and comments; whether anything is left."""
        while blank := _BLANK.match(self._text, self._at):
            self._forward(blank.end())
        return self._at < len(self._text)

    def _forward(self, to: int) -> None:
        newlines = self._text.count("\n", self._at, to)
        if newlines:
            self._line += newlines
            self._line_start = self._text.rfind("\n", self._at, to) + 1
        self._at = to

    def _place(self) -> _Place:
        return _Place(self._name, self._line, self._at - self._line_start + 1)
