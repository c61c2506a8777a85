"""`spinney reference`: commands and settings, as the code has them, written into each part's README.

A README says where: everything between `<!-- reference:NAME -->` and `<!-- /reference -->` is ours. And all parsers,
written down for the launcher, which answers `--help` before anything is installed.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spinney_tools import cli, clone
from spinney_tools.command_tree import Node, node_of, parser_of, spec
from spinney_tools.launcher.answers import PARSERS

DONE, STALE, USAGE_ERROR = 0, 1, 2
READMES: Final = ("cloud/README.md", "mobile_broker/README.md", "firmware/README.md")
_BLOCK = re.compile(r"(<!-- reference:([\w-]+) -->\n).*?(<!-- /reference -->)", re.DOTALL)
_OURS: Final = {"--help"}
"""Options that every command has."""

_EPILOG = """\
examples:
  spinney reference                write them anew, after commands or settings have changed
  spinney reference --check        say which are not fresh, as CI does

exit codes: 0 done, 1 not fresh or something is not installed, 2 wrong use
"""

Row = Sequence[str]


class PageError(Exception):
    """What cannot be written, and why."""


def main(arguments: list[str]) -> int:
    """The command; exit code 0 done, 1 not fresh, 2 called wrongly."""
    parser = argparse.ArgumentParser(
        prog="spinney reference",
        description="Write the references of commands and settings into each part's README.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say which are not fresh")
    options = parser.parse_args(arguments)
    try:
        top = clone.root()
        stale = [name for name in READMES if refresh(top / name, write=not options.check)]
        stale += [PARSERS.name] if refresh(PARSERS, parsers, write=not options.check) else []
    except clone.NotACloneError as error:
        parser.error(str(error))
    except (PageError, OSError) as error:
        print(f"spinney reference: {error}", file=sys.stderr)
        return STALE
    for name in stale:
        print(f"{name}: not fresh; ./spinney reference writes it" if options.check else f"{name}: written")
    return STALE if stale and options.check else DONE


def parsers(_before: str = "") -> str:
    """All commands with their parsers, as the launcher reads them."""
    try:
        specs = {name: spec((name,)) for name in cli.COMMANDS}
    except LookupError as missing:
        raise PageError(str(missing)) from None
    return json.dumps(specs, indent=1, ensure_ascii=False) + "\n"


def refresh(file: Path, made: Callable[[str], str] | None = None, *, write: bool) -> bool:
    """Whether it was other than it should be: its references, or all of it."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    after = (made or filled)(before)
    if write and after != before:
        file.write_text(after, encoding="utf-8")
    return after != before


def filled(text: str) -> str:
    """A page with what belongs between its marks."""

    def block(found: re.Match[str]) -> str:
        if found[2] not in BLOCKS:
            raise PageError(f"there is no reference {found[2]!r}; there are: {', '.join(BLOCKS)}")
        return f"{found[1]}\n{BLOCKS[found[2]]()}\n{found[3]}"

    return _BLOCK.sub(block, text)


def table(head: Row, rows: Iterable[Row]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *([_cell(text) for text in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip()


# ---- Commands -----------------------------------------------------------------------------------------------------


@functools.cache
def commands(name: str) -> str:
    """A command and all below it, each with its own options."""
    node = node_of((name,))
    if not node.commands:
        raise PageError(f"spinney {name} is not installed here; ./spinney check installs all")
    return table(("command", "what it does", "options"), _command_rows((name,), node))


def _command_rows(path: tuple[str, ...], node: Node) -> Iterator[Row]:
    for name, below in node.commands.items():
        here = (*path, name)
        options = [option for option in below.options if option not in _OURS]
        shown = " ".join(f"`{option}`" for option in options)
        if name in _TAKES_SETTINGS.get(path[0], ()):
            shown = "each setting below has one"
        yield f"`spinney {' '.join(here)}`", _summary(here), shown
        yield from _command_rows(here, below)


_TAKES_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {"mobile": ("run", "config")}


def _summary(path: tuple[str, ...]) -> str:
    """The first sentence of its description."""
    parser = parser_of(path[:2])
    if parser is None:
        raise PageError(f"spinney {' '.join(path)} is not installed here; ./spinney check installs all")
    for action in parser._actions:  # argparse has no other way to say what it knows
        if isinstance(action, argparse._SubParsersAction) and len(path) > len(path[:2]):
            parser = action.choices[path[-1]]
    return re.split(r"[.:;]\s", f"{parser.description or ''} ", maxsplit=1)[0].rstrip(". ")


# ---- Settings -----------------------------------------------------------------------------------------------------


def cloud_settings() -> str:
    """Each of `spinney cloud`."""
    keys = _keys("spinney_cloud")
    rows = [(f"`{key.name}`", f"`{key.shown(key.default)}`", key.help or key.expected) for key in keys.values()]
    return table(("setting", "default", "what it is"), rows)


def mobile_settings() -> str:
    """Each of `spinney mobile run` that is not one of a list."""
    types = importlib.import_module("spinney_mobile.setting_types")
    rows = []
    for key in _keys("spinney_mobile").values():
        told = types.help_of(key.section).get(key.name.rpartition(".")[2]) or types.expected(key.type)
        rows.append((f"`{key.name}`", f"`{types.shown(key.type, key.default)}`", told))
    return table(("setting", "default", "what it is"), rows)


def _keys(package: str) -> Mapping[str, Any]:
    try:
        found = importlib.import_module(f"{package}.configuration").KEYS
    except ModuleNotFoundError as missing:
        raise PageError(f"{missing.name} is not installed here; ./spinney check installs all") from missing
    assert isinstance(found, dict)
    return found


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "cloud-commands": lambda: commands("cloud"),
    "cloud-settings": cloud_settings,
    "mobile-commands": lambda: commands("mobile"),
    "mobile-settings": mobile_settings,
    "mote-commands": lambda: commands("mote"),
}
