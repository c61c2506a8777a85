"""What all tests share: hypothesis profiles, programs that tests need, and the time of each part."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from spinney import native
from spinney_tools.test import PARTS, has_tests

TOP = Path(__file__).parents[1]
CI = os.environ.get("CI") == "true"
# The package to install for a program, where the names differ.
PACKAGES = {
    "cc": "build-essential",
    "gcc": "build-essential",
    "mosquitto_sub": "mosquitto-clients",
    "mosquitto_pub": "mosquitto-clients",
    "systemd-analyze": "systemd",
    "unshare": "util-linux",
    "fsfreeze": "util-linux",
    "mkfs.ext4": "e2fsprogs",
    "useradd": "passwd",
    "chroot": "coreutils",
}

settings.register_profile("default", deadline=None, print_blob=True, derandomize=CI)
settings.register_profile("quick", settings.get_profile("default"), max_examples=20)
settings.register_profile("soak", settings.get_profile("default"), max_examples=5000, derandomize=False)
settings.load_profile(os.environ.get("SPINNEY_HYPOTHESIS", "default"))

_state = tempfile.TemporaryDirectory(prefix="spinney-state-")
"""What programs keep between their runs: not in the folder of whoever runs the tests."""
os.environ["SPINNEY_STATE"] = _state.name
_seconds: Counter[str] = Counter()
_tests: Counter[str] = Counter()


def pytest_configure() -> None:
    """Decides once between C and pure Python; a machine without a compiler runs the tests, too.

    What a shell starts in the background ignores Ctrl-C, and what nohup starts ignores a closed terminal, and so would
    all that tests start.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", native.NativeCoreMissing)
        native.core()


def pytest_report_header(config: pytest.Config) -> str:
    core = "the C core" if native.core() else "pure Python, no C core"
    seed = config.getoption("--hypothesis-seed")
    return f"spinney: {core}; hypothesis seed: {'fixed' if seed is None else seed}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`@pytest.mark.needs("program")`: a missing program is visible here, and an error where CI=true."""
    for marker in item.iter_markers("needs"):
        for program in marker.args:
            if shutil.which(program) is None:
                reason = f"needs {program}: sudo apt install {PACKAGES.get(program, program)}"
                pytest.fail(reason, pytrace=False) if CI else pytest.skip(reason)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    part = part_of(report.nodeid)
    _seconds[part] += report.duration
    _tests[part] += report.when == "call"


def part_of(nodeid: str) -> str:
    folders = nodeid.split("/")
    return folders[1] if len(folders) > 2 else "others"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A soak test takes as long as it takes; each other one has the limit of pyproject.toml."""
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(0))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One row for each part: how many tests, and its share of the time, just above pytest's closing line."""
    terminalreporter.section("parts")
    total = sum(_seconds.values()) or 1.0
    for part in [*PARTS, *(_seconds.keys() - PARTS)]:
        if part in _seconds:
            row = f"{_tests[part]:>6} tests {_seconds[part]:>8.1f} s {_seconds[part] / total:>6.0%}"
        else:
            row = "not run" if has_tests(TOP, part) else "no tests yet"
        terminalreporter.write_line(f"{part:<10}{row}")
