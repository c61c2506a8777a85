"""`spinney mobile doctor`: what stands in the way, found on real servers, files and this machine."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from mobile_kit import command
from servers import MosquittoServer, NatsServer, free_ports

from spinney_cloud.certs import Certificates
from spinney_mobile import doctor
from spinney_mobile.doctor import Finding, _bluetooth, examine
from spinney_mobile.settings import (
    AcquireBle,
    AcquireMqtt,
    AcquireReplay,
    AcquireSerial,
    Cloud,
    Devices,
    MqttTopic,
    Outbox,
    Settings,
)


def findings(settings: Settings) -> dict[str, Finding]:
    return {finding.what: finding for finding in asyncio.run(examine(settings))}


def at(data: Path, url: str | None, **more: object) -> Settings:
    return Settings(data=data, name="roof", acquire=(), cloud=Cloud(url=url, **more))  # type: ignore[arg-type]  # fields


def test_a_cloud_that_lets_us_in_is_good(nats: NatsServer, tmp_path: Path) -> None:
    found = findings(at(tmp_path, f"mqtt://127.0.0.1:{nats.mqtt_port}"))
    for what in ("cloud name", "cloud port", "cloud login", "data", "python", "matcher"):
        assert found[what].state != "bad", found[what]
    assert found["cloud login"].text == "as roof"


def test_a_port_where_nobody_listens_is_said_with_what_to_do(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    found = findings(at(tmp_path, f"mqtt://127.0.0.1:{port}"))
    assert found["cloud port"].state == "bad"
    assert "Connection refused" in found["cloud port"].text
    assert "is it running" in found["cloud port"].remedy
    assert "cloud login" not in found


def test_a_name_that_nobody_knows_is_said(tmp_path: Path) -> None:
    found = findings(at(tmp_path, "mqtt://no-such-host.invalid"))
    assert found["cloud name"].state == "bad"
    assert "is there a network" in found["cloud name"].remedy
    assert "cloud port" not in found


@pytest.mark.needs("mosquitto")
def test_a_refused_login_is_said_with_what_to_do(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("wrong\n")
    with MosquittoServer(tmp_path / "mosquitto", anonymous=False) as server:
        url = f"mqtt://127.0.0.1:{server.mqtt_port}"
        found = findings(at(tmp_path, url, user="roof", password_file=password))
        assert found["cloud login"].state == "bad"
        assert "refused" in found["cloud login"].text
        assert "spinney cloud user add roof" in found["cloud login"].remedy
        gone = findings(at(tmp_path, url, user="roof", password_file=tmp_path / "none"))
        assert "correct cloud.password_file" in gone["cloud login"].remedy


def test_what_takes_connections_and_is_no_mqtt_server_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = findings(at(tmp_path, f"mqtts://127.0.0.1:{port}", ca=tmp_path / "none.pem"))
    assert found["cloud certificate"].state == "bad"
    assert "set cloud.ca" in found["cloud certificate"].remedy


def test_a_name_that_may_not_hear_its_activations_is_said_with_what_to_do(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    user = 'user: roof, password: secret, permissions: { subscribe: { deny: ["spinney.roof.act"] } }'
    with NatsServer(tmp_path / "nats", extra=f"authorization {{ users: [ {{ {user} }} ] }}") as server:
        found = findings(at(tmp_path, f"mqtt://127.0.0.1:{server.mqtt_port}", user="roof", password_file=password))
    assert (found["cloud login"].state, found["cloud login"].text) == ("bad", "roof may not hear spinney/roof/act")
    assert "set cloud.user" in found["cloud login"].remedy


@pytest.mark.needs("mosquitto")
def test_a_certificate_that_is_not_trusted_is_said_and_one_that_is_is_good(tmp_path: Path) -> None:
    ours, theirs = (Certificates(tmp_path / name) for name in ("ours", "theirs"))
    for one in (ours, theirs):
        one.folder.parent.mkdir()
        one.make_ca()
    ours.make_server(["127.0.0.1"])
    files = f"certfile {ours.path('server')}\nkeyfile {ours.key_path('server')}"
    with MosquittoServer(tmp_path / "mosquitto", listener=files) as server:
        url = f"mqtts://127.0.0.1:{server.mqtt_port}"
        good = findings(at(tmp_path, url, ca=ours.path("ca")))
        assert (good["cloud certificate"].state, good["cloud login"].state) == ("good", "good")
        assert re.search(r" as spinney-doctor-\w+ \(p\d, c1, ", server.log()), "it leaves no session behind"
        bad = findings(at(tmp_path, url, ca=theirs.path("ca")))
    assert (bad["cloud certificate"].state, bad["cloud certificate"].text) == ("bad", "CERTIFICATE_VERIFY_FAILED")
    assert "set cloud.ca" in bad["cloud certificate"].remedy
    assert "cloud login" not in bad


def test_without_a_cloud_that_is_a_note(tmp_path: Path) -> None:
    assert findings(at(tmp_path, None))["cloud"].state == "note"


def test_files_and_servers_of_acquirers_are_looked_at(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = Settings(
        data=tmp_path,
        cloud=Cloud(url=None),
        acquire=(
            AcquireSerial(port="/dev/no-such-port"),
            AcquireReplay(file=tmp_path / "none.jsonl"),
            AcquireMqtt(url=f"mqtt://127.0.0.1:{port}", topics=(MqttTopic(topic="a"),)),
            AcquireBle(enabled=False),
        ),
    )
    found = findings(settings)
    assert "/dev/no-such-port is not there" in found["serial"].text
    assert "cannot be read" in found["replay"].text
    assert found[f"mqtt mqtt://127.0.0.1:{port}"].state == "bad"
    assert not any("blue" in what for what in found)


def test_the_file_of_bind_keys_is_looked_at_and_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "bindkeys.toml"
    file.write_text(f'[[device]]\naddress = "C0:00:00:00:00:01"\nbindkey = "{"ab" * 16}"\n')
    file.chmod(0o644)
    settings = replace(at(tmp_path, None), devices=Devices(bindkeys=file))
    found = findings(settings)["bind keys"]
    assert found.state == "bad"
    assert "chmod 600" in found.text
    file.chmod(0o600)
    found = findings(settings)["bind keys"]
    assert (found.state, found.text) == ("good", f"1 in {file}")


def test_a_mote_that_advertises_otherwise_than_set_is_a_note(tmp_path: Path) -> None:
    mote = {"adverts": "open", "adverts_note": "its mote.toml says so"}
    sources = [
        {"name": "attic", "address": "A", "called": None, "mote": mote},
        {"name": "hall", "address": "B", "called": None, "mote": {"adverts": "presence", "adverts_note": None}},
        {"name": "door", "address": "C", "called": None, "mote": None},
    ]
    running = {"name": "roof", "version": "1", "problems": [], "acquirers": [], "sources": sources}
    found = {one.what: one for one in asyncio.run(examine(at(tmp_path, None), running))}
    assert found["mote attic"].state == "note"
    assert found["mote attic"].text == "advertises its readings (its mote.toml says so)"
    assert not {"mote hall", "mote door"} & found.keys()


def test_a_serial_port_may_be_a_pattern_of_which_something_is_there(tmp_path: Path) -> None:
    (tmp_path / "usb-1").touch()
    serial = (AcquireSerial(port=f"{tmp_path}/usb-*"),)
    found = findings(replace(at(tmp_path, None), acquire=serial))
    assert (found["serial"].state, found["serial"].text) == ("good", str(tmp_path / "usb-1"))
    (tmp_path / "usb-1").unlink()
    found = findings(replace(at(tmp_path, None), acquire=serial))
    assert (found["serial"].state, found["serial"].remedy) == ("bad", "is it plugged in?")


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spinney_mobile.doctor.LOW_DISK_BYTES", 1 << 62)
    found = findings(at(tmp_path, None))
    assert found["data"].state == "bad"
    assert "make room" in found["data"].remedy


def test_a_disk_with_less_room_than_the_outbox_may_take_is_full(tmp_path: Path) -> None:
    found = findings(replace(at(tmp_path, None), outbox=Outbox(max_bytes=1 << 62)))
    assert found["data"].state == "bad"
    assert "set outbox.max_bytes lower" in found["data"].remedy


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    found = findings(at(tmp_path / "data", None))
    assert (found["data"].state, found["data"].text) == ("bad", f"{tmp_path / 'data'} cannot be written")
    assert f"sudo chown {doctor._me()} {tmp_path}" in found["data"].remedy


@pytest.mark.parametrize(("said", "state"), [("yes", "good"), ("no", "bad"), (None, "note")])
def test_a_clock_that_nobody_sets_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, state: str
) -> None:
    if said is not None:
        (tmp_path / "timedatectl").write_text(f"#!/bin/sh\necho {said}\n")
        (tmp_path / "timedatectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "TIME_SYNCHRONISED", tmp_path / "synchronized")
    assert doctor._clock().state == state
    (tmp_path / "synchronized").touch()
    assert doctor._clock().state == "good"


@pytest.mark.parametrize(
    ("soft", "hard", "state", "remedy"),
    [("0", "0", "good", ""), ("1", "0", "bad", "rfkill unblock"), ("0", "1", "bad", "turn on the switch")],
)
def test_an_adapter_that_is_switched_off_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soft: str, hard: str, state: str, remedy: str
) -> None:
    for number, (kind, off) in enumerate((("wlan", "1"), ("bluetooth", soft))):
        switch = tmp_path / "rfkill" / f"rfkill{number}"
        switch.mkdir(parents=True)
        for name, text in (("type", kind), ("soft", off), ("hard", hard)):
            (switch / name).write_text(f"{text}\n")
    (tmp_path / "bluetooth" / "hci0").mkdir(parents=True)
    monkeypatch.setattr(doctor, "SWITCHES", tmp_path / "rfkill")
    monkeypatch.setattr(doctor, "ADAPTERS", tmp_path / "bluetooth")
    found = next(finding for finding in _bluetooth("linux") if finding.what == "bluetooth")
    assert (found.state, found.text.split(",")[0]) == (state, "hci0")
    assert remedy in found.remedy


def test_who_is_not_in_a_group_is_told_how_to_join_it(monkeypatch: pytest.MonkeyPatch) -> None:
    group = grp.getgrall()[-1]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getgroups", lambda: [group.gr_gid])
    assert doctor._group(group.gr_name, "it").state == "good"
    monkeypatch.setattr(os, "getgroups", list)
    stranger = doctor._group(group.gr_name, "it")
    assert (stranger.state, f"usermod -aG {group.gr_name}" in stranger.remedy) == ("note", True)
    assert "there is no group" in doctor._group("no-such-group", "it").text


def test_bluetooth_is_looked_at_without_bluez_and_elsewhere() -> None:
    here = list(_bluetooth("linux"))
    assert here
    assert all(finding.remedy for finding in here if finding.state == "bad")
    assert [finding.state for finding in _bluetooth("darwin")] == ["note"]


def test_the_command_says_what_to_do_and_its_code_whether_there_is_something(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = tmp_path / "mobile.toml"
    config.write_text("acquire = []\n")
    common = ("--config", str(config), "--data", str(tmp_path / "data"))
    bad = command("doctor", *common, "--cloud", f"mqtt://127.0.0.1:{port}")
    assert bad.returncode == 1
    assert "BAD   cloud port" in bad.stdout
    assert "\n      -> is it running" in bad.stdout
    told = command("doctor", *common, "--cloud", "none", "--json")
    assert {item["what"] for item in json.loads(told.stdout)} >= {"python", "matcher", "data", "clock", "cloud"}
