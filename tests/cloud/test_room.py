from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud.room import Room


def test_room_is_bounded_by_count_and_by_bytes() -> None:
    room = Room(2, 100)
    assert room.try_take(10)
    assert not room.try_take(91)
    assert room.try_take(90)
    assert not room.try_take(0)
    room.give(90)
    assert room.try_take(90)
    assert (room.count, room.size) == (2, 100)


def test_one_thing_larger_than_all_the_room_may_be_there_alone() -> None:
    room = Room(2, 100)
    assert room.try_take(1000)
    assert not room.try_take(1)
    room.give(1000)
    assert room.try_take(1)
    assert not room.try_take(1000)


def test_who_came_first_is_served_first_even_if_others_would_fit() -> None:
    async def test() -> None:
        room = Room(10, 100)
        assert room.try_take(60)
        served: list[str] = []

        async def take(name: str, size: int) -> None:
            await room.take(size)
            served.append(name)

        tasks = [asyncio.create_task(take(name, size)) for name, size in (("large", 80), ("small", 10))]
        await asyncio.wait(tasks, timeout=0.01)
        assert served == []
        assert room.waiting == 2
        assert not room.try_take(1)
        room.give(60)
        await asyncio.gather(*tasks)
        assert served == ["large", "small"]
        assert (room.count, room.size) == (2, 90)

    asyncio.run(test())


def test_close_sends_away_who_waits() -> None:
    async def test() -> None:
        room = Room(1, 1)
        assert room.try_take(1)
        task = asyncio.create_task(room.take(1))
        await asyncio.wait({task}, timeout=0.01)
        room.close()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert room.count == 1

    asyncio.run(test())


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["take", "give", "cancel", "turn"])), max_size=60))
def test_nothing_is_lost_or_taken_twice_whoever_gives_up(steps: list[tuple[int, str]]) -> None:
    async def test() -> None:
        room = Room(3, 100)
        held: list[int] = []
        tasks: list[asyncio.Task[None]] = []

        async def take(size: int) -> None:
            await room.take(size)
            held.append(size)

        for size, step in steps:
            if step == "take":
                tasks.append(asyncio.create_task(take(size)))
            elif step == "give" and held:
                room.give(held.pop(size % len(held)))
            elif step == "cancel" and tasks:
                tasks[size % len(tasks)].cancel()
            elif step == "turn":
                await asyncio.sleep(0)
            assert room.count <= 3
            assert room.size <= 100
        while any(not task.done() for task in tasks):
            await asyncio.sleep(0)
            while held:
                room.give(held.pop())
        while held:
            room.give(held.pop())
        assert (room.count, room.size, room.waiting) == (0, 0, 0)

    asyncio.run(test())
