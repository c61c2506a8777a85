"""Settings of the mobile broker: where they come from, and that every mistake is named at once."""

from __future__ import annotations

import re
import tomllib
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from spinney.configuring import ConfigurationError
from spinney_mobile.cells import H3
from spinney_mobile.configuration import KEYS, MISSING, configure
from spinney_mobile.rules import Rules
from spinney_mobile.sample_config import sample_config
from spinney_mobile.setting_types import help_of, members, sections_of
from spinney_mobile.settings import AcquireMqtt, AcquireSerial, AcquireSimulator, Settings

README = Path(__file__).parents[2] / "mobile_broker" / "README.md"


def problems(text: str, tmp_path: Path, **more: Any) -> list[str]:
    file = tmp_path / "mobile.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        configure(more.get("flags", {}), more.get("environment", {}), file)
    return [problem.replace(f"{file}:", "") for problem in caught.value.problems]


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mobile.toml"
    file.write_text('name = "file"\nsend = "all"\n[outbox]\nmax_age = "2d"\nmax_bytes = "1MiB"\n')
    environment = {"SPINNEY_MOBILE__SEND": "wanted", "SPINNEY_MOBILE__OUTBOX__MAX_AGE": "3d", "OTHER": "1"}
    found = configure({"outbox.max_age": "4h"}, environment, file)
    settings = found.settings
    assert (settings.name, settings.send, settings.outbox.max_age) == ("file", "wanted", 4 * 3600.0)
    assert settings.outbox.max_bytes == 1024**2
    assert found.sources["name"] == f"{file}:1: name"
    assert found.sources["send"] == "environment SPINNEY_MOBILE__SEND"
    assert found.sources["outbox.max_age"] == "--outbox-max-age"


def test_what_the_readme_shows_of_the_file_is_taken(tmp_path: Path) -> None:
    shown = re.findall(r"```toml\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(shown) >= 2
    for number, text in enumerate(shown):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        Rules(configure({}, {}, file).settings.rule, grid=H3, resolution=9)


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mobile.toml"
    file.write_text('name = "file"\n')
    assert configure({}, {"SPINNEY_MOBILE__CONFIG": str(file)}).settings.client == "file"


def test_lists_of_tables_are_read_by_their_kind(tmp_path: Path) -> None:
    file = tmp_path / "mobile.toml"
    file.write_text(
        '[[acquire]]\nkind = "simulator"\nevery = "1s"\n'
        '[[acquire]]\nkind = "mqtt"\n[[acquire.topics]]\ntopic = "a/+"\nvalues = {t = "$.t"}\n'
        '[[acquire]]\nkind = "serial"\nport = "/dev/x"\ncolumns = ["a", "b"]\n'
        '[[device]]\naddress = "aa"\nattributes = {room = "lab", floor = 2, dry = true}\n'
    )
    settings = configure({}, {}, file).settings
    simulator, mqtt, serial = settings.acquire
    assert isinstance(simulator, AcquireSimulator)
    assert isinstance(mqtt, AcquireMqtt)
    assert isinstance(serial, AcquireSerial)
    assert (simulator.every, dict(mqtt.topics[0].values), serial.columns) == (1.0, {"t": "$.t"}, ("a", "b"))
    assert dict(settings.device[0].attributes) == {"room": "lab", "floor": 2, "dry": True}


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    file = tmp_path / "mobile.toml"
    file.write_text('[cloud]\nca = "ca.pem"\n')
    settings = configure({}, {}, file).settings
    assert settings.cloud.ca == tmp_path / "ca.pem"
    assert settings.data == Path.cwd() / "spinney-mobile"


def test_every_mistake_is_named_at_once_with_its_place_and_what_is_expected(tmp_path: Path) -> None:
    text = """nam = 3
name = "kit chen"
[cloud]
url = "http://x"
[[acquire]]
kind = "serial"
baud = "x"
[[acquire]]
kind = "radio"
[[device]]
address = "aa"
rename = 3
[[device]]
address = "AA"
lat = 3
[[rule]]
name = "night"
when = "temp >"
[outbox]
max_bytes = "3 parsec"
"""
    environment = {"SPINNEY_MOBILE__XX": "1", "SPINNEY_MOBILE__PLACE__KIND": "fixed"}
    found = problems(text, tmp_path, flags={"web.port": MISSING}, environment=environment)
    for expected in (
        "1: nam: there is no such setting; perhaps name",
        "2: name: 'kit chen' will not do; expected: 1 to 64 of A-Z a-z 0-9 _ -, or none",
        "4: cloud.url: 'http://x' will not do",
        "acquire[0].port is missing; expected: text",
        "7: acquire[0].baud: 'x' will not do; expected: a whole number above 0",
        "9: acquire[1].kind: 'radio' will not do; expected: kind, one of ble, motes, mqtt, serial",
        "12: device[0].rename: expected: a table",
        "14: device[1].address: AA has a [[device]] already",
        "15: device[1].lat: lat and long go together",
        "18: rule[0].when: 'temp >' will not do (1:7: expected a value after '>')",
        "20: outbox.max_bytes: '3 parsec' will not do; expected: a size above 0, such as 4096 or 64MiB",
        "environment SPINNEY_MOBILE__XX: there is no such setting",
        "environment SPINNEY_MOBILE__PLACE__KIND: a fixed place needs lat and long",
        "--web-port: needs a value: a port from 0 to 65535, or none",
    ):
        assert any(expected in problem for problem in found), (expected, found)
    assert len(found) == 14


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[cloud]\nuser = "a"\n', "cloud.user: user and password_file go together"),
        ('name = "b"\n[cloud]\nuser = "a"\npassword_file = "p"\n', "a broker's name is that of its user"),
        ('[cloud]\nkey = "k"\n', "cloud.key: certificate and key go together"),
        ('[local]\nport = 1883\nhost = "0.0.0.0"\n', "beyond loopback [local] needs password_file"),
        ('[local]\nkey = "k"\n', "local.key: certificate and key go together"),
        (
            '[[acquire]]\nkind = "ble"\n' * 2,
            "4: acquire[1].kind: there are two acquirers ble; give one of them",
        ),
        ('[[acquire]]\nkind = "simulator"\nname = "a"\n[[acquire]]\nkind = "ble"\nname = "a"\n', "two acquirers a;"),
        ("".join(f'[[acquire]]\nkind="ble"\nname="{n}"\n' for n in range(101)), "101 acquirers; the limit is 100"),
        ('[[device]]\naddress = "a4:c1"\n[[device]]\naddress = "A4-C1"\n', "A4-C1 has a [[device]] already"),
        ('[[device]]\nmote = "hut"\n' * 2, "4: device[1].mote: hut has a [[device]] already"),
        ('[[device]]\nmote = "hu*"\n', "device[0].mote: 'hu*' will not do; expected: 1 to 64 of"),
        ('[[device]]\nname = "hut"\n', "device[0].mote: give either address or mote"),
        ('[[device]]\naddress = "a4:c1"\nmote = "hut"\n', "3: device[0].mote, "),
        (
            '[devices]\npatterns = ["hut-gnyijstj"]\n[[device]]\nmote = "hut-etislvlf"\n',
            "2: devices.patterns) and hut-etislvlf have the same CRC",
        ),
        ('[devices]\npatterns = ["hut-gnyijstj", "hut-etislvlf"]\n', "and hut-etislvlf have the same CRC"),
        ('[place]\nkind = "nmea"\n', "a place by nmea needs port"),
        ('[[subscription]]\nsid = "a"\ntext = "x > 1"\n' * 2, "a has a [[subscription]] already"),
        ("cloud = 3\n", "cloud: is a section; write [cloud]"),
        ("[name]\nx = 1\n", "is one value; expected: 1 to 64 of"),
        ("[device]\naddress = 1\n", "there can be several; write [[device]]"),
        ("data = \n", "is no TOML"),
        ("[web]\nport = true\n", "True will not do; expected: a port"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(text, tmp_path))


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    wrong = problems('[[device]]\naddress = "a"\nbindkey = "c0ffee"\n', tmp_path)
    assert wrong == ["3: device[0].bindkey: this will not do; expected: 32 hexadecimal digits, or none"]
    file = tmp_path / "mobile.toml"
    file.write_text(f'[[device]]\naddress = "a"\nbindkey = "{"ab" * 16}"\n')
    lines = "\n".join(configure({}, {}, file).lines())
    assert "abab" not in lines
    assert 'device[0].bindkey = "(not shown)"' in lines


def test_a_missing_file_is_said() -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        configure({}, {}, Path("/nowhere/mobile.toml"))


def test_the_sample_is_valid_as_it_stands() -> None:
    assert tomllib.loads(sample_config()) == {
        name: {}
        for name in (
            "cloud",
            "devices",
            "motes",
            "place",
            "outbox",
            "local",
            "web",
            "home_assistant",
            "watchdog",
            "logging",
        )
    }


def test_the_sample_is_valid_with_every_key_switched_on_and_names_all_there_are(tmp_path: Path) -> None:
    lines = sample_config().splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("#name"))
    on = [line.removeprefix("#") if line[:1] == "#" and line[1:2] != " " else line for line in lines[first:]]
    text = "\n".join(on)
    for section in _sections(Settings):
        for member in members(section):
            assert f"\n{member.name} = " in f"\n{text}" or not _is_value(member.type), member.name
    file = tmp_path / "mobile.toml"
    file.write_text(text)
    settings = configure({}, {}, file).settings
    assert len(settings.acquire) == 6
    assert settings.outbox == Settings().outbox


def _is_value(type_: Any) -> bool:
    return not (sections_of(type_) or hasattr(type_, "__dataclass_fields__"))


def _sections(section: type) -> list[type]:
    found = [section]
    for member in members(section):
        below = sections_of(member.type) or ((member.type,) if hasattr(member.type, "__dataclass_fields__") else ())
        found += [each for kind in below for each in _sections(kind)]
    return found


def test_the_sample_says_of_each_key_what_it_is_for() -> None:
    lines = sample_config().splitlines()
    keys = [number for number, line in enumerate(lines) if re.match(r"#\w+ = ", line)]
    assert len(keys) > 100
    for number in keys:
        above = list(takewhile(lambda line: line.startswith("# "), reversed(lines[:number])))
        assert above, lines[number]
        assert above[0].endswith("]"), "what is expected comes last"


def test_every_setting_has_its_help() -> None:
    for section in _sections(Settings):
        for member in members(section):
            assert not _is_value(member.type) or help_of(section)[member.name], member.name


def test_every_value_that_is_shown_reads_back_as_itself() -> None:
    lines = [line.partition("  # ")[0] for line in configure({}, {}).lines()]
    values = tomllib.loads("\n".join(line for line in lines if not line.startswith("acquire[")))
    assert values["outbox"]["max_age"] == "7d"
    flags = {name: _at(values, name) for name in KEYS}
    assert configure(flags, {}).settings == configure({}, {}).settings


def _at(values: Any, name: str) -> Any:
    for word in name.split("."):
        values = values[word]
    return values


def test_a_client_is_called_as_its_user_or_as_the_host(tmp_path: Path) -> None:
    file = tmp_path / "mobile.toml"
    file.write_text('[cloud]\nuser = "roof"\npassword_file = "p"\n')
    assert configure({}, {}, file).settings.client == "roof"
    assert configure({}, {}).settings.client
