"""`./spinney up` at a terminal, as a person has it after `git clone`: the launcher and what it becomes, together."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from launchers import launcher_of
from terminals import CTRL_C, Terminal
from test_up import DEADLINE_SECONDS, FEW, PARTS, PORTS, all_gone

from spinney_tools.bench import up_start
from spinney_tools.bench.stuck import Stuck

pytestmark = pytest.mark.slow
TOP = Path(__file__).parents[2]
WITHOUT = "without the pipeline, by Spark: CI is set; ./spinney up --pipeline has it"
COMMAND = """\
#!/bin/sh
export PYTHONPATH={path}
exec {python} -m spinney_tools "$@"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone in which everything is installed, and nothing was ever started."""
    top = tmp_path / "clone"
    top.mkdir()
    for name in ("spinney", "pyproject.toml"):
        shutil.copy(TOP / name, top)
    shutil.copytree(TOP / "tools", top / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("native", "firmware", "mobile_broker", "cloud"):
        (top / name).symlink_to(TOP / name)
    (top / ".venv/bin").mkdir(parents=True)
    (top / ".venv/bin/python").symlink_to(sys.executable)
    path = ":".join(str(top / name) for name in ("native/python", "mobile_broker", "cloud", "tools"))
    (top / ".venv/bin/spinney").write_text(COMMAND.format(path=path, python=sys.executable))
    (top / ".venv/bin/spinney").chmod(0o755)
    launcher = launcher_of(top)
    launcher.write_stamp(
        {
            "format": launcher.STAMP_FORMAT,
            "root": str(top),
            "python": list(launcher.interpreter()),
            "extras": ["cloud", "mobile", "pipeline", "sim"],
            "packages": launcher.packages_key(),
        }
    )
    if not launcher.CORE_STAMP.exists():
        launcher.write_whole(launcher.CORE_STAMP, {"core": launcher.core_key(), "compiled": launcher.CORE.exists()})
    return top


def spinney_up(clone: Path, *arguments: str) -> Terminal:
    return Terminal([sys.executable, clone / "spinney", "up", *FEW, *PORTS, *arguments], clone, os.environ)


def http(terminal: Terminal) -> str:
    """Where it is, once it is ready."""
    terminal.wait_for("\nready: HTTP ")
    return terminal.said.partition("\nready: HTTP ")[2].partition(",")[0]


def subscriptions(terminal: Terminal) -> set[str]:
    """Those that are at the cloud."""
    return {
        one["sid"]
        for one in httpx.get(f"{http(terminal)}/v1/subscriptions", timeout=DEADLINE_SECONDS).json()["subscriptions"]
    }


def stop(terminal: Terminal) -> None:
    """By Ctrl-C; nothing is left."""
    family: list[psutil.Process] = terminal.family()
    assert len(family) > len(PARTS)
    terminal.type(CTRL_C)
    assert terminal.end() == 0, terminal.said
    assert all_gone(family)
    assert "Traceback" not in terminal.said


def test_the_first_one_starts_without_a_question_and_the_next_one_goes_on(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    with spinney_up(clone) as terminal:
        assert subscriptions(terminal) == {"smog", "posts"}
        assert WITHOUT in terminal.said
        httpx.delete(f"{http(terminal)}/v1/subscriptions/posts", timeout=DEADLINE_SECONDS).raise_for_status()
        stop(terminal)
    assert sorted(json.loads((clone / ".spinney/spinney-up.json").read_text())["made"]) == ["posts", "smog"]
    launcher_of(clone).answered(["up", "--no-pipeline"])
    monkeypatch.delenv("CI")
    with spinney_up(clone) as terminal:
        assert subscriptions(terminal) == {"smog"}, "what was done the first time is there"
        assert "pipeline" not in terminal.said, "a no is remembered, and is not spoken of again"
        stop(terminal)


# ---- spinney bench up ---------------------------------------------------------------------------------------------


def test_both_starts_are_measured_and_the_second_has_what_the_first_made(clone: Path) -> None:
    found = up_start.measure_in(clone, lambda _: None, FEW)
    for start in (found.first, found.second):
        assert 0 < start.setup_s < start.ready_s
        assert start.stop_s > 0
    assert len(up_start.table(found).rows) == 2


def test_a_start_that_fails_is_told_of_with_its_own_words(clone: Path) -> None:
    with pytest.raises(Stuck, match=r"(?s)did not start: .*--motes: from 1 to 1000"):
        up_start.measure_in(clone, lambda _: None, ["--motes", "0"])


@pytest.mark.parametrize(("first_s", "second_s", "missed"), [(179, 9, 0), (181, 9, 1), (60, 11, 1), (300, 20, 2)])
def test_who_is_slow_misses_the_targets(first_s: float, second_s: float, missed: int) -> None:
    starts = [up_start.Start(seconds, 1.0, 1.0) for seconds in (first_s, second_s)]
    assert len(up_start.Measurement(*starts, 300.0).missed()) == missed
