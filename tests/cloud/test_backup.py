"""Backups of a real log, and what becomes of them."""

from __future__ import annotations

import asyncio
import hashlib
import resource
import tarfile
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path

import orjson
import pytest
from servers import NatsServer

from spinney_cloud import backup, backup_command, names, records
from spinney_cloud.backup import BackupError, Manifest
from spinney_cloud.configuration import configure
from spinney_cloud.data_dir import DataDir, read_secrets
from spinney_cloud.nats_log import NatsLog, read_range
from spinney_cloud.settings import Settings
from spinney_cloud.users import Role, Users

KEYS = [names.subscription_key("default", "alice", f"s{i}") for i in range(3)]


def tick(number: int) -> bytes:
    return records.encode(records.Unpublish("default", "kit", f"m7:1:{number}"))


async def fill(log: NatsLog) -> None:
    """A log with twenty records from its sixth on, two subscriptions, notifications, a position."""
    await log.ensure(Settings())
    writer = log.writer(names.LOG)
    for number in range(1, 26):
        await (await writer.put(names.log_subject("unpublish", "default"), tick(number)))
    await log.purge(names.LOG, 5)
    for key in KEYS[:2]:
        await log.bucket(names.SUBSCRIPTIONS).put(key, b'{"v":1,"start":7}')
    await (await log.writer(names.NOTES).put(names.notes_subject("default"), b"{}"))
    await log.bucket(names.READERS).put("matcher", b"{}")


def data_with_files(path: Path) -> Path:
    path.mkdir()
    Users().add("alice", Role.SUBSCRIBER, "default", "secret").save(path)
    read_secrets(path)
    (path / "snapshots").mkdir()
    (path / "snapshots" / "24.snapshot").write_bytes(b"state")
    (path / "snapshots" / "25.snapshot.part").write_bytes(b"half")
    return path


def run(server: NatsServer, work: Callable[[NatsLog], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with await NatsLog.connect(server.endpoints(), name="test") as log:
            await work(log)

    asyncio.run(connected())


def make(server: NatsServer, folder: Path, *, with_log: bool) -> Path:
    """A backup of a log that `fill` has filled."""

    async def work(log: NatsLog) -> None:
        await fill(log)
        await backup.make(folder / "made", data_with_files(folder / "old"), log, with_log=with_log, say=lambda _: None)

    run(server, work)
    return folder / "made"


def restored(data: Path, look: Callable[[NatsLog], Awaitable[None]]) -> None:
    """Looks at the log of a restored data directory."""

    async def work() -> None:
        settings = configure({"data": str(data)}, {}).settings
        with DataDir(data) as held:
            async with backup_command._own_log(settings, held) as log:
                await look(log)

    asyncio.run(work())


def test_a_backup_with_the_log_comes_back_with_every_sequence(nats: NatsServer, tmp_path: Path) -> None:
    made = make(nats, tmp_path, with_log=True)
    assert backup_command.main(["restore", str(made), "--data", str(tmp_path / "new")]) == 0

    async def look(log: NatsLog) -> None:
        found = [each async for batch in read_range(log, names.LOG, 1, 25) for each in batch]
        assert [(each.sequence, each.data) for each in found] == [(i, tick(i)) for i in range(6, 26)]
        assert (await log.state(names.NOTES)).messages == 1
        assert sorted(await log.bucket(names.SUBSCRIPTIONS).load()) == sorted(KEYS[:2])

    restored(tmp_path / "new", look)


def test_without_the_log_numbers_go_on_where_they_had_ended(nats: NatsServer, tmp_path: Path) -> None:
    made = make(nats, tmp_path, with_log=False)
    assert backup_command.main(["restore", str(made), "--data", str(tmp_path / "new")]) == 0

    async def look(log: NatsLog) -> None:
        assert (await log.state(names.LOG)).messages == 0
        stored = await (await log.writer(names.LOG).put(names.log_subject("unpublish", "default"), tick(26)))
        assert (stored.sequence, (await log.state(names.NOTES)).last) == (26, 1)
        assert sorted(await log.bucket(names.SUBSCRIPTIONS).load()) == sorted(KEYS[:2])
        assert "matcher" in await log.bucket(names.READERS).load()

    restored(tmp_path / "new", look)


def test_users_secrets_and_whole_snapshots_come_back(nats: NatsServer, tmp_path: Path) -> None:
    made = make(nats, tmp_path, with_log=False)
    assert made.stat().st_mode & 0o077 == 0
    new = tmp_path / "new"
    assert backup_command.main(["restore", str(made), "--data", str(new)]) == 0
    assert Users.load(new).authenticate("alice", "secret")
    assert read_secrets(new) == read_secrets(tmp_path / "old")
    assert [path.name for path in (new / "snapshots").iterdir()] == ["24.snapshot"]


def test_a_directory_that_is_not_empty_is_left_alone(nats: NatsServer, tmp_path: Path) -> None:
    made = make(nats, tmp_path, with_log=False)
    assert backup_command.main(["restore", str(made), "--data", str(tmp_path / "old")]) == 1
    assert (tmp_path / "old" / "snapshots" / "24.snapshot").read_bytes() == b"state"


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_a_cut_backup_is_refused_and_leaves_nothing(
    nats: NatsServer, tmp_path: Path, kept: float, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make(nats, tmp_path, with_log=False)
    whole = made.read_bytes()
    made.write_bytes(whole[: int(len(whole) * kept)])
    assert backup_command.main(["restore", str(made), "--data", str(tmp_path / "new")]) == 1
    assert "no whole backup" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_backup_that_fails_leaves_no_file(nats: NatsServer, tmp_path: Path) -> None:
    async def work(log: NatsLog) -> None:
        with pytest.raises(Exception, match="no stream KV_"):  # there are no streams at all
            await backup.make(tmp_path / "made", data_with_files(tmp_path / "old"), log, with_log=True, say=print)

    run(nats, work)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nats", "old"]


def tar_of(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, BytesIO(content))
    return path


def manifest(**changes: object) -> bytes:
    return orjson.dumps({**orjson.loads(Manifest(0.0, False, 0, 0).encode()), **changes})


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"other": b""}, "begin with a manifest"),
        ({"manifest.json": b"{}"}, "manifest is damaged"),
        ({"manifest.json": manifest(v=2)}, "version 2"),
        ({"manifest.json": manifest(digests={"users.json": "00"})}, "users.json is missing"),
        ({"manifest.json": manifest(digests={"users.json": "00"}), "users.json": b"x"}, "users.json in it is damaged"),
        ({"manifest.json": manifest(digests={"../out": "00"}), "../out": b"x"}, "no plain file"),
    ],
)
def test_what_is_no_backup_of_ours_is_refused(tmp_path: Path, files: dict[str, bytes], reason: str) -> None:
    with pytest.raises(BackupError, match=reason), backup.opened(tar_of(tmp_path / "made", files), tmp_path):
        pass
    assert not (tmp_path / "out").exists()


def test_a_backup_is_unpacked_where_it_is_to_be_and_a_full_disk_is_no_fault_of_its(tmp_path: Path) -> None:
    content = bytes(100_000)
    digests = {"users.json": hashlib.sha256(content).hexdigest()}
    made = tar_of(tmp_path / "made", {"manifest.json": manifest(digests=digests), "users.json": content})
    (tmp_path / "data").mkdir()
    with backup.opened(made, tmp_path / "data") as (_, folder):
        assert folder.parent == tmp_path / "data"
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, most[1]))
    try:
        with pytest.raises(BackupError, match="no room to unpack"), backup.opened(made, tmp_path / "data"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert not list((tmp_path / "data").iterdir())
