"""Answers before anything is installed: help, the version, a typo, a wrong option.

The commands' own parsers need what their commands need. So `./spinney reference` writes the parsers down, into
parsers.json beside this file, and the launcher makes them again from it: with the standard library alone, and without
importing any command.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spinney_tools import cli

from .rebuilt import parser_from

PARSERS: Final = Path(__file__).with_name("parsers.json")
DONE, USAGE_ERROR = 0, 2
HELP: Final = ("-h", "--help")

Spec = Mapping[str, Any]


def answer(arguments: Sequence[str]) -> int | None:
    """The exit code of a command line that is answered here; None if its command has to be run."""
    if not arguments or arguments[0] not in cli.COMMANDS:
        return cli.main(list(arguments))
    spec: Spec = json.loads(PARSERS.read_text(encoding="utf-8"))[arguments[0]]
    try:
        return _answer(spec, arguments[0], list(arguments[1:]))
    except SystemExit as end:  # of argparse, which has said why
        return end.code if isinstance(end.code, int) else USAGE_ERROR


def _answer(spec: Spec, path: str, words: list[str]) -> int | None:
    """Of a command that is written down here, with the words behind it."""
    commands: Mapping[str, Spec] = spec.get("commands", {})
    if words and words[0] in commands:
        return _answer(commands[words[0]], f"{path} {words[0]}", words[1:])
    if "text" in spec:  # a list of commands, without options of its own
        if not words or words[0] in HELP:
            print(spec["text"])
            return DONE
        return _refuse(f"spinney {path}: no command {words[0]!r}{cli.suggestion(words[0], commands)}", path)
    if words and commands and not words[0].startswith("-"):
        return _refuse(f"spinney {path}: no command {words[0]!r}{cli.suggestion(words[0], commands)}", path)
    parser = parser_from(spec["parser"])
    _, strange = parser.parse_known_args(words)
    if strange and not spec.get("passes_on"):
        _refuse_strange(parser, strange)
    return None


def _refuse(text: str, path: str) -> int:
    print(f"{text}; see spinney {path} --help", file=sys.stderr)
    return USAGE_ERROR


def _refuse_strange(parser: argparse.ArgumentParser, strange: Sequence[str]) -> None:
    """Names the options that there are not. What follows one may be a secret: it is not shown."""
    known = [option for action in parser._actions for option in action.option_strings]
    flags = [word.partition("=")[0] for word in strange if word.startswith("-")]
    if flags:
        parser.error("; ".join(f"there is no option {flag}{cli.suggestion(flag, known)}" for flag in flags))
    parser.error(f"unrecognized arguments: {' '.join(strange)}")
