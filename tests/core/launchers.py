"""The launcher of a clone, as a module."""

from __future__ import annotations

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType


def launcher_of(top: Path) -> ModuleType:
    loader = SourceFileLoader("launcher", str(top / "spinney"))
    spec = importlib.util.spec_from_loader("launcher", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
