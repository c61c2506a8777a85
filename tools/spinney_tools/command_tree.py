"""All commands with their subcommands and options, as their own parsers have them: for completion, and for tests."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spinney_tools import cli
from spinney_tools.launcher.rebuilt import spec_of

_LISTED: Final[Mapping[str, str]] = {
    "mote": "spinney_tools.mote",
    "sim": "spinney_tools.sim",
    "mobile": "spinney_mobile.command",
    "cloud": "spinney_cloud.command",
}
"""Where commands that choose a subcommand by themselves have their COMMANDS."""


@dataclass
class Node:
    """A command. `values`: what may follow an option, where that is a list of words."""

    summary: str = ""
    commands: dict[str, Node] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    """What may stand in place of a subcommand."""

    def walk(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
        """Itself and all below, with the words that lead there."""
        yield path, self
        for name, node in self.commands.items():
            yield from node.walk((*path, name))


class _Found(BaseException):
    """A parser that is about to parse; nobody may catch it on the way."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


_PASS_ON: Final = ("test", "soak")
"""Commands that hand options which they do not know to another program."""


def tree() -> Node:
    """The whole command. What is not installed has no options here."""
    top = Node(options=["--help", "--version"])
    for name, summary in cli.COMMANDS.items():
        top.commands[name] = node_of((name,), summary)
    return top


def node_of(path: tuple[str, ...], summary: str = "") -> Node:
    """One command, with all below it."""
    parser = parser_of(path)
    node = Node(summary) if parser is None else _of_parser(parser, summary)
    if len(path) == 1:
        for name in _listed(path[0]):
            node.commands[name] = node_of((*path, name))
    node.options = node.options or ["--help"]
    return node


def spec(path: tuple[str, ...]) -> dict[str, Any]:
    """A command with all below it, as the launcher has it; LookupError if what it needs is not installed."""
    parser = parser_of(path)
    found: dict[str, Any] = {"passes_on": True} if path[0] in _PASS_ON else {}
    if parser is not None:
        return found | _spec_of_parser(parser) | _specs_below(path)
    below = _specs_below(path)
    if not below:
        raise LookupError(f"spinney {' '.join(path)} is not installed here; ./spinney check installs all")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        cli.run([*path, "--help"])
    return found | {"text": printed.getvalue().rstrip("\n")} | below


def _specs_below(path: tuple[str, ...]) -> dict[str, Any]:
    names = _listed(path[0]) if len(path) == 1 else []
    return {"commands": {name: spec((*path, name)) for name in names}} if names else {}


def _spec_of_parser(parser: argparse.ArgumentParser) -> dict[str, Any]:
    below: dict[str, Any] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below |= {name: _spec_of_parser(parser) for name, parser in action.choices.items()}
    return {"parser": spec_of(parser)} | ({"commands": below} if below else {})


def _listed(name: str) -> list[str]:
    if name not in _LISTED:
        return []
    try:
        return [*importlib.import_module(_LISTED[name]).COMMANDS]
    except ModuleNotFoundError:
        return []


def parser_of(path: tuple[str, ...]) -> argparse.ArgumentParser | None:
    """The parser of a command, taken from it as it begins to parse; None if it has none, or cannot be imported."""

    def caught(self: argparse.ArgumentParser, *_arguments: Any, **_named: Any) -> Any:
        raise _Found(self)

    with _parsing(caught), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            cli.run([*path, "--help"])
        except _Found as found:
            return found.parser
        except (ImportError, SystemExit):
            return None
    return None


@contextlib.contextmanager
def _parsing(instead: Callable[..., Any]) -> Iterator[None]:
    """Every parser does this instead of parsing."""
    parsers: Any = argparse.ArgumentParser
    before = parsers.parse_args, parsers.parse_known_args
    parsers.parse_args = parsers.parse_known_args = instead
    try:
        yield
    finally:
        parsers.parse_args, parsers.parse_known_args = before


def _of_parser(parser: argparse.ArgumentParser, summary: str) -> Node:
    node = Node(summary)
    for action in parser._actions:  # argparse has no other way to say what it knows
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                node.commands[name] = _of_parser(below, "")
            continue
        if action.help == argparse.SUPPRESS:
            continue
        node.options += [option for option in action.option_strings if option.startswith("--")]
        choices = [str(choice) for choice in action.choices or ()]
        if action.option_strings:
            node.values |= dict.fromkeys(action.option_strings, choices) if choices else {}
        else:
            node.words += choices
    return node
