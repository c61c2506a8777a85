"""`spinney cloud user`, `acl` and `conf`, as an operator uses them."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import HOST, MosquittoServer, free_ports

from spinney_cloud import acl_command, conf_command, users_command
from spinney_cloud import users as users_module
from spinney_cloud.mqtt import MqttClient
from spinney_cloud.users import Users

Run = Callable[..., int]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(users_module, "BCRYPT_ROUNDS", 4)
    return lambda *words: users_command.main([*words, "--data", str(tmp_path / "data")])


def test_a_new_user_gets_a_password_that_is_alone_on_stdout(
    user: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert user("add", "alice", "--role", "subscriber") == 0
    password = capsys.readouterr().out.strip()
    assert Users.load(tmp_path / "data").authenticate("alice", password)


def test_a_password_comes_from_a_file_and_is_not_repeated(
    user: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "password").write_text("from a file\nsecond line\n")
    assert user("add", "pi-3", "--role", "mobile broker", "--password-file", str(tmp_path / "password")) == 0
    assert user("passwd", "pi-3", "--password-file", str(tmp_path / "password")) == 0
    assert "from a file" not in "".join(capsys.readouterr())
    assert Users.load(tmp_path / "data").authenticate("pi-3", "from a file")


def test_a_token_is_told_once_and_can_be_revoked(user: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user("add", "alice", "--role", "operator")
    capsys.readouterr()
    assert user("token", "alice", "--for", "12h") == 0
    secret = capsys.readouterr().out.strip()
    assert Users.load(tmp_path / "data").authenticate_token(secret)
    assert user("ls", "--json") == 0
    [row] = json.loads(capsys.readouterr().out)
    assert secret not in str(row)
    assert user("revoke", "alice", row["tokens"][0]["id"]) == 0
    assert Users.load(tmp_path / "data").authenticate_token(secret) is None


def test_users_are_listed_and_removed(user: Run, capsys: pytest.CaptureFixture[str]) -> None:
    user("add", "bob", "--role", "publisher", "--tenant", "city")
    capsys.readouterr()
    assert user("ls") == 0
    assert capsys.readouterr().out.split()[:3] == ["bob", "publisher", "city"]
    assert user("rm", "bob") == 0
    assert user("ls") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("rm", "nobody"), "no user 'nobody'"),
        (("add", "a/b", "--role", "publisher"), "A-Z a-z 0-9"),
        (("passwd", "nobody", "--password-file", "/nowhere"), "/nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    user: Run, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert user(*words) == 1
    said = capsys.readouterr().err
    assert said.startswith("spinney cloud user: ")
    assert reason in said


@pytest.mark.parametrize("lifetime", ["soon", "0d", "-1h"])
def test_a_lifetime_that_is_none_is_wrong_use(user: Run, lifetime: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        user("token", "alice", f"--for={lifetime}")


@pytest.mark.needs("mosquitto")
def test_mosquitto_takes_what_the_commands_write(user: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user("add", "alice", "--role", "subscriber")
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    assert acl_command.main(["mosquitto", "--to", str(folder), "--data", str(tmp_path / "data")]) == 0
    assert stat.S_IMODE((folder / "spinney.passwords").stat().st_mode) == 0o600
    capsys.readouterr()
    theirs, ours = free_ports(2)
    assert conf_command.main(["mosquitto", "--acl", str(folder), f"--listen={theirs}", f"--own-listen={ours}"]) == 0
    said = capsys.readouterr().out
    # what the fixture says itself comes first, and mosquitto takes the last word on a setting
    with MosquittoServer(tmp_path / "again", extra=said) as server:
        assert "rror" not in server.log()
        assert "Unknown" not in server.log()


@pytest.mark.needs("mosquitto")
def test_mosquitto_writes_down_what_waits_by_the_second_and_not_by_the_message(tmp_path: Path) -> None:
    """Each time it writes all: by the message, some dozens a second would be all that comes through."""
    count = 300
    saved = "Saving in-memory database"

    async def test(server: MosquittoServer) -> None:
        got: list[bytes] = []
        ana = MqttClient(HOST, server.mqtt_port, "ana", on_message=lambda message: got.append(message.payload))
        kit = MqttClient(HOST, server.mqtt_port, "kit", clean=True)
        await ana.start()
        assert await ana.subscribe("spinney/ana/note/+") == (1,)
        await ana.close()
        await kit.start()
        for number in range(count):
            await kit.publish("spinney/ana/note/air", b"%d" % number)
        await kit.drain()
        await kit.close()
        before = server.log().count(saved)
        assert before < count / 3
        while server.log().count(saved) < before + 2:  # one of them began after the last message
            await asyncio.sleep(0.05)
        server.kill()
        server.start()
        ana = MqttClient(HOST, server.mqtt_port, "ana", on_message=lambda message: got.append(message.payload))
        await ana.start()
        while len(got) < count:
            await asyncio.sleep(0.01)
        assert got == [b"%d" % number for number in range(count)]
        await ana.close()

    ours = MosquittoServer(tmp_path / "mosquitto")
    ours.configure(conf_command.open_mosquitto(f"{HOST}:{ours.mqtt_port}"))
    with ours as server:
        asyncio.run(asyncio.wait_for(test(server), 120))
