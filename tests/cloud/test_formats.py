"""What this Spinney finds on disk: a data directory of format 1 must start, and what is newer is refused and said.

data/format-1.tar.xz is a data directory as the first version left it: users as in security_kit, and of the user `ops`
three subscriptions and an announcement. Source m7 was above the state subscription's threshold when it stopped.
"""

from __future__ import annotations

import asyncio
import base64
import json
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from clouds import Cloud, wait_until
from security_kit import CAST, REAL, Client, ask, password

from spinney_cloud import announcements, backup_command, names, notes, records
from spinney_cloud.configuration import configure
from spinney_cloud.data_dir import FORMAT, DataDir, DataDirError, read_secrets
from spinney_cloud.delivery_progress import Journal
from spinney_cloud.positions import Position
from spinney_cloud.snapshots import SnapshotDamaged, Snapshots
from spinney_cloud.subscriptions import StoredSubscription
from spinney_cloud.users import Users, UsersError

DATA = Path(__file__).parent / "data"
FORMAT_1 = DATA / "format-1.tar.xz"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory of format 1."""
    folder = tmp_path / "data"
    folder.mkdir()
    with tarfile.open(FORMAT_1) as tar:
        tar.extractall(folder, filter="data")
    return folder


def test_every_format_there_has_been_has_a_fixture() -> None:
    """Who raises FORMAT adds a data directory of the format before, and what reads it."""
    assert sorted(path.name for path in DATA.glob("format-*")) == [f"format-{n + 1}.tar.xz" for n in range(FORMAT)]


@pytest.mark.slow
def test_a_data_directory_of_format_1_starts_and_goes_on(data: Path) -> None:
    with Cloud(data, "--log-duplicate-window", "36500d", program=REAL) as cloud:  # the fixture grows old
        for name in CAST:
            with Client(cloud.port("MQTT"), name) as client:
                assert not client.refused
        with Client(cloud.port("MQTT"), "ops") as ops:
            ops.pub({"source": "m7", "id": "m7:1:1", "temp": 30})  # known already
            ops.pub({"source": "m7", "id": "m7:1:2", "temp": 50})
            assert ops.next("note/hot")["publication"]["temp"] == 50
            ops.pub({"source": "m7", "id": "m7:1:3", "temp": 20})
            assert ops.next("note/heat")["why"] == "exit"
            assert ops.next("note/best")["publication"]["temp"] == 50
            assert all(ops.gathered[f"note/{sid}"].empty() for sid in ("hot", "heat", "best"))
        assert cloud.stop() == 0
        assert " error " not in cloud.said


# ---- What is newer ----------------------------------------------------------------------------------------------


def newer_format(data: Path) -> None:
    (data / "format").write_text(f"{FORMAT + 1}\n")


def newer(name: str) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        item = json.loads((data / name).read_bytes())
        (data / name).write_text(json.dumps({**item, "v": item["v"] + 1}))

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (newer_format, "format 2, of a newer Spinney; this one reads up to 1"),
        (newer("users.json"), "version 2 is of a newer Spinney"),
        (newer("secrets.json"), "secrets.json is of a newer Spinney"),
    ],
)
def test_a_newer_directory_does_not_start_and_stays_as_it_is(
    data: Path, change: Callable[[Path], None], said: str
) -> None:
    change(data)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    cloud = Cloud(data, program=REAL)
    with cloud.begin():
        assert cloud.wait() in (1, 2)
        assert said in cloud.said
        assert "Traceback" not in cloud.said
    after = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert {path: content for path, content in after.items() if path in before} == before
    assert {path.name for path in after.keys() - before.keys()} <= {"lock"}


def written(value: dict[str, Any]) -> bytes:
    return orjson.dumps({**value, "v": 2})


@pytest.mark.parametrize(
    ("read", "given", "what"),
    [
        (records.decode, written({"kind": "tick", "tenant": "all"}), "a record of version 2"),
        (notes.decode, written({}), "notifications of version 2"),
        (lambda data: StoredSubscription.from_json(orjson.loads(data)), written({}), "a subscription of version 2"),
        (announcements.decode, written({}), "an announcement of version 2"),
        (Position.decode, written({}), "a reader's position of version 2"),
        (lambda data: Users.from_json(orjson.loads(data)), written({}), "version 2 is of a newer Spinney"),
    ],
)
def test_a_newer_value_is_refused_by_its_version(read: Callable[[bytes], Any], given: bytes, what: str) -> None:
    with pytest.raises((ValueError, UsersError), match=f"{what}.*this (Spinney|one) reads up to 1"):
        read(given)


def test_a_newer_delivery_journal_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "delivery.journal").write_bytes(written({"last": 7, "tag": 1, "time": 1.0, "open": []}) + b"\n")
    assert Journal(tmp_path / "delivery.journal").read() is None


def test_newer_secrets_are_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "secrets.json").write_bytes(written({}))
    with pytest.raises(DataDirError, match=r"secrets.json is of a newer Spinney; update this one"):
        read_secrets(tmp_path)
    assert (tmp_path / "secrets.json").read_bytes() == written({})


def raise_snapshot_version(path: Path) -> None:
    header, _, body = path.read_bytes().partition(b"\n")
    line = orjson.dumps({**orjson.loads(header[9:]), "version": 2})
    path.write_bytes(b"%08x %b\n%b" % (zlib.crc32(line), line, body))


def test_a_newer_snapshot_is_refused_by_its_version(data: Path) -> None:
    snapshots = Snapshots(data / "snapshots", 3)
    newest = snapshots.newest_first()[0]
    raise_snapshot_version(newest)
    with pytest.raises(SnapshotDamaged, match="of version 2; this Spinney reads up to 1"):
        snapshots.read(newest)


async def put_newer_values(data: Path) -> None:
    """A subscription and a record of the next version beside what is there."""
    with DataDir(data) as held:
        async with backup_command._own_log(configure({"data": str(data)}, {}).settings, held) as log:
            key = names.subscription_key("city", "ops", "newer")
            await log.bucket(names.SUBSCRIPTIONS).put(key, orjson.dumps({"v": 2, "start": 1}))
            record = orjson.dumps({"v": 2, "kind": "publications", "tenant": "city"})
            await (await log.writer(names.LOG).put(names.log_subject("publications", "city"), record))


@pytest.mark.slow
def test_newer_values_are_said_and_harm_no_others(data: Path) -> None:
    for path in (data / "snapshots").glob("*.snapshot"):
        raise_snapshot_version(path)
    asyncio.run(put_newer_values(data))
    with Cloud(data, program=REAL) as cloud, Client(cloud.port("MQTT"), "ops") as ops:
        for what in (
            "a subscription of version 2",
            "a record of version 2",
            "of version 2; this Spinney reads up to 1",
        ):
            wait_until(lambda what=what: what in cloud.said, f"{what} is told")
        ops.pub({"source": "m8", "temp": 50})
        assert ops.next("note/hot")["publication"]["temp"] == 50
        address = cloud.addresses()["HTTP"]
        status, _ = ask(f"{address}/v1/subscriptions/newer", headers=basic("ops"))
        assert status == 404


def basic(name: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password(name)}".encode()).decode()}
