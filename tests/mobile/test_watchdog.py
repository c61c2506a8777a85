"""Resetting an adapter by a command, and telling systemd that we are alive. What it does with adapters on the air is
in test_acquire_ble."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from spinney_mobile import watchdog
from spinney_mobile.systemd import beat, beat_seconds, notify
from spinney_mobile.watchdog import ResetFailed, reset_adapter


def test_the_command_of_the_settings_resets_the_adapter(tmp_path: Path) -> None:
    asyncio.run(reset_adapter("hci7", f"touch '{tmp_path}/reset {{adapter}}'"))
    assert (tmp_path / "reset hci7").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [("ls /nonexistent/hci0", "ls: .*nonexistent"), ("no-such-program-here", "no-such-program-here: No such file")],
)
def test_a_reset_that_fails_says_why(command: str, said: str) -> None:
    with pytest.raises(ResetFailed, match=said):
        asyncio.run(reset_adapter("hci0", command))


def test_a_reset_without_an_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "RESET_SECONDS", 0.5)
    script = tmp_path / "hang"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    script.chmod(0o755)
    with pytest.raises(ResetFailed, match=r"no end after 0.5 s"):
        asyncio.run(asyncio.wait_for(reset_adapter("hci0", str(script)), 60))
    if (tmp_path / "pid").exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


def test_one_way_after_the_other_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, code in (("busctl", 1), ("hciconfig", 0), ("btmgmt", 0)):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/called\nexit {code}\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    asyncio.run(reset_adapter("hci0"))
    assert (tmp_path / "called").read_text().splitlines() == [
        "busctl set-property org.bluez /org/bluez/hci0 org.bluez.Adapter1 Powered b false",
        "hciconfig hci0 reset",
    ]
    (tmp_path / "hciconfig").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "btmgmt").write_text("#!/bin/sh\nexit 4\n")
    with pytest.raises(ResetFailed, match="busctl: 1; hciconfig: 3; btmgmt: 4"):
        asyncio.run(reset_adapter("hci0"))


# ---- systemd


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket on which systemd would listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield sock


def test_systemd_is_told(systemd: socket.socket) -> None:
    assert notify("READY=1")
    assert systemd.recv(100) == b"READY=1"


def test_without_systemd_nobody_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    assert not notify("READY=1")


def test_an_abstract_socket_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"spinney-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name)
        sock.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        assert notify("STATUS=well")
        assert sock.recv(100) == b"STATUS=well"


def test_how_often_it_wants_to_hear_of_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    assert beat_seconds() is None
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    assert beat_seconds() == 10
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert beat_seconds() is None, "it watches another process"


def test_it_hears_of_us_while_the_loop_turns_and_all_is_well(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    asked: list[bool] = []

    def is_well() -> bool:
        asked.append(len(asked) % 2 == 0)
        return asked[-1]

    async def main() -> None:
        beating = asyncio.create_task(beat(is_well))
        async with asyncio.timeout(60):
            while len(asked) < 6:
                await asyncio.sleep(0.001)
        beating.cancel()

    asyncio.run(main())
    systemd.setblocking(False)
    told = []
    while len(told) < sum(asked):
        told.append(systemd.recv(100))
    assert set(told) == {b"WATCHDOG=1"}
    with pytest.raises(BlockingIOError):
        systemd.recv(100)
