"""The compiled core, if there is one: the one place that decides between C and pure Python."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import warnings
from types import ModuleType
from typing import Any, NamedTuple

REQUIRE = "SPINNEY_REQUIRE_NATIVE"  # "1": no core is an ImportError
PURE = "SPINNEY_PURE"  # "1": pure Python, without a warning
CORE = "SPINNEY_CORE"  # the core to load instead of the installed one, as a file


class NativeCoreMissing(RuntimeWarning):
    """The C core is not there or does not load: matching goes on in pure Python, slower by orders of magnitude."""


class Core(NamedTuple):
    """The two halves of a cffi module."""

    ffi: Any
    lib: Any


@functools.cache
def core() -> Core | None:
    """The C core, or None for pure Python, of which one warning tells (unless SPINNEY_PURE=1 asks for it)."""
    if os.environ.get(PURE) == "1":
        return None
    try:
        module = _load()
    except ImportError as error:
        if os.environ.get(REQUIRE) == "1":
            raise
        message = f"the C core of Spinney is missing ({error}); matching in pure Python. Install a C compiler"
        warnings.warn(
            f"{message} (sudo apt install build-essential python3-dev) and Spinney again",
            NativeCoreMissing,
            stacklevel=3,
        )
        return None
    return Core(module.ffi, module.lib)


def _load() -> ModuleType:
    name = "spinney._core"
    path = os.environ.get(CORE)
    if path is None:
        return importlib.import_module(name)
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
