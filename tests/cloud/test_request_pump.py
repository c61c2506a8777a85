"""Requests on their way to their stream: many in a message, in their order, and none lost for another."""

from __future__ import annotations

import asyncio

from coordinator_kit import Kit
from servers import NatsServer

from spinney_cloud import names
from spinney_cloud.log_errors import LogError, TooLarge
from spinney_cloud.request_pump import MAX_TOGETHER, MAX_TOGETHER_BYTES, RequestPump
from spinney_cloud.request_queue import RequestQueue


async def stored(kit: Kit, requests: list[tuple[str, bytes]]) -> tuple[list[bytes], int, list[LogError | None]]:
    """What the queue gives of these, in how many messages they are, and what each was told."""
    pump = RequestPump(kit.log.writer(names.REQUESTS))
    told: list[LogError | None] = []
    for client, data in requests:
        pump.put(client, data, told.append)
    running = asyncio.create_task(pump.run())
    await pump.drain()
    running.cancel()
    assert pump.pending == 0
    queue = RequestQueue(kit.log.connection)
    count = told.count(None)
    found: list[bytes] = []
    while len(found) < count:
        found += [one.data for one in await queue.next()]
    await queue.close()
    return found, (await kit.log.state(names.REQUESTS)).messages, told


def test_what_waits_goes_together_whosever_it_is(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            requests = [(("ana", "ben")[number % 2], b"%d" % number) for number in range(2 * MAX_TOGETHER + 5)]
            found, messages, told = await stored(kit, requests)
            assert found == [data for _, data in requests]
            assert messages == 3
            assert told == [None] * len(requests)

    asyncio.run(work())


def test_one_alone_waits_for_no_other(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            assert await stored(kit, [("ana", b"1")]) == ([b"1"], 1, [None])

    asyncio.run(work())


def test_large_ones_go_apart_and_one_that_is_too_large_harms_no_other(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            half, never = MAX_TOGETHER_BYTES // 2 + 1, kit.log.connection.max_payload + 1
            sizes = (1, half, half, 1, never, 1)
            found, messages, told = await stored(kit, [("ana", b"x" * size) for size in sizes])
            assert [len(data) for data in found] == [1, half, half, 1, 1]
            assert messages == 3
            assert [type(error) for error in told] == [*[type(None)] * 4, TooLarge, type(None)]

    asyncio.run(work())
