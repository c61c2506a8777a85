"""`spinney bench dashboard`: what it says of frames, and of a browser that is not there."""

from __future__ import annotations

import pytest

from spinney_tools.bench import dashboard, dashboard_frames
from spinney_tools.bench.running_cloud import RunningCloud

FIGURES = {case.name: {"share": 0.05, "frames": 20.0, "kilobytes": 30.0} for case in dashboard.CASES}
SMOOTH = dashboard_frames.Frames(16.7, 33.3, 0.2, 3.1, 0.0)
SLOW = dashboard_frames.Frames(33.3, 120.0, 9.0, 41.5, 180.0)


def test_each_look_at_the_map_is_a_row_with_its_target() -> None:
    found = dashboard.Measurement(FIGURES, {"shown": SMOOTH, "dragged": SLOW}, 0.1)
    *_, shown, dragged = dashboard.table(found).rows
    assert shown[4:] == ("16.7 / 33.3 ms", "0.2 / 3.1 ms", "< 50 ms", "script <= 16 ms")
    assert dragged[4:7] == ("33.3 / 120 ms", "9 / 41.5 ms", "180 ms")
    assert found.missed() == ["map dragged: scripts take 41.5 ms of a frame instead of 16"]
    assert found.as_json()["map"]["dragged"]["work_p95"] == 41.5


def test_without_a_browser_its_rows_are_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    said: list[str] = []
    assert dashboard._measure_frames(RunningCloud(0, 0, 0), said.append) == {}
    assert "chromium (apt install chromium)" in said[0]
    table = dashboard.table(dashboard.Measurement(FIGURES, {}, 0.1))
    assert len(table.rows) == len(dashboard.CASES)
    assert not table.notes
