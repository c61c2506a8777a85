"""A parser as data, and the parser that is made of it: with the same help and the same refusals."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

TYPES: Final[Mapping[str, type]] = {"int": int, "float": float}
"""What is converted here; other types are found by module and name."""
KEPT: Final = ("prog", "usage", "description", "epilog")
_Spec = Mapping[str, Any]


# ---- to data ----------------------------------------------------------------------------------------------------


def spec_of(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """All that its help and its refusals are made of."""
    spec: dict[str, Any] = {name: value for name in KEPT if (value := getattr(parser, name)) is not None}
    spec["abbreviates"] = parser.allow_abbrev
    spec["wraps"] = not isinstance(parser._get_formatter(), argparse.RawDescriptionHelpFormatter)
    spec["groups"] = [_group(parser, group) for group in parser._action_groups if group._group_actions]
    exclusive = [[action.dest for action in group._group_actions] for group in parser._mutually_exclusive_groups]
    return spec | ({"exclusive": exclusive} if exclusive else {})


def _group(parser: argparse.ArgumentParser, group: argparse._ArgumentGroup) -> dict[str, Any]:
    shown = [each for each in group._group_actions if each.dest != "help" and each.help != argparse.SUPPRESS]
    hidden = [_hidden(each) for each in group._group_actions if each.help == argparse.SUPPRESS]
    found = {"title": group.title, "arguments": [_argument(parser, action) for action in shown]}
    return found | ({"hidden": hidden} if hidden else {})


def _hidden(action: argparse.Action) -> str:
    """Its options, and how many values they take, on one line: some parsers have a hundred."""
    return " ".join([*action.option_strings, "" if action.nargs is None else str(action.nargs)])


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> dict[str, Any]:
    if isinstance(action, argparse._SubParsersAction):
        summaries = {one.dest: one.help for one in action._choices_actions}
        return {"dest": action.dest, "metavar": action.metavar, "required": action.required, "commands": summaries}
    formatter = parser._get_formatter()
    names = action.option_strings
    default = formatter._get_default_metavar_for_optional(action) if names else action.dest
    spec: dict[str, Any] = {"names": list(names), "dest": action.dest}
    if action.help:
        spec["help"] = formatter._expand_help(action)
    if isinstance(action, argparse.BooleanOptionalAction):
        return spec | {"names": [name for name in names if not name.startswith("--no-")], "switch": "both"}
    if action.nargs == 0:
        return spec | {"switch": "on"}
    spec["shown"] = formatter._format_args(action, default)
    if action.nargs is not None:
        spec["nargs"] = action.nargs
    if action.choices is not None:
        spec["choices"] = [*action.choices]
    if action.metavar is not None:
        spec["metavar"] = action.metavar
    if names and action.required:
        spec["required"] = True
    if (kind := _name(action.type)) is not None:
        spec["type"] = kind
    return spec


def _name(kind: Any) -> str | None:
    """Of what converts a value, if it can be found again by it."""
    name = getattr(kind, "__qualname__", "<")
    if kind in TYPES.values():
        return str(name)
    return None if "<" in name or not kind.__module__.startswith("spinney") else f"{kind.__module__}:{name}"


# ---- and back ---------------------------------------------------------------------------------------------------


class _Wrapping(argparse.HelpFormatter):
    """Shows values as the parser's own formatter did."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        return getattr(action, "shown", None) or super()._format_args(action, default_metavar)


class _Raw(_Wrapping, argparse.RawDescriptionHelpFormatter):
    """The same, with lines as they were written."""


SWITCHES: Final[Mapping[str, Any]] = {"on": "store_true", "both": argparse.BooleanOptionalAction}


def parser_from(spec: _Spec) -> argparse.ArgumentParser:
    """A parser that helps and refuses as the one that the data are of."""
    named = {name: spec[name] for name in KEPT if name in spec}
    formatter = _Wrapping if spec["wraps"] else _Raw
    parser = argparse.ArgumentParser(**named, formatter_class=formatter, allow_abbrev=spec["abbreviates"])
    places: dict[str, Any] = {group.title: group for group in parser._action_groups if group.title}
    exclusive = {dest for dests in spec.get("exclusive", ()) for dest in dests}
    for group in spec["groups"]:
        for line in group.get("hidden", ()):
            *names, nargs = line.split(" ")
            given: dict[str, Any] = {"action": "store_true"} if nargs == "0" else {"nargs": nargs or None}
            parser.add_argument(*names, help=argparse.SUPPRESS, **given)
        for argument in group["arguments"]:
            if "commands" in argument:
                _add_commands(parser, argument, None if group["title"] in places else group["title"])
            elif argument["dest"] not in exclusive:
                if group["title"] not in places:
                    places[group["title"]] = parser.add_argument_group(group["title"])
                _add(places[group["title"]], argument)
    arguments = [argument for group in spec["groups"] for argument in group["arguments"]]
    for dests in spec.get("exclusive", ()):
        together = parser.add_mutually_exclusive_group()
        for argument in arguments:
            if argument["dest"] in dests:
                _add(together, argument)
    return parser


def _add_commands(parser: argparse.ArgumentParser, spec: _Spec, title: str | None) -> None:
    given: dict[str, Any] = {"title": title} if title else {}
    below = parser.add_subparsers(dest=spec["dest"], metavar=spec["metavar"], required=spec["required"], **given)
    for name, summary in spec["commands"].items():
        below.add_parser(name, help=summary)


def _found(name: str) -> Callable[[str], Any]:
    """What converts a value, imported when there is one. What it needs may not be installed: then any value will do."""
    module, _, function = name.partition(":")

    def convert(text: str) -> Any:
        try:
            found = getattr(importlib.import_module(module), function)
        except ImportError:
            return text
        return found(text)

    convert.__name__ = function  # argparse names it for a value that will not do
    return convert


def _add(place: Any, spec: _Spec) -> None:
    given: dict[str, Any] = {name: spec[name] for name in ("nargs", "choices", "metavar", "required") if name in spec}
    if "switch" in spec:
        given = {"action": SWITCHES[spec["switch"]]}
    if "type" in spec:
        given["type"] = TYPES.get(spec["type"]) or _found(spec["type"])
    # the help is expanded already
    given["help"] = spec.get("help", "").replace("%", "%%") or None
    if spec["names"]:
        added = place.add_argument(*spec["names"], dest=spec["dest"], **given)
    else:
        added = place.add_argument(spec["dest"], **given)
    if "shown" in spec:
        added.shown = spec["shown"]
