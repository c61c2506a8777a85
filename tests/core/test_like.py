r"""LIKE against a regular expression, and patterns that are slow for those who try every fit."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import parse_filter
from spinney.like import like, literal_prefix

ALPHABET = "ab%_\\é😀"


def model(text: str, pattern: str) -> bool:
    """The same by the library's regular expressions."""
    words = re.findall(r"\\[%_\\]|.", pattern, re.DOTALL)
    translated = {"%": ".*", "_": "."}
    expression = "".join(translated.get(word) or re.escape(word[-1]) for word in words)
    return re.fullmatch(expression, text, re.DOTALL) is not None


@given(st.text(ALPHABET, max_size=8), st.text(ALPHABET, max_size=8))
def test_like_is_what_the_regular_expression_says(text: str, pattern: str) -> None:
    assert like(text, pattern) is model(text, pattern)


@given(st.text("ab", max_size=12), st.text("ab%_", max_size=8))
def test_like_with_many_fits(text: str, pattern: str) -> None:
    assert like(text, pattern) is model(text, pattern)


@pytest.mark.parametrize(
    ("text", "pattern", "verdict"),
    [
        *(("", "", True), ("", "%", True), ("", "_", False), ("a", "", False), ("a", "_", True), ("ab", "_", False)),
        *(("abc", "abc", True), ("abc", "ABC", False), ("abc", "a%", True), ("abc", "%c", True), ("abc", "%b%", True)),
        *(("abc", "a%c", True), ("ac", "a%c", True), ("a", "a%a", False), ("aa", "a%a", True), ("abab", "%ab", True)),
        *(
            ("aab", "%ab", True),
            ("abcb", "a%b", True),
            ("abc", "%%", True),
            ("abc", "___", True),
            ("abc", "_%_%_", True),
        ),
        *(("ab", "_%_%_", False), ("100%", r"100\%", True), ("1000", r"100\%", False), ("a_b", r"a\_b", True)),
        *(
            ("axb", r"a\_b", False),
            ("\\", r"\\", True),
            ("\\%", r"\\%", True),
            ("\\ab", r"\\%", True),
            (r"\a", r"\a", True),
        ),
        *(("a\\", "a\\", True), ("%", r"\%", True), ("x%", r"%\%", True), (r"\x", r"\\x", True), ("😀", "_", True)),
        *(("e\u0301", "_", False), ("a\nb", "a%b", True), ("a\nb", "a_b", True)),
    ],
)
def test_wildcards_and_escapes(text: str, pattern: str, verdict: bool) -> None:
    assert like(text, pattern) is verdict


@pytest.mark.parametrize("value", [5, True, None])
def test_what_is_no_string_is_unknown(value: object) -> None:
    assert parse_filter("a LIKE '%'").evaluate({"a": value}) is None
    assert parse_filter("a NOT LIKE '%'").evaluate({"a": value}) is None


@pytest.mark.parametrize("pattern", ["%a" * 100 + "%b", "%a_" * 60 + "%b", "%" * 200 + "b", "_%" * 100 + "b%c"])
def test_hostile_patterns_take_no_longer_than_text_times_pattern(pattern: str) -> None:
    started = time.process_time()
    assert like("a" * 2000, pattern) is False
    assert time.process_time() - started < 2


def test_the_prefix_ends_at_the_first_wildcard() -> None:
    prefixes = {pattern: literal_prefix(pattern) for pattern in ("abc", "ab%c", "a_c", "%a", r"a\%b%", "", r"a\\%")}
    assert prefixes == {"abc": "abc", "ab%c": "ab", "a_c": "a", "%a": "", r"a\%b%": "a%b", "": "", r"a\\%": "a\\"}
