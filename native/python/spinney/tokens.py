r"""The words of CQL2 Text and of subscriptions, each with its place.

A string stands in single quotes; '' is a quote in it. A backslash is itself, except in a run of them just before a
quote: there \\ is one backslash and \' is a quote. (CQL2 has \' too; without the pairs no string could end in a
backslash.) A name in double quotes may hold anything; "" is a quote in it.
"""

from __future__ import annotations

import re
from typing import Literal as OneOf
from typing import NamedTuple

from .errors import SyntaxError
from .limits import check_string

MAX_TEXT = 1 << 20
"""Characters of one subscription."""

_SHOWN = 40
"""Characters of the text that a message shows."""

Kind = OneOf["name", "quoted name", "number", "duration", "string", "operator", "end"]

# The letters of CQL2's BNF, marks and signs among them that \w leaves out, with the few of Latin-1 that it forgot.
_LETTERS = (
    r"A-Za-z_\u00AA\u00B2\u00B3\u00B5\u00B9\u00BA\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02FF\u0370-\u037D\u037F-\u167F"
    r"\u1681-\u1FFE\u200C-\u200D\u2070-\u218F\u2C00-\u2FEF\u3001-\uD7FF\uF900-\uFDCF\uFDF0-\uFEFE\uFF00-\uFFFD"
    r"\U00010000-\U000EFFFF"
)
_IN_WORDS = rf"{_LETTERS}0-9:\u0300-\u036F\u203F-\u2040"
NAME = rf"[{_LETTERS}][{_IN_WORDS}.]*|:[{_IN_WORDS}.]+"
"""A name that needs no quotes, unless it is a keyword."""

_STRING_PIECE = r"[^'\\]+|''|\\(?:\\\\)*'|(?:\\\\)+(?=')|\\+(?![\\'])"
_KINDS: dict[str, Kind] = {
    "name": "name",
    "operator": "operator",
    "duration": "duration",
    "number": "number",
    "string": "string",
    "quoted": "quoted name",
    "end": "end",
}
_TOKEN = re.compile(
    rf"""\s*+(?:
      (?P<name>{NAME})
    | (?P<operator><>|<=|>=|=(?!=)|[<>+\-*/%^(),])
    | (?P<duration>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ms|min|[smhdw])(?![{_IN_WORDS}.]))
    | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+(?![{_IN_WORDS}.]))
    | (?P<string>'(?:{_STRING_PIECE})*+')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
# *+ and ++ never give back: tried in every other way too, a string that does not end would take exponential time, and
# 1.5x would be the number 1 and a stray .5x.
_PIECE = re.compile(_STRING_PIECE)

_INSTEAD = {"==": "=", "!=": "<>", "&&": "AND", "||": "OR", "!": "NOT"}


class Token(NamedTuple):
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
    try:
        check_string(text)
    except ValueError as error:
        start = next(at for at, character in enumerate(text) if "\ud800" <= character <= "\udfff")
        raise error_at(text, start, str(error), found=text[start]) from None
    found: list[Token] = []
    at, match_at = 0, _TOKEN.match
    while True:
        match = match_at(text, at)
        if not match:
            raise _not_a_word(text, len(text) - len(text[at:].lstrip()))
        group = match.lastgroup or ""
        start, at = match.span(group)
        word = text[start:at]
        if group == "string":
            word = _unescape(word[1:-1])
        elif group == "quoted":
            word = word[1:-1].replace('""', '"')
        found.append(Token(_KINDS[group], word, start, at))
        if group == "end":
            return found


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
    if "'" not in value and not value.endswith("\\"):
        return f"'{value}'"
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
        word = re.split(rf"[^{_IN_WORDS}.]", rest, maxsplit=1)[0]
        message = f'{word} is neither a number nor a duration such as 24h; as a name it is written "{word}"'
        return error_at(text, position, message, found=word, expected="a number")
    return error_at(text, position, f"unexpected character {rest[0]!r}", found=rest[0])


class Words:
    """A position in the words of a text, and the means to take them one by one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokens(text)
        self._at = 0
        self.token = self._tokens[0]
        """The word that comes next."""
        if len(self._tokens) == 1:
            raise error_at(text, 0, "expected a condition or a subscription, found nothing")

    def ahead(self, count: int = 1) -> Token:
        """A word further on."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next word, and go on."""
        token = self.token
        if token.kind != "end":
            self._at += 1
            self.token = self._tokens[self._at]
        return token

    def error(self, expected: str, token: Token | None = None, *, message: str = "") -> SyntaxError:
        """What was expected here, or after the word before."""
        token = token or self.token
        found = self.text[token.start : token.end][:_SHOWN]
        if not message:
            before = self._tokens[self._tokens.index(token) - 1] if token.start > 0 else None
            after = f" after {show(self.text[before.start : before.end])}" if before else ""
            message = f"expected {expected}{after}" + (f", found {show(found)}" if found else "")
        return error_at(self.text, token.start, message, found=found, expected=expected)

    def word(self, *words: str) -> Token:
        """Takes one of these keywords, or fails."""
        if not self.token.is_word(*words):
            raise self.error(" or ".join(words))
        return self.take()

    def accept_word(self, word: str) -> bool:
        """Takes this keyword if it comes next."""
        if self.token.is_word(word):
            self.take()
            return True
        return False

    def sign(self, sign: str) -> Token:
        """Takes this sign, or fails."""
        if not self.token.is_operator(sign):
            raise self.error(f"'{sign}'")
        return self.take()

    def accept_sign(self, sign: str) -> bool:
        """Takes this sign if it comes next."""
        if self.token.is_operator(sign):
            self.take()
            return True
        return False

    def finish(self, expected: str) -> None:
        """Fails unless the text ends here."""
        if self.token.kind != "end":
            raise self.error(expected)


def show(text: str) -> str:
    """A piece of the text as a message quotes it: not twice, and not at length."""
    if len(text) > _SHOWN:
        text = text[:_SHOWN] + "..."
    return text if text.startswith("'") else f"'{text}'"
