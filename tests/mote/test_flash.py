"""`spinney mote flash` against real MicroPython behind a serial port, and esptool against a stand-in of the ROM."""

from __future__ import annotations

import json
import random
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from board_on_pty import BoardOnPty
from esp_loader import ESP32_S2_MAGIC, EspLoader
from flash_kit import config, esp_image, names, read, run
from spinney_boot import unframed

from spinney_tools.mote import boards, flash, key, keys, library

README = library.firmware() / "README.md"
pytestmark = [pytest.mark.slow, pytest.mark.needs("node", "npm")]


def test_library_and_configuration_come_onto_a_board_that_runs_micropython(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BoardOnPty() as board:
        assert run(board, "--config", str(config(tmp_path))) == 0
        found = names(board)
        wanted = library.flashed(boards.load("esp32"))
        assert wanted.keys() | {"/config.json"} <= found
        assert all(read(board, name) == wanted[name] for name in ("/main.py", "/lib/spinney_mote/vm.mpy"))
        assert json.loads(read(board, "/config.json") or b"")["name"] == "balcony"
    told = capsys.readouterr().out.splitlines()
    lines = [line for line in told if line.startswith("[")]
    assert [line.split("] ")[1].split(" ...")[0] for line in lines] == [
        f"check {tmp_path / 'mote.toml'}",
        "find the board's port",
        "compile the library for ESP32",
        f"ask MicroPython on {board.port}",
        "copy what differs",
        "compare hashes",
        "make its key",
        "restart",
        "wait for the advert of balcony",
    ]
    assert "  open: temperature, humidity, pressure: all in each advert (10 bytes, room for 21)" in told
    assert all(" ... ok" in line for line in lines)
    assert lines[-1].endswith("balcony was heard")


def test_what_was_flashed_starts_on_micropython_with_its_configuration(tmp_path: Path) -> None:
    """The stand-in's radio ends the mote as Ctrl-C would; until then it is put together, and has begun a boot."""
    with BoardOnPty() as board:
        assert run(board, "--config", str(config(tmp_path))) == 0
        assert {"/state/boot"} <= names(board)
        assert "/state/crash" not in names(board)


def test_a_second_time_only_what_differs_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BoardOnPty() as board:
        assert run(board, "--config", str(config(tmp_path))) == 0
        count = len(library.flashed(boards.load("esp32"))) + 1
        assert f"{count} of {count} files" in capsys.readouterr().out
        assert run(board, "--config", str(config(tmp_path))) == 0
        assert f"0 of {count} files" in capsys.readouterr().out
        assert run(board, "--config", str(config(tmp_path, 'name = "roof"'))) == 0
        assert f"1 of {count} files" in capsys.readouterr().out
        assert "/main.py" in names(board)
        assert run(board) == 0
        assert "the advert of roof" in capsys.readouterr().out  # the board's own configuration is kept


def test_what_would_run_instead_of_the_flashed_library_is_removed_and_what_the_mote_keeps_is_not(
    tmp_path: Path,
) -> None:
    files = {
        "/lib/spinney_mote/vm.py": b"raise SystemExit  # MicroPython would take it before vm.mpy",
        "/state/set": b"says that set 1 runs",
        "/state/set1/spinney_mote/vm.mpy": b"a library that came over the air",
        "/state/bonds": b"SK1 who has paired",
        "/lib/mine.py": b"of the owner's own",
    }
    with BoardOnPty(files) as board:
        assert run(board, "--config", str(config(tmp_path))) == 0
        found = names(board)
    assert not {"/lib/spinney_mote/vm.py", "/state/set", "/state/set1/spinney_mote/vm.mpy"} & found
    assert {"/state/bonds", "/lib/mine.py"} <= found


def test_a_driver_of_the_owners_own_comes_along(tmp_path: Path) -> None:
    driver = tmp_path / "wind.py"
    driver.write_text(
        "from ..sensor import Attribute, Sensor\n\n\n"
        "class Wind(Sensor):\n"
        '    measures = (Attribute("wind", "m/s", 1, 10, 0, 600),)\n'
    )
    settings = str(config(tmp_path, '[[sensors]]\ndriver = "wind"\n'))
    with BoardOnPty() as board:
        assert run(board, "--config", settings) == 2
        assert run(board, "--config", settings, "--driver", str(driver)) == 0
        assert "/lib/spinney_mote/drivers/wind.mpy" in names(board)


# ---- who reads its adverts


def test_a_mote_gets_a_key_once_and_only_its_owner_can_read_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bindkeys.toml"
    with BoardOnPty() as board:
        assert run(board, "--config", str(config(tmp_path))) == 0
        (device,) = tomllib.loads(file.read_text("utf-8"))["device"]
        assert (device["address"], device["name"]) == ("C0:49:EF:12:34:56", "balcony")
        assert capsys.readouterr().out.count(device["bindkey"]) == 1, "it is shown once"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        found = read(board, keys.ON_BOARD)
        assert found is not None
        assert bytes.fromhex(device["bindkey"]) in found
        assert unframed(found) == bytes.fromhex(device["bindkey"]) + bytes(4), "as the mote reads it, with counter 0"
        assert run(board, "--config", str(config(tmp_path))) == 0
        assert read(board, keys.ON_BOARD) == found, "under a key that it has its counter goes on"
        told = capsys.readouterr().out
        assert "it has one: spinney mote key show balcony" in told
        assert device["bindkey"] not in told
    with BoardOnPty() as board:
        assert run(board, "--config", str(config(tmp_path)), "--no-key") == 0
        assert keys.ON_BOARD not in names(board)


def test_who_reads_its_adverts_is_asked_on_a_terminal_only_and_a_flag_says_it_too(tmp_path: Path) -> None:
    with BoardOnPty() as board:
        for words, mode in ([], None), (["--adverts", "open"], "open"), (["--adverts", "auto"], None):
            assert run(board, "--config", str(config(tmp_path)), *words) == 0
            assert json.loads(read(board, "/config.json") or b"").get("advert_mode") == mode
        fixed = str(config(tmp_path, 'advert_mode = "presence"'))
        assert run(board, "--config", fixed) == 0
        assert json.loads(read(board, "/config.json") or b"")["advert_mode"] == "presence"
        assert run(board, "--adverts", "open") == 2


def test_a_key_is_shown_renewed_and_forgotten_over_a_cable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.toml"
    words = ["--port", "", "--keys", str(file)]
    with BoardOnPty({"/config.json": b'{"name": "roof"}'}) as board:
        words[1] = board.port
        assert key.main(["show", *words]) == 2
        assert "roof has no key; make one" in capsys.readouterr().err
        assert key.main(["new", *words]) == 0
        first = capsys.readouterr().out.strip()
        assert [one.key.hex() for one in keys.read(file).values()] == [first]
        assert key.main(["show", "--port", board.port]) == 0
        assert capsys.readouterr().out.strip() == first
        assert key.main(["new", *words]) == 0
        second = capsys.readouterr().out.strip()
        assert second != first
        assert [(one.name, one.key.hex()) for one in keys.read(file).values()] == [("roof", second)]
        file.write_text("[[device]]\n")
        assert key.main(["new", *words]) == 2
        assert unframed(read(board, keys.ON_BOARD)) == bytes.fromhex(second) + bytes(4), "nothing was changed"
        file.unlink()
        assert key.main(["forget", *words]) == 0
        assert keys.ON_BOARD not in names(board)


# ---- what can go wrong


@pytest.mark.parametrize("share", [0.03, 0.4, 0.9])
def test_a_cable_that_is_pulled_in_the_middle_leaves_a_board_that_starts_nothing_and_can_be_flashed_again(
    tmp_path: Path, share: float, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = sum(map(len, library.flashed(boards.load("esp32")).values()))
    old = {"/main.py": b"pass  # what ran there before"} if share > 0.1 else {}
    with BoardOnPty(old, cut_after=int(whole * 2.4 * share)) as board:
        assert run(board, "--config", str(config(tmp_path))) == 2
        assert "the board went away" in capsys.readouterr().err
        board.pull()
        board.plug_in()
        assert "/main.py" not in names(board)
        assert run(board, "--config", str(config(tmp_path))) == 0
        assert {"/main.py", "/state/boot"} <= names(board)
    assert "46 of 46" not in capsys.readouterr().out or share < 0.1, "what was whole is not written again"


def test_another_board_than_the_one_named_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BoardOnPty(machine="Generic ESP32S3 module with ESP32S3") as board:
        assert run(board, "--config", str(config(tmp_path))) == 2
        assert names(board) == set()
    told = capsys.readouterr().err
    assert "this board is 'Generic ESP32S3 module with ESP32S3', not an ESP32" in told
    assert "Nothing was changed" in told


def test_a_micropython_that_is_too_old_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BoardOnPty(version=(1, 23, 0)) as board:
        assert run(board, "--config", str(config(tmp_path))) == 2
    assert "1.24 is the oldest" in capsys.readouterr().err


def test_a_micropython_for_other_native_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BoardOnPty(arch=4) as board:
        assert run(board, "--config", str(config(tmp_path))) == 2
    assert "armv6m, not of version 6 for xtensawin" in capsys.readouterr().err


def test_without_room_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BoardOnPty(free_blocks=10) as board:
        assert run(board, "--config", str(config(tmp_path))) == 2
        assert names(board) == set()
    assert "bytes are needed and 40960 are free" in capsys.readouterr().err


def test_flash_that_is_full_after_all_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BoardOnPty(room=20_000) as board:
        assert run(board, "--config", str(config(tmp_path))) == 2
        assert "/main.py" not in names(board)
    assert "the board's flash is full" in capsys.readouterr().err


def test_flash_that_keeps_other_bytes_is_found_out_and_nothing_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BoardOnPty(spoils="/lib/spinney_mote/vm.mpy") as board:
        assert run(board, "--config", str(config(tmp_path))) == 2
        assert "/main.py" not in names(board)
    assert "/lib/spinney_mote/vm.mpy: what the board reads is not what was written" in capsys.readouterr().err


def test_a_configuration_with_mistakes_is_told_before_the_board_is_asked_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BoardOnPty() as board:
        assert run(board, "--config", str(config(tmp_path, "sample_interval_s = 0"))) == 2
        assert board.taken == 0
    assert "sample_interval_s must be a whole number from 1 to 86400" in capsys.readouterr().err


def test_a_mote_that_is_not_heard_is_told_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BoardOnPty() as board:
        words = ["--board", "esp32", "--port", board.port, "--config", str(config(tmp_path))]
        assert flash.main(words, lambda _options, _name: None) == 1
    assert "the mote balcony was not heard" in capsys.readouterr().err


def test_without_bluetooth_it_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path / 'none'}")
    with BoardOnPty() as board:
        assert flash.main(["--board", "esp32", "--port", board.port, "--config", str(config(tmp_path))]) == 0
        assert "/main.py" in names(board)
    assert "written; not listened for: there is no Bluetooth service here" in capsys.readouterr().out


# ---- with the image


def titles(told: str, folder: str, port: str, image: str = "") -> list[str]:
    """The steps, without what differs from run to run."""
    found = re.findall(r"^ *(\[.*?) \.\.\. ok", told.replace(folder, "") if folder else told, re.MULTILINE)
    return [line.replace(port, "PORT").replace("ESP32_GENERIC-v1.27.0.bin", image) for line in found]


def test_a_bare_board_gets_image_library_and_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "micropython.bin"
    image.write_bytes(esp_image())
    loader = EspLoader()
    loader.flash[0x300000:0x300004] = b"old!"
    with BoardOnPty(loader=loader) as board:
        assert run(board, "--firmware", str(image), "--config", str(config(tmp_path))) == 0
        assert "/main.py" in names(board)
    assert loader.flash[0x1000 : 0x1000 + len(image.read_bytes())] == image.read_bytes()
    assert loader.flash[0x300000:0x300004] == b"\xff" * 4, "everything is erased first"
    told = capsys.readouterr().out
    assert "MicroPython v1.27.0 for ESP32" in told
    assert "its MD5 on the flash is right" in told
    shown = re.search(r"flash --board esp32 .*?```", README.read_text("utf-8"), re.DOTALL)
    assert shown is not None
    assert titles(told, str(tmp_path) + "/", board.port) == titles(shown[0], "", "/dev/ttyUSB0", image.name)


def test_another_chip_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "micropython.bin"
    image.write_bytes(esp_image())
    loader = EspLoader(ESP32_S2_MAGIC)
    with BoardOnPty(loader=loader) as board:
        assert run(board, "--firmware", str(image)) == 2
    assert not loader.counts["erased"]
    assert not loader.counts["blocks"]
    told = capsys.readouterr().err
    assert "is an ESP32-S2, not an ESP32" in told
    assert "Nothing was changed" in told


def test_a_flash_that_keeps_another_image_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "micropython.bin"
    image.write_bytes(esp_image())
    with BoardOnPty(loader=EspLoader(lies=True)) as board:
        assert run(board, "--firmware", str(image)) == 2
    assert "What is on the flash is not what was sent" in capsys.readouterr().err


def test_a_cable_that_is_pulled_while_the_image_is_written_is_told_and_the_next_run_starts_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "micropython.bin"
    image.write_bytes(esp_image() + random.Random(1).randbytes(200_000))
    loader = EspLoader()
    with BoardOnPty(loader=loader) as board:
        loader.on_block = lambda: board.cut_now() if loader.counts["blocks"] == 2 else None
        assert run(board, "--firmware", str(image)) == 2
        assert "it starts from the beginning" in capsys.readouterr().err
        board.pull()
        board.plug_in()
        assert run(board, "--firmware", str(image), "--config", str(config(tmp_path))) == 0


def test_a_board_that_says_nothing_is_told_with_the_buttons_to_press(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "micropython.bin"
    image.write_bytes(esp_image())
    with BoardOnPty(loader=EspLoader(mute=True)) as board:
        assert run(board, "--firmware", str(image)) == 2
    told = capsys.readouterr().err
    assert "Failed to connect" in told
    assert "BOOT button" in told


def test_ctrl_c_stops_it_and_says_so(tmp_path: Path) -> None:
    """In a process of its own: Ctrl-C is for all of it."""
    program = "import sys; from spinney_tools.mote import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", program, "flash", "--board", "esp32"]
    with BoardOnPty(loader=EspLoader(mute=True)) as board, subprocess.Popen(
        [*words, "--port", board.port, "--config", str(config(tmp_path))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stderr is not None
        told = ""
        while "ask MicroPython" not in told:
            told += (letter := running.stdout.read(1))
            assert letter, running.stderr.read()
        running.send_signal(2)
        assert running.wait(60) == 130
        assert "stopped" in running.stderr.read()
