"""What README.md says of the cloud broker, line by line, with a real one."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clouds import Cloud, wait_until

from spinney_cloud.delivery_options import read_options
from spinney_cloud.density import AtMost, Density, read_at_most, read_density

ROOT = Path(__file__).parents[2]
SECTION = re.search(r"^## Ask from anywhere.*?(?=^## )", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
assert SECTION
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", SECTION[0], re.MULTILINE | re.DOTALL)
PROGRAM = [sys.executable, "-m", "spinney_tools"]
MANUAL = (ROOT / "cloud/README.md").read_text()


def lines_with(word: str) -> list[str]:
    """The lines of shell that use a program."""
    return [line for kind, body in BLOCKS if kind == "sh" for line in body.splitlines() if line.startswith(word)]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    [start] = [line for line in lines_with("./spinney") if line.split()[1] == "cloud"]
    command = [*PROGRAM, *start.split()[1:]]
    with Cloud(tmp_path_factory.mktemp("cloud") / "data", program=command) as running:
        yield running


class Shell:
    """Runs the README's lines against a cloud on other ports than usual."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.folder = folder
        self.mqtt, self.http = cloud.port("MQTT"), cloud.port("HTTP")
        self.environment = {
            **os.environ,
            "SPINNEY_SERVER": f"mqtt://127.0.0.1:{self.mqtt}",
            "SPINNEY_HTTP": f"http://127.0.0.1:{self.http}",
            "PYTHONUNBUFFERED": "1",
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def words(self, line: str) -> list[str]:
        line = line.replace(":8080/", f":{self.http}/")
        program, *rest = shlex.split(line)
        if program.startswith("mosquitto_"):
            return [program, "-p", str(self.mqtt), *rest]
        return [*PROGRAM, *rest] if program == "./spinney" else [program, *rest]

    def run(self, line: str) -> str:
        """What a line prints."""
        done = subprocess.run(
            self.words(line), cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def start(self, line: str) -> Path:
        """The file that gathers what a line prints."""
        path = self.folder / f"{len(self._started)}.out"
        with path.open("wb") as out:
            started = subprocess.Popen(self.words(line), cwd=self.folder, env=self.environment, stdout=out, stderr=out)
        self._started.append(started)
        return path

    def stop(self) -> None:
        for started in self._started:
            started.terminate()
            started.wait(30)


@pytest.fixture
def shell(cloud: Cloud, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(cloud, tmp_path)
    yield made
    made.stop()


@pytest.mark.needs("mosquitto_sub")
def test_any_mqtt_client_will_do(shell: Shell) -> None:
    [listen] = lines_with("mosquitto_sub")
    subscribe, publish = lines_with("mosquitto_pub")
    heard = shell.start(listen)

    def answered() -> bool:
        """It says nothing when it listens; asked again, the cloud answers again."""
        shell.run(subscribe)
        return '"ok":true' in heard.read_text()

    wait_until(answered, "an answer")
    shell.run(publish)
    wait_until(lambda: "spinney/ana/note/alarm {" in heard.read_text(), "a notification")


def test_spinneys_own_commands(shell: Shell) -> None:
    sub, pub, pub_file, ls = [line for line in lines_with("./spinney") if line.split()[1] != "cloud"]
    (shell.folder / "readings.jsonl.gz").write_bytes(gzip.compress(b'{"source":"m9","NO2":99}\n'))
    heard = shell.start(sub)
    wait_until(lambda: "warm: " in heard.read_text(), "the subscriptions")
    shell.run(pub)
    shell.run(pub_file)
    wait_until(lambda: "m9" in heard.read_text(), "the last notification")
    assert [word for word in ("alarm  match  m7", "warm   enter  lab") if word not in heard.read_text()] == []
    assert "WHEN temp > 25" in shell.run(ls)


@pytest.mark.needs("curl")
def test_http_says_the_same(shell: Shell) -> None:
    subscribe, publish, explain, listen = lines_with("curl")
    assert json.loads(shell.run(f"{subscribe} -s"))["sid"] == "alarm"
    assert json.loads(shell.run(f"{publish} -s"))["stored"].keys() == {"m7"}
    assert json.loads(shell.run(f"{explain} -s"))["results"][0]["verdict"] is None
    heard = shell.start(listen)
    wait_until(lambda: '"alarm"' in heard.read_text(), "an event")


def test_python_does_too(shell: Shell) -> None:
    [program] = [body for kind, body in BLOCKS if kind == "python"]
    done = subprocess.run(
        [sys.executable, "-c", program], env=shell.environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "match {'id': 'm7:" + done.stdout.partition("'m7:")[2]), done.stderr


def test_the_manuals_options_can_be_read() -> None:
    [example] = re.findall(r"^```json\n(.*?)^```", MANUAL, re.MULTILINE | re.DOTALL)
    assert read_options({"max_per": json.loads(example)["max_per"]}).max_per is not None
    rows = re.findall(r'^\| (`".*?) \|', MANUAL, re.MULTILINE)
    written = [json.loads("{" + part + "}") for row in rows for part in re.findall(r'`("\w+": .*?)`', row)]
    options = {name: value for item in written for name, value in item.items() if name != "density"}
    assert options.keys() >= {"max_per", "digest", "queue", "drop", "qos"}
    read_options(options)
    chosen, limited = [item["density"] for item in written if "density" in item]
    assert read_density(chosen) == Density(3, 8, 300.0)
    assert read_at_most(limited) == read_at_most({**chosen, **limited}) == AtMost(8, 1, 300.0)
