"""The types of the firmware are checked against MicroPython, not CPython."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spinney_tools.check.firmware_types import STUBS, firmware_types, judge
from spinney_tools.check.step import Place, StepFailed, StepSkipped

TOP = Path(__file__).parents[2]
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
        assert firmware_types(place) == "1 files with esp32-1.24, picow-1.24, esp32-1.29, picow-1.29"
    except StepSkipped as missing:
        pytest.skip(str(missing))
    (firmware / "main.py").write_text(BAD)
    with pytest.raises(StepFailed) as failure:
        firmware_types(place)
    lines = str(failure.value).splitlines()
    assert [line.split(":")[1] for line in lines if line.startswith("/")] == ["4", "5", "6"] * len(STUBS)


@pytest.mark.slow
def test_what_only_some_firmwares_have_is_an_error_that_names_the_others(tmp_path: Path) -> None:
    place = Place(tmp_path / "top", tmp_path / "scratch")
    (tmp_path / "top" / "firmware" / "lib").mkdir(parents=True)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "top" / "firmware" / "main.py").write_text("import esp32\n\nprint(esp32.raw_temperature())\n")
    with pytest.raises(StepFailed) as failure:
        firmware_types(place)
    assert str(failure.value).count("with micropython-rp2-rpi_pico_w-stubs") == 2
    assert "with micropython-esp32-stubs" not in str(failure.value)


def test_the_stubs_are_of_the_oldest_promised_micropython_and_of_all_boards() -> None:
    boards = [json.loads(file.read_text()) for file in (TOP / "firmware" / "boards").glob("*.json")]
    families = {"esptool": "esp32", "uf2": "picow"}
    needed = {f"{families[board['method']]}-{board['micropython']}" for board in boards}
    assert needed <= {stubs.firmware for stubs in STUBS}


def test_a_report_without_any_file_is_a_failure() -> None:
    with pytest.raises(StepFailed, match="no file"):
        judge(json.dumps({"generalDiagnostics": [], "summary": {"filesAnalyzed": 0}}))
