"""Group commit into a real log: in order, together, by tenant; and what can never be stored is said."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import orjson
from gateway_kit import Ground, ground, run
from hypothesis import given
from hypothesis import strategies as st
from servers import NatsServer

from spinney_cloud import names, records
from spinney_cloud.group_commit import GroupCommit, _merged
from spinney_cloud.intake import Part
from spinney_cloud.log_errors import LogError, TooLarge
from spinney_cloud.records import Publications, Run, Unpublish


def part(source: str, first: int, count: int = 1, *, client: str = "kit", filler: str = "") -> Part:
    rows = [{"id": f"{source}:1:{number}", "f": filler} for number in range(first, first + count)]
    return Part(orjson.dumps(rows)[1:-1], count, (Run(source, 1, first, count, client, None, 1),), ())


async def stored(made: Ground) -> list[tuple[str, list[str]]]:
    """Tenant and ids of each record."""
    found = [record for record in await made.records() if isinstance(record, Publications)]
    return [(record.tenant, [str(id) for id in record.ids()]) for record in found]


def test_what_arrives_while_a_record_is_stored_shares_the_next_and_tenants_share_none(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made:
            commit = GroupCommit(made.log.writer(names.LOG), lambda: 5.0)
            told: list[tuple[int, LogError | None]] = []
            for number in range(6):
                tenant = "north" if number % 2 else "south"
                commit.add(tenant, [part(tenant, number)], lambda error, n=number: told.append((n, error)))
            work = asyncio.create_task(commit.run())
            await commit.drain()
            assert sorted(told) == [(number, None) for number in range(6)]
            assert await stored(made) == [
                ("south", ["south:1:0", "south:1:2", "south:1:4"]),
                ("north", ["north:1:1", "north:1:3", "north:1:5"]),
            ]
            assert commit.pending_bytes == 0
            work.cancel()

    run(test())


def test_while_one_record_is_stored_the_next_gathers(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made:
            commit = GroupCommit(made.log.writer(names.LOG), lambda: 5.0)
            work = asyncio.create_task(commit.run())
            nats.pause()
            for number in range(9):
                commit.add("t", [part("a", number)], lambda _: None)
                for _ in range(5):
                    await asyncio.sleep(0)  # its turn
            nats.resume()
            await commit.drain()
            assert [len(ids) for _, ids in await stored(made)] == [1, 8]
            work.cancel()

    run(test())


def test_a_record_of_another_kind_stays_in_its_place(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made:
            commit = GroupCommit(made.log.writer(names.LOG), lambda: 5.0)
            commit.add("t", [part("a", 1)], lambda _: None)
            commit.add_record(Unpublish("t", "kit", "a:1:1"), lambda _: None)
            commit.add("t", [part("a", 2)], lambda _: None)
            work = asyncio.create_task(commit.run())
            await commit.drain()
            assert [records.kind_of(record) for record in await made.records()] == [
                "publications",
                "unpublish",
                "publications",
            ]
            work.cancel()

    run(test())


def test_one_add_of_several_parts_is_done_once_when_all_are_stored(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made:
            commit = GroupCommit(made.log.writer(names.LOG), lambda: 5.0, max_record_bytes=1000)
            done: list[tuple[LogError | None, int]] = []
            parts = [part("a", number, filler="x" * 600) for number in range(5)]
            commit.add("t", parts, lambda error: done.append((error, commit.pending)))
            work = asyncio.create_task(commit.run())
            await commit.drain()
            assert done == [(None, 0)]
            assert len(await stored(made)) == 5
            work.cancel()

    run(test())


def test_what_the_log_can_never_take_is_said_and_the_next_goes_on(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made:
            commit = GroupCommit(made.log.writer(names.LOG), lambda: 5.0)
            told: list[LogError | None] = []
            commit.add("t", [part("a", 1, filler="x" * 5_000_000)], told.append)
            commit.add("t", [part("a", 2)], told.append)
            work = asyncio.create_task(commit.run())
            await commit.drain()
            assert [type(error) for error in told] == [TooLarge, type(None)]
            assert await stored(made) == [("t", ["a:1:2"])]
            work.cancel()

    run(test())


pieces = st.builds(part, st.sampled_from("ab"), st.integers(0, 3), st.integers(1, 3), client=st.sampled_from("xy"))


@given(st.lists(pieces, max_size=8))
def test_merged_runs_tell_the_same_ids_and_consecutive_ones_are_one(parts: list[Part]) -> None:
    runs, rows, _ = _merged(parts)
    ids = [str(id) for id in Publications("t", 0.0, runs, rows).ids()]
    assert ids == [row["id"] for row in orjson.loads(rows)]
    for run_before, run_after in pairwise(runs):
        same = run_before[:2] == run_after[:2] and run_before[4:] == run_after[4:]
        assert not (same and run_after.first == run_before.first + run_before.length)
