from __future__ import annotations

import asyncio
import time

import pytest
from log_kit import SUBJECT, numbers, opened, put_all, run, take
from servers import NatsServer

from spinney_cloud import log_reader, names
from spinney_cloud.nats_log import LogError, Message, NatsLog, StreamMissing, Truncated, read_range
from spinney_cloud.settings import Settings


def data(messages: list[Message]) -> list[bytes]:
    return [message.data for message in messages]


def test_a_reader_begins_after_any_sequence_and_goes_on_live(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            await put_all(writer, numbers(5000))
            reader = log.reader(names.LOG, after=3000)
            messages = await take(reader, 2000)
            assert data(messages) == numbers(2000, 3000)
            assert [message.sequence for message in messages] == list(range(3001, 5001))
            assert {message.subject for message in messages} == {SUBJECT}
            assert abs(messages[-1].time - time.time()) < 30
            assert reader.caught_up
            await put_all(writer, numbers(3, 5000))
            assert data(await take(reader, 3)) == numbers(3, 5000)
            assert await reader.next(timeout_seconds=0.05) == []

    run(test())


def test_next_gives_no_more_than_it_is_asked_for(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            await put_all(log.writer(names.LOG), numbers(10))
            reader = log.reader(names.LOG, after=0)
            found: list[list[bytes]] = []
            while sum(map(len, found)) < 10:
                found.append(data(await reader.next(at_most=4)))
            assert all(len(messages) <= 4 for messages in found)
            assert [payload for payloads in found for payload in payloads] == numbers(10)

    run(test())


def test_a_message_is_there_at_once(nats: NatsServer) -> None:
    """Some of them within a millisecond after put, over loopback: on an idle machine nearly all are."""

    async def test() -> None:
        async with opened(nats) as log:
            writer, reader = log.writer(names.LOG), log.reader(names.LOG, after=0)
            await put_all(writer, numbers(1))
            await take(reader, 1)
            seconds = []
            for payload in numbers(300):
                began = time.perf_counter()
                future = await writer.put(SUBJECT, payload)
                assert data(await reader.next()) == [payload]
                seconds.append(time.perf_counter() - began)
                await future
            assert sorted(seconds)[10] < 0.001

    run(test())


@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=pytest.mark.soak)])
def test_kill_9_of_the_server_makes_no_gap_and_no_repeat(nats: NatsServer, rounds: int) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer, reader = log.writer(names.LOG), log.reader(names.LOG, after=0)
            found: list[Message] = []
            count = 0
            for number in range(rounds):
                goal = len(found) + 500 + 137 * number
                while len(found) < goal:
                    for _ in range(20):
                        await writer.put(SUBJECT, b"%d" % count)
                        count += 1
                    found += await reader.next(timeout_seconds=0.05, at_most=7)
                nats.kill()
                await asyncio.to_thread(nats.start)
            await writer.drain()
            found += await take(reader, count - len(found))
            assert data(found) == numbers(count)
            assert [message.sequence for message in found] == list(range(1, count + 1))
            assert reader.skipped == 0

    run(test())


def test_a_consumer_that_somebody_deletes_is_made_again(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(log_reader, "SILENCE_SECONDS", 0.6)

    async def test() -> None:
        async with opened(nats) as log:
            writer, reader = log.writer(names.LOG), log.reader(names.LOG, after=0)
            await put_all(writer, numbers(5))
            await take(reader, 5)
            (consumer,) = await log.js.consumers_info(names.LOG)
            await log.js.delete_consumer(names.LOG, consumer.name)
            await put_all(writer, numbers(5, 5))
            assert data(await take(reader, 5)) == numbers(5, 5)
            assert reader.resumed == 2

    run(test())


def test_a_message_lost_on_the_way_is_read_again(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer, reader = log.writer(names.LOG), log.reader(names.LOG, after=0)
            await put_all(writer, numbers(5))
            found = await take(reader, 5)
            handlers, log.connection._handlers = log.connection._handlers, {}
            async with opened(nats) as other:
                await put_all(other.writer(names.LOG), numbers(2, 5))
            await log.connection.flush()
            log.connection._handlers = handlers
            await put_all(writer, numbers(3, 7))
            found += await take(reader, 5)
            assert data(found) == numbers(10)
            assert reader.resumed == 2

    run(test())


def test_a_reader_that_takes_nothing_holds_little(nats: NatsServer) -> None:
    """60 MB are in the log; the server stops sending after about 32."""

    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            await put_all(writer, [b"%d " % number + b"x" * 60_000 for number in range(1000)])
            reader, other = log.reader(names.LOG, after=0), log.reader(names.LOG, after=0)
            await reader.open()
            # The other reads all of it on the same connection meanwhile: the first one has had its chance.
            await take(other, 1000)
            await log.connection.flush()
            assert 0 < len(reader._buffer) * 60_000 < log_reader.WINDOW_BYTES + 2_000_000
            messages = await take(reader, 1000)
            assert [int(message.data.split()[0]) for message in messages] == list(range(1000))
            assert reader.resumed == 1

    run(test())


def test_a_log_that_ends_before_the_reader_is_truncated(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            await put_all(log.writer(names.LOG), numbers(5))
            await log.reader(names.LOG, after=5).open()
            with pytest.raises(Truncated) as error:
                await log.reader(names.LOG, after=6).next()
            assert (error.value.after, error.value.last) == (6, 5)

    run(test())


def test_a_live_reader_is_told_when_the_log_lost_its_tail(nats: NatsServer) -> None:
    """As a power cut does it: here the stream is another one, shorter."""

    async def test() -> None:
        async with opened(nats) as log:
            await put_all(log.writer(names.LOG), numbers(5))
            reader = log.reader(names.LOG, after=0)
            await take(reader, 5)
            await log.js.delete_stream(names.LOG)
            await log.ensure(Settings())
            await put_all(log.writer(names.LOG), numbers(2))
            await asyncio.to_thread(nats.restart)
            with pytest.raises(Truncated):
                await reader.next()
            with pytest.raises(Truncated):
                await reader.next()

    run(test())


def test_what_was_purged_is_counted_as_skipped(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            await put_all(log.writer(names.LOG), numbers(10))
            assert await log.purge(names.LOG, 6) == 6
            reader = log.reader(names.LOG, after=2)
            assert data(await take(reader, 4)) == numbers(4, 6)
            assert reader.skipped == 4

    run(test())


def test_with_a_filter_only_its_subjects_come(nats: NatsServer) -> None:
    tick = names.log_subject("tick", "all")

    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            for payload in numbers(20):
                await writer.put(tick if int(payload) % 3 == 0 else SUBJECT, payload)
            await writer.drain()
            reader = log.reader(names.LOG, after=4, filter_subject=tick)
            assert data(await take(reader, 5)) == [b"6", b"9", b"12", b"15", b"18"]
            assert [
                message async for batch in read_range(log, names.LOG, 4, 11, filter_subject=tick) for message in batch
            ][-1].data == b"9"

    run(test())


@pytest.mark.parametrize(
    ("first", "last"), [(1, 2000), (1, 1), (500, 1700), (2000, 2000), (1900, 9999), (5, 4), (3000, 4000)]
)
def test_a_range_is_what_lies_in_it(nats: NatsServer, first: int, last: int) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            await put_all(log.writer(names.LOG), numbers(2000))
            reader = log.reader(names.LOG, after=0)
            live = {message.sequence: message for message in await take(reader, 2000)}
            found = [message async for batch in read_range(log, names.LOG, first, last) for message in batch]
            assert found == [live[number] for number in range(first, last + 1) if number in live]

    run(test())


def test_a_range_of_an_empty_stream_is_empty(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            assert [batch async for batch in read_range(log, names.LOG, 1, 10)] == []

    run(test())


def test_a_stream_that_stays_missing_is_an_error(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "MISSING_STREAM_SECONDS", 0.1)

    async def test() -> None:
        async with await NatsLog.connect(nats.endpoints(), name="test") as log:
            with pytest.raises(StreamMissing, match=names.LOG):
                await log.reader(names.LOG, after=0).next()

    run(test())


def test_a_reader_waits_for_a_server_that_is_away(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            await put_all(writer, numbers(3))
            reader = log.reader(names.LOG, after=0)
            await take(reader, 3)
            nats.kill()
            assert await reader.next(timeout_seconds=0.2) == []
            await asyncio.to_thread(nats.start)
            await writer.put(SUBJECT, b"3")
            assert data(await take(reader, 1)) == [b"3"]

    run(test())


def test_a_closed_reader_says_so_and_leaves_nothing_behind(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            reader = log.reader(names.LOG, after=0)
            await reader.open()
            waiting = asyncio.create_task(reader.next())
            await asyncio.wait({waiting}, timeout=0.01)
            await reader.close()
            for attempt in (waiting, reader.next()):
                with pytest.raises(LogError, match="closed"):
                    await attempt
            assert not any(handler == reader._on_message for handler in log.connection._handlers.values())

    run(test())
