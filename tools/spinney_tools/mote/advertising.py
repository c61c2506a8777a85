"""What a mote that is flashed will advertise: which of its attributes fit, and for whom its owner wants it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spinney_tools.client_options import say

AUTO = "auto"
CHOICES = (AUTO, "open", "encrypted", "presence")
"""Of --adverts; auto writes nothing into the configuration."""
_QUESTION = """\
Who is to read this mote's adverts? (--adverts says it without a question)
  1  Spinney only: open until a mobile broker owns the mote, then they say only that it is there
  2  Home Assistant or other readers of BTHome, too: always open
  3  whoever has its key (BTHome's bindkey): always encrypted
"""
_ANSWERS = {"": AUTO, "1": AUTO, "2": "open", "3": "encrypted"}


def chosen(wanted: str | None, text: str, ask: Callable[[str], str] = input) -> str:
    """config.json with the mode that was wanted or, on a terminal, is answered; unchanged where it has one itself."""
    found = json.loads(text)
    if wanted is None and not found.get("advert_mode") and sys.stdin.isatty() and sys.stdout.isatty():
        wanted = _asked(ask)
    if wanted is None or (wanted == AUTO and not found.get("advert_mode")):
        return text
    found["advert_mode"] = "" if wanted == AUTO else wanted
    return json.dumps(found, ensure_ascii=False)


def _asked(ask: Callable[[str], str]) -> str:
    say(_QUESTION.rstrip())
    while True:
        try:
            answer = ask("1, 2 or 3 [1]: ").strip()
        except EOFError:
            return AUTO
        if answer in _ANSWERS:
            return _ANSWERS[answer]


def fits(bthome: Any, attributes: Sequence[Any]) -> Iterator[str]:
    """Lines that say what an advert has room for; `bthome` is the mote's own module."""
    groups = bthome.Advert(attributes).sizes()
    for mode, room in (("open", bthome.ROOM), ("encrypted", bthome.ENCRYPTED_ROOM)):
        yield f"{mode}: {_that_fit(attributes, groups, room)}"
        for size, them in groups:
            if size > room:
                yield f"{mode}: never {_names(attributes, them)} ({size} bytes that cannot be parted, room for {room})"
    known = {index for _, them in groups for index in them}
    unknown = [index for index in range(len(attributes)) if index not in known]
    if unknown:
        yield f"in no advert: {_names(attributes, unknown)} (BTHome has no object for it); events have all"


def _that_fit(attributes: Sequence[Any], groups: Sequence[tuple[int, list[int]]], room: int) -> str:
    whole = sum(size for size, _ in groups if size <= room)
    if not whole:
        return "nothing of what it measures, only that it is there"
    turns = "all in each advert" if whole <= room else "what has changed first, the others in turn"
    names = _names(attributes, [index for size, them in groups if size <= room for index in them])
    return f"{names}: {turns} ({whole} bytes, room for {room})"


def _names(attributes: Sequence[Any], indexes: Sequence[int]) -> str:
    return ", ".join(attributes[index].name for index in sorted(indexes))
