"""Settings from a TOML file, the environment and flags: merged, checked as a whole, every mistake named at once.

Flags win over the environment, and that wins over the file. A key is `cloud.url` in all messages; it is `url` below
`[cloud]` in the file, `SPINNEY_MOBILE__CLOUD__URL` in the environment, and `--cloud-url` as a flag. What there can be
several of, such as `[[device]]`, is in the file alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from spinney.configuring import ConfigurationError, perhaps, read_toml

from .conflicts import conflicts
from .setting_types import NO_DEFAULT, expected, kind_of_section, members, read, sections_of, shown
from .settings import Settings

PREFIX = "SPINNEY_MOBILE__"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
MISSING = object()
"""The value of a flag that was given without one."""

_SHORT = {"cloud.url": "--cloud", "logging.format": "--log", "logging.level": "--log-level"}
SECRETS = ("bindkey",)
"""Never shown."""
_BAD = object()


class Key(NamedTuple):
    """A single value that can be set by a flag or in the environment, too."""

    name: str
    type: Any
    default: Any
    section: type
    """The dataclass that it is a field of."""

    @property
    def flag(self) -> str:
        """The flag that sets it."""
        return _SHORT.get(self.name) or self.long_flag

    @property
    def long_flag(self) -> str:
        """The flag that every key has."""
        return "--" + self.name.replace(".", "-").replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.name.replace(".", "__").upper()


class Given(NamedTuple):
    """A value, and where it was given."""

    value: Any
    source: str
    base: Path
    """What a relative path is relative to."""


Tree = dict[str, Any]
"""Of a section: by key a Given, a Tree, or a list of Trees."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings that hold together, and where each that is no default was given."""

    settings: Settings
    sources: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        """Every key with its value and source. There are no passwords among them: those are in files."""
        yield from self._lines(self.settings, "")

    def _lines(self, section: Any, prefix: str) -> Iterator[str]:
        for name, type_, _ in members(type(section)):
            value = getattr(section, name)
            key = f"{prefix}{name}"
            if is_dataclass(value):
                yield from self._lines(value, f"{key}.")
            elif isinstance(value, tuple) and value and is_dataclass(value[0]):
                for index, each in enumerate(value):
                    yield from self._lines(each, f"{key}[{index}].")
            else:
                text = '"(not shown)"' if name.endswith(SECRETS) and value else shown(type_, value)
                yield f"{key} = {text}  # {self.sources.get(key, 'default')}"


# ---- The model's shape ------------------------------------------------------------------------------------------


def _keys(section: type, prefix: str = "") -> Iterator[Key]:
    for name, type_, default in members(section):
        if is_dataclass(type_):
            assert isinstance(type_, type)
            yield from _keys(type_, f"{prefix}{name}.")
        elif not sections_of(type_) and get_origin(type_) is not Mapping:
            yield Key(f"{prefix}{name}", type_, default, section)


KEYS = {key.name: key for key in _keys(Settings)}


# ---- Where values come from -------------------------------------------------------------------------------------


def from_file(file: Path, problems: list[str]) -> Tree:
    """What a TOML file gives."""
    found = read_toml(file, problems)
    return {} if found is None else _File(file, found.lines).tree(found.content, "")


class _File(NamedTuple):
    """A file, and on which line it says what."""

    path: Path
    lines: Mapping[str, int]

    def tree(self, table: Mapping[str, Any], prefix: str) -> Tree:
        """A table, with the place of each value."""
        return {name: self._branch(value, f"{prefix}{name}") for name, value in table.items()}

    def _branch(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return self.tree(value, f"{name}.")
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            return [self.tree(each, f"{name}[{index}].") for index, each in enumerate(value)]
        return Given(value, self.place(name), self.path.absolute().parent)

    def place(self, name: str) -> str:
        """Where a key stands; in a table written in one line that is where the table stands."""
        line = self.lines.get(name) or self.lines.get(name.rpartition(".")[0])
        return f"{self.path}:{line}: {name}" if line else f"{self.path}: {name}"


def from_environment(environment: Mapping[str, str], problems: list[str]) -> dict[str, Given]:
    """What variables give, by key. An empty one gives nothing."""
    known = {key.variable: key for key in KEYS.values()}
    given = {}
    for name, value in environment.items():
        if name in known:
            if value:
                given[known[name].name] = Given(value, f"environment {name}", Path.cwd())
        elif name.startswith(PREFIX) and name != CONFIG_VARIABLE:
            problems.append(f"environment {name}: there is no such setting{perhaps(name, known)}")
    return given


def from_flags(flags: Mapping[str, Any], problems: list[str]) -> dict[str, Given]:
    """What flags give, by key: None where a flag was not there, MISSING where its value was not."""
    given = {}
    for name, value in flags.items():
        if value is MISSING:
            problems.append(f"{KEYS[name].flag}: needs a value: {expected(KEYS[name].type)}")
        elif value is not None:
            given[name] = Given(value, KEYS[name].flag, Path.cwd())
    return given


def perhaps_flag(flag: str) -> str:
    """A suggestion for a flag that there is not."""
    return perhaps(flag, [each for key in KEYS.values() for each in (key.flag, key.long_flag)])


# ---- Reading them -----------------------------------------------------------------------------------------------


class _Reader:
    """Makes the model's objects of a tree, and collects what is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        self.sources: dict[str, str] = {}

    def section(self, type_: type, tree: Tree, prefix: str, place: str) -> Any:
        """An object of a dataclass; _BAD if something that must be there is not, or is wrong."""
        of = {member.name: member for member in members(type_)}
        for name in tree.keys() - of.keys():
            where = _source(tree[name]) or f"{prefix}{name}"
            self.problems.append(f"{where}: there is no such setting{perhaps(name, of)}")
        values: dict[str, Any] = {}
        whole = True
        for name, member in of.items():
            if name in tree:
                value = self._value(member.type, tree[name], f"{prefix}{name}")
                if value is not _BAD:
                    values[name] = value
                else:
                    whole = whole and member.default is not NO_DEFAULT
            elif member.default is NO_DEFAULT:
                self.problems.append(f"{place}: {prefix}{name} is missing; expected: {expected(member.type)}")
                whole = False
        return type_(**values) if whole else _BAD

    def _value(self, type_: Any, branch: Any, name: str) -> Any:
        if is_dataclass(type_):
            assert isinstance(type_, type)
            if isinstance(branch, dict):
                return self.section(type_, branch, f"{name}.", _source(branch) or name)
            return self._wrong(branch, f"is a section; write [{name}], and its settings below it")
        if kinds := sections_of(type_):
            if isinstance(branch, list):
                found = [self._one_of(kinds, tree, f"{name}[{index}]") for index, tree in enumerate(branch)]
                return tuple(each for each in found if each is not _BAD)
            if isinstance(branch, Given) and branch.value == []:
                return ()
            return self._wrong(branch, f"there can be several; write [[{name}]], and its settings below it")
        if get_origin(type_) is Mapping:
            return self._mapping(get_args(type_)[1], branch, name)
        if not isinstance(branch, Given):
            return self._wrong(branch, f"is one value; expected: {expected(type_)}")
        try:
            value = read(type_, branch.value, branch.base)
        except ValueError as error:
            why = f" ({error})" if str(error) else ""
            value = "this" if name.endswith(SECRETS) else repr(branch.value)
            return self._wrong(branch, f"{value} will not do{why}; expected: {expected(type_)}")
        self.sources[name] = branch.source
        return value

    def _one_of(self, kinds: Sequence[type], tree: Tree, name: str) -> Any:
        """Of several dataclasses the one that `kind` names."""
        if len(kinds) == 1:
            return self.section(kinds[0], tree, f"{name}.", _source(tree) or name)
        named = {kind_of_section(each): each for each in kinds}
        given = tree.get("kind")
        if isinstance(given, Given) and given.value in named:
            return self.section(named[given.value], tree, f"{name}.", _source(tree) or name)
        what = f"{given.value!r} will not do; " if isinstance(given, Given) else ""
        where = _source(given) or f"{_source(tree) or name}"
        self.problems.append(f"{where}: {what}expected: kind, one of {', '.join(named)}")
        return _BAD

    def _mapping(self, type_: Any, branch: Any, name: str) -> Any:
        if not isinstance(branch, dict):
            return self._wrong(branch, f'expected: a table, such as {name.rpartition(".")[2]} = {{one = "two"}}')
        read_all = {each: self._value(type_, value, f"{name}.{each}") for each, value in branch.items()}
        return _BAD if any(value is _BAD for value in read_all.values()) else read_all

    def _wrong(self, branch: Any, text: str) -> Any:
        self.problems.append(f"{_source(branch)}: {text}")
        return _BAD


def _source(branch: Any) -> str:
    """Where a value stands, or the first one of a table."""
    if isinstance(branch, Given):
        return branch.source
    inner = branch.values() if isinstance(branch, dict) else branch or ()
    return next((found for each in inner if (found := _source(each))), "")


# ---- Together ---------------------------------------------------------------------------------------------------


def configure(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file: Path | None = None,
    *,
    problems: Sequence[str] = (),
) -> Configuration:
    """The configuration that all these give; ConfigurationError with all that is wrong, `problems` first."""
    found = list(problems)
    file = file or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    tree = from_file(file, found) if file else {}
    for name, given in (from_environment(environment, found) | from_flags(flags, found)).items():
        _set(tree, name.split("."), given)
    tree.setdefault("data", Given(str(Settings().data), "default", Path.cwd()))
    reader = _Reader(found)
    settings = reader.section(Settings, tree, "", str(file or ""))
    assert isinstance(settings, Settings)  # every field has a default
    found += conflicts(settings, reader.sources)
    if found:
        raise ConfigurationError(found)
    return Configuration(settings, reader.sources)


def _set(tree: Tree, path: Sequence[str], given: Given) -> None:
    *sections, last = path
    for section in sections:
        below = tree.get(section)
        if not isinstance(below, dict):
            below = tree[section] = {}
        tree = below
    tree[last] = given
