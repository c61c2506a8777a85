r"""LIKE: % stands for any run of characters, _ for exactly one, \ takes a following %, _ or \ literally."""

from __future__ import annotations

from functools import lru_cache

ANY_ONE = None
Segment = tuple[str | None, ...]
"""Characters that stand together, ANY_ONE for an underscore."""

ANY_RUN = "%%"
"""Stands for a % among letters, none of which is that long."""

MAX_COVER_STEPS = 10_000
"""Pairs of letters that pattern_covers looks at; beyond, nothing is proven."""

_CACHED_PATTERNS = 4096


@lru_cache(_CACHED_PATTERNS)
def segments(pattern: str) -> tuple[Segment, ...]:
    """The pattern cut at its %s: n of them give n + 1 segments, which may be empty."""
    found: list[list[str | None]] = [[]]
    escaped = False
    for position, character in enumerate(pattern):
        if escaped:
            found[-1].append(character)
            escaped = False
        elif character == "\\" and pattern[position + 1 : position + 2] in ("%", "_", "\\"):
            escaped = True
        elif character == "%":
            found.append([])
        else:
            found[-1].append(ANY_ONE if character == "_" else character)
    return tuple(tuple(segment) for segment in found)


def literal_prefix(pattern: str) -> str:
    """The characters with which every text that is like the pattern begins."""
    prefix = ""
    for character in segments(pattern)[0]:
        if character is None:  # ANY_ONE
            break
        prefix += character
    return prefix


def prefix_pattern(prefix: str) -> str:
    """The pattern of all texts that begin so."""
    return "".join(f"\\{letter}" if letter in "%_\\" else letter for letter in prefix) + "%"


def like(text: str, pattern: str) -> bool:
    """Whether the whole text is like the pattern. Leftmost fits suffice, so the time is at most text x pattern."""
    first, *rest = segments(pattern)
    if not _fits(text, 0, first):
        return False
    if not rest:
        return len(text) == len(first)
    position = len(first)
    for segment in rest[:-1]:
        found = _find(text, position, segment)
        if found is None:
            return False
        position = found + len(segment)
    last = rest[-1]
    return len(text) - len(last) >= position and _fits(text, len(text) - len(last), last)


def _fits(text: str, position: int, segment: Segment) -> bool:
    if position + len(segment) > len(text):
        return False
    return all(wanted is ANY_ONE or wanted == text[position + i] for i, wanted in enumerate(segment))


def _find(text: str, position: int, segment: Segment) -> int | None:
    for start in range(position, len(text) - len(segment) + 1):
        if _fits(text, start, segment):
            return start
    return None


def pattern_covers(outer: str, inner: str) -> bool:
    """Whether every text that is like the inner pattern is proven to be like the outer one.

    The inner pattern is read as a text whose % and _ are letters: only a % stands for its %, a % or _ for its _. The
    rows hold which beginnings of the outer pattern fit the inner one so far.
    """
    wanted, letters = _letters(outer), _letters(inner)
    if len(wanted) * len(letters) > MAX_COVER_STEPS:
        return False
    row = _with_empty_runs([True] + [False] * len(wanted), wanted)
    for letter in letters:
        following = [False] * len(row)
        for i, want in enumerate(wanted):
            if want == ANY_RUN:
                following[i + 1] = row[i + 1]
            elif letter != ANY_RUN and want in (ANY_ONE, letter):
                following[i + 1] = row[i]
        row = _with_empty_runs(following, wanted)
    return row[-1]


def _letters(pattern: str) -> list[str | None]:
    first, *rest = segments(pattern)
    return [*first, *(letter for segment in rest for letter in (ANY_RUN, *segment))]


def _with_empty_runs(row: list[bool], wanted: list[str | None]) -> list[bool]:
    for i, want in enumerate(wanted):
        row[i + 1] = row[i + 1] or (want == ANY_RUN and row[i])
    return row
