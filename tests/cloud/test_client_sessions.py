"""A subscriber's session is kept for its program: what comes while the link is down, or the program away, is told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from servers import HOST, MosquittoServer, NatsServer
from stand_in import StandIn, wait_until

from spinney.client import Handle, Subscriber, TimedOut
from spinney.client.connection import end_session
from spinney_cloud.mqtt import MqttClient

Server = NatsServer | MosquittoServer
TOP = Path(__file__).parents[2]
SCRIPT = """
import sys
from spinney import Subscriber
with Subscriber("ana", server=sys.argv[1]) as ana:
    air = ana.subscribe("NO2 > 40", sid="air")
    print(ana.session, flush=True)
    for _ in range(int(sys.argv[2])):
        print(air.get(20).id, flush=True)
"""


def url(server: Server) -> str:
    return f"mqtt://127.0.0.1:{server.mqtt_port}"


def ids(handle: Handle, count: int) -> list[str]:
    return [handle.get(10).id for _ in range(count)]


def subscriber(server: Server, state: Path, **more: Any) -> Subscriber:
    return Subscriber("ana", server=url(server), state=state, program="report.py", **more)


def is_known(server: Server, client_id: str) -> bool:
    """Whether the server has a session of this id; asking leaves one that is there as it is."""

    async def ask() -> bool:
        client = MqttClient(HOST, server.mqtt_port, client_id)
        await client.start()
        await client.close()
        return client.session_present

    return asyncio.run(asyncio.wait_for(ask(), 30))


def test_what_comes_while_the_program_is_away_is_told_when_it_runs_again(mqtt_server: Server, tmp_path: Path) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud:
        with subscriber(mqtt_server, tmp_path) as ana:
            ana.subscribe("NO2 > 40", sid="air")
        for n in range(3):
            cloud.note("ana", "air", f"n{n}")
        again = subscriber(mqtt_server, tmp_path)
        air = again.resume("air")
        with again:
            assert ids(air, 3) == ["n0", "n1", "n2"]
            assert again.counts.sessions_lost == 0


def test_what_comes_while_the_link_is_down_is_told_when_it_is_up(mqtt_server: Server, tmp_path: Path) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud, subscriber(mqtt_server, tmp_path) as ana:
        air = ana.subscribe("NO2 > 40", sid="air")
        ana.disconnect()
        cloud.note("ana", "air", "while it was down")
        ana.connect()
        assert ids(air, 1) == ["while it was down"]


def test_without_a_session_it_is_lost(mosquitto: MosquittoServer, tmp_path: Path) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, subscriber(mosquitto, tmp_path, session=False) as ana:
        assert "lost" in ana.session
        air = ana.subscribe("NO2 > 40", sid="air")
        ana.disconnect()
        cloud.note("ana", "air", "while it was down")
        ana.connect()
        with pytest.raises(TimedOut):
            air.get(0.2)
    assert not (tmp_path / "sessions").exists()


def test_a_second_copy_gets_a_session_that_ends_with_it_and_says_so(
    mqtt_server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud, subscriber(mqtt_server, tmp_path) as first:
        air = first.subscribe("NO2 > 40", sid="air")
        with caplog.at_level(logging.WARNING, "spinney.client"), subscriber(mqtt_server, tmp_path) as second:
            assert "another copy of report.py runs as 'ana'" in caplog.text
            assert "until this program ends" in second.session
            of_second = second._session.client_id
            assert of_second != first._session.client_id
            too = second.subscribe("NO2 > 40", sid="air")
            second.disconnect()
            cloud.note("ana", "air", "both")
            second.connect()
            assert ids(too, 1) == ids(air, 1) == ["both"]
            assert first.connected
        assert not is_known(mqtt_server, of_second)
    assert is_known(mqtt_server, first._session.client_id)


def test_a_session_is_kept_by_user_server_and_program(mosquitto: MosquittoServer, tmp_path: Path) -> None:
    def client_id(name: str = "ana", program: str = "report.py", server: str = url(mosquitto)) -> str:
        one = Subscriber(name, server=server, state=tmp_path, program=program)
        one.close()
        return one._session.client_id

    first = client_id()
    assert client_id() == first
    others = {client_id("bob"), client_id(program="other.py"), client_id(server="mqtt://127.0.0.1:9")}
    assert len(others | {first}) == 4
    files = list((tmp_path / "sessions").iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (tmp_path / "sessions").stat().st_mode & 0o777 == 0o700


def test_a_script_has_its_session_by_its_path(mosquitto: MosquittoServer, tmp_path: Path) -> None:
    (tmp_path / "report.py").write_text(SCRIPT)
    environment = {**os.environ, "SPINNEY_STATE": str(tmp_path / "state"), "PYTHONPATH": str(TOP / "native" / "python")}

    def run(count: int, where: Path) -> list[str]:
        done = subprocess.run(
            [sys.executable, "report.py", url(mosquitto), str(count)],
            cwd=where,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.splitlines()

    with StandIn(mosquitto.mqtt_port) as cloud:
        assert run(0, tmp_path) == ["a session that stays: what comes while this program is away waits at the server"]
        cloud.note("ana", "air", "n1")
        assert run(1, tmp_path)[1:] == ["n1"]
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "report.py").write_text(SCRIPT)
        cloud.note("ana", "air", "n2")
        assert run(0, tmp_path / "elsewhere")[1:] == []
        assert run(1, tmp_path)[1:] == ["n2"]


def test_where_no_state_can_be_kept_the_session_lasts_as_long_as_the_program(
    mosquitto: MosquittoServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sessions").write_text("not a folder")
    with caplog.at_level(logging.WARNING, "spinney.client"):
        ana = subscriber(mosquitto, tmp_path)
    assert "using a session that ends with this program" in caplog.text
    with StandIn(mosquitto.mqtt_port), ana:
        ana.subscribe("NO2 > 40", sid="air")
    assert not is_known(mosquitto, ana._session.client_id)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 99, "session": "x"}', '{"format": 1, "session": 5}'])
def test_a_file_that_cannot_be_read_is_a_new_session(content: str, tmp_path: Path) -> None:
    first = Subscriber("ana", state=tmp_path, program="report.py")
    first.close()
    (file,) = (tmp_path / "sessions").iterdir()
    file.write_text(content)
    second = Subscriber("ana", state=tmp_path, program="report.py")
    assert second._session.client_id != first._session.client_id
    assert second._session.last_connected is None
    second.close()


def test_that_the_server_has_ended_the_session_is_told_at_return(mqtt_server: Server, tmp_path: Path) -> None:
    told: list[tuple[bool, str]] = []
    with StandIn(mqtt_server.mqtt_port) as cloud:
        with subscriber(mqtt_server, tmp_path) as ana:
            ana.subscribe("NO2 > 40", sid="air")
        assert end_session(ana._access, ana._session.client_id)
        cloud.note("ana", "air", "lost")
        with subscriber(mqtt_server, tmp_path, on_connection=lambda up, why: told.append((up, why))) as ana:
            wait_until(lambda: told)
            assert told[0][0]
            assert "is lost" in told[0][1]
            assert ana.counts.sessions_lost == 1
        told.clear()
        with subscriber(mqtt_server, tmp_path, on_connection=lambda up, why: told.append((up, why))):
            wait_until(lambda: told)
            assert told == [(True, "")]


def test_the_session_file_says_when_the_link_was_up_last(mosquitto: MosquittoServer, tmp_path: Path) -> None:
    with subscriber(mosquitto, tmp_path) as ana:
        (file,) = (tmp_path / "sessions").iterdir()

        def last_connected() -> float | None:
            when: float | None = json.loads(file.read_text() or "{}").get("last_connected")
            return when

        wait_until(last_connected)
        at_start = last_connected()
        ana.disconnect()
        at_end = last_connected()
    assert at_start is not None
    assert at_end is not None
    assert at_end > at_start
