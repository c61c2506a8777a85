"""The types of the firmware are checked against MicroPython, not CPython."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spinney_tools.check.firmware_types import firmware_types, judge
from spinney_tools.check.step import Place, StepFailed, StepSkipped

GOOD = "import machine\n\n\ndef reset_soon(watchdog: machine.WDT) -> None:\n    watchdog.feed()\n    machine.reset()\n"
BAD = "import machine\nimport time\n\nmachine.WDT(timeout=8000).fed()\ntime.sleep_ms('long')\ntime.monotonic()\n"


@pytest.mark.slow
def test_what_a_board_has_not_is_an_error(tmp_path: Path) -> None:
    firmware = tmp_path / "top" / "firmware"
    (firmware / "lib").mkdir(parents=True)
    (tmp_path / "scratch").mkdir()
    place = Place(tmp_path / "top", tmp_path / "scratch")
    (firmware / "main.py").write_text(GOOD)
    try:
        assert firmware_types(place) == "1 files"
    except StepSkipped as missing:
        pytest.skip(str(missing))
    (firmware / "main.py").write_text(BAD)
    with pytest.raises(StepFailed) as failure:
        firmware_types(place)
    lines = str(failure.value).splitlines()
    assert [line.split(":")[1] for line in lines if line.startswith("/")] == ["4", "5", "6"]


def test_a_report_without_any_file_is_a_failure() -> None:
    with pytest.raises(StepFailed, match="no file"):
        judge(json.dumps({"generalDiagnostics": [], "summary": {"filesAnalyzed": 0}}))
