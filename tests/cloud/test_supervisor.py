from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path
from threading import Thread

import orjson
import psutil
import pytest
from clouds import SMALL, Cloud, alive, kill, wait_until
from servers import MosquittoServer, NatsServer, answers, free_ports, take_any_of

from spinney_cloud.child import before_exec
from spinney_cloud.data_dir import DataDir, holder
from spinney_cloud.names import LOG
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.ports import HOLDS
from spinney_cloud.service import TETHERED, read_run

ALL = {"http", "gateway", "coordinator", "matcher", "delivery"}
SOME = {"http", "matcher"}


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    """With few processes, not started yet."""
    return Cloud(tmp_path / "data")


@pytest.fixture
def whole(tmp_path: Path) -> Cloud:
    """With as many processes as there are, not started yet."""
    return Cloud(tmp_path / "data", program=SMALL)


# ---- Starting and stopping --------------------------------------------------------------------------------------


def test_the_ready_line_names_addresses_at_which_all_is_there(cloud: Cloud) -> None:
    with cloud:
        found = cloud.addresses()
        assert set(found) == {"MQTT", "HTTP", "NATS", "data"}
        assert found["data"] == str(cloud.data)
        assert answers(cloud.port("MQTT"))
        assert answers(cloud.port("NATS"))
        assert {name for name, event, _ in cloud.events() if event == "start"} == SOME
        assert read_run(cloud.data / "run" / "run.json")[1].http_port == cloud.port("HTTP")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_in_order_what_brings_in_more_first_and_nats_server_last(whole: Cloud, number: signal.Signals) -> None:
    whole.command += ["--log-level", "debug"]
    with whole:
        family = [process.pid for process in whole.family()]
        os.killpg(whole.pid, number)  # as a terminal sends Ctrl-C: to all in the group
        assert whole.wait() == 0
        stops = [name for name, event, _ in whole.events() if event == "stop"]
        assert set(stops[:2]) == {"http", "gateway"}
        assert stops[2:] == ["coordinator", "matcher", "delivery"]
        said = [whole.said.index(each) for each in ("stopping", "Initiating Shutdown", "Server Exiting", "stopped (")]
        assert said == sorted(said)
        assert not [pid for pid in family if alive(pid)]
        assert holder(whole.data) is None


def test_a_process_that_fails_when_it_stops_is_told_and_holds_up_nobody(cloud: Cloud) -> None:
    with cloud:
        (cloud.data / "break-stop-http").touch()
        assert cloud.stop() == 0
        assert "http ended with code 4 when told to stop" in cloud.said
        assert len([1 for _, event, _ in cloud.events() if event == "stop"]) == len(SOME)


def test_a_second_ctrl_c_kills_at_once(cloud: Cloud) -> None:
    with cloud:
        http = cloud.child("http")
        assert http
        http.suspend()  # it will not end when asked
        family = cloud.family()
        cloud.send(signal.SIGINT)
        wait_until(lambda: "stopping" in cloud.said, "the first is heeded")
        assert not cloud.ended
        began = time.monotonic()
        assert cloud.stop(signal.SIGINT) == 130
        assert time.monotonic() - began < 5
        assert not [process for process in family if alive(process.pid)]


def test_ctrl_c_while_it_starts_stops_it(cloud: Cloud) -> None:
    with cloud.begin():
        wait_until(lambda: holder(cloud.data) is not None, "the directory is held")
        assert cloud.stop(signal.SIGINT) == 0
        assert not cloud.ready_line


def test_a_second_start_goes_on_with_the_same_secrets(cloud: Cloud) -> None:
    with cloud:
        first = read_run(cloud.data / "run" / "run.json")[1]
        cloud.stop()
    with cloud:
        second = read_run(cloud.data / "run" / "run.json")[1]
    assert second.mqtt_client_prefix == first.mqtt_client_prefix
    assert second.nats_password == first.nats_password


def test_a_second_start_on_a_directory_in_use_says_who_has_it(cloud: Cloud) -> None:
    with cloud:
        with Cloud(cloud.data).begin() as other:
            assert other.wait() == 1
        assert f"is in use by process {cloud.pid}" in other.said
        assert not cloud.ended


def test_ports_in_use_are_told_all_at_once_with_process_and_option(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mqtt, socket.create_server(("127.0.0.1", 0)) as http:
        taken = [str(each.getsockname()[1]) for each in (mqtt, http)]
        ports = ["--mqtt-port", taken[0], "--http-port", taken[1], "--nats-port", "0"]
        with Cloud(tmp_path / "data", ports=ports).begin() as cloud:
            assert cloud.wait() == 1
    for port, option in zip(taken, ("--mqtt-port", "--http-port"), strict=True):
        (line,) = [line for line in cloud.said.splitlines() if f"port {port} " in line]
        assert f"(pid {os.getpid()})" in line
        assert option in line


def test_a_wrong_configuration_is_told_before_anything_starts(tmp_path: Path) -> None:
    with Cloud(tmp_path / "data", "--http-host", "0.0.0.0", "--log", "xml").begin() as cloud:
        assert cloud.wait() == 2
    assert "--log: 'xml' will not do" in cloud.said
    assert "--http-host: 0.0.0.0 can be reached from elsewhere" in cloud.said
    assert not (tmp_path / "data").exists()


def test_who_waits_is_told_for_what(cloud: Cloud) -> None:
    DataDir(cloud.data).close()
    (cloud.data / "break-matcher").touch()
    with cloud.begin():
        wait_until(lambda: "waiting for matcher" in cloud.said, "what it waits for")
        assert not cloud.ready_line
        wait_until(lambda: cloud.said.count("matcher ended with code 3; starts again in") >= 2, "two attempts")
        (cloud.data / "break-matcher").unlink()
        wait_until(lambda: cloud.ready_line, "the ready line")
        assert cloud.stop() == 0


# ---- What dies comes back ---------------------------------------------------------------------------------------


def test_a_process_that_is_killed_comes_back_and_no_other_is_touched(whole: Cloud) -> None:
    with whole:
        for name in sorted(ALL):
            before = {each: whole.child(each) for each in ALL}
            first = before[name]
            assert first
            kill(first.pid)
            wait_until(lambda name=name: [n for n, _, _ in whole.events()].count(name) == 2, f"a start of {name}")
            assert f"{name} was killed by SIGKILL; starts again in 0.1 s (restarts=1)" in whole.said
            assert all(whole.child(each) == before[each] for each in ALL - {name})


def test_nats_server_comes_back_on_the_same_ports(cloud: Cloud) -> None:
    with cloud:
        server = cloud.child("nats-server")
        assert server
        kill(server.pid)
        wait_until(lambda: "nats-server was killed by SIGKILL" in cloud.said, "the loss is told")
        wait_until(lambda: answers(cloud.port("NATS")) and answers(cloud.port("MQTT")), "the same ports")
        assert not [event for _, event, _ in cloud.events() if event != "start"]
        assert cloud.stop() == 0


@pytest.mark.skipif(not HOLDS, reason="this system has no way to hold a port for another process")
def test_a_port_of_ours_goes_to_nobody_else_while_nothing_listens_there(cloud: Cloud) -> None:
    """These processes are stand-ins: there is no HTTP. A real one may end, too, and start again."""
    with cloud:
        assert not answers(cloud.port("HTTP"))
        with pytest.raises(OSError, match="in use"):
            take_any_of(cloud.port("HTTP"))
        assert cloud.stop() == 0
    take_any_of(cloud.port("HTTP"))


def test_restarts_and_readiness_are_answered_to_whoever_asks(cloud: Cloud) -> None:
    import asyncio

    from spinney_cloud.nats_log import NatsLog

    async def ask(what: str) -> bytes:
        _, endpoints = read_run(cloud.data / "run" / "run.json")
        async with await NatsLog.connect(endpoints, name="test") as log:
            return await log.ask("supervisor", what)

    with cloud:
        matcher = cloud.child("matcher")
        assert matcher
        kill(matcher.pid)
        wait_until(lambda: len([1 for name, _, _ in cloud.events() if name == "matcher"]) == 2, "it is back")
        wait_until(lambda: orjson.loads(asyncio.run(ask("health")))["ready"], "all are ready")
        health = orjson.loads(asyncio.run(ask("health")))
        assert health["restarts"]["matcher"] == 1
        metrics = asyncio.run(ask("metrics")).decode()
        assert 'spinney_supervisor_restarts_total{process="matcher"} 1.0' in metrics
        assert 'spinney_supervisor_ready{process="nats-server"} 1.0' in metrics


# ---- No orphan --------------------------------------------------------------------------------------------------


def kill_and_see_all_gone(cloud: Cloud) -> None:
    family = cloud.family()
    kill(cloud.pid)
    cloud.wait()
    try:
        wait_until(lambda: not [each for each in family if alive(each.pid)], "all are gone", 10)
    finally:
        for each in family:
            if each.is_running():
                each.kill()


def test_nothing_is_left_when_the_supervisor_is_killed(cloud: Cloud) -> None:
    with cloud:
        assert len(cloud.family()) == len(SOME) + 1
        kill_and_see_all_gone(cloud)
    with cloud:
        assert cloud.stop() == 0


def test_nothing_is_left_when_it_is_killed_while_it_starts(cloud: Cloud) -> None:
    with cloud.begin():
        wait_until(lambda: len(cloud.family()) >= 2, "some are there")
        kill_and_see_all_gone(cloud)


def test_a_process_ends_with_its_stdin_where_the_kernel_does_not_end_it(cloud: Cloud) -> None:
    """So it is on systems that cannot tie a child to its parent."""
    with cloud:
        command = [*SMALL, "--process", "extra", str(cloud.data / "run" / "run.json"), TETHERED]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as extra:
            assert extra.stdout
            assert extra.stdin
            assert extra.stdout.readline() == b"ready\n"
            extra.stdin.close()
            try:
                assert extra.wait(10) == 1
            finally:
                extra.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is not asked elsewhere")
def test_a_child_whose_parent_is_gone_already_does_not_start() -> None:
    child = subprocess.run([sys.executable, "-c", "print(1)"], preexec_fn=before_exec(parent=1), check=False)
    assert child.returncode == 1


def test_a_nats_server_that_was_left_over_is_ended(cloud: Cloud) -> None:
    with cloud:
        cloud.stop()
    conf = cloud.data / "run" / "nats-server.conf"
    server = next(Path(sys.executable).parent.glob("nats-server"))
    with subprocess.Popen([server, "-c", str(conf)], stderr=subprocess.DEVNULL) as orphan:
        try:
            pids = cloud.data / "run" / "nats-server.pid"
            wait_until(lambda: pids.exists() and pids.read_text() == str(orphan.pid), "it runs")
            undertaker = Thread(target=orphan.wait)
            undertaker.start()
            with cloud:
                undertaker.join(10)
                assert orphan.returncode == -signal.SIGKILL
                assert "ending a nats-server that was left over" in cloud.said
        finally:
            orphan.kill()


# ---- SIGHUP -----------------------------------------------------------------------------------------------------


def test_sighup_reloads_what_can_be_and_names_what_cannot(tmp_path: Path) -> None:
    config = tmp_path / "cloud.toml"
    config.write_text('[logging]\nlevel = "info"\n')
    with Cloud(tmp_path / "data", "--config", str(config)) as cloud:
        config.write_text('[logging]\nlevel = "debug"\n[log]\nmax_age = "1h"\n[delivery]\nattempts = 3\n')
        cloud.send(signal.SIGHUP)
        wait_until(lambda: "configuration read again; changed: log.max_age, logging.level" in cloud.said, "a reload")
        wait_until(lambda: "needs a restart to take effect: delivery.attempts" in cloud.said, "what cannot")
        wait_until(lambda: {n for n, event, _ in cloud.events() if event == "reload:debug"} == SOME, "all know")
        settings, _ = read_run(cloud.data / "run" / "run.json")
        assert settings.log.max_age == 3600
        assert settings.delivery.attempts == 10
        assert not [1 for _, event, _ in cloud.events() if event == "stop"]
        assert cloud.stop() == 0


def test_a_wrong_configuration_on_sighup_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "cloud.toml"
    config.write_text("")
    with Cloud(tmp_path / "data", "--config", str(config)) as cloud:
        config.write_text('[logging]\nlevel = "loud"\n[delivery]\nretry = -1\n')
        cloud.send(signal.SIGHUP)
        wait_until(lambda: "the configuration stays as it was" in cloud.said, "a refusal")
        assert "cloud.toml:2: logging.level: 'loud' will not do" in cloud.said
        assert "cloud.toml:4: delivery.retry: -1 will not do" in cloud.said
        assert {event for _, event, _ in cloud.events()} == {"start"}


def cap_of_the_log(nats: NatsServer) -> int:
    """Which the server itself keeps: half as much again as log.max_bytes."""

    async def ask() -> int:
        async with await NatsLog.connect(nats.endpoints(), name="test") as log:
            info = await log.connection.api(f"STREAM.INFO.{LOG}")
            return int(info["config"]["max_bytes"])

    return asyncio.run(ask())


def test_sighup_while_the_logs_server_is_away_is_done_in_full_and_the_log_follows(
    tmp_path: Path, nats: NatsServer, mosquitto: MosquittoServer
) -> None:
    config = tmp_path / "cloud.toml"
    config.write_text("")
    servers = ["--nats", nats.url, "--mqtt", f"mqtt://127.0.0.1:{mosquitto.mqtt_port}", "--config", str(config)]
    with Cloud(tmp_path / "data", *servers, ports=["--http-port", "0"]) as cloud:
        nats.kill()
        config.write_text('[logging]\nlevel = "debug"\n[log]\nmax_bytes = "100MiB"\n')
        cloud.send(signal.SIGHUP)
        wait_until(lambda: "configuration read again; changed: log.max_bytes, logging.level" in cloud.said, "a reload")
        wait_until(lambda: {n for n, event, _ in cloud.events() if event == "reload:debug"} == SOME, "all know")
        wait_until(lambda: "the log cannot be used yet" in cloud.said, "what is left is told")
        nats.start()
        wait_until(lambda: "the log has its new limits" in cloud.said, "the rest")
        assert cap_of_the_log(nats) == 150 * 1024**2


def test_limits_that_the_logs_server_refuses_are_told_and_tried_again(
    tmp_path: Path, nats: NatsServer, mosquitto: MosquittoServer
) -> None:
    config = tmp_path / "cloud.toml"
    config.write_text("")
    servers = ["--nats", nats.url, "--mqtt", f"mqtt://127.0.0.1:{mosquitto.mqtt_port}", "--config", str(config)]
    with Cloud(tmp_path / "data", *servers, ports=["--http-port", "0"]) as cloud:
        config.write_text('[log]\nmax_bytes = "500TB"\n')
        for count in (1, 2):
            cloud.send(signal.SIGHUP)
            wait_until(lambda n=count: cloud.said.count("the log's limits stay as they were") == n, "a refusal")
        assert cloud.said.count("configuration read again") == 2
        config.write_text('[log]\nmax_bytes = "200MiB"\n')
        cloud.send(signal.SIGHUP)
        wait_until(lambda: "the log has its new limits" in cloud.said, "what it takes")
        assert cap_of_the_log(nats) == 300 * 1024**2


def test_a_process_that_starts_during_a_reload_survives_it_and_has_the_new_settings(tmp_path: Path) -> None:
    config = tmp_path / "cloud.toml"
    config.write_text("")
    with Cloud(tmp_path / "data", "--config", str(config)) as cloud:
        matcher = cloud.child("matcher")
        assert matcher
        config.write_text('[logging]\nlevel = "debug"\n')
        kill(matcher.pid)
        cloud.send(signal.SIGHUP)
        wait_until(lambda: "configuration read again" in cloud.said, "a reload")
        wait_until(lambda: len([1 for n, e, _ in cloud.events() if (n, e) == ("matcher", "start")]) == 2, "it is back")
        wait_until(lambda: cloud.child("matcher"), "it stays")
        assert "matcher was killed by SIGHUP" not in cloud.said


def test_a_closed_terminal_stops_it_in_order(cloud: Cloud) -> None:
    """Though it is a SIGHUP, too, that comes of it."""
    master, slave = os.openpty()
    with cloud.begin(stdin=slave, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)):
        wait_until(lambda: cloud.ready_line, "the ready line")
        os.close(slave)
        os.close(master)
        assert cloud.wait() == 0
        assert [name for name, event, _ in cloud.events() if event == "stop"] == ["http", "matcher"]


# ---- Existing servers -------------------------------------------------------------------------------------------


def test_existing_servers_are_used_and_left_running(
    tmp_path: Path, nats: NatsServer, mosquitto: MosquittoServer
) -> None:
    servers = ["--nats", nats.url, "--mqtt", f"mqtt://127.0.0.1:{mosquitto.mqtt_port}"]
    with Cloud(tmp_path / "data", *servers, ports=["--http-port", "0"]) as cloud:
        assert cloud.addresses()["NATS"] == nats.url
        assert cloud.port("MQTT") == mosquitto.mqtt_port
        assert cloud.child("nats-server") is None
        assert read_run(cloud.data / "run" / "run.json")[1].mqtt_kind == "mosquitto"
        assert cloud.stop() == 0
    assert answers(nats.port)
    assert answers(mosquitto.mqtt_port)


def test_passwords_for_existing_servers_come_from_files(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("a secret\n")
    with NatsServer(tmp_path / "nats", extra='authorization { user: "kit", password: "a secret" }') as nats:
        servers = ["--nats", nats.url, "--mqtt", f"mqtt://127.0.0.1:{nats.mqtt_port}"]
        users = [
            word
            for kind in ("nats", "mqtt")
            for word in (f"--{kind}-user", "kit", f"--{kind}-password-file", str(password))
        ]
        with Cloud(tmp_path / "data", *servers, *users, ports=["--http-port", "0"]) as cloud:
            endpoints = read_run(cloud.data / "run" / "run.json")[1]
            assert endpoints.nats_password == endpoints.mqtt_password == "a secret"
            assert cloud.stop() == 0
            assert "a secret" not in cloud.said
        password.write_text("wrong")
        with Cloud(tmp_path / "data", *servers, *users, ports=["--http-port", "0"]).begin() as cloud:
            wait_until(lambda: "Authorization Violation" in cloud.said, "what is wrong")
            assert cloud.stop() == 0


def test_an_mqtt_server_that_is_not_there_yet_is_waited_for(tmp_path: Path, nats: NatsServer) -> None:
    (port,) = free_ports(1)
    cloud = Cloud(
        tmp_path / "data", "--nats", nats.url, "--mqtt", f"mqtt://127.0.0.1:{port}", ports=["--http-port", "0"]
    )
    with cloud.begin():
        wait_until(lambda: f"waiting for the MQTT server mqtt://127.0.0.1:{port}" in cloud.said, "what it waits for")
        assert cloud.stop() == 0


def test_beside_mosquitto_our_own_nats_server_has_no_mqtt_listener(tmp_path: Path, mosquitto: MosquittoServer) -> None:
    ports = ["--http-port", "0", "--nats-port", "0"]
    with Cloud(tmp_path / "data", "--mqtt", f"mqtt://127.0.0.1:{mosquitto.mqtt_port}", ports=ports) as cloud:
        server = cloud.child("nats-server")
        assert server
        listening = {c.laddr.port for c in server.net_connections() if c.status == psutil.CONN_LISTEN}
        assert listening == {cloud.port("NATS")}


# ---- Logs -------------------------------------------------------------------------------------------------------


def test_logs_as_json_are_one_object_a_line(tmp_path: Path) -> None:
    with Cloud(tmp_path / "data", "--log", "json", "--log-level", "debug") as cloud:
        matcher = cloud.child("matcher")
        assert matcher
        kill(matcher.pid)
        wait_until(lambda: "starts again" in cloud.said, "something to say")
        assert cloud.stop() == 0
    items = [orjson.loads(line) for line in cloud.said.splitlines()]
    assert {"supervisor", *SOME} <= {item.get("process") for item in items}
    (died,) = [item for item in items if "starts again" in item.get("text", "")]
    assert died["level"] == "error"
    assert died["restarts"] == 1
    assert cloud.addresses()["mqtt"].startswith("mqtt://127.0.0.1:")


def test_why_it_does_not_start_is_an_object_too(cloud: Cloud) -> None:
    with DataDir(cloud.data), Cloud(cloud.data, "--log", "json").begin() as other:
        assert other.wait() == 1
    (item,) = [item for item in map(orjson.loads, other.said.splitlines()) if item["level"] == "critical"]
    assert f"is in use by process {os.getpid()}" in item["text"]


def test_no_secret_is_on_a_command_line_or_in_a_log(cloud: Cloud) -> None:
    cloud.command += ["--log-level", "debug"]
    with cloud:
        secrets = orjson.loads((cloud.data / "secrets.json").read_bytes())
        lines = [word for process in cloud.family() for word in process.cmdline()]
        assert cloud.stop() == 0
    for name, secret in secrets.items():
        if name != "v":
            assert secret not in cloud.said
            assert not [word for word in lines if secret in word]
