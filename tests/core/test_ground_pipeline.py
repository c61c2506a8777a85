"""./spinney installs the pipeline into an environment of its own: resumed, locked, and without a change of .venv."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest
from launchers import PYPROJECT, launcher_of, make_clone

from spinney_tools.launcher.pip_progress import Progress
from spinney_tools.launcher.requirements import groups

EXTRAS = '[project.optional-dependencies]\ncloud = []\npipeline = ["spinney[cloud]", "tiny-one", "tiny-two"]\n'
WAITS = """
import os, pathlib
pathlib.Path({mark!r}).write_text(str(os.getpid()))
os.read(os.open({pipe!r}, os.O_RDONLY), 1)
"""
"""A build that does not end by itself."""


def put_wheel(folder: Path, name: str) -> Path:
    """A package of one empty module."""
    file = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        wheel.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.dist-info/RECORD", "")
    return file


def put_build_that_waits(folder: Path, name: str) -> tuple[Path, Path]:
    """Its file, and what is there once it waits."""
    mark, pipe = folder / "mark", folder / "pipe"
    os.mkfifo(pipe)
    source = folder / f"{name}-1"
    source.mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "backend.py").write_text(WAITS.format(mark=str(mark), pipe=str(pipe)))
    (source / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    file = folder / f"{name}-1.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        archive.add(source, source.name)
    return file, mark


class Setup:
    """A clone, and the folder that its pip knows instead of the network."""

    def __init__(self, folder: Path) -> None:
        self.top = make_clone(folder / "a clone")
        self.index = folder / "index"
        self.index.mkdir()
        pyproject = self.top / "pyproject.toml"
        pyproject.write_text(pyproject.read_text() + EXTRAS)
        dropped = ("PYTHONPATH", "SPINNEY_CORE", "CC", "CI")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in dropped},
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.index),
            "SPINNEY_REQUIRE_NATIVE": "0",
        }

    def begin(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, self.top / "spinney", *words]
        return subprocess.Popen(command, env={**self.environment, **environment}, stdout=PIPE, stderr=PIPE, text=True)

    def run(self, *words: str, **environment: str) -> tuple[int, str, str]:
        with self.begin(*words, **environment) as process:
            out, errors = process.communicate()
        return process.returncode, out, errors


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_who_comes_second_waits_for_the_first_and_ends_when_told_to(setup: Setup) -> None:
    venv = setup.top / ".venv-pipeline"
    venv.mkdir()
    lock = os.open(venv, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with setup.begin("lake", "stats") as second:
        assert second.stderr is not None
        line = second.stderr.readline()
        assert line == "spinney: waiting for another ./spinney that is setting up .venv-pipeline\n"
        second.send_signal(signal.SIGTERM)
        assert "interrupted; the next ./spinney takes it up again" in second.communicate()[1]
    assert second.returncode == 130
    os.close(lock)


def wait_for(file: Path, process: subprocess.Popen[str]) -> int:
    """The number that comes to be in it."""
    while not (file.exists() and file.read_text()):
        assert process.poll() is None, process.communicate()
        os.sched_yield()
    return int(file.read_text())


def test_what_is_cut_short_is_taken_up_again_and_venv_is_left_alone(setup: Setup) -> None:
    wheels, venv = setup.top / ".venv-pipeline.wheels", setup.top / ".venv-pipeline"
    first = put_wheel(setup.index, "tiny_one")

    status, _, said = setup.run("--install", "pipeline")
    assert status == 1
    assert "No matching distribution found for tiny-two; is there a network?" in said.splitlines()[-1]
    assert (wheels / first.name).exists(), "what was downloaded stays"

    first.unlink()  # and is not asked for again
    second, mark = put_build_that_waits(setup.index, "tiny_two")
    with setup.begin("--install", "pipeline", SPINNEY_PROGRESS="json") as process:
        building = psutil.Process(wait_for(mark, process))
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate()
    assert process.returncode == 130, said
    assert not building.is_running() or building.status() == psutil.STATUS_ZOMBIE
    assert all("text" in json.loads(line) for line in out.splitlines())
    second.unlink()

    put_wheel(setup.index, "tiny_two")
    status, out, said = setup.run("--install", "pipeline", SPINNEY_PROGRESS="json")
    assert status == 0, said
    assert "making .venv-pipeline" not in said
    assert json.loads(out.splitlines()[-1]) == {"python": str(venv / "bin/python")}
    assert not wheels.exists(), "it is not kept twice"
    assert [*venv.glob("lib/*/site-packages/tiny_one.py")]

    status, out, said = setup.run("lake", "stats")
    assert (status, out, said) == (7, "called with ['lake', 'stats']\n", "")
    assert not (setup.top / ".venv").exists()


def test_what_venv_has_already_is_not_installed_again(setup: Setup) -> None:
    launcher = launcher_of(setup.top)
    assert launcher.wanted_for(["lake", "stats"]).venv == launcher.PIPELINE_VENV
    launcher.VENV.mkdir()
    for extras, venv in ((["cloud"], launcher.PIPELINE_VENV), (["test", "test-pipeline"], launcher.VENV)):
        launcher.write_stamp({"extras": extras})
        assert launcher.wanted_for(["lake", "stats"]).venv == venv
        assert launcher.wanted_for(["cloud", "--with-pipeline"]).venv == venv
        assert launcher.wanted_for(["cloud"]).venv == launcher.VENV


def test_requirements_are_downloaded_one_by_one_and_all_others_together(setup: Setup) -> None:
    assert groups(setup.top / "pyproject.toml", "pipeline") == [["tiny-one"], ["tiny-two"]]
    (setup.top / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\n[project]\ndependencies = ["cffi"]\n'
        '[project.optional-dependencies]\nb = ["c"]\npipeline = ["spark", "spinney[b]"]\n'
    )
    assert groups(setup.top / "pyproject.toml", "pipeline") == [["spark"], ["hatchling", "cffi", "c"]]


def test_progress_is_what_is_downloaded_and_what_is_left(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "pip-unpack-x").mkdir(parents=True)
    progress = Progress(2, 5, "pyspark>=4.3,<5", tmp_path, scratch, expected=500_000_000)
    assert progress.look()["text"] == "looking for pyspark>=4.3,<5 (2 of 5); about 500 MB are left"
    progress.said("  Downloading pyspark-4.3.0.tar.gz (434.2 MB)\n")
    with (scratch / "pip-unpack-x/pyspark-4.3.0.tar.gz").open("wb") as file:
        file.truncate(120_000_000)
    found = progress.look()
    assert (found["done"], found["size"], found["left"]) == (120_000_000, 434_200_000, 380_000_000)
    text = "downloading pyspark-4.3.0.tar.gz, 120 of 434 MB (2 of 5); about 380 MB are left"
    assert found["text"] == text
    progress.said("Building wheels for collected packages: pyspark")
    assert progress.look()["text"].startswith("unpacking pyspark (2 of 5)")
