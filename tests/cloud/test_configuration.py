from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spinney.configuring import ConfigurationError
from spinney_cloud import command
from spinney_cloud.certs import Certificates
from spinney_cloud.configuration import KEYS, RELOADABLE, Configuration, configure, reload, value_of
from spinney_cloud.settings import Settings
from spinney_cloud.users import Role, Users


def told(tmp_path: Path, flags: dict[str, Any] | None = None, **given: Any) -> tuple[str, ...]:
    """All that is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        configured(tmp_path, flags, **given)
    return caught.value.problems


def configured(
    tmp_path: Path, flags: dict[str, Any] | None = None, *, file: str = "", environment: dict[str, str] | None = None
) -> Configuration:
    path = tmp_path / "cloud.toml"
    path.write_text(file)
    flags = {"data": str(tmp_path / "data"), **(flags or {})}
    return configure(flags, environment or {}, path, to_run=True)


# ---- Where values come from -------------------------------------------------------------------------------------


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = "[http]\nport = 1\nhost = '127.0.0.2'\nmax_connections = 5\n"
    environment = {"SPINNEY_CLOUD__HTTP__PORT": "2", "SPINNEY_CLOUD__HTTP__HOST": "127.0.0.3"}
    found = configured(tmp_path, {"http.port": "3"}, file=file, environment=environment)
    assert found.settings.http.port == 3
    assert found.settings.http.host == "127.0.0.3"
    assert found.settings.http.max_connections == 5
    assert found.sources["http.port"] == "--http-port"
    assert found.sources["http.host"] == "environment SPINNEY_CLOUD__HTTP__HOST"
    assert found.sources["http.max_connections"] == f"{tmp_path}/cloud.toml:4: http.max_connections"


SHAPED = {"nats.sync_interval": "1s", "http.public_url": "https://spinney.example"}
"""Settings that not every text is one of."""


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_each_setting_has_a_flag_and_a_variable_that_set_it(key: Any, tmp_path: Path) -> None:
    samples = {"int": "7", "float": "7", "bool": "true", "str": "text", "Path": str(tmp_path)}
    samples = {"MinLen": str(tmp_path), **samples}  # a place
    value = key.expected.removeprefix("one of ").partition(",")[0] if key.expected.startswith("one of") else None
    if value is None:
        value = SHAPED.get(key.name) or next(v for k, v in samples.items() if k in repr(key.kind))
    by_flag = configure({key.name: value}, {})
    by_variable = configure({}, {key.variable: value})
    assert by_flag.settings == by_variable.settings
    assert str(value_of(by_flag.settings, key)).lower() in (value, f"{value}.0")


def test_paths_in_a_file_are_relative_to_it_and_others_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "cloud.toml").write_text('data = "here"\n')
    assert configure({}, {}, Path("etc/cloud.toml")).settings.data == tmp_path / "etc" / "here"
    assert configure({"data": "there"}, {}).settings.data == tmp_path / "there"
    assert configure({}, {}).settings.data == tmp_path / "spinney-data"
    assert configure({}, {"SPINNEY_CLOUD__CONFIG": "etc/cloud.toml"}).settings.data == tmp_path / "etc" / "here"


def test_the_lake_is_in_the_data_directory_or_in_a_folder_or_at_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert configure({}, {}).settings.lake == str(tmp_path / "spinney-data" / "lake")
    assert configure({"pipeline.lake": "mine"}, {}).settings.lake == str(tmp_path / "mine")
    assert configure({"pipeline.lake": "s3://bucket/lake"}, {}).settings.lake == "s3://bucket/lake"


def test_the_log_waits_for_a_pipeline_that_is_run_unless_it_is_told_not_to() -> None:
    assert not configure({}, {}).settings.log.pipeline
    found = configure({"pipeline.run": True}, {})
    assert found.settings.log.pipeline
    assert found.sources["log.pipeline"] == "--with-pipeline"
    assert not configure({"pipeline.run": True, "log.pipeline": "false"}, {}).settings.log.pipeline


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("log.max_age", "7d", 604800.0),
        ("log.max_age", "1.5 h", 5400.0),
        ("delivery.retry", "250ms", 0.25),
        ("log.max_bytes", "2GiB", 2**31),
        ("log.max_bytes", "2 gb", 2 * 10**9),
        ("log.max_bytes", "4096", 4096),
        ("log.pipeline", True, True),
        ("log.pipeline", "false", False),
    ],
)
def test_times_and_sizes_are_written_as_people_do(name: str, text: Any, value: Any) -> None:
    assert value_of(configure({name: text}, {}).settings, KEYS[name]) == value


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://Spinney.Example.org/", "https://spinney.example.org"),
        ("https://spinney.example:443", "https://spinney.example"),
        ("http://spinney.example:80", "http://spinney.example"),
        ("http://spinney.example:443", "http://spinney.example:443"),
        ("https://[2001:DB8::7]:8443", "https://[2001:db8::7]:8443"),
    ],
)
def test_the_public_url_is_kept_as_browsers_say_it(text: str, origin: str) -> None:
    assert configure({"http.public_url": text}, {}).settings.http.public_url == origin


@pytest.mark.parametrize(
    "text", ["spinney.example", "ftp://h", "https://h/path", "https://u:p@h", "https://*", "https://h:", "https://"]
)
def test_a_public_url_that_no_browser_would_say_is_refused(tmp_path: Path, text: str) -> None:
    [problem] = told(tmp_path, {"http.public_url": text})
    assert "expected: a URL such as https://spinney.example.org, without a path" in problem


def test_an_empty_variable_gives_nothing() -> None:
    assert configure({}, {"SPINNEY_CLOUD__HTTP__PORT": ""}).settings == configure({}, {}).settings


# ---- What is wrong ----------------------------------------------------------------------------------------------


def test_all_that_is_wrong_is_told_at_once_with_where_and_what_is_expected(tmp_path: Path) -> None:
    problems = told(
        tmp_path,
        {"logging.format": "xml", "mqtt.url": "http://h"},
        file='htp = 1\n[http]\nport = "abc"\nprt = 1\n[log]\nmax_age = "-3d"\n[matching]\nsnapshots_kept = 0\n',
        environment={"SPINNEY_CLOUD__HTTP__MAX_BODY": "big", "SPINNEY_CLOUD__HTTP__HOTS": "x"},
    )
    where = f"{tmp_path}/cloud.toml"
    assert sorted(problems) == sorted(
        [
            f"{where}:1: htp: there is no such setting",
            f"{where}:4: http.prt: there is no such setting; perhaps http.port",
            f"{where}:3: http.port: 'abc' will not do; expected: a port from 0 to 65535",
            f"{where}:6: log.max_age: '-3d' will not do; expected: a time above 0, such as 90, 10m or 7d",
            f"{where}:8: matching.snapshots_kept: 0 will not do; expected: a whole number above 0",
            "environment SPINNEY_CLOUD__HTTP__HOTS: there is no such setting; perhaps SPINNEY_CLOUD__HTTP__HOST",
            "environment SPINNEY_CLOUD__HTTP__MAX_BODY: 'big' will not do; "
            "expected: a size above 0, such as 4096 or 512MiB",
            "--log: 'xml' will not do; expected: one of text, json",
            "--mqtt: has to begin with mqtt:// or mqtts://",
        ]
    )


def test_a_file_that_cannot_be_read_or_is_no_toml_is_told(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, file="[http\n")
    assert "cloud.toml: is no TOML:" in problem
    assert "line 1" in problem
    with pytest.raises(ConfigurationError, match=r"none.toml: cannot be read: No such file"):
        configure({}, {}, tmp_path / "none.toml")


def test_a_section_given_as_a_value_is_told(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, file="http = 8080\n")
    assert problem.endswith("cloud.toml:1: http: is a section; write [http], and its settings below it")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"nats.url": "nats://h:4222"}, "say where MQTT clients connect: --mqtt URL"),
        ({"mqtt.url": "mqtt://"}, "there is no host"),
        ({"mqtt.url": "mqtt://h:port"}, "is no URL"),
        ({"mqtt.user": "kit"}, "needs a password, too: --mqtt-password-file"),
        ({"mqtt.password_file": "/none"}, "whose password is it? --mqtt-user"),
        ({"mqtt.user": "kit", "mqtt.password_file": "/none"}, "/none cannot be read: No such file"),
        ({"http.tls.certificate": "/none"}, "certificate and key go together"),
        ({"http.tls.ca": "/dev/null"}, "/dev/null is empty"),
        ({"http.port": "7", "mqtt.port": "7"}, "--http-port, --mqtt-port: both want port 7"),
        ({"limits.payload": "8MiB"}, "clients may send 8388608 bytes, the log takes 4194304"),
        ({"log.max_bytes": "100GiB"}, "all that is kept may take"),
        ({"http.host": "0.0.0.0"}, "there are no users: first `spinney cloud user add`"),
        ({"mqtt.host": "::"}, "there are no users: first `spinney cloud user add`"),
    ],
)
def test_what_does_not_hold_together_is_told(tmp_path: Path, flags: dict[str, str], expected: str) -> None:
    assert any(expected in problem for problem in told(tmp_path, flags)), told(tmp_path, flags)


def test_a_password_in_a_url_is_refused_and_not_repeated(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, {"mqtt.url": "mqtt://kit:hunter2@h"})
    assert "secrets belong in files" in problem
    assert "hunter2" not in problem


def test_with_users_clients_may_come_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    Users().add("kit", Role.OPERATOR, "default", "a password").save(tmp_path / "data")
    assert configured(tmp_path, {"http.host": "0.0.0.0", "mqtt.host": "0.0.0.0"}).settings.mqtt.host == "0.0.0.0"


def test_a_certificate_must_fit_its_key_and_the_address_that_our_own_processes_use(tmp_path: Path) -> None:
    ours = Certificates(tmp_path / "data")
    ours.make_ca()
    ours.make_server(["127.0.0.1", "broker.example.org"])
    server = {"mqtt.tls.certificate": str(ours.path("server")), "mqtt.tls.key": str(ours.key_path("server"))}
    assert configured(tmp_path, server).settings.mqtt.tls.certificate == ours.path("server")
    (problem,) = told(tmp_path, {**server, "mqtt.tls.key": str(ours.key_path("ca"))})
    assert "no certificate with its key" in problem
    ours.make_server(["broker.example.org"], force=True)
    (problem,) = told(tmp_path, server)
    assert "is for broker.example.org, and our own processes connect to 127.0.0.1" in problem


def test_commands_beside_a_cloud_do_not_need_what_a_cloud_needs(tmp_path: Path) -> None:
    """Otherwise `user add` could not add the first user that it asks for."""
    assert configure({"http.host": "0.0.0.0", "data": str(tmp_path)}, {}).settings.data == tmp_path


# ---- Again, on SIGHUP -------------------------------------------------------------------------------------------


def test_a_reload_takes_what_can_be_changed_and_names_the_rest() -> None:
    old = Settings()
    new = configure({"logging.level": "debug", "http.port": "1", "log.max_age": "1d", "data": "spinney-data"}, {})
    settings, changed, needs_restart = reload(old, new.settings.model_copy(update={"data": old.data}))
    assert changed == ("log.max_age", "logging.level")
    assert needs_restart == ("http.port",)
    assert settings.logging.level == "debug"
    assert settings.log.max_age == 86400.0
    assert settings.http.port == old.http.port


def test_what_can_be_reloaded_are_settings() -> None:
    assert set(KEYS) >= RELOADABLE


# ---- The command ------------------------------------------------------------------------------------------------


def test_check_prints_all_settings_with_their_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--check", "--data", str(tmp_path), "--http-port", "0", "--log", "json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "http.port = 0  # --http-port" in lines
    assert 'log.max_age = "7d"  # default' in lines
    assert 'logging.format = "json"  # --log' in lines
    assert lines[-1] == "ok"
    assert len(lines) == len(KEYS) + 1


def test_what_check_prints_can_stand_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--check", "--data", str(tmp_path / "data"), "--delivery-retry", "1500ms"]) == 0
    lines = capsys.readouterr().out.splitlines()[:-1]
    again = configured(tmp_path, file="\n".join(line for line in lines if " = none " not in line))
    assert again.settings == configured(tmp_path, {"delivery.retry": "1.5"}).settings


def test_wrong_flags_are_told_all_at_once_and_what_may_be_a_secret_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--http-port", "--mqtt-password", "hunter2", "foo", "--htp-port=9", "--check"]) == 2
    said = capsys.readouterr().err
    assert said.splitlines() == [
        "spinney cloud: --mqtt-password: there is no such flag; perhaps --mqtt-password-file",
        "spinney cloud: foo: is no command; commands are user, certs, acl, conf, health, backup, restore",
        "spinney cloud: --htp-port: there is no such flag; perhaps --http-port",
        "spinney cloud: --http-port: needs a value: a port from 0 to 65535",
    ]


def test_help_names_every_command_and_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in command.COMMANDS)
    assert all(key.flag in said and key.long_flag in said for key in KEYS.values())


def test_commands_have_their_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["user", "--help"])
    assert "spinney cloud user" in capsys.readouterr().out


def test_a_command_beside_a_cloud_imports_no_server() -> None:
    code = "import sys, spinney_cloud.users_command; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"nats", "fastapi", "spinney_cloud.supervisor"} & set(loaded)
