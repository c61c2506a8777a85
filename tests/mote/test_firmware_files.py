"""What lies beside the library: the package for mip, the boards, the sample configuration, the README's tables."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from spinney_mote import config, wiring
from spinney_mote.drivers import DRIVERS
from spinney_mote.life import VERSION

from spinney_tools.check.mote import ARCHITECTURES

FIRMWARE = Path(__file__).parents[2] / "firmware"
BOARDS = sorted((FIRMWARE / "boards").glob("*.json"))
ONLY_CPYTHON = {"spinney_mote/plain_viper.py"}


def test_the_package_for_mip_names_every_file_of_the_library() -> None:
    package = json.loads((FIRMWARE / "package.json").read_text("utf-8"))
    library = {path.relative_to(FIRMWARE / "lib").as_posix() for path in (FIRMWARE / "lib").rglob("*.py")}
    expected = [[name, f"lib/{name}"] for name in sorted(library - ONLY_CPYTHON)]
    assert package == {"urls": expected, "deps": [], "version": VERSION}


def test_there_is_a_board_of_each_kind() -> None:
    assert [path.stem for path in BOARDS] == ["esp32", "esp32c3", "esp32s3", "picow"]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_board_says_how_it_is_flashed_and_wired(path: Path) -> None:
    board = json.loads(path.read_text("utf-8"))
    assert board["arch"] in ARCHITECTURES
    assert board["method"] == ("esptool" if "offset" in board else "uf2")
    assert board["download"] == f"https://micropython.org/download/{board['image']}/"
    assert board["deep_sleep"] == (board["rtc_memory_bytes"] > 0)
    assert set(board["pins"]) == {"scl", "sda", "tx", "rx", "adc"}
    row = f"| SCL, SDA | {', '.join('{scl}, {sda}'.format(**json.loads(p.read_text())['pins']) for p in BOARDS[:1])}"
    assert row in (FIRMWARE / "README.md").read_text("utf-8")


def test_the_sample_configuration_is_right_and_names_drivers_that_there_are() -> None:
    sample = tomllib.loads((FIRMWARE / "mote.toml").read_text("utf-8"))
    found = config.parse(json.dumps(sample))
    assert found.problems == []
    assert found.name == sample["name"]
    assert {sensor["driver"] for sensor in found.sensors} <= set(DRIVERS)


def test_the_readme_lists_every_entry_of_the_configuration_with_its_default() -> None:
    text = (FIRMWARE / "README.md").read_text("utf-8")
    defaults = vars(config.Config())
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*)`? \|", text, re.MULTILINE))
    for name in config._entries():
        assert name in rows, name
        if not isinstance(defaults[name], (list, dict)):
            assert json.loads(rows[name]) == defaults[name], name


def test_every_kind_of_bus_can_be_made_and_is_in_the_readme() -> None:
    text = (FIRMWARE / "README.md").read_text("utf-8")
    assert set(wiring._MAKERS) == set(config._BUS_KINDS)
    for kind, keys in config._BUS_KINDS.items():
        assert f"| `{kind}` | {', '.join(f'`{key}`' for key in keys)}" in text, kind
