"""Paths into JSON, `$.climate[0].temp`, and texts with such paths and levels of a topic in braces."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

MAX_STEPS: Final = 32
_STEP: Final = re.compile(r"""\.([^.\[\]{}'"\s]+)|\[(-?[0-9]{1,9})\]|\['([^']+)'\]|\["([^"]+)"\]""")
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_LEVEL: Final = re.compile(r"topic(?:\[(-?[0-9]{1,3})\])?")

Finder = Callable[[Any], Any]
"""What is at a path of an object; None where there is nothing."""


def path(text: str) -> Finder:
    """ValueError for what is no path: `$`, then .name, ['any name'] or [number]."""
    steps: list[str | int] = []
    at = 1
    while text.startswith("$") and at < len(text) and (found := _STEP.match(text, at)):
        steps.append(int(found[2]) if found[2] is not None else found[1] or found[3] or found[4])
        at = found.end()
    if not text.startswith("$") or at != len(text) or len(steps) > MAX_STEPS:
        raise ValueError(f"{text!r:.80} is no path: write $.name, $['a name'] or $.list[0]")

    def find(item: Any) -> Any:
        for step in steps:
            item = _child(item, step)
        return item

    return find


def _child(item: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return item.get(step) if isinstance(item, dict) else None
    is_there = isinstance(item, list) and -len(item) <= step < len(item)
    return item[step] if is_there else None


def template(text: str) -> Callable[[str, Any], str | None]:
    """A text from a topic and an object; None where something in it is not there.

    `{topic}` is the topic, `{topic[1]}` its second level, `{$.path}` what is there. A bare `$.path` will do, too.
    """
    if text.startswith("$"):
        text = f"{{{text}}}"
    plain = _BRACES.split(text)[::2]
    parts = [_part(inner, text) for inner in _BRACES.findall(text)]
    if any("{" in each or "}" in each for each in plain):
        raise ValueError(f"{text!r:.80}: a brace without its other one")

    def fill(topic: str, item: Any) -> str | None:
        found = [part(topic, item) for part in parts]
        if any(each is None for each in found):
            return None
        return plain[0] + "".join(f"{each}{after}" for each, after in zip(found, plain[1:], strict=True))

    return fill


def _part(inner: str, text: str) -> Callable[[str, Any], str | None]:
    if inner.startswith("$"):
        find = path(inner)
        return lambda _topic, item: _text(find(item))
    level = _LEVEL.fullmatch(inner)
    if level is None:
        raise ValueError(f"{text!r:.80}: in braces goes topic, topic[1] or a path such as $.name, not {inner!r:.40}")
    if level[1] is None:
        return lambda topic, _item: topic
    wanted = int(level[1])
    return lambda topic, _item: _child(topic.split("/"), wanted)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
