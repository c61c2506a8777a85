from __future__ import annotations

import asyncio

import pytest
from log_kit import SUBJECT, numbers, opened, put_all, run, take
from servers import NatsServer

from spinney_cloud import log_writer, names
from spinney_cloud.nats_log import LogError, NatsLog, Stored, StreamState, TooLarge, Writer
from spinney_cloud.settings import Settings

Future = asyncio.Future[Stored]


async def stored(log: NatsLog) -> list[bytes]:
    """All that is in the log."""
    count = (await log.state(names.LOG)).messages
    reader = log.reader(names.LOG, after=0)
    messages = await take(reader, count) if count else []
    await reader.close()
    return [message.data for message in messages]


def test_messages_are_stored_in_the_order_of_put(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            futures = [await writer.put(SUBJECT, payload) for payload in numbers(5000)]
            assert [await future for future in futures] == [Stored(number, False) for number in range(1, 5001)]
            assert await stored(log) == numbers(5000)
            assert writer.blocked is None
            assert writer.pending == writer.pending_bytes == 0

    run(test())


def test_the_same_id_is_stored_once(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            first = await (await writer.put(SUBJECT, b"a", message_id="x"))
            again = await (await writer.put(SUBJECT, b"a", message_id="x"))
            other = await (await log.writer(names.LOG).put(SUBJECT, b"a"))
            assert (first, again, other) == (Stored(1, False), Stored(1, True), Stored(2, False))

    run(test())


@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=pytest.mark.soak)])
def test_kill_9_of_the_server_under_load_keeps_order_and_stores_each_once(nats: NatsServer, rounds: int) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writers = [log.writer(names.LOG), log.writer(names.LOG, max_pending=50)]
            sent = [0, 0]
            killed = asyncio.Event()

            async def write(place: int) -> None:
                while not killed.is_set():
                    await writers[place].put(SUBJECT, b"%d %d" % (place, sent[place]))
                    sent[place] += 1
                    if sent[place] % 10 == 0:
                        await asyncio.sleep(0)

            tasks = [asyncio.create_task(write(place)) for place in (0, 1)]
            for number in range(rounds):
                goal = sent[0] + 1500 + 397 * number
                while sent[0] < goal:
                    await asyncio.sleep(0.001)
                nats.kill()
                await asyncio.to_thread(nats.start)
            killed.set()
            await asyncio.gather(*tasks)
            for writer in writers:
                await writer.drain()
            found = await stored(log)
            for place in (0, 1):
                mine = [data for data in found if data.startswith(b"%d " % place)]
                assert mine == [b"%d %d" % (place, number) for number in range(sent[place])]
            assert sum(writer.resent for writer in writers) > 0
            assert sum(writer.reordered for writer in writers) == 0

    run(test())


def test_a_full_log_holds_everything_back_in_order_and_goes_on_when_there_is_room(nats: NatsServer) -> None:
    """Large and small alternate: the small would fit when the large does not."""
    payloads = [b"%d " % number + b"x" * (30_000 if number % 2 else 10) for number in range(200)]

    async def test() -> None:
        async with opened(nats, max_bytes=600_000) as log:
            writer = log.writer(names.LOG)
            putting = asyncio.create_task(put_all(writer, payloads))
            found: list[bytes] = []
            reader = log.reader(names.LOG, after=0)
            blocked = 0
            while not putting.done() or len(found) < len(payloads):
                messages = await reader.next(timeout_seconds=0.05)
                found += [message.data for message in messages]
                if writer.blocked and not messages:
                    assert "maximum bytes exceeded" in writer.blocked
                    blocked += 1
                    await log.purge(names.LOG, reader.after)
            await putting
            assert found == payloads
            assert blocked > 1
            assert writer.blocked is None
            assert writer.reordered == 0

    run(test())


def test_what_is_larger_than_the_server_takes_fails_alone(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            await put_all(writer, numbers(1))
            before = await writer.put(SUBJECT, b"before")
            large = await writer.put(SUBJECT, b"x" * 5_000_000)
            after = await writer.put(SUBJECT, b"after")
            with pytest.raises(TooLarge) as error:
                await large
            assert error.value.limit == 4 * 1024 * 1024
            assert (await before, await after) == (Stored(2, False), Stored(3, False))
            assert log.connection.epoch == 1

    run(test())


def test_what_is_larger_than_the_stream_takes_fails_alone(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            await put_all(writer, numbers(1))
            info = await log.connection.api(f"STREAM.INFO.{names.LOG}")
            await log.connection.api(f"STREAM.UPDATE.{names.LOG}", {**info["config"], "max_msg_size": 1000})
            large = await writer.put(SUBJECT, b"x" * 2000)
            after = await writer.put(SUBJECT, b"after")
            with pytest.raises(TooLarge):
                await large
            assert (await after).sequence == 2
            assert writer.blocked is None

    run(test())


def test_put_waits_while_too_much_is_pending(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG, max_pending=10)
            await put_all(writer, numbers(1))
            nats.pause()
            for payload in numbers(10):
                await writer.put(SUBJECT, payload)
            waiting = [asyncio.create_task(writer.put(SUBJECT, payload)) for payload in numbers(3, 10)]
            await asyncio.wait(waiting, timeout=0.05)
            assert writer.pending == 10
            waiting[1].cancel()
            nats.resume()
            await (await waiting[2])
            assert await stored(log) == [b"0", *numbers(11), b"12"]

    run(test())


def test_a_server_that_says_nothing_is_said_and_waited_for(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "ANSWER_SECONDS", 0.3)

    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            await put_all(writer, numbers(1))
            nats.pause()
            future = await writer.put(SUBJECT, b"1")
            while writer.blocked is None:
                await asyncio.sleep(0.01)
            assert "no answer" in writer.blocked
            nats.resume()
            await future
            assert await stored(log) == numbers(2)

    run(test())


def test_a_pen_that_nobody_writes_with_is_not_blocked_any_more_when_the_server_is_back(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            await (await writer.put(SUBJECT, b"a"))
            nats.kill()
            while writer.blocked is None:
                await asyncio.sleep(0.005)
            nats.start()
            async with asyncio.timeout(30):
                while writer.blocked is not None:
                    await asyncio.sleep(0.005)

    run(test())


async def put_unheard(log: NatsLog, nats: NatsServer, writer: Writer, payloads: list[bytes]) -> list[Future]:
    """Put messages and lose the acknowledgements."""
    handlers, log.connection._handlers = log.connection._handlers, {}
    last = (await state_seen_by_another(nats)).last
    futures = [await writer.put(SUBJECT, payload) for payload in payloads]
    while (await state_seen_by_another(nats)).last < last + len(payloads):
        pass
    # An answer is on its way for at most one more turn: a question on the same connection comes after it.
    await log.connection.flush()
    log.connection._handlers = handlers
    return futures


async def state_seen_by_another(nats: NatsServer) -> StreamState:
    async with await NatsLog.connect(nats.endpoints(), name="another") as other:
        return await other.state(names.LOG)


def test_without_an_answer_it_sends_again(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "ANSWER_SECONDS", 0.3)

    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            await put_all(writer, numbers(1))
            futures = await put_unheard(log, nats, writer, numbers(10, 1))
            assert await asyncio.gather(*futures) == [Stored(number, True) for number in range(2, 12)]
            assert writer.resent == 10
            assert await stored(log) == numbers(11)

    run(test())


def test_what_the_server_has_and_has_forgotten_the_id_of_is_not_stored_twice(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acknowledgements of ten messages are lost, for longer than the server remembers ids."""
    monkeypatch.setattr(log_writer, "OLD_SECONDS", 0.0)

    async def test() -> None:
        async with opened(nats) as log:
            info = await log.connection.api(f"STREAM.INFO.{names.LOG}")
            forgetful = {**info["config"], "duplicate_window": 100_000_000}
            await log.connection.api(f"STREAM.UPDATE.{names.LOG}", forgetful)
            writer = log.writer(names.LOG)
            await put_all(writer, numbers(3))
            futures = await put_unheard(log, nats, writer, numbers(10, 3))
            meanwhile = log.writer(names.LOG)
            assert (await (await meanwhile.put(SUBJECT, b"meanwhile"))).sequence == 14
            nats.kill()
            await asyncio.to_thread(nats.start)
            last = await (await writer.put(SUBJECT, b"last"))
            assert await asyncio.gather(*futures) == [Stored(number, True) for number in range(4, 14)]
            assert last == Stored(15, False)
            assert await stored(log) == [*numbers(13), b"meanwhile", b"last"]

    run(test())


def test_a_stream_that_is_missing_is_said_and_waited_for(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            await log.js.delete_stream(names.LOG)
            writer = log.writer(names.LOG)
            future = await writer.put(SUBJECT, b"0")
            while writer.blocked is None:
                await asyncio.sleep(0.01)
            assert names.LOG in writer.blocked
            await log.ensure(Settings())
            assert (await future).sequence == 1
            assert writer.blocked is None

    run(test())


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB x 0", "a..b", ".a", "a."])
def test_a_subject_that_would_break_the_protocol_is_refused(nats: NatsServer, subject: str) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            with pytest.raises(ValueError, match="subject"):
                await log.writer(names.LOG).put(subject, b"")

    run(test())


def test_close_gives_up_what_is_pending(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            nats.pause()
            future = await writer.put(SUBJECT, b"0")
            await writer.close()
            nats.resume()
            with pytest.raises(asyncio.CancelledError):
                await future
            with pytest.raises(LogError, match="closed"):
                await writer.put(SUBJECT, b"1")

    run(test())
