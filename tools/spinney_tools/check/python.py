"""Format, lint and types of the Python code."""

from __future__ import annotations

import sys

from spinney_tools.check.step import Place, command

TYPED = ("native/python", "mobile_broker", "cloud", "tools")
BUILD = ("native/build_core.py", "native/hatch_build.py")
LAUNCHER = "spinney"


def ruff(place: Place) -> str:
    paths = [LAUNCHER, "firmware", "native", *TYPED[1:], "tests"]
    command([sys.executable, "-m", "ruff", "format", "--check", *paths], place)
    command([sys.executable, "-m", "ruff", "check", *paths], place)
    return ""


def references(place: Place) -> str:
    command([sys.executable, "-m", "spinney_tools", "reference", "--check"], place)
    return ""


def mypy(place: Place) -> str:
    folders = [folder for folder in TYPED if any((place.top / folder).rglob("*.py"))]
    tool = [sys.executable, "-m", "mypy", "--no-error-summary"]
    command([*tool, *folders, *BUILD], place)
    # On its own, since a script and a package of one name would be one module twice.
    command([*tool, "--cache-dir=.mypy_cache/launcher", LAUNCHER], place)
    return ""


def pyright(place: Place) -> str:
    # The version that the package brings is the one that is meant: no look for a newer one over the network.
    offline = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT": "1"}
    command([sys.executable, "-m", "pyright", "--pythonpath", sys.executable], place, offline)
    return ""
