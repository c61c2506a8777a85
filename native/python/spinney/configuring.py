"""What the configurations of the tiers have in common: how a file is read, and how mistakes in it are told."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple


class ConfigurationError(Exception):
    """All that is wrong with the configuration, each with where it was given and what is expected there."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class TomlFile(NamedTuple):
    """What a TOML file says, and on which line."""

    content: dict[str, Any]
    lines: Mapping[str, int]
    """Of each key and section, by its whole name: `http.port`, `device[1].name` in the second `[[device]]`."""


def read_toml(file: Path, problems: list[str]) -> TomlFile | None:
    """The file; None, and why among the problems, if it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8")
        return TomlFile(tomllib.loads(text), _lines(text))
    except OSError as error:
        problems.append(f"{file}: cannot be read: {error.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{file}: is no TOML: {error}")
    return None


def _lines(text: str) -> dict[str, int]:
    """The line of each key and section, as far as plain TOML goes."""
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)\s*([\w.-]+)\s*\]", line):
            section = _section(header[2].split("."), counts, several=header[1] == "[[")
            found.setdefault(section, number)
        elif key := re.match(r"\s*([\w.-]+|\"[^\"]*\")\s*=", line):
            found.setdefault(f"{section}.{key[1]}" if section else key[1], number)
    return found


def _section(words: Sequence[str], counts: dict[str, int], *, several: bool) -> str:
    """`device[1]` for the second `[[device]]`, and `acquire[0].topics[2]` for what is below one."""
    name = ""
    for depth, word in enumerate(words, 1):
        name = f"{name}.{word}" if name else word
        if several and depth == len(words):
            counts[name] = counts.get(name, -1) + 1
        if name in counts:
            name += f"[{counts[name]}]"
    return name


def perhaps(word: str, words: Iterable[str]) -> str:
    """A suggestion for a word that there is not, to go after what is said of it."""
    close = get_close_matches(word, list(words), n=1)
    return f"; perhaps {close[0]}" if close else ""
