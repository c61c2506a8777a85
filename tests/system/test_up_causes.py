"""What `spinney up` says when it cannot start, what it keeps, and the air of its city."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from spinney_cloud.pipeline import needs
from spinney_mobile import doctor
from spinney_mobile.settings import Settings
from spinney_tools import up
from spinney_tools.up import running
from spinney_tools.up.folder import MARK, MIN_FREE_BYTES, PARTS, Folder, UpError
from spinney_tools.up.plan import SQUARES, Plan
from spinney_tools.up.weather import Weather

HOUR = 3600.0
MIDNIGHT = 1_700_006_400.0
"""UTC."""

Prepare = Callable[[Path, pytest.MonkeyPatch], list[str]]


def other_files(folder: Path, _patch: pytest.MonkeyPatch) -> list[str]:
    (folder / "holiday.jpg").touch()
    return ["--data", str(folder)]


def no_directory(folder: Path, _patch: pytest.MonkeyPatch) -> list[str]:
    (folder / "file").touch()
    return ["--data", str(folder / "file" / "data")]


def other_version(folder: Path, _patch: pytest.MonkeyPatch) -> list[str]:
    (folder / MARK).write_text('{"format": 99}')
    return ["--data", str(folder)]


def full_disk(folder: Path, patch: pytest.MonkeyPatch) -> list[str]:
    usage = type(shutil.disk_usage("/"))
    patch.setattr(shutil, "disk_usage", lambda _: usage(MIN_FREE_BYTES, MIN_FREE_BYTES - 1024**2, 1024**2))
    return ["--data", str(folder)]


def no_firmware(folder: Path, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setattr(running, "FIRMWARE", folder)
    return ["--data", str(folder)]


def no_adapter(folder: Path, patch: pytest.MonkeyPatch) -> list[str]:
    async def examine(_: Settings) -> list[doctor.Finding]:
        return [doctor.Finding("bluetooth", "bad", "no adapter", "plug one in")]

    patch.setattr(doctor, "examine", examine)
    return ["--source", "ble", "--data", str(folder)]


def no_spark(folder: Path, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setattr(needs, "find_spec", lambda name: None if name == "pyspark" else object())
    return ["--pipeline", "--data", str(folder)]


@pytest.mark.parametrize(
    ("prepare", "line"),
    [
        (other_files, "{folder} has other files in it; choose another directory with --data"),
        (no_directory, "{folder}/file/data: Not a directory; choose another directory with --data"),
        (other_version, "{folder} was made by another version of Spinney; choose another with --data"),
        (
            full_disk,
            "{folder}: 1 MiB free, and 1,024 MiB are needed; make room, or choose another disk with --data",
        ),
        (
            no_firmware,
            "the motes' firmware is not here: run it in a clone of the repository, or use --source ble",
        ),
        (no_adapter, "bluetooth: no adapter; plug one in"),
        (
            no_spark,
            "the pipeline cannot run: not installed: pyspark; have all it needs: pip install 'spinney[pipeline]'; "
            "or leave it out with --no-pipeline",
        ),
    ],
)
def test_a_cause_is_one_line_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], prepare: Prepare, line: str
) -> None:
    assert up.main(["--http-port", "0", "--mqtt-port", "0", *prepare(tmp_path, monkeypatch)]) == up.FAILED
    assert capsys.readouterr().err == f"spinney up: {line.format(folder=tmp_path)}\n"


@pytest.mark.parametrize(("option", "what"), [("--http-port", "the page"), ("--mqtt-port", "MQTT")])
def test_a_port_in_use_is_one_line_with_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, what: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        given = {"--http-port": "0", "--mqtt-port": "0"} | {option: port}
        arguments = [word for pair in given.items() for word in pair]
        assert up.main([*arguments, "--data", str(tmp_path)]) == up.FAILED
    said = capsys.readouterr().err
    assert said.startswith(f"spinney up: {what}: port {port} on 127.0.0.1 is in use")
    assert said.endswith(f"stop that, or choose another with {option} (0: any free)\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--motes", "0"],
        ["--mqtt-port", "70000"],
        ["--source", "radio"],
        ["--place", "45.8,16"],
        ["--source", "ble", "--place", "Zagreb"],
        ["--source", "ble", "--place", "91,0"],
    ],
)
def test_wrong_use_is_said_before_anything_is_made(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        up.main([*arguments, "--data", str(tmp_path / "data")])
    assert ended.value.code == up.USAGE_ERROR
    assert not (tmp_path / "data").exists()


# ---- what is kept -----------------------------------------------------------------------------------------------


def test_fresh_forgets_what_was_made_and_nothing_else(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder:
        folder.note(made=["smog"])
        (folder.part("cloud") / "old").touch()
        (tmp_path / "mine.txt").touch()
    with Folder(tmp_path) as folder:
        assert folder.notes["made"] == ["smog"]
        assert (folder.part("cloud") / "old").exists()
    with Folder(tmp_path, fresh=True) as folder:
        assert "made" not in folder.notes
        assert [*folder.part("cloud").iterdir()] == []
        assert (tmp_path / "mine.txt").exists()
        assert {each.name for each in tmp_path.iterdir() if each.is_dir()} == set(PARTS)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_directory_with_no_more_than_the_launchers_answer_is_taken_and_the_answer_kept(
    tmp_path: Path, fresh: bool
) -> None:
    answer = tmp_path / "pipeline-wanted"
    answer.write_text("yes")
    with Folder(tmp_path, fresh=fresh):
        assert answer.read_text() == "yes"


def test_a_start_that_was_cut_short_does_not_stand_in_the_way_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", no_room)
        with pytest.raises(UpError, match="No space left on device"):
            Folder(tmp_path)
    with Folder(tmp_path) as folder:
        assert folder.part("cloud").is_dir()


def no_room(path: Path, _to: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


# ---- the city ---------------------------------------------------------------------------------------------------


def test_the_same_seed_is_the_same_city() -> None:
    one, same, other = (Weather(Plan(seed=seed)) for seed in (3, 3, 4))
    spots = Plan(seed=3).spots()
    now = MIDNIGHT + 9 * HOUR
    values = [one.value("NO2", spot, now) for spot in spots]
    assert values == [same.value("NO2", spot, now) for spot in spots]
    assert values != [other.value("NO2", spot, now) for spot in Plan(seed=4).spots()]


def test_the_day_has_the_course_of_madrids_stations() -> None:
    weather, spots = Weather(Plan()), Plan().spots()

    def median(hour: float) -> float:
        values = sorted(weather.value("NO2", spot, MIDNIGHT + hour * HOUR) or 0.0 for spot in spots)
        return values[len(values) // 2]

    assert median(20) > 2 * median(4), "the evening's traffic, and the night"
    assert median(8) > 1.3 * median(4), "the morning's"


def test_at_any_hour_smog_begins_and_ends_at_some_post_within_half_a_minute() -> None:
    weather, plan = Weather(Plan()), Plan()
    spots = plan.spots()
    for hour in range(24):
        begin = MIDNIGHT + hour * HOUR
        times = [begin + step for step in range(0, 30 + plan.every_s, plan.every_s)]
        series = [[weather.value("pm25", spot, now) or 0.0 for now in times] for spot in spots]
        assert any(min(one[:-1]) <= 45 < max(one[1:]) for one in series), f"nobody is told of smog at {hour}"
        assert sum(one[-1] <= 35 for one in series) > 80, f"smog is the exception, not at {hour}"


def test_every_mote_is_in_reach_of_its_mobile_broker_and_has_a_name_that_firmware_takes() -> None:
    spots = Plan(motes=1_000).spots()
    assert len({spot.name for spot in spots}) == len({spot.address for spot in spots}) == 1_000
    assert max(len(spot.name) for spot in spots) <= 12
    assert {spot.square for spot in spots} == set(SQUARES)
