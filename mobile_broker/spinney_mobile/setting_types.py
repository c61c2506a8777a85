"""The shape of the settings' model: its sections and fields, and what a value of each must be."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from .quantities import Kind

__all__ = ["NO_DEFAULT", "Member", "expected", "help_of", "kind_of_section", "members", "read", "sections_of", "shown"]

_PLAIN = {
    str: ("text", (str,)),
    bool: ("true or false", (bool,)),
    float: ("a number", (int, float)),
    int: ("a whole number", (int,)),
}


class Member(NamedTuple):
    """A field of a section."""

    name: str
    type: Any
    default: Any
    """NO_DEFAULT where it must be given."""


def members(section: type) -> list[Member]:
    """The fields of a section, with their types as written."""
    hints = get_type_hints(section, include_extras=True)
    return [Member(each.name, hints[each.name], _default(each)) for each in fields(section)]


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is NO_DEFAULT else field.default_factory()


def sections_of(type_: Any) -> tuple[type, ...]:
    """The dataclasses that a list of tables may hold; empty for any other type."""
    if get_origin(type_) is not tuple:
        return ()
    inner = get_args(type_)[0]
    kinds = get_args(inner) if get_origin(inner) in (Union, UnionType) else (inner,)
    return kinds if all(is_dataclass(kind) for kind in kinds) else ()


def help_of(section: type) -> dict[str, str]:
    """The text below each field of a section, its bases' fields included."""
    found: dict[str, str] = {}
    for each in reversed(section.__mro__):
        if is_dataclass(each):
            found |= _own_help(each)
    return found


def _own_help(section: type) -> dict[str, str]:
    (defined,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(defined, ast.ClassDef)
    found = {}
    for field, text in zip(defined.body, defined.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = str(text.value.value)
    return found


def kind_of_section(section: type) -> str:
    """What `kind` must be for one of several dataclasses."""
    kind = next(member.default for member in members(section) if member.name == "kind")
    assert isinstance(kind, str)
    return kind


def expected(type_: Any) -> str:
    """What may stand there, for people."""
    inner, optional = _without_none(type_)
    if optional:
        return f"{expected(inner)}, or none"
    if (kind := _kind(type_)) is not None:
        return kind.expected
    if get_origin(type_) is Literal:
        return f"one of {', '.join(get_args(type_))}"
    if get_origin(type_) is tuple:
        return f"a list, each {expected(get_args(type_)[0])}"
    if get_origin(type_) in (Union, UnionType):
        return " or ".join(expected(each) for each in get_args(type_))
    if get_origin(type_) is Mapping:
        return f"a table, each {expected(get_args(type_)[1])}"
    return "a path" if type_ is Path else _PLAIN[type_][0]


def shown(type_: Any, value: Any) -> str:
    """A value, as it may stand in the file."""
    inner, _ = _without_none(type_)
    kind = _kind(inner)
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(shown(get_args(inner)[0], each) for each in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_quoted(name)} = {shown(None, each)}' for name, each in value.items())}}}"
    if kind is not None and kind.units:
        for unit, factor in kind.units.items():
            if value >= factor and value % factor == 0:
                return f'"{value / factor:g}{unit}"'
    return f"{value:g}" if isinstance(value, int | float) else _quoted(value)


def _quoted(value: object) -> str:
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _without_none(type_: Any) -> tuple[Any, bool]:
    """`X` and True for `X | None`."""
    if get_origin(type_) in (Union, UnionType) and type(None) in get_args(type_):
        (inner,) = (each for each in get_args(type_) if each is not type(None))
        return inner, True
    return type_, False


def _kind(type_: Any) -> Kind | None:
    if get_origin(type_) is Annotated:
        return next((each for each in type_.__metadata__ if isinstance(each, Kind)), None)
    return None


def read(type_: Any, value: Any, base: Path) -> Any:
    """A single value as a type wants it; ValueError if it is none."""
    inner, optional = _without_none(type_)
    if optional:
        return None if value == "none" else read(inner, value, base)
    if (kind := _kind(type_)) is not None:
        return kind.read(value)
    if get_origin(type_) is Literal:
        if value not in get_args(type_):
            raise ValueError
        return value
    if get_origin(type_) is tuple:
        items = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise ValueError
        return tuple(read(get_args(type_)[0], each, base) for each in items)
    if get_origin(type_) in (Union, UnionType):
        if type(value) not in get_args(type_) and not isinstance(value, int):
            raise ValueError
        return value
    return _plain(type_, value, base)


def _plain(type_: Any, value: Any, base: Path) -> Any:
    if type_ is Path:
        if not isinstance(value, str) or not value:
            raise ValueError
        return base / Path(value).expanduser()
    if type_ is bool and isinstance(value, str):
        if value not in ("true", "false"):
            raise ValueError
        return value == "true"
    if not isinstance(value, _PLAIN[type_][1]) or (type_ is not bool and isinstance(value, bool)):
        raise ValueError
    return value
