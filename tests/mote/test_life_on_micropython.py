"""The main loop, sleep, updates and the record of a crash on real MicroPython, as on CPython."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

import life_story
import pytest
from places import FIRMWARE

from spinney import mote, parse
from spinney.known import Known
from spinney.mote import Attribute, Compiled, Delivery
from spinney.mote.bundle import bundle
from spinney_tools import micropython

KEY = "5c" * 32
BUNDLE = bundle({"spinney_mote/__init__.py": b"", "spinney_mote/a.mpy": bytes(range(256)) * 20}, bytes.fromhex(KEY))


def program() -> bytes:
    subscription = parse("WHEN temperature > 25 UNTIL temperature <= 22")
    compiled = mote.compile(subscription, Known({}), [Attribute("temperature", 1, 100, -4000, 8500)], Delivery(7, 1))
    assert isinstance(compiled, Compiled)
    return compiled.program


def test_a_mote_lives_on_micropython_as_on_cpython(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = io.StringIO()
    monkeypatch.setitem(sys.modules, "spinney_mote.drivers.scripted", None)  # the story's own, while it is told
    monkeypatch.delitem(sys.modules, "cryptolib", raising=False)  # the virtual board's: this MicroPython has none
    with contextlib.redirect_stdout(here):
        life_story.tell(program(), BUNDLE, KEY, str(tmp_path / "state"))
    files = {
        **micropython.library(FIRMWARE),
        "/lib/life_story.py": Path(life_story.__file__).read_bytes(),
        "/program": program(),
        "/bundle": BUNDLE,
    }
    tell = f"""
import life_story
import spinney_boot

# The numbers of this build's file system, which its own errno does not know.
spinney_boot.ENOENT = 44
spinney_boot.EEXIST = 20
life_story.tell(open("/program", "rb").read(), open("/bundle", "rb").read(), {KEY!r}, "/state")
"""
    try:
        there = micropython.run(tell, files=files)
    except micropython.MicroPythonMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    assert there.splitlines() == here.getvalue().splitlines()
    assert "crash written" in there
    assert there.count("event") >= 5
