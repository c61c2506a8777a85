"""JSON text to objects, keeping what the standard reader throws away: repeated keys, and where things stand."""

from __future__ import annotations

import json
from json import JSONDecodeError, JSONDecoder
from typing import Any

from .errors import SyntaxError
from .limits import MAX_DEPTH
from .tokens import MAX_TEXT, error_at

Path = tuple[str | int, ...]

_MAX_DIGITS = 310
_MAX_PATH = 80
_MAX_DEPTH = 2 * MAX_DEPTH + 50
"""Levels of nesting in the JSON of a subscription: an operation takes two, and there is more around and below."""


class BadJson(ValueError):
    """A value that cannot be what it should be, by its path; `read` and its callers turn it into a SyntaxError."""

    def __init__(self, path: Path, message: str, *, found: str = "", expected: str = "") -> None:
        super().__init__(message)
        self.path, self.message, self.found, self.expected = path, message, found, expected

    def located(self, source: str | None) -> SyntaxError:
        """The same with line and column in the source, 1:1 where there is none."""
        name = path_text(self.path)
        if source is None:
            place = SyntaxError("", line=1, column=1)
        else:
            place = error_at(source, offset_of(source, self.path), "")
        return SyntaxError(
            self.message, line=place.line, column=place.column, found=self.found, expected=self.expected, path=name
        )


class RepeatedKey(dict[str, Any]):
    """An object in which a key stands twice."""

    key = ""


def read(source: str) -> Any:
    """The objects of a JSON text."""
    if len(source) > MAX_TEXT:
        raise SyntaxError(f"longer than {MAX_TEXT} characters", line=1, column=1)
    try:
        item = json.loads(source, object_pairs_hook=_object, parse_int=_whole)
    except JSONDecodeError as error:
        message = f"not JSON: {error.msg[0].lower()}{error.msg[1:]}"
        found = source[error.pos : error.pos + 20]
        raise SyntaxError(message, line=error.lineno, column=error.colno, found=found) from None
    except RecursionError:
        raise _too_deep() from None
    _check_depth(item)
    return item


def _check_depth(item: Any) -> None:
    level, depth = [item], 0
    while level:
        depth += 1
        if depth > _MAX_DEPTH:
            raise _too_deep()
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]


def _too_deep() -> SyntaxError:
    return SyntaxError(f"nested deeper than {_MAX_DEPTH} levels of JSON", line=1, column=1)


def _whole(digits: str) -> float:
    """An integer; infinite, and so refused with its place, beyond the digits of any double."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated = RepeatedKey(found)
    names = [name for name, _ in pairs]
    repeated.key = next(name for i, name in enumerate(names) if name in names[:i])
    return repeated


def path_text(path: Path) -> str:
    """('args', 1, 'op') as args[1].op; of a long one the end."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return text if len(text) <= _MAX_PATH else "..." + text[-_MAX_PATH:]


def offset_of(source: str, path: Path) -> int:
    """Where the value at a path begins in the text; where its parent begins if the path leads nowhere."""
    decoder, position = JSONDecoder(parse_int=_whole), _skip_space(source, 0)
    for step in path:
        following = _step(decoder, source, position, step)
        if following is None:
            break
        position = following
    return position


def _skip_space(source: str, position: int) -> int:
    while position < len(source) and source[position] in " \t\r\n":
        position += 1
    return position


def _step(decoder: JSONDecoder, source: str, start: int, step: str | int) -> int | None:
    """The offset of one member of the object or array that begins at start; of the last with a repeated key."""
    if source[start] not in "{[" or isinstance(step, str) != (source[start] == "{"):
        return None
    position, found, index = _skip_space(source, start + 1), None, 0
    while source[position] not in "}]":
        name: str | int = index
        if isinstance(step, str):
            name, position = decoder.raw_decode(source, position)
            position = _skip_space(source, _skip_space(source, position) + 1)
        if name == step:
            found = position
        _, position = decoder.raw_decode(source, position)
        position = _skip_space(source, position)
        if source[position] == ",":
            position = _skip_space(source, position + 1)
        index += 1
    return found
