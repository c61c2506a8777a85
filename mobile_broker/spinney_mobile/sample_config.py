"""The commented sample of a configuration file, made from the settings' model: it cannot fall behind it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

from .setting_types import NO_DEFAULT, Member, expected, help_of, members, sections_of, shown
from .settings import Settings

WIDTH = 100

_HEAD = """\
# Spinney's mobile broker. Whatever begins with "#" is off; what is shown there is the default, or an example.
#
#   spinney mobile config > mobile.toml      writes this file
#   spinney mobile config --check --config mobile.toml
#   spinney mobile run --config mobile.toml
#
# Flags win over the environment, and that wins over this file. Times are written as 90, 10m, 7d, sizes as 4096,
# 64MiB. Passwords and tokens are never here: they are in files. SIGHUP reads this file again.
"""

_EXAMPLES: dict[str, str] = {
    "port": '"/dev/ttyUSB0"',
    "file": '"readings.jsonl"',
    "topic": '"zigbee2mqtt/+"',
    "source": '"{topic[1]}"',
    "values": '{temp = "$.temperature"}',
    "when": "\"source = 'm7' AND temp > 25\"",
    "text": '"NO2 > 40"',
    "sid": '"alarm"',
}
"""Of what has no default, and of what a default says nothing about."""
_EXAMPLES_OF: dict[tuple[str, str], str] = {
    ("device", "address"): '"A4:C1:38:00:00:01"',
    ("device", "name"): '"window"',
    ("rule", "name"): '"night"',
}
"""Of one section's key."""


def sample_config() -> str:
    """The whole file: TOML that is valid as it stands, and with any of its keys switched on."""
    return "\n".join([_HEAD, *_table(Settings, ""), ""])


def _table(section: type, name: str) -> Iterator[str]:
    """The keys of a section, then the sections below it."""
    of = [member for member in members(section) if not _is_below(member)]
    below = [member for member in members(section) if _is_below(member)]
    yield from _keys(section, of, name)
    for member in below:
        full = f"{name}.{member.name}" if name else member.name
        if kinds := sections_of(member.type):
            for kind in kinds:
                yield from _several(kind, full)
        else:
            yield from _heading(member.type)
            yield f"[{full}]"
            yield from _table(member.type, full)


def _is_below(member: Member) -> bool:
    return is_dataclass(member.type) or bool(sections_of(member.type))


def _heading(section: type) -> Iterator[str]:
    yield ""
    yield f"# {'-' * WIDTH}"
    yield from _comment(section.__doc__ or "")


def _several(section: type, name: str) -> Iterator[str]:
    """One of a list of tables: off as a whole."""
    yield from _heading(section)
    yield f"#[[{name}]]"
    of = members(section)
    yield from _keys(section, [each for each in of if not sections_of(each.type)], name)
    for member in of:
        for kind in sections_of(member.type):
            yield from _several(kind, f"{name}.{member.name}")


def _keys(section: type, of: list[Member], path: str) -> Iterator[str]:
    texts = help_of(section)
    for member in sorted(of, key=lambda each: each.name != "kind"):
        yield ""
        yield from _comment(f"{texts[member.name]} [{expected(member.type)}]")
        yield f"#{member.name} = {_value(member, path)}"


def _value(member: Member, path: str) -> str:
    if (path, member.name) in _EXAMPLES_OF:
        return _EXAMPLES_OF[path, member.name]
    is_empty = member.default is NO_DEFAULT or member.default == {}
    if is_empty and (member.default is NO_DEFAULT or member.name in _EXAMPLES):
        return _EXAMPLES[member.name]
    return shown(member.type, _plain(member.default))


def _plain(default: Any) -> Any:
    return str(default) if hasattr(default, "__fspath__") else default


def _comment(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, WIDTH):
        yield f"# {line}"
