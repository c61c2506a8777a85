"""The compiled core or pure Python: decided in one place, and said aloud once."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

import cffi
import pytest

from spinney import native

TOP = Path(__file__).parents[2]
NOWHERE = "/nowhere/_core.abi3.so"


@pytest.fixture(autouse=True)
def no_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (native.REQUIRE, native.PURE, native.CORE):
        monkeypatch.delenv(name, raising=False)


def decide() -> native.Core | None:
    """The decision, made anew."""
    return native.core.__wrapped__()


def test_a_missing_core_falls_back_to_pure_python_with_a_warning_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(native.CORE, NOWHERE)
    with pytest.warns(native.NativeCoreMissing, match="build-essential python3-dev"):
        assert decide() is None


def test_the_warning_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.CORE, NOWHERE)
    script = "from spinney import native; native.core(); native.core(); native.core()"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("NativeCoreMissing") == 1


def test_a_core_that_does_not_load_counts_as_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "_core.abi3.so").write_bytes(b"not a library")
    monkeypatch.setenv(native.CORE, str(tmp_path / "_core.abi3.so"))
    with pytest.warns(native.NativeCoreMissing):
        assert decide() is None


def test_a_required_core_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.CORE, NOWHERE)
    monkeypatch.setenv(native.REQUIRE, "1")
    with pytest.raises(ImportError, match="nowhere"):
        decide()


def test_pure_python_that_was_asked_for_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.PURE, "1")
    monkeypatch.setenv(native.REQUIRE, "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decide() is None


@pytest.fixture
def build_core() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_core", TOP / "native/build_core.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_cffi_is_told_is_derived_from_the_header_whole(build_core: ModuleType) -> None:
    header = (TOP / "native/include/spinney.h").read_text(encoding="utf-8")
    ffi = cffi.FFI()
    ffi.cdef(build_core.declarations(header))
    for name in ("spinney_matcher *", "spinney_value", "spinney_matches", "spinney_stats", "spinney_error"):
        ffi.typeof(name)
    assert ffi.sizeof("spinney_value") == 32


def test_comments_and_directives_do_not_reach_cffi(build_core: ModuleType) -> None:
    text = '#include <stdint.h>\n/* a\n b */ int spinney_a(void); // "c"\n#define X 1\n'
    assert build_core.declarations(text) == " int spinney_a(void);"


@pytest.mark.parametrize("compiler", ["no-such-compiler", "no-such-compiler -m32"])
def test_a_compiler_that_is_not_there_is_named(
    build_core: ModuleType, compiler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(build_core.BuildError, match="no-such-compiler"):
        build_core.build(tmp_path / "_core.abi3.so")
    assert not any(tmp_path.iterdir())
