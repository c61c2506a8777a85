"""Reads the three forms of a subscription in text: a filter, WHEN ... UNTIL ..., TOP ... OVER ... BY ..."""

from __future__ import annotations

from .subscription import ContentSubscription, StateSubscription, TopKSubscription
from .text import CLAUSES, RESERVED, Reader
from .tokens import Token

MAX_K = 10_000
MAX_LAST = 1_000_000
UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
MAX_SECONDS = 100 * 366 * 86_400.0
"""The longest duration: a century."""


def read_subscription(text: str) -> ContentSubscription | StateSubscription | TopKSubscription:
    """A subscription in text."""
    reader = Reader(text)
    if _begins(reader, "WHEN"):
        return _read_state(reader)
    if _begins(reader, "TOP"):
        return _read_top_k(reader)
    condition = reader.condition()
    reader.finish("AND, OR or the end")
    return ContentSubscription(filter=condition)


def _begins(reader: Reader, word: str) -> bool:
    """Whether the keyword begins the text, and is not just an attribute that is compared."""
    if not reader.token.is_word(word):
        return False
    following = reader.ahead()
    signed = following.kind == "operator" and following.text not in "(+-"
    compared = signed or following.is_word(*RESERVED - {"NOT"})
    return not compared or following.is_word("TRUE", "FALSE")


def _read_state(reader: Reader) -> StateSubscription:
    reader.clauses = frozenset(("UNTIL", "FOR", "EACH", "ONCE"))
    reader.word("WHEN")
    enter = reader.condition()
    reader.word("UNTIL")
    leave = reader.condition()
    only = reader.condition() if reader.accept_word("FOR") else None
    each = _read_name(reader) if reader.accept_word("EACH") else None
    once = each is None and reader.accept_word("ONCE")
    expected = "AND, OR" if each is None and not once else ""
    expected += ", FOR" if only is None and expected else ""
    reader.finish(f"{expected}, EACH, ONCE or the end" if expected else "the end")
    return StateSubscription(enter=enter, exit=leave, only=only, each=each, once=once)


def _read_top_k(reader: Reader) -> TopKSubscription:
    reader.clauses = frozenset(("OVER", "BY", "DESC", "WHERE", "EACH"))
    reader.word("TOP")
    k = _read_count(reader, MAX_K)
    reader.word("OVER")
    last = _read_count(reader, MAX_LAST) if reader.accept_word("LAST") else None
    seconds = _read_duration(reader) if last is None else None
    reader.word("BY")
    score = reader.number()
    descending = reader.accept_word("DESC")
    where = reader.condition() if reader.accept_word("WHERE") else None
    each = _read_name(reader) if reader.accept_word("EACH") else None
    reader.finish("the end" if each else "EACH or the end" if where else "DESC, WHERE, EACH or the end")
    return TopKSubscription(k=k, seconds=seconds, last=last, score=score, descending=descending, where=where, each=each)


def _read_name(reader: Reader) -> str:
    token = reader.token
    if token.kind == "quoted name" or (token.kind == "name" and token.text.upper() not in RESERVED | CLAUSES):
        return reader.take().text
    raise reader.error("an attribute's name")


def _read_count(reader: Reader, limit: int) -> int:
    token = reader.token
    if token.kind != "number" or not token.text.isdecimal() or not 1 <= int(token.text[:12]) <= limit:
        raise reader.error(f"a whole number from 1 to {limit}")
    return int(reader.take().text)


def _read_duration(reader: Reader) -> float:
    token = reader.token
    if token.kind != "duration":
        raise reader.error("a duration such as 24h or LAST and a number")
    reader.take()
    return _checked_duration(reader, token)


def _checked_duration(reader: Reader, token: Token) -> float:
    try:
        return duration_seconds(token.text)
    except ValueError as error:
        raise reader.error("a duration", token, message=str(error)) from None


def duration_seconds(text: str) -> float:
    """'24h' as seconds; units ms, s, m or min, h, d, w. ValueError says what is wrong."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    size = UNIT_SECONDS.get(text[len(digits) :])
    if size is None or not digits or not digits.replace(".", "", 1).isdecimal():
        raise ValueError(f"'{text[:40]}' is not a duration such as 30s, 15m, 24h or 7d")
    seconds = float(digits) / 1000 if size == 0.001 else float(digits) * size
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"a duration is more than 0 and at most {MAX_SECONDS:.0f} s")
    return seconds
