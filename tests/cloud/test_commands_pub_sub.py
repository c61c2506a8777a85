"""`spinney pub`, `spinney sub` and `spinney ls`, as processes of their own."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from servers import MosquittoServer, NatsServer, free_ports
from stand_in import StandIn, wait_until

ROOT = Path(__file__).parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("SPINNEY_")}
PATHS = {"PYTHONPATH": f"{ROOT}/native/python:{ROOT}/tools"}


def program(command: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; from spinney_tools.{command} import main; sys.exit(main(sys.argv[1:]))"]


def run(command: str, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program(command), *arguments],
        input=stdin,
        env={**CLEAN, **PATHS, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@contextmanager
def running(command: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*program(command), *arguments],
        env={**CLEAN, **PATHS, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def url(server: MosquittoServer | NatsServer) -> str:
    return f"mqtt://127.0.0.1:{server.mqtt_port}"


# ---- pub


def test_pub_of_one_reading_from_the_command_line(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        done = run("pub", "NO2=57", "type=air", "ok=true", "--name", "kit", SPINNEY_SERVER=url(mosquitto))
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("1 stored in ")
        (item,) = cloud.log
        assert (item["NO2"], item["type"], item["ok"], item["source"]) == (57.0, "air", True, "kit")


def test_pub_of_files_and_a_pipe(mosquitto: MosquittoServer, tmp_path: Path) -> None:
    lines = "".join(f'{{"n": {n}}}\n' for n in range(2_000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    with StandIn(mosquitto.mqtt_port) as cloud:
        arguments = ["--server", url(mosquitto), "--source", "mast", "--json"]
        done = run("pub", str(tmp_path / "a.jsonl.gz"), "-", *arguments, stdin='{"n": 2000}\n\n{"n": 2001}')
        assert done.returncode == 0, done.stderr
        counts = json.loads(done.stdout)
        assert counts | {"seconds": 0} == {"stored": 2_002, "refused": 0, "bad": 0, "left": 0, "seconds": 0}
        assert [item["n"] for item in cloud.log] == list(range(2_002))
        assert {item["source"] for item in cloud.log} == {"mast"}


def test_pub_says_where_what_is_no_publication_stands(mosquitto: MosquittoServer, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"n": 1}\n{"n": [1]}\nnonsense\n{"n": 2}\n')
    with StandIn(mosquitto.mqtt_port) as cloud:
        done = run("pub", str(file), "--server", url(mosquitto))
        assert done.returncode == 2
        assert "1 stored in " in done.stderr
        assert f"{file}:2: n: a value is a number, a string or a boolean, not list" in done.stderr
        assert [item["n"] for item in cloud.log] == [1]
        done = run("pub", str(file), "--server", url(mosquitto), "--keep-going")
        assert done.returncode == 2
        assert f"{file}:3:1: not JSON" in done.stderr
        assert [item["n"] for item in cloud.log] == [1, 1, 2]


def test_pub_tells_what_the_cloud_refuses(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        cloud.refuse = lambda item: "too hot" if item["temp"] > 50 else None
        done = run("pub", "--server", url(mosquitto), stdin='{"temp": 20}\n{"temp": 99}\n')
    assert done.returncode == 1
    assert "-:2: pub-" in done.stderr
    assert "was refused: too hot" in done.stderr
    assert "1 stored in " in done.stderr
    assert ", 1 refused" in done.stderr


def test_pub_to_no_server_or_with_a_wrong_password_or_file(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    done = run("pub", "a=1", "--server", f"mqtt://127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"spinney pub: mqtt://127.0.0.1:{port}: Connection refused" in done.stderr
    assert run("pub", "a=1", "--user", "kit").stderr.startswith("spinney pub: --user kit needs --password-file")
    assert "No such file" in run("pub", "a=1", "--user", "kit", "--password-file", "/none").stderr
    with NatsServer(tmp_path / "nats", extra='authorization { users = [{user: kit, password: "right"}] }') as server:
        (tmp_path / "word").write_text("wrong\n")
        done = run("pub", "a=1", "--user", "kit", "--password-file", str(tmp_path / "word"), "--server", url(server))
        assert done.returncode == 2
        assert "refused user 'kit'" in done.stderr
        assert "wrong" not in done.stderr
        done = run("pub", "a=1", "--server", url(server))
        assert "refused a client without a user" in done.stderr
        assert "--password-file" in done.stderr


def test_pub_keeps_in_its_outbox_what_is_not_stored_and_the_next_one_sends_it(
    mosquitto: MosquittoServer, tmp_path: Path
) -> None:
    outbox = ["--outbox", str(tmp_path / "outbox"), "--name", "kit", "--server", url(mosquitto)]
    done = run("pub", "n=0", *outbox, "--timeout", "0.2")
    assert done.returncode == 2
    assert "1 kept in " in done.stderr
    mosquitto.stop()
    done = run("pub", "n=1", *outbox, "--timeout", "0.2")
    assert done.returncode == 2
    assert "2 kept in " in done.stderr
    mosquitto.start()
    with StandIn(mosquitto.mqtt_port) as cloud:
        assert run("pub", "n=2", *outbox).returncode == 0
        assert [item["n"] for item in cloud.log] == [0, 1, 2]


# ---- sub


def test_sub_prints_a_line_for_each_notification_and_unsubscribes_at_ctrl_c(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        arguments = ["air: NO2 > 40", "heat: temp > 30", "--name", "ana", "--server", url(mosquitto)]
        with running("sub", *arguments) as process:
            assert process.stderr is not None
            assert process.stdout is not None
            assert process.stderr.readline() == "air: NO2 > 40 (indexed)\n"
            assert process.stderr.readline() == "heat: temp > 30 (indexed)\n"
            assert len(cloud.subscriptions) == 2
            publication = {"id": "kit:1:0", "source": "kit", "NO2": 57.5, "type": "air"}
            cloud.note("ana", "air", "n1", publication=publication, scope="kit")
            assert process.stdout.readline()[8:] == "  air   match  kit  NO2 57.5  type air\n"
            cloud.note("ana", "heat", "n2", why="top", rank=2, publication={"source": "m7", "temp": 31}, scope="hall")
            assert process.stdout.readline()[8:] == "  heat  top    no. 2 hall (m7)  temp 31\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        assert cloud.subscriptions == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sub_as_json_ends_after_a_count_or_a_signal_and_may_leave_its_subscription(
    mosquitto: MosquittoServer, number: signal.Signals
) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        arguments = ["air: NO2 > 40", "--json", "--keep", "--name", "ana", "--server", url(mosquitto)]
        with running("sub", *arguments, "--count", "1") as process:
            wait_until(lambda: cloud.subscriptions)
            cloud.note("ana", "air", "n1", also=["roads"])
            assert process.stdout is not None
            assert json.loads(process.stdout.readline()) == {
                "id": "n1",
                "sid": "air",
                "why": "match",
                "time": 1e9,
                "publication": {"NO2": 41.0},
                "also": ["roads"],
            }
            assert process.wait(20) == 0
        assert cloud.subscriptions
        with running("sub", *arguments) as process:
            assert process.stderr is not None
            process.stderr.readline()
            process.send_signal(number)
            assert process.wait(20) == 0
        assert cloud.subscriptions


def test_sub_whose_reader_has_gone_unsubscribes(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        with running("sub", "air: NO2 > 40", "--name", "ana", "--server", url(mosquitto)) as process:
            wait_until(lambda: cloud.subscriptions)
            assert process.stdout is not None
            process.stdout.close()
            cloud.note("ana", "air", "n1")
            process.wait(20)
        assert not cloud.subscriptions


def test_sub_points_at_what_is_wrong(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port):
        done = run("sub", "air: NO2 > 40 AND", "--server", url(mosquitto))
    assert done.returncode == 2
    assert "air:1:13: " in done.stderr
    assert done.stderr.endswith("  NO2 > 40 AND\n              ^\n")


def test_sub_without_a_name_cannot_keep() -> None:
    done = run("sub", "NO2 > 40", "--keep")
    assert done.returncode == 2
    assert "--keep and --session need --user" in done.stderr


# ---- ls


class Api(BaseHTTPRequestHandler):
    """A few answers of the cloud's HTTP API."""

    asked: list[tuple[str, dict[str, list[str]], str | None]] = []  # noqa: RUF012  # emptied by the fixture

    def do_GET(self) -> None:  # the base class says so
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        self.asked.append((url.path, query, self.headers["Authorization"]))
        if self.headers["Authorization"] == "Bearer old":
            self._answer(401, {"detail": "the token has expired"})
        elif "all_owners" in query and self.headers["Authorization"] is not None:
            self._answer(403, {"detail": "only operators"})
        elif url.path == "/v1/subscriptions":
            first = {"sid": "air", "owner": "ana", "kind": "content", "normal": "NO2 > 40", "cost": "indexed"}
            rows = [first | {"enabled": True}] if "after" not in query else [first | {"sid": "b", "enabled": False}]
            self._answer(200, {"subscriptions": rows, "next": None if "after" in query else "air"})
        elif url.path == "/v1/sources":
            self._answer(200, {"sources": [{"name": "m7", "battery": None, "attributes": {"NO2": {"unit": "ug"}}}]})
        else:
            self._answer(200, {"brokers": [], "next": None})

    def _answer(self, status: int, item: dict[str, Any]) -> None:
        body = json.dumps(item).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class says so
        """Nothing."""


@pytest.fixture
def http() -> Iterator[str]:
    Api.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_ls_prints_a_table_of_all_pages(http: str) -> None:
    done = run("ls", SPINNEY_HTTP=http)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "SID  OWNER  KIND     NORMAL    COST     ENABLED",
        "air  ana    content  NO2 > 40  indexed  yes",
        "b    ana    content  NO2 > 40  indexed  no",
    ]


def test_ls_as_json_and_of_other_things(http: str) -> None:
    done = run("ls", "sources", "--http", http, "--json", "--near", "45.81,15.97", "--within", "2km")
    assert json.loads(done.stdout)["name"] == "m7"
    assert Api.asked[0][1] == {"limit": ["1000"], "near": ["45.81,15.97"], "within": ["2km"]}
    assert 'm7    -        {"NO2":{"unit":"ug"}}' in run("ls", "sources", "--http", http).stdout
    done = run("ls", "brokers", "--http", http)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no brokers\n")


def test_ls_proves_who_asks(http: str, tmp_path: Path) -> None:
    (tmp_path / "word").write_text("secret\n")
    done = run("ls", "--http", http, "--user", "ana", "--password-file", str(tmp_path / "word"))
    assert done.returncode == 0, done.stderr
    assert [("all_owners" in query, who) for _, query, who in Api.asked[:2]] == [
        (True, "Basic YW5hOnNlY3JldA=="),
        (False, "Basic YW5hOnNlY3JldA=="),
    ]
    (tmp_path / "token").write_text("old")
    done = run("ls", "--http", http, "--token-file", str(tmp_path / "token"))
    assert done.returncode == 2
    assert "the token has expired (401)" in done.stderr


def test_ls_of_what_is_no_cloud() -> None:
    (port,) = free_ports(1)
    done = run("ls", "--http", f"http://127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"spinney ls: http://127.0.0.1:{port}: Connection refused" in done.stderr
    assert "an HTTP address is" in run("ls", "--http", "file:///etc/passwd").stderr


@pytest.mark.parametrize("command", ["pub", "sub", "ls"])
def test_help_has_examples_and_exit_codes(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    assert "exit codes:" in done.stdout
