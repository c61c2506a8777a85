from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from spinney_cloud.data_dir import FORMAT, DataDir, DataDirError, holder, read_secrets, write_whole


def test_a_new_directory_and_all_in_it_are_for_its_owner_only(tmp_path: Path) -> None:
    with DataDir(tmp_path / "deep" / "data") as data:
        assert data.path.stat().st_mode & 0o777 == 0o700
        assert (data.path / "secrets.json").stat().st_mode & 0o777 == 0o600
        assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in (data.nats, data.snapshots, data.run))
        assert (data.path / "format").read_text() == f"{FORMAT}\n"


def test_an_open_directory_is_closed_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    DataDir(tmp_path).close()
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_secrets_stay_the_same_and_differ_between_directories(tmp_path: Path) -> None:
    with DataDir(tmp_path / "a") as data:
        first = data.secrets
    with DataDir(tmp_path / "a") as data:
        assert data.secrets == first
    with DataDir(tmp_path / "b") as data:
        assert data.secrets.client_prefix != first.client_prefix
    assert len(first.client_prefix) >= 32


def test_secrets_that_others_may_read_are_closed_to_them(tmp_path: Path) -> None:
    read_secrets(tmp_path)
    (tmp_path / "secrets.json").chmod(0o644)
    read_secrets(tmp_path)
    assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v": 1}', '{"v": 1, "other": 2}'])
def test_damaged_secrets_are_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "secrets.json").write_text(text)
    with pytest.raises(DataDirError, match=r"secrets.json is damaged"):
        read_secrets(tmp_path)


def _open_as_another(path: Path, answers: multiprocessing.Queue[str]) -> None:
    try:
        DataDir(path).close()
        answers.put("opened")
    except DataDirError as error:
        answers.put(str(error))


def test_a_second_start_says_who_holds_the_directory(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = context.Queue()
    with DataDir(tmp_path / "data") as data:
        assert holder(data.path) == os.getpid()
        other = context.Process(target=_open_as_another, args=(data.path, answers))
        other.start()
        said = answers.get(timeout=30)
        other.join()
    assert f"is in use by process {os.getpid()}" in said
    assert holder(tmp_path / "data") is None


def test_a_directory_can_be_had_again_after_a_failed_opening(tmp_path: Path) -> None:
    DataDir(tmp_path).close()
    (tmp_path / "format").write_text("99")
    for _ in range(2):
        with pytest.raises(DataDirError, match="format 99, of a newer Spinney"):
            DataDir(tmp_path)


def test_a_damaged_format_is_told(tmp_path: Path) -> None:
    DataDir(tmp_path).close()
    (tmp_path / "format").write_text("one")
    with pytest.raises(DataDirError, match="damaged"):
        DataDir(tmp_path)


def test_somebody_elses_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataDirError, match=r"holds other things \(photos\).*--data"):
        DataDir(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["photos"]


def test_users_may_be_added_before_the_first_start(tmp_path: Path) -> None:
    write_whole(tmp_path / "users.json", b"{}")
    (tmp_path / "certs").mkdir()
    DataDir(tmp_path).close()


def test_a_file_in_the_place_of_the_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DataDirError, match="is a file"):
        DataDir(tmp_path / "data")
    with pytest.raises(DataDirError, match="Not a directory"):
        DataDir(tmp_path / "data" / "deeper")


def test_a_whole_file_has_the_mode_of_a_secret_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    file.chmod(0o644)
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]
