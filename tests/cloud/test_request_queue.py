"""The queue of requests: each until it is done, and none removed before an earlier one."""

from __future__ import annotations

import asyncio

from coordinator_kit import Kit, until_so
from servers import NatsServer

from spinney_cloud import names
from spinney_cloud.request_queue import AT_ONCE, RequestQueue


def test_requests_are_removed_in_their_order_whatever_the_order_they_are_done_in(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            for number in range(3):
                await kit.request("ana", "sub", str(number), "s")
            queue = RequestQueue(kit.log.connection)
            assert queue.lag_seconds == 0.0
            taken = []
            while len(taken) < 3:
                taken += await queue.next()
            assert queue.lag_seconds > 0.0
            queue.done(taken[1].number)
            queue.done(taken[2].number)
            await kit.log.connection.flush()
            assert (await kit.log.state(names.REQUESTS)).messages == 3
            await queue.close()
            again = RequestQueue(kit.log.connection)
            seen = []
            while len(seen) < 3:
                seen += await again.next()
            assert [one.number for one in seen] == [one.number for one in taken]
            for one in reversed(seen):
                again.done(one.number)
            await until_so(kit.has_no_requests)
            assert again.lag_seconds == 0.0
            await again.close()

    asyncio.run(work())


def test_a_message_of_several_is_removed_once_all_of_them_are_done(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            await kit.together([kit.line("ana", "sub", str(number), "s") for number in range(3)])
            queue = RequestQueue(kit.log.connection)
            taken = await queue.next()
            assert [one.number.place for one in taken] == [0, 1, 2]
            assert taken == sorted(taken)
            queue.done(taken[2].number)
            queue.done(taken[0].number)
            await kit.log.connection.flush()
            assert (await kit.log.state(names.REQUESTS)).messages == 1
            assert queue.under_way == 3
            queue.done(taken[1].number)
            await until_so(kit.has_no_requests)
            assert queue.under_way == 0
            await queue.close()

    asyncio.run(work())


def test_no_more_are_taken_than_can_be_under_way(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            writer = kit.log.writer(names.REQUESTS)
            for number in range(AT_ONCE + 5):
                await writer.put(names.request_subject("ana"), str(number).encode())
            await writer.drain()
            queue = RequestQueue(kit.log.connection)
            taken = []
            while len(taken) < AT_ONCE:
                taken += await queue.next()
            assert queue.under_way == len(taken) == AT_ONCE
            waiting = asyncio.create_task(queue.next())
            await kit.log.connection.flush()
            assert not waiting.done()
            for one in taken:
                queue.done(one.number)
            rest = await waiting
            while len(rest) < 5:
                rest += await queue.next()
            assert [int(one.data) for one in rest] == list(range(AT_ONCE, AT_ONCE + 5))
            await queue.close()

    asyncio.run(work())


def test_a_connection_that_breaks_loses_none_and_repeats_none(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            queue = RequestQueue(kit.log.connection)
            for number in range(2):
                await kit.request("ana", "sub", str(number), "s")
            taken = []
            while len(taken) < 2:
                taken += await queue.next()
            queue.done(taken[0].number)
            nats.kill()
            nats.start()
            await kit.request("ana", "sub", "2", "s")
            [third] = await queue.next()
            assert third.number.sequence == taken[1].number.sequence + 1
            for one in (taken[1], third):
                queue.done(one.number)
            await until_so(kit.has_no_requests)
            await queue.close()

    asyncio.run(work())
