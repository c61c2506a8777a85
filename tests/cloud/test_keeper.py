"""The keeper: purges by age and bytes what its readers have read, names who holds the log, and looks after the disk."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from gateway_kit import Ground, ground, run, until
from hypothesis import given
from hypothesis import strategies as st
from servers import NatsServer

from spinney_cloud import names
from spinney_cloud.keeper import Keeper
from spinney_cloud.names import LOG, NOTES
from spinney_cloud.positions import Position
from spinney_cloud.retention import Hold, beyond_bytes, lowest_floor, plan

SIZE = 1000
YEAR = 366 * 24 * 3600.0
SUBJECTS = {LOG: names.log_subject("publications", "t"), NOTES: names.notes_subject("t")}


async def fill(made: Ground, stream: str, count: int) -> None:
    writer = made.log.writer(stream)
    for _ in range(count):
        await writer.put(SUBJECTS[stream], bytes(SIZE))
    await writer.drain()
    await writer.close()


async def read_up_to(made: Ground, reader: str, stream: str, floor: int) -> None:
    position = Position(stream, floor, floor, 0.0)
    await made.log.bucket(names.READERS).put(reader, position.encode())


async def first_of(made: Ground, stream: str) -> int:
    return (await made.log.state(stream)).first


async def bytes_of(made: Ground, stream: str) -> int:
    return (await made.log.state(stream)).bytes


LIMITS = {"max_bytes": 40_000, "notes_max_bytes": 20_000, "keeper_interval": 0.01}


def keeper_of(made: Ground, tmp_path: Path) -> Keeper:
    return Keeper(made.log, made.settings.log, tmp_path)


class Later:
    """A monotonic clock that can be put forward."""

    seconds = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.seconds


def test_beyond_the_bytes_what_all_have_read_goes_and_no_more(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", log=LIMITS) as made:
            for stream, reader in ((LOG, "matcher"), (NOTES, "delivery")):
                await fill(made, stream, 25 if stream == NOTES else 50)
                await read_up_to(made, reader, stream, 50)
            keeper = keeper_of(made, tmp_path)
            await keeper.keep()
            assert 38_000 < await bytes_of(made, LOG) <= 40_000
            assert 18_000 < await bytes_of(made, NOTES) <= 20_000
            assert keeper.holds == {}
            assert keeper.purged[LOG] == await first_of(made, LOG) - 1
            await keeper.keep()
            assert await bytes_of(made, LOG) > 38_000, "and nothing more goes"

    run(test())


def test_beyond_the_age_what_all_have_read_goes_and_the_newest_stays(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", log={"max_age": 100, "notes_max_age": 200}) as made:
            await fill(made, LOG, 5)
            await read_up_to(made, "matcher", LOG, 10)
            await read_up_to(made, "delivery", NOTES, 5)
            later = Later()
            keeper = Keeper(made.log, made.settings.log, tmp_path, later)
            await keeper.keep()
            later.seconds = 90
            await fill(made, LOG, 5)
            await fill(made, NOTES, 5)
            await keeper.keep()
            assert (await first_of(made, LOG), await first_of(made, NOTES)) == (1, 1)
            later.seconds = 110
            await keeper.keep()
            assert (await first_of(made, LOG), await first_of(made, NOTES)) == (6, 1)
            later.seconds = 1000
            await keeper.keep()
            assert (await first_of(made, LOG), await first_of(made, NOTES)) == (10, 5), "it tells where the matcher was"

    run(test())


def test_what_was_there_before_goes_by_its_timestamps(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", log={"max_age": 100}) as made:
            await fill(made, LOG, 5)
            between = time.time()
            await fill(made, LOG, 5)
            await read_up_to(made, "matcher", LOG, 10)
            now = 1000.0
            keeper = Keeper(made.log, made.settings.log, tmp_path, lambda: now)
            await keeper.keep()
            now += between + 100 - keeper.states[LOG].now
            await keeper.keep()
            assert await first_of(made, LOG) == 6

    run(test())


@pytest.mark.parametrize("seconds", [-YEAR, YEAR])
def test_a_step_of_the_wall_clock_purges_nothing_and_keeps_nothing_longer(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", log={"max_age": 100}) as made:
            await fill(made, LOG, 5)
            await read_up_to(made, "matcher", LOG, 5)
            later = Later()
            keeper = Keeper(made.log, made.settings.log, tmp_path, later)
            await keeper.keep()
            real = time.time
            monkeypatch.setattr(time, "time", lambda: real() + seconds)
            await keeper.keep()
            assert await first_of(made, LOG) == 1
            later.seconds = 101
            await keeper.keep()
            assert await first_of(made, LOG) == 5

    run(test())


@pytest.mark.parametrize("seconds", [0.0, 10**7], ids=["bytes", "age"])
def test_a_stopped_reader_holds_the_log_and_is_named_until_it_goes_on(
    nats: NatsServer, tmp_path: Path, seconds: float
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", log=LIMITS) as made:
            await fill(made, LOG, 50)
            await read_up_to(made, "matcher", LOG, 5)
            later = Later()
            keeper = Keeper(made.log, made.settings.log, tmp_path, later)
            await keeper.keep()
            later.seconds = seconds
            await keeper.keep()
            assert await first_of(made, LOG) == 6
            hold = keeper.holds[LOG]
            assert (hold.stream, hold.reader) == (LOG, "matcher")
            assert hold.messages > 0
            await read_up_to(made, "matcher", LOG, 50)
            await keeper.keep()
            assert keeper.holds == {}
            assert await bytes_of(made, LOG) <= 40_000

    run(test())


def test_a_reader_that_never_read_holds_everything(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", log={**LIMITS, "pipeline": True}) as made:
            await fill(made, LOG, 50)
            await fill(made, NOTES, 25)
            await read_up_to(made, "matcher", LOG, 50)
            keeper = keeper_of(made, tmp_path)
            await keeper.keep()
            assert (await first_of(made, LOG), await first_of(made, NOTES)) == (1, 1)
            assert {hold.reader for hold in keeper.holds.values()} == {"pipeline", "delivery"}

    run(test())


def test_an_operator_releases_a_reader_until_it_has_come_further(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", log=LIMITS) as made:
            await fill(made, LOG, 50)
            await read_up_to(made, "matcher", LOG, 5)
            async with made.gateway():
                await until(lambda: held_by(made, "matcher"), "the matcher to be named")
                assert await made.metric(f'held{{reader="matcher",stream="{LOG}"}}') > 0
                answer = orjson.loads(await made.log.ask("gateway", "release", b'{"reader":"matcher"}'))
                assert answer == {"ok": True, "reader": "matcher", "floor": 5}
                assert await bytes_of(made, LOG) <= 40_000
                assert (await made.health())["holds"] == []
                answer = orjson.loads(await made.log.ask("gateway", "release", b'{"reader":"nobody"}'))
                assert (answer["ok"], answer["status"]) == (False, 404)
            again = keeper_of(made, made.settings.data)
            await fill(made, LOG, 10)
            await again.keep()
            assert again.holds == {}, "a keeper that starts again knows who is released"
            await read_up_to(made, "matcher", LOG, 6)
            await fill(made, LOG, 10)
            await again.keep()
            assert again.holds[LOG].reader == "matcher"

    async def held_by(made: Ground, reader: str) -> bool:
        return [hold["reader"] for hold in (await made.health())["holds"]] == [reader]

    run(test())


def test_a_keeper_goes_on_after_what_fails_and_when_the_logs_server_is_back(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", log=LIMITS) as made:
            await read_up_to(made, "matcher", LOG, 50)
            async with made.gateway():
                await made.log.js.delete_stream(NOTES)
                failures = "spinney_gateway_keeper_failures"
                await until(lambda: made.service.metrics.get_sample_value(failures), "a purge that fails")
                await made.log.ensure(made.settings)
                nats.kill()
                await asyncio.to_thread(nats.start)
                await until(lambda: made.log.connected, "the log's server")
                await fill(made, LOG, 50)

                async def is_kept() -> bool:
                    return await bytes_of(made, LOG) <= 40_000

                await until(is_kept, "the log to be within its limits")

    run(test())


# ---- plain functions


@given(st.integers(1, 50), st.integers(0, 50), st.integers(1, 10**6), st.integers(1, 10**6))
def test_what_goes_by_bytes_is_just_enough_if_all_are_alike(first: int, messages: int, each: int, limit: int) -> None:
    up_to = beyond_bytes(first, messages, messages * each, limit)
    gone = up_to - first + 1
    assert 0 <= gone <= messages
    assert (messages - gone) * each <= limit
    assert gone == 0 or (messages - gone + 1) * each > limit


@given(st.integers(1, 20), st.integers(0, 40), st.integers(0, 40))
def test_nothing_goes_that_a_reader_needs(first: int, wish: int, floor: int) -> None:
    purge_to, hold = plan(LOG, first, wish, floor, "matcher")
    assert purge_to <= max(floor, first - 1)
    assert purge_to <= max(wish, first - 1)
    assert (hold is None) == (wish <= max(floor, first - 1))
    assert hold is None or hold == Hold(LOG, "matcher", wish - purge_to)


def test_the_lowest_floor_is_of_the_readers_of_the_stream_alone() -> None:
    positions = {"matcher": Position(LOG, 7, 9, 0.0), "pipeline": Position(LOG, 3, 9, 0.0)}
    both = ("matcher", "pipeline")
    assert lowest_floor(LOG, both, positions, {}) == (3, "pipeline")
    assert lowest_floor(LOG, ("matcher",), positions, {}) == (7, "matcher")
    assert lowest_floor(LOG, both, positions, {"pipeline": 3}) == (7, "matcher")
    assert lowest_floor(LOG, both, positions, {"pipeline": 2}) == (3, "pipeline")
    assert lowest_floor(LOG, both, {}, {"pipeline": 0, "matcher": 0}) == (math.inf, None)
    assert lowest_floor(NOTES, ("delivery",), positions, {}) == (0, "delivery")
    assert lowest_floor(LOG, ("delivery",), {"delivery": Position(NOTES, 5, 5, 0.0)}, {}) == (0, "delivery")


# ---- the disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    command = [*as_root, "mount", "-t", "tmpfs", "-o", "size=64m,mode=1777", "none", str(folder)]
    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True).returncode:
        reason = "a tmpfs cannot be mounted here: it takes root's rights, or sudo without a password"
        pytest.fail(reason, pytrace=False) if os.environ.get("CI") == "true" else pytest.skip(reason)
    try:
        yield folder
    finally:
        subprocess.run([*as_root, "umount", "--lazy", str(folder)], check=True)


def test_below_the_floor_of_free_disk_nothing_is_taken_in_until_there_is_space_again(small_disk: Path) -> None:
    async def test(nats: NatsServer) -> None:
        floor = {"free_disk_floor": 32 * 1024**2}
        async with ground(nats, small_disk, log=floor) as made, made.gateway(), made.client() as kit:
            await kit.publish({"batch": 1, "publications": [{"id": "m7:1:1"}]})
            await until(lambda: kit.stored_batches() == {1}, "stored")
            (small_disk / "ballast").write_bytes(bytes(36 * 1024**2))

            async def full() -> bool:
                return "floor" in (await made.health()).get("why", "")

            await until(full, "the disk to be seen as full")
            await kit.publish({"batch": 2, "publications": [{"id": "m7:1:2"}]})
            assert (await kit.hears("busy"))["batch"] == 2
            question = b'{"tenant":"default","client":"web"}\n{"id":"m7:1:2"}'
            answer = orjson.loads(await made.log.ask("gateway", "publish", question))
            assert (answer["ok"], answer["status"]) == (False, 503)
            assert [row["id"] for row in await made.rows()] == ["m7:1:1"]
            assert await made.metric('busy_total{kind="disk"}') == 2
            (small_disk / "ballast").unlink()

            async def sent_again() -> bool:
                await kit.publish({"batch": 3, "publications": [{"id": "m7:1:2"}]})
                return 3 in kit.stored_batches()

            await until(sent_again, "to be taken in again")
            assert {row["id"] for row in await made.rows()} == {"m7:1:1", "m7:1:2"}
            assert (await made.health())["ready"]

    with NatsServer(small_disk / "nats") as nats:
        run(test(nats))
