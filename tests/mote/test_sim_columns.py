"""Series whose columns are called otherwise than a city's quantities."""

from __future__ import annotations

from pathlib import Path

import pytest

from spinney_tools.sim import main
from spinney_tools.sim.field import SCENARIOS, Pollution, SeriesError, replay

REST = Pollution(SCENARIOS["night"], [], 0)


def series(folder: Path) -> Path:
    file = folder / "series.csv"
    file.write_text("Date,NO2 (ug/m3),NO2\n2026-01-01T00:00,41.5,1\n2026-01-01T01:00,42.5,2\n", "utf-8")
    return file


def test_columns_are_renamed_and_a_name_that_is_taken_is_the_renamed_one(tmp_path: Path) -> None:
    found = replay(series(tmp_path), REST, 0.0, {"time": "Date", "NO2": "NO2 (ug/m3)"})
    assert found.value("NO2", (0.0, 0.0), 0.0) == 41.5
    assert set(found.columns) == {"NO2", "NO2 (of the file)"}


def test_a_column_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(SeriesError, match=r"no column 'Time' for time; the columns are: Date, NO2 \(ug/m3\), NO2"):
        replay(series(tmp_path), REST, 0.0, {"time": "Time"})


def test_the_command_takes_columns_and_says_which_option_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [
        "city",
        "--replay",
        str(series(tmp_path)),
        "--motes",
        "1",
        "--brokers",
        "0",
        "--minutes",
        "0",
        "--speed",
        "max",
    ]
    assert main(few) == 2
    assert "--columns time=... says which it is" in capsys.readouterr().err
    assert main([*few, "--columns", "time=Date", "NO2=NO2 (ug/m3)"]) == 0
    with pytest.raises(SystemExit):
        main([*few, "--columns", "Date"])
    assert "NAME=COLUMN, such as temperature=temp_c" in capsys.readouterr().err
