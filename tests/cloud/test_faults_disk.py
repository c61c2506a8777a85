"""A disk that stalls, as one does while gigabytes are written to it: what writes waits in the kernel, for seconds."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clouds import Cloud
from security_kit import REAL, Client

DISK_BYTES = 2 * 1024**3
"""More than the log's floor; what nobody writes takes no room."""
STALL_SECONDS = 8.0
"""Longer than nats-server waits for its disk, unless it is told to."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of this test's own."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    if os.geteuid() != 0:
        pytest.skip("only root mounts a disk")
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted: {mounted.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@contextmanager
def stalled(disk: Path) -> Iterator[None]:
    """For STALL_SECONDS from now."""
    subprocess.run(["fsfreeze", "-f", disk], check=True)
    stalling = threading.Thread(target=lambda: (time.sleep(STALL_SECONDS), thaw(disk)))
    stalling.start()
    try:
        yield
    finally:
        stalling.join()


def thaw(disk: Path) -> None:
    subprocess.run(["fsfreeze", "-u", disk], check=True)


@pytest.mark.soak
@pytest.mark.needs("fsfreeze", "mkfs.ext4")
def test_who_comes_or_publishes_while_the_disk_stalls_waits_and_is_not_sent_away(disk: Path) -> None:
    with Cloud(disk / "data", program=REAL) as cloud:
        port = cloud.port("MQTT")
        with Client(port, "kit", secret="") as kit:
            kit.pub({"n": 1})
            with stalled(disk):
                kit.publish("pub", {"n": 2})
                with Client(port, "ana", secret="") as ana:
                    assert not ana.refused
            assert kit.next("reply")["stored"]
            assert kit.ends.empty()
