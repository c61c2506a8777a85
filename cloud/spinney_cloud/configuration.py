"""Settings from a TOML file, the environment and flags: merged, checked as a whole, every mistake named at once.

Flags win over the environment, and that wins over the file. A key is `http.port` in all messages; it is `port` below
`[http]` in the file, `SPINNEY_CLOUD__HTTP__PORT` in the environment, and `--http-port` as a flag.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from spinney.configuring import ConfigurationError, perhaps, read_toml

from . import settings as model
from .settings import Section, Settings

PREFIX = "SPINNEY_CLOUD__"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
MISSING = object()
"""The value of a flag that was given without one."""

_TIMES = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SIZES = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
_SHORT = {
    "nats.url": "--nats",
    "mqtt.url": "--mqtt",
    "pipeline.run": "--with-pipeline",
    "logging.format": "--log",
    "logging.level": "--log-level",
}

RELOADABLE = frozenset(
    {
        "logging.level",
        "logging.format",
        "log.max_age",
        "log.max_bytes",
        "log.notes_max_age",
        "log.notes_max_bytes",
        "log.free_disk_floor",
        "log.keeper_interval",
        "log.pipeline",
        "limits.payload",
        "limits.rate",
        "limits.attributes",
        "limits.connections",
        "security.token_lifetime",
    }
)
"""What takes effect on SIGHUP; all else needs a restart. Users, and what is in certificate files, take effect, too."""


class Key(NamedTuple):
    """Something that can be set."""

    name: str
    kind: Any
    """Its type, as the model writes it."""
    default: Any
    help: str

    @property
    def path(self) -> tuple[str, ...]:
        """Its place in the model."""
        return tuple(self.name.split("."))

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

    @property
    def expected(self) -> str:
        """What may stand there, for people."""
        return _expected(self.kind)

    def shown(self, value: Any) -> str:
        """A value of it, as it may stand in the file."""
        if value is None:
            return "none"
        if isinstance(value, bool):
            return str(value).lower()
        for kind, units in ((model.Seconds, _TIMES), (model.Bytes, _SIZES)):
            if self.kind == kind:
                unit = next((unit for unit, factor in units.items() if value >= factor and value % factor == 0), None)
                return f'"{value / units[unit]:g}{unit}"' if unit else f"{value:g}"
        return str(value) if isinstance(value, int | float) else f'"{value}"'


class Given(NamedTuple):
    """A value, and where it was given."""

    key: Key
    value: Any
    source: str
    base: Path
    """What a relative path is relative to."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings that hold together, and where each that is no default was given."""

    settings: Settings
    sources: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        """Every key with its value and source. There are no secrets among them: those are in files."""
        for key in KEYS.values():
            yield f"{key.name} = {key.shown(value_of(self.settings, key))}  # {self.sources.get(key.name, 'default')}"


def _keys(section: type[Section], prefix: str = "") -> Iterator[Key]:
    hints = get_type_hints(section, dict(vars(model)), include_extras=True)
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from _keys(kind, f"{prefix}{name}.")
        else:
            default = None if field.default is PydanticUndefined else field.default
            yield Key(f"{prefix}{name}", hints[name], default, field.description or "")


def _expected(kind: Any) -> str:
    known = {
        model.Seconds: "a time above 0, such as 90, 10m or 7d",
        model.Bytes: "a size above 0, such as 4096 or 512MiB",
        model.Count: "a whole number above 0",
        model.Port: "a port from 0 to 65535",
        model.Place: "a folder, or a URL such as s3://bucket/lake",
        model.Origin: "a URL such as https://spinney.example.org, without a path",
        model.SyncInterval: "a time such as 500ms or 10s, or always",
        bool: "true or false",
        str: "text",
        Path: "a path",
    }
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) in (Union, types.UnionType):
        return _expected(get_args(kind)[0])
    return next(text for each, text in known.items() if kind == each)


KEYS = {key.name: key for key in _keys(Settings)}


def value_of(settings: Settings, key: Key) -> Any:
    """The value of a key."""
    value: Any = settings
    for step in key.path:
        value = getattr(value, step)
    return value


# ---- Where values come from -------------------------------------------------------------------------------------


def from_file(file: Path, problems: list[str]) -> list[Given]:
    """What a TOML file gives."""
    found = read_toml(file, problems)
    return [] if found is None else list(_from_table(found.content, (), file, found.lines, problems))


def _from_table(
    table: Mapping[str, Any], path: tuple[str, ...], file: Path, lines: Mapping[str, int], problems: list[str]
) -> Iterator[Given]:
    for word, value in table.items():
        name = ".".join((*path, word))
        line = lines.get(name) or lines.get(".".join(path))
        source = f"{file}:{line}: {name}" if line else f"{file}: {name}"
        if name in KEYS:
            yield Given(KEYS[name], value, source, file.absolute().parent)
        elif not any(each.startswith(f"{name}.") for each in KEYS):
            problems.append(f"{source}: there is no such setting{perhaps(name, KEYS)}")
        elif isinstance(value, dict):
            yield from _from_table(value, (*path, word), file, lines, problems)
        else:
            problems.append(f"{source}: is a section; write [{name}], and its settings below it")


def from_environment(environment: Mapping[str, str], problems: list[str]) -> list[Given]:
    """What variables give. An empty one gives nothing."""
    known = {key.variable: key for key in KEYS.values()}
    given = []
    for name, value in environment.items():
        if name in known:
            if value:
                given.append(Given(known[name], value, f"environment {name}", Path.cwd()))
        elif name.startswith(PREFIX) and name != CONFIG_VARIABLE:
            problems.append(f"environment {name}: there is no such setting{perhaps(name, known)}")
    return given


def from_flags(flags: Mapping[str, Any], problems: list[str]) -> list[Given]:
    """What flags give: by key, None where a flag was not there, MISSING where its value was not."""
    given = []
    for name, value in flags.items():
        if value is MISSING:
            problems.append(f"{KEYS[name].flag}: needs a value: {KEYS[name].expected}")
        elif value is not None:
            given.append(Given(KEYS[name], value, KEYS[name].flag, Path.cwd()))
    return given


def perhaps_flag(flag: str) -> str:
    """A suggestion for a flag that there is not."""
    return perhaps(flag, [each for key in KEYS.values() for each in (key.flag, key.long_flag)])


# ---- Together ---------------------------------------------------------------------------------------------------


def configure(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file: Path | None = None,
    *,
    to_run: bool = False,
    problems: Sequence[str] = (),
) -> Configuration:
    """The configuration that all these give; ConfigurationError with all that is wrong, `problems` first.

    `to_run`: a cloud is to run by it, so files, ports and users must be in order, too.
    """
    found = list(problems)
    file = file or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    layers = [
        *(from_file(file, found) if file else ()),
        *from_environment(environment, found),
        *from_flags(flags, found),
    ]
    return check({given.key.name: given for given in layers}, found, to_run=to_run)


def check(given: Mapping[str, Given], problems: Sequence[str], *, to_run: bool) -> Configuration:
    """The configuration of these values; ConfigurationError with `problems` and all else that is wrong."""
    found = list(problems)
    wrong: set[str] = set()
    try:
        settings = _validate(given.values())
    except ValidationError as error:
        for each in error.errors():
            name = ".".join(map(str, each["loc"]))
            item = next((item for item in given.values() if name.startswith(item.key.name)), None)
            assert item, f"a default is wrong: {name}"
            wrong.add(item.key.name)
            found.append(f"{item.source}: {item.value!r} will not do; expected: {item.key.expected}")
        settings = _validate(item for item in given.values() if item.key.name not in wrong)
    if settings.pipeline.run and "log.pipeline" not in given:  # the log waits for a pipeline that we run
        reader = given["pipeline.run"]._replace(key=KEYS["log.pipeline"])
        return check({**given, "log.pipeline": reader}, problems, to_run=to_run)
    if to_run:
        found += _conflicts(settings, given, wrong)
    if found:
        raise ConfigurationError(found)
    return Configuration(settings, {name: item.source for name, item in given.items()})


def _conflicts(settings: Settings, given: Mapping[str, Given], wrong: set[str]) -> Iterator[str]:
    from .conflicts import conflicts  # only who runs a cloud needs what this needs

    for names, text in conflicts(settings):
        if not wrong.intersection(names):
            sources = ", ".join(given[name].source for name in names if name in given)
            yield f"{sources or names[0]}: {text}"


def _validate(given: Iterable[Given]) -> Settings:
    tree: dict[str, Any] = {"data": Path(Settings.model_fields["data"].default).absolute()}
    for key, value, _, base in given:
        *sections, last = key.path
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = _located(key.kind, value, base) if isinstance(value, str) else value
    return Settings.model_validate(tree)


def _located(kind: Any, text: str, base: Path) -> Any:
    """A relative path is relative to where it was given."""
    kinds = (kind, *get_args(kind))
    if Path in kinds:
        return base / Path(text).expanduser()
    return str(base / Path(text).expanduser()) if model.Place in kinds and text and "://" not in text else text


# ---- Again, on SIGHUP -------------------------------------------------------------------------------------------


class Reload(NamedTuple):
    """What a changed configuration comes to while everything runs."""

    settings: Settings
    """The old ones with what could be changed."""
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


def reload(old: Settings, new: Settings) -> Reload:
    """Take over from `new` what can be changed without a restart."""
    differing = [key for key in KEYS.values() if value_of(old, key) != value_of(new, key)]
    changed = [key for key in differing if key.name in RELOADABLE]
    settings: BaseModel = old
    for key in changed:
        settings = _with(settings, key.path, value_of(new, key))
    assert isinstance(settings, Settings)
    rest = tuple(key.name for key in differing if key.name not in RELOADABLE)
    return Reload(settings, tuple(key.name for key in changed), rest)


def _with(section: BaseModel, path: Sequence[str], value: Any) -> BaseModel:
    first, *rest = path
    return section.model_copy(update={first: _with(getattr(section, first), rest, value) if rest else value})
