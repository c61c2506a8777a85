"""Case folding by Unicode 14, whatever the interpreter has."""

from __future__ import annotations

import itertools
import sys
import unicodedata

import pytest

from spinney.casefold import EXPANSIONS, RANGES, UNICODE_VERSION, fold
from spinney_tools.make_casefold import HEADER, header_text

EVERY_CODE_POINT = [chr(code) for code in range(sys.maxunicode + 1)]


@pytest.mark.skipif(unicodedata.unidata_version != UNICODE_VERSION, reason="this Python has another Unicode")
def test_folds_every_code_point_as_unicode_14_does() -> None:
    assert [character for character in EVERY_CODE_POINT if fold(character) != character.casefold()] == []


def test_what_it_folds_every_later_unicode_folds_the_same() -> None:
    changed = [character for character in EVERY_CODE_POINT if fold(character) != character]
    assert len(changed) == 1530
    assert [character for character in changed if fold(character) != character.casefold()] == []


def test_folding_twice_is_folding_once() -> None:
    assert [character for character in EVERY_CODE_POINT if fold(fold(character)) != fold(character)] == []


def test_folds_texts() -> None:
    assert fold("") == ""
    assert fold("NO2") == "no2"
    assert fold("Straße") == fold("STRASSE") == "strasse"
    assert fold("ΣΊΣΥΦΟΣ") == fold("σίσυφος")


def test_a_folded_text_is_at_most_three_times_as_long_in_utf_8() -> None:
    """C makes room for that much: SPINNEY_CASEFOLD_GROWTH."""
    texts = [character.encode("utf-8", "surrogatepass") for character in EVERY_CODE_POINT]
    assert (
        max(
            len(fold(text.decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass")) / len(text)
            for text in texts
        )
        == 3
    )


def test_ranges_are_in_order_and_apart_for_binary_search() -> None:
    assert all(first <= last and (last - first) % step == 0 for first, last, step, _ in RANGES)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(RANGES))
    assert not any(
        first <= code <= last and (code - first) % step == 0 for first, last, step, _ in RANGES for code in EXPANSIONS
    )


def test_the_table_in_c_is_fresh() -> None:
    assert HEADER.read_text(encoding="utf-8") == header_text(), "run python -m spinney_tools.make_casefold"
