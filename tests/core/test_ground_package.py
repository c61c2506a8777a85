"""What is built to be installed elsewhere: the wheel with its compiled core, and the source distribution."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
SMOKE = (
    "import spinney, sys; m = spinney.Matcher(); m.add('a', 'NO2 > 40'); print(m.match({'NO2': 41}), spinney.__file__)"
)


def build(kind: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder],
        cwd=TOP,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def built(kind: str, folder: Path, **environment: str) -> Path:
    done = build(kind, folder, **environment)
    assert done.returncode == 0, done.stderr
    (file,) = folder.iterdir()
    return file


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.needs("cc")
def test_a_wheel_holds_the_core_for_every_python_from_3_11(tmp_path: Path) -> None:
    wheel = built("wheel", tmp_path / "dist", SPINNEY_REQUIRE_NATIVE="1")
    assert "-cp311-abi3-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert {"spinney/_core.abi3.so", "spinney/__init__.py", "spinney_tools/cli.py"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "native"))]
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    environment = {"PYTHONPATH": str(unpacked), "SPINNEY_REQUIRE_NATIVE": "1"}
    assert run(sys.executable, "-W", "error", "-c", SMOKE, cwd=tmp_path, **environment).startswith(
        "['a'] " + str(unpacked)
    )


def test_a_wheel_without_a_compiler_is_pure_python_and_says_what_to_install(tmp_path: Path) -> None:
    done = build("wheel", tmp_path, CC="no-such-compiler", SPINNEY_REQUIRE_NATIVE="")
    assert [file.name.split("-", 2)[2] for file in tmp_path.iterdir()] == ["py3-none-any.whl"]
    assert "no C compiler found" in done.stdout + done.stderr


def test_a_required_core_that_does_not_compile_fails_the_build(tmp_path: Path) -> None:
    done = build("wheel", tmp_path, CC="no-such-compiler", SPINNEY_REQUIRE_NATIVE="1")
    assert done.returncode != 0
    assert not any(tmp_path.iterdir())


def test_a_source_distribution_holds_what_a_build_needs_and_nothing_built(tmp_path: Path) -> None:
    with tarfile.open(built("sdist", tmp_path)) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    needed = ("include/spinney.h", "build_core.py", "hatch_build.py", "python/spinney/native.py")
    assert {f"native/{name}" for name in needed} | {"LICENSE", "pyproject.toml"} <= names
    assert any(name.startswith("native/src/") for name in names)
    assert not [name for name in names if name.endswith((".so", ".o")) or ".venv" in name]
