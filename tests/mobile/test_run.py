"""`spinney mobile run` as a process, with a real cloud, and the commands that ask it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clouds import Cloud, wait_until
from mobile_kit import PROGRAM, Mobile, command

from spinney import PublicationId, Publisher, Subscriber
from spinney_mobile import running
from spinney_mobile.configuration import Configuration
from spinney_mobile.data_dir import ask
from spinney_mobile.listening import Taken
from spinney_mobile.samples import Sample
from spinney_mobile.settings import Settings

pytestmark = pytest.mark.slow
REAL = [sys.executable, "-m", "spinney_tools", "cloud"]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("cloud") / "data", program=REAL).start() as cloud:
        yield cloud


def test_from_a_local_sensor_to_a_subscriber_of_the_cloud_over_a_restart(cloud: Cloud, tmp_path: Path) -> None:
    url = cloud.addresses()["MQTT"]
    found: list[Any] = []
    mobile = Mobile(tmp_path, "--cloud", url, "--name", "roof")
    with Subscriber("ana", server=url) as ana:
        ana.subscribe("temperature > 25 AND source = 'window'", sid="hot", callback=found.append)
        with mobile:
            with Publisher("kit", server=mobile.local) as kit:
                kit.publish({"source": "window", "temperature": 20.0, "humidity": 40.0}).wait(60)
                wait_until(lambda: status(mobile)["filters"], "the activation")

                def spares() -> bool:
                    """What it announced is known by then, and nobody wants what is within."""
                    kit.publish({"source": "window", "temperature": 20.0, "humidity": 40.0}).wait(60)
                    return bool(status(mobile)["counts"]["spared"])

                wait_until(spares, "a reading that stays here")
                for temperature in (26.0, 19.0, 27.0):
                    kit.publish({"source": "window", "temperature": temperature, "humidity": 40.0}).wait(60)
                wait_until(lambda: len(found) == 2, "two notifications")
            picture = status(mobile)
            assert picture["counts"]["sent"] < picture["counts"]["sampled"]
            assert picture["uplink"]["connected"]
            assert command("status", "--data", str(mobile.data)).returncode == 0
            assert mobile.stop() == 0
        assert "stopping" in mobile.said
        with mobile:
            wait_until(lambda: status(mobile)["uplink"]["connected"], "the cloud again")
            with Publisher("kit", server=mobile.local) as kit:
                kit.publish({"source": "window", "temperature": 35.0, "humidity": 40.0}).wait(60)
            wait_until(lambda: len(found) == 3, "a notification after the restart")
            assert mobile.stop(signal.SIGINT) == 0
    assert [note.publication["temperature"] for note in found] == [26.0, 27.0, 35.0]
    assert len({note.publication["id"] for note in found}) == 3


def status(mobile: Mobile) -> dict[str, Any]:
    """Quicker than the command, for loops."""
    answer = ask(mobile.data, "/status")
    assert isinstance(answer, dict)
    return answer


def test_send_all_sends_all_and_counts_what_nobody_wanted(cloud: Cloud, tmp_path: Path) -> None:
    with Mobile(tmp_path, "--cloud", cloud.addresses()["MQTT"], "--name", "all", "--send", "all") as mobile:
        with Publisher("kit", server=mobile.local) as kit:

            def is_unneeded() -> bool:
                """The first ones are needed: they are outside of what was announced."""
                kit.publish({"source": "door", "angle": 30.0}).wait(60)
                return bool(status(mobile)["counts"]["unneeded"])

            wait_until(is_unneeded, "a reading that nobody wants")
        counts = status(mobile)["counts"]
        assert (counts["sent"], counts["spared"]) == (counts["sampled"], 0)
        assert counts["bytes_unneeded"] > 0
        wait_until(lambda: status(mobile)["counts"]["uplink_stored"] == counts["sent"], "all at the cloud")
        assert "--send wanted saves that" in command("status", "--data", str(mobile.data)).stdout


SIMULATOR = """
name = "sim"
[cloud]
url = "none"
[[acquire]]
kind = "simulator"
sources = 2
every = "50ms"
[[subscription]]
sid = "warm"
text = "temperature > -100"
"""


def test_without_a_cloud_everything_stays_here_and_can_be_looked_at(tmp_path: Path) -> None:
    with Mobile(tmp_path, config=SIMULATOR) as mobile:
        wait_until(lambda: len(status(mobile)["sources"]) == 2, "both rooms")
        wait_until(lambda: status(mobile)["notifications"], "a notification of its own")
        picture = status(mobile)
        assert {each["name"] for each in picture["sources"]} == {"room-1", "room-2"}
        assert picture["notifications"][0]["sid"] == "warm"
        done = command("status", "--data", str(mobile.data))
        assert done.returncode == 3
        assert "room-1" in done.stdout
        told = command("explain", "--data", str(mobile.data), "--source", "room-1")
        assert (told.returncode, "There is no active filter." in told.stdout) == (0, True)
        unknown = command("explain", "--data", str(mobile.data), "--source", "nobody")
        assert unknown.returncode == 1
        assert "nothing of 'nobody' has been taken yet" in unknown.stderr
        assert mobile.stop() == 0
    assert command("status", "--data", str(mobile.data)).returncode == 1


def test_without_the_c_core_it_says_so_once_and_works_all_the_same(tmp_path: Path) -> None:
    mobile = Mobile(tmp_path, "--cloud", "none")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPINNEY_")}
    with mobile.begin(env={**environment, "SPINNEY_CORE": "/nowhere/core.so"}):
        wait_until(lambda: mobile.ready_line or mobile.ended, "the ready line")
        with Subscriber("ana", server=mobile.local) as ana, Publisher("kit", server=mobile.local) as kit:
            warm = iter(ana.subscribe("WHEN temp > 25 UNTIL temp <= 22 EACH room", sid="warm"))
            for temp in (26.0, 20.0):
                kit.publish({"source": "window", "temp": temp, "room": "lab"}).wait(60)
            assert [next(warm).why, next(warm).why] == ["enter", "exit"]
        assert mobile.stop() == 0
    assert mobile.said.count("matching in pure Python") == 1


def test_explain_says_which_part_of_a_filter_decides(cloud: Cloud, tmp_path: Path) -> None:
    url = cloud.addresses()["MQTT"]
    with Subscriber("eve", server=url) as eve, Mobile(tmp_path, "--cloud", url, "--name", "why") as mobile:
        eve.subscribe("light > 5 AND room = 'lab'", sid="lit")
        with Publisher("kit", server=mobile.local) as kit:
            kit.publish({"source": "lamp", "light": 3.0, "room": "lab"}).wait(60)
        wait_until(lambda: status(mobile)["filters"], "the activation")
        said = command("explain", "--data", str(mobile.data), "--publication", '{"light": 3, "room": "lab"}').stdout
        assert "0 of 1 active filters want it." in said
        assert "false: light > 5   (light is 3)" in said
        with Publisher("kit", server=mobile.local) as kit:
            for light in (3.0, 9.0):
                kit.publish({"source": "lamp", "light": light, "room": "lab"}).wait(60)
                told = command("explain", "--data", str(mobile.data), "--source", "lamp", "--json").stdout
                newest = json.loads(told)
                assert newest["publication"]["light"] == light
                assert newest["wanted"] is newest["filters"][0]["matches"] is (light > 5)
        eve.unsubscribe("lit")


def test_the_newest_readings_of_a_bounded_number_of_sources_can_be_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MAX_LATEST", 2)
    settings = Configuration(Settings(), {})
    one = running.Running(settings, lambda: settings)
    for number, source in enumerate("abac"):
        sample = Sample(source, {"n": float(number)}, 1.0, 1.0, "test")
        one.taken(Taken(PublicationId(source, 1, number), {"n": float(number)}, sample, wanted=True))
    assert {source: taken.publication["n"] for source, taken in one._latest.items()} == {"a": 2.0, "c": 3.0}


def test_seen_lists_devices_that_a_running_broker_has_heard(tmp_path: Path) -> None:
    with Mobile(tmp_path, "--cloud", "none") as mobile:
        with Publisher("kit", server=mobile.local) as kit:
            kit.publish({"source": "door", "open": True}).wait(60)
        assert "door" in command("seen", "--data", str(mobile.data)).stdout
        (one,) = json.loads(command("seen", "--json", "--data", str(mobile.data)).stdout)
        assert (one["address"], one["values"], one["allowed"]) == ("door", {"open": True}, True)


def test_one_broker_at_a_time_has_a_data_directory(tmp_path: Path) -> None:
    with Mobile(tmp_path, "--cloud", "none") as mobile:
        second = command("run", "--config", str(mobile.config), "--data", str(mobile.data), "--web-port", "none")
        assert second.returncode == 1
        assert f"is in use by process {mobile.pid}: stop that one first" in second.stderr


def test_a_port_that_is_taken_is_said_with_what_to_do(tmp_path: Path) -> None:
    with Mobile(tmp_path / "one", "--cloud", "none") as mobile:
        port = str(mobile.port("page"))
        second = command("run", "--cloud", "none", "--data", str(tmp_path / "two"), "--web-port", port)
    assert second.returncode == 1
    assert f"web.port {port} on 127.0.0.1: Address already in use; choose another with --web-port" in second.stderr


def test_after_kill_9_the_next_start_goes_on(tmp_path: Path) -> None:
    mobile = Mobile(tmp_path, "--cloud", "none")
    with mobile:
        with Subscriber("ana", server=mobile.local) as ana:
            ana.subscribe("open = TRUE", sid="doors")
        mobile.stop(signal.SIGKILL)
    with mobile, Subscriber("ana", server=mobile.local) as ana, Publisher("kit", server=mobile.local) as kit:
        doors = iter(ana.resume("doors"))
        kit.publish({"source": "door", "open": True}).wait(60)
        assert next(doors).publication["open"] is True


def test_sighup_takes_over_devices_acquirers_and_subscriptions_and_names_the_rest(tmp_path: Path) -> None:
    with Mobile(tmp_path, "--cloud", "none", "--name", "one") as mobile:
        config = SIMULATOR.replace('url = "none"', 'ca = "x.pem"')
        mobile.config.write_text(config)
        mobile.send(signal.SIGHUP)
        wait_until(lambda: status(mobile)["notifications"], "the new acquirer and subscription")
        wait_until(lambda: "needs a restart: cloud" in mobile.said, "what needs a restart")
        mobile.config.write_text('name = "a b"\nacquire = 3\n')
        mobile.send(signal.SIGHUP)
        wait_until(lambda: "the configuration is left as it was" in mobile.said, "the refusal")
        assert "acquire: there can be several; write [[acquire]]" in mobile.said
        mobile.config.write_text("acquire = []\n")
        mobile.send(signal.SIGHUP)
        wait_until(lambda: not status(mobile)["acquirers"], "the end of the acquirer")


OWN = """
acquire = []
[local]
subscriptions = 1
[[subscription]]
sid = "warm"
text = "%s"
"""


def test_a_subscription_of_ones_own_has_room_where_clients_have_taken_all_of_theirs(tmp_path: Path) -> None:
    mobile = Mobile(tmp_path, "--cloud", "none", config=OWN % "temp > 25")
    with mobile:
        with Subscriber("ana", server=mobile.local) as ana:
            ana.subscribe("temp > 0", sid="full")
        mobile.config.write_text(OWN % "temp > 20" + OWN[OWN.index("[[") :].replace("warm", "hot") % "temp > 40")
        mobile.send(signal.SIGHUP)
        wait_until(lambda: "the configuration has been read again" in mobile.said, "the reload")
        assert mobile.stop() == 0
    with mobile, Publisher("kit", server=mobile.local) as kit:
        kit.publish({"source": "door", "temp": 50.0}).wait(60)
        sids = {"warm", "hot", "full"}
        wait_until(lambda: {one["sid"] for one in status(mobile)["notifications"]} == sids, "all three")
    assert "Traceback" not in mobile.said


def test_what_cannot_be_taken_over_is_said_and_the_broker_goes_on_or_does_not_start(tmp_path: Path) -> None:
    too_long = OWN % ("temp > 25 OR " * 6_000 + "temp > 26")
    with Mobile(tmp_path, "--cloud", "none", config=OWN % "temp > 25") as mobile:
        mobile.config.write_text(too_long)
        mobile.send(signal.SIGHUP)
        wait_until(lambda: "the configuration is taken over in part only: subscription warm: " in mobile.said, "why")
        mobile.config.write_text(SIMULATOR)
        mobile.send(signal.SIGHUP)
        wait_until(lambda: status(mobile)["notifications"], "the one after it")
    mobile.config.write_text(too_long)
    done = command("run", "--cloud", "none", "--config", str(mobile.config), "--data", str(tmp_path / "new"))
    assert done.returncode == 1
    assert done.stderr.startswith("spinney mobile: subscription warm: ")
    assert "Traceback" not in mobile.said + done.stderr


FAILING = """[[acquire]]
kind = "serial"
port = "NOWHERE"
[[acquire]]
kind = "mqtt"
url = "mqtt://127.0.0.1:1"
[[acquire]]
kind = "replay"
file = "later.jsonl"
"""


def test_an_acquirer_that_cannot_be_made_or_begin_is_shown_everywhere_and_tried_again(tmp_path: Path) -> None:
    config = FAILING.replace("NOWHERE", str(tmp_path / "ttyUSB7"))
    with Mobile(tmp_path, "--cloud", "none", config=config) as mobile:
        with Publisher("kit", server=mobile.local) as kit:
            kit.publish({"source": "door", "open": True}).wait(60)  # others are not held up

        def errors() -> dict[str, str]:
            return {one["name"]: one["error"] for one in status(mobile)["acquirers"] if one["state"] == "failed"}

        names = ("serial:ttyUSB7", "mqtt:127.0.0.1:1", "replay:later.jsonl")
        wait_until(lambda: set(errors()) == set(names), "all to have failed")
        assert "no topics: name some" in errors()["mqtt:127.0.0.1:1"]
        assert "ttyUSB7" in errors()["serial:ttyUSB7"]
        shown = command("status", "--data", str(mobile.data)).stdout
        doctor = command("doctor", "--data", str(mobile.data), "--cloud", "none").stdout
        for name in names:
            assert f"{name} failed" in shown
            assert f"running {name}" in doctor
        (tmp_path / "later.jsonl").write_text('{"source": "late", "x": 1}\n')
        wait_until(lambda: "late" in {one["name"] for one in status(mobile)["sources"]}, "what it reads, at last")
        assert "replay:later.jsonl" not in errors()
        assert "Traceback" not in mobile.said


def test_what_stands_in_the_way_beside_acquirers_is_shown_everywhere(tmp_path: Path) -> None:
    places = ("--place-kind", "gpsd", "--place-gpsd", "127.0.0.1:1", "--home-assistant-url", "mqtt://127.0.0.1:1")
    with Mobile(tmp_path, "--cloud", "none", *places) as mobile:
        expected = ("place: no gpsd at 127.0.0.1:1", "Home Assistant: mqtt://127.0.0.1:1: Connection refused")

        def found(problems: list[str]) -> bool:
            return all(any(problem.startswith(each) for problem in problems) for each in expected)

        wait_until(lambda: found(status(mobile)["problems"]), "both")
        shown = command("status", "--data", str(mobile.data)).stdout
        doctor = command("doctor", "--data", str(mobile.data), "--cloud", "none").stdout
        for each in expected:
            assert f"problem    {each}" in shown
            assert f"BAD   running: {each}" in doctor


def test_the_doctor_says_of_an_acquirer_that_cannot_be_made_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "mobile.toml"
    file.write_text('[[acquire]]\nkind = "mqtt"\nurl = "mqtt://127.0.0.1:1"\n')
    done = command("doctor", "--config", str(file), "--data", str(tmp_path / "data"), "--cloud", "none")
    assert done.returncode == 1
    assert "BAD   mqtt:127.0.0.1:1: no topics\n      -> name some: topics = " in done.stdout


def test_seen_says_which_acquirer_fails_and_lists_what_others_hear(tmp_path: Path) -> None:
    file = tmp_path / "mobile.toml"
    (tmp_path / "now.jsonl").write_text('{"source": "s", "x": 1}\n')
    file.write_text(FAILING.replace("NOWHERE", str(tmp_path / "ttyUSB7")))
    done = command("seen", "--config", str(file), "--data", str(tmp_path / "data"), "--scan", "--seconds", "0.5")
    assert done.returncode == 0
    assert "ttyUSB7" in done.stderr
    assert "no topics" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_scan_that_is_interrupted_ends_at_once_without_a_word(tmp_path: Path) -> None:
    file = tmp_path / "mobile.toml"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        file.write_text(f'[[acquire]]\nkind = "mqtt"\nurl = "mqtt://127.0.0.1:{port}"\ntopics = [{{topic = "a"}}]\n')
        line = [*PROGRAM, "seen", "--scan", "--seconds", "600", "--config", str(file), "--data", str(tmp_path)]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as scanning:
            listener.accept()[0].close()  # by now it scans
            scanning.send_signal(signal.SIGINT)
            _, said = scanning.communicate(timeout=60)
    assert scanning.returncode == 130
    assert "Traceback" not in said


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "1e9"])
def test_a_scan_takes_some_time_and_ends(tmp_path: Path, seconds: str) -> None:
    done = command("seen", "--seconds", seconds, "--data", str(tmp_path))
    assert done.returncode == 2
    assert "--seconds: expected a number above 0" in done.stderr


def test_a_broken_configuration_ends_with_2_and_names_every_mistake(tmp_path: Path) -> None:
    file = tmp_path / "mobile.toml"
    file.write_text('nam = "x"\n[cloud]\nurl = "http://x"\n')
    done = command("run", "--config", str(file), "--web-prt", "3")
    assert done.returncode == 2
    assert f"{file}:1: nam: there is no such setting; perhaps name" in done.stderr
    assert f"{file}:3: cloud.url: 'http://x' will not do" in done.stderr
    assert "--web-prt: there is no such flag; perhaps --web-port" in done.stderr


def test_logs_are_objects_when_asked(tmp_path: Path) -> None:
    with Mobile(tmp_path, "--cloud", "none", "--log", "json") as mobile:
        assert mobile.stop() == 0
    lines = [line for line in mobile.said.splitlines() if not line.startswith("ready")]
    assert [json.loads(line)["text"] for line in lines] == ["stopping"]


@pytest.mark.parametrize("name", ["run", "seen", "top", "status", "explain", "doctor", "config", "install-service"])
def test_every_command_has_help_with_examples(name: str) -> None:
    done = command(name, "--help")
    assert done.returncode == 0
    assert f"examples:\n  spinney mobile {name}" in done.stdout.replace("sudo ", "")


def test_an_unknown_command_is_told_which_there_are() -> None:
    done = command("scan")
    assert done.returncode == 2
    assert "there are run, seen, top" in done.stderr
    assert "usage: spinney mobile COMMAND" in command().stdout
