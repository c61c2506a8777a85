r"""The words of CQL2 Text and of subscriptions, each with its place.

A string stands in single quotes; '' is a quote in it. A backslash is itself, except in a run of them just before a
quote: there \\ is one backslash and \' is a quote. (CQL2 has \' too; without the pairs no string could end in a
backslash.) A name in double quotes may hold anything; "" is a quote in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal as OneOf

from .errors import SyntaxError

MAX_TEXT = 1 << 20
"""Characters of one subscription."""

Kind = OneOf["name", "quoted name", "number", "duration", "string", "operator", "end"]

_STRING_PIECE = r"[^'\\]+|''|\\(?:\\\\)*'|(?:\\\\)+(?=')|\\+(?![\\'])"
_TOKEN = re.compile(
    rf"""(?P<space>\s+)
    | (?P<duration>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ms|min|[smhdw])(?![\w:.]))
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w:]))
    | (?P<name>[^\W\d][\w:.]*|:[\w:.]+)
    | (?P<string>'(?:{_STRING_PIECE})*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<operator><>|<=|>=|=(?!=)|[<>+\-*/%^(),])
    """,
    re.VERBOSE,
)
_PIECE = re.compile(_STRING_PIECE)

_INSTEAD = {"==": "=", "!=": "<>", "&&": "AND", "||": "OR", "!": "NOT"}


@dataclass(frozen=True, slots=True)
class Token:
    """One word; `text` is what it means: a name or string without its quotes, a number as it is written."""

    kind: Kind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords, in any case."""
        return self.kind == "name" and self.text.upper() in words

    def is_operator(self, *operators: str) -> bool:
        """Whether it is one of these signs."""
        return self.kind == "operator" and self.text in operators


def error_at(text: str, start: int, message: str, *, found: str = "", expected: str = "") -> SyntaxError:
    """A SyntaxError with the line and column of an offset."""
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    return SyntaxError(message, line=line, column=column, found=found, expected=expected)


def tokens(text: str) -> list[Token]:
    """All words of a text, then one of the kind `end`."""
    if len(text) > MAX_TEXT:
        raise SyntaxError(f"longer than {MAX_TEXT} characters", line=1, column=1)
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise _not_a_word(text, position)
        token = _token(match)
        if token:
            found.append(token)
        position = match.end()
    found.append(Token("end", "", len(text), len(text)))
    return found


def _token(match: re.Match[str]) -> Token | None:
    kind, raw = match.lastgroup, match.group()
    match kind:
        case "space":
            return None
        case "string":
            return Token("string", _unescape(raw[1:-1]), *match.span())
        case "quoted":
            return Token("quoted name", raw[1:-1].replace('""', '"'), *match.span())
        case "name" | "number" | "duration" | "operator":
            return Token(kind, raw, *match.span())
    raise AssertionError(kind)


def _unescape(body: str) -> str:
    if "'" not in body and "\\" not in body:
        return body
    out: list[str] = []
    for match in _PIECE.finditer(body + "'"):  # the closing quote back, so that a run before it is seen as one
        piece = match.group()
        if match.end() > len(body):
            out.append("\\" * (len(piece) // 2))
        elif piece == "''":
            out.append("'")
        elif piece[0] == "\\" and piece[-1] == "'":
            out.append("\\" * (len(piece) // 2 - 1) + "'")
        elif piece[0] == "\\" and body[match.end() : match.end() + 1] in ("'", ""):
            out.append("\\" * (len(piece) // 2))
        else:
            out.append(piece)
    return "".join(out)


def quote_string(value: str) -> str:
    """The string as it is written in text."""
    doubled = re.sub(r"(\\*)(?:'|\Z)", lambda run: run[1] * 2 + "'" * (2 if run[0].endswith("'") else 0), value)
    return f"'{doubled}'"


def _not_a_word(text: str, position: int) -> SyntaxError:
    rest = text[position : position + 20]
    for wrong, right in _INSTEAD.items():
        if rest.startswith(wrong):
            return error_at(text, position, f"'{wrong}' is written {right} in CQL2", found=wrong, expected=right)
    if rest[0] == "'":
        return error_at(text, position, "a string that does not end; expected a closing '", found=rest, expected="'")
    if rest[0] == '"':
        message = 'a quoted name that is empty or does not end; expected a closing "'
        return error_at(text, position, message, found=rest, expected='"')
    if rest[0].isdigit():
        word = re.split(r"[^\w.:]", rest, maxsplit=1)[0]
        message = f'{word} is not a number; a name that begins with a digit is written "{word}"'
        return error_at(text, position, message, found=word, expected="a number")
    return error_at(text, position, f"unexpected character {rest[0]!r}", found=rest[0])
