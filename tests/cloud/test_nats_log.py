from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from log_kit import SUBJECT, numbers, opened, put_all, run
from servers import HOST, NatsServer

from spinney_cloud import names, nats_connection, nats_log
from spinney_cloud.certs import Certificates
from spinney_cloud.nats_log import AskError, LogError, NatsLog, NobodyThere, StreamMissing, Unavailable
from spinney_cloud.settings import Settings
from spinney_cloud.streams import HARD_CAP


def test_ensure_makes_streams_with_our_limits_and_changes_them_later(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats, max_bytes=10_000_000) as log:
            config = (await log.js.stream_info(names.LOG)).config
            assert (config.max_bytes, config.discard, config.storage) == (10_000_000 * HARD_CAP, "new", "file")
            assert config.allow_direct
            assert config.duplicate_window == 120
            assert (await log.js.stream_info(names.REQUESTS)).config.retention == "workqueue"
            await put_all(log.writer(names.LOG), numbers(3))
            await log.ensure(Settings.model_validate({"log": {"max_bytes": 20_000_000}}))
            assert (await log.js.stream_info(names.LOG)).config.max_bytes == 20_000_000 * HARD_CAP
            assert (await log.state(names.LOG)).messages == 3

    run(test())


def test_the_buckets_are_those_of_every_other_client(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            await log.bucket(names.READERS).put("a.b", b"x")
            theirs = await log.js.key_value(names.READERS)
            assert (await theirs.get("a.b")).value == b"x"
            await theirs.put("a.c", b"y")
            await theirs.delete("a.b")
            loaded = await log.bucket(names.READERS).load()
            assert {key: entry.value for key, entry in loaded.items()} == {"a.c": b"y"}

    run(test())


def test_state_tells_what_a_stream_holds(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            empty = await log.state(names.LOG)
            assert (empty.first, empty.last, empty.messages, empty.first_time, empty.last_time) == (1, 0, 0, None, None)
            await put_all(log.writer(names.LOG), numbers(5))
            assert await log.purge(names.LOG, 2) == 2
            state = await log.state(names.LOG)
            assert (state.first, state.last, state.messages) == (3, 5, 3)
            assert state.bytes > 0
            assert state.first_time is not None
            assert state.last_time is not None
            assert time.time() - 30 < state.first_time <= state.last_time < time.time() + 30
            await log.purge(names.LOG, 5)
            assert (await log.state(names.LOG))[:3] == (6, 5, 0)
            with pytest.raises(StreamMissing):
                await log.state("OTHER")

    run(test())


def test_a_question_is_answered_or_the_asker_is_told_why_not(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as asker, opened(nats) as answerer:

            async def reverse(payload: bytes) -> bytes:
                return payload[::-1]

            async def fail(payload: bytes) -> bytes:
                raise KeyError(payload.decode())

            async def say_nothing(payload: bytes) -> bytes:
                await asyncio.Event().wait()
                return payload

            await answerer.answer("matcher", "reverse", reverse)
            await answerer.answer("matcher", "fail", fail)
            await answerer.answer("matcher", "nothing", say_nothing)
            await answerer.connection.flush()
            assert await asker.ask("matcher", "reverse", b"abc") == b"cba"
            assert await asker.ask("matcher", "reverse") == b""
            with pytest.raises(AskError, match="KeyError: 'abc'"):
                await asker.ask("matcher", "fail", b"abc")
            with pytest.raises(AskError, match=r"no answer .* within 0\.1 s"):
                await asker.ask("matcher", "nothing", timeout_seconds=0.1)
            with pytest.raises(NobodyThere, match="delivery"):
                await asker.ask("delivery", "reverse")

    run(test())


def test_questions_are_worked_on_side_by_side(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            waiting: list[bytes] = []
            all_there = asyncio.Event()

            async def meet(payload: bytes) -> bytes:
                waiting.append(payload)
                if len(waiting) == 20:
                    all_there.set()
                await all_there.wait()
                return payload

            await log.answer("x", "meet", meet)
            await log.connection.flush()
            asked = [log.ask("x", "meet", payload) for payload in numbers(20)]
            assert await asyncio.gather(*asked) == numbers(20)

    run(test())


def test_answers_go_on_after_kill_9_of_the_server(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as asker, opened(nats) as answerer:

            async def same(payload: bytes) -> bytes:
                return payload

            await answerer.answer("x", "same", same)
            nats.kill()
            await asyncio.to_thread(nats.start)
            while True:
                try:
                    assert await asker.ask("x", "same", b"1") == b"1"
                    return
                except (NobodyThere, AskError):
                    await asyncio.sleep(0.01)

    run(test())


def test_out_waits_for_the_gateway_and_gives_up_in_time(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log, opened(nats) as gateway:
            with pytest.raises(AskError, match="m7/reply"):
                await log.out("m7", "reply", b"x", timeout_seconds=0.2)
            sending = asyncio.create_task(log.out("m7", "reply", b"x"))
            sent: list[tuple[str, bytes]] = []

            async def publish(subject: str, payload: bytes) -> bytes:
                sent.append((subject, payload))
                if len(sent) == 1:
                    raise ConnectionError("no MQTT server")
                return b""

            await gateway.answer_on(names.OUT, publish)
            await sending
            assert sent == [(names.out_subject("m7", "reply"), b"x")] * 2

    run(test())


def test_connect_waits_for_a_server_that_comes_later(tmp_path: Path) -> None:
    async def test(server: NatsServer) -> None:
        connecting = asyncio.create_task(NatsLog.connect(server.endpoints(), name="test"))
        await asyncio.wait({connecting}, timeout=0.1)
        assert not connecting.done()
        await asyncio.to_thread(server.start)
        await (await connecting).close()

    server = NatsServer(tmp_path / "nats")
    try:
        run(test(server))
    finally:
        server.kill()


def test_a_connection_is_made_again_whatever_the_server_says_before_it_closes(nats: NatsServer) -> None:
    """nats-py gives up for ever after an error such as this one."""

    async def test() -> None:
        async with opened(nats) as log:
            assert log.connection._transport is not None
            log.connection._transport.write(b"PUB a 99999999\r\n")
            await asyncio.wait_for(_epoch(log, 2), 10)
            assert (await log.state(names.LOG)).messages == 0

    run(test())


async def _epoch(log: NatsLog, number: int) -> None:
    while log.connection.epoch < number or not log.connected:
        await asyncio.sleep(0.01)


def test_a_server_that_says_nothing_is_left_and_found_again(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_connection, "PING_SECONDS", 0.2)
    monkeypatch.setattr(nats_connection, "CONNECT_TIMEOUT_SECONDS", 0.5)

    async def test() -> None:
        async with opened(nats) as log:
            writer = log.writer(names.LOG)
            await put_all(writer, numbers(1))
            nats.pause()
            # More than the sockets hold: closing the link must not wait until it is written.
            futures = [await writer.put(SUBJECT, b"x" * 100_000) for _ in range(200)]
            while log.connected:
                await asyncio.sleep(0.01)
            with pytest.raises(Unavailable):
                await log.state(names.LOG)
            nats.resume()
            await asyncio.gather(*futures)
            assert log.connection.epoch == 2
            assert (await log.state(names.LOG)).messages == 201

    run(test())


def test_users_and_their_passwords(tmp_path: Path) -> None:
    async def test(server: NatsServer) -> None:
        endpoints = server.endpoints(nats_user="cloud", nats_password="right")
        async with await NatsLog.connect(endpoints, name="test") as log:
            await log.ensure(Settings())
            assert (await log.state(names.LOG)).messages == 0
        wrong = asyncio.create_task(NatsLog.connect(server.endpoints(), name="test"))
        await asyncio.wait({wrong}, timeout=0.2)
        assert not wrong.done()
        wrong.cancel()
        await asyncio.wait({wrong})

    users = 'authorization { users: [{user: "cloud", password: "right"}] }'
    with NatsServer(tmp_path / "nats", extra=users) as server:
        run(test(server))


@pytest.mark.parametrize("away", ["paused", "killed"])
def test_close_ends_in_time_whatever_the_server_does(
    nats: NatsServer, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_connection, "CLOSE_SECONDS", 0.3)

    async def test() -> None:
        log = await NatsLog.connect(nats.endpoints(), name="test")
        await log.ensure(Settings())
        writer, reader = log.writer(names.LOG), log.reader(names.LOG, after=0)
        await put_all(writer, numbers(1))
        await reader.next()
        (nats.pause if away == "paused" else nats.kill)()
        for _ in range(200):
            await writer.put(SUBJECT, b"x" * 100_000)
        reading = asyncio.create_task(reader.next())
        if away == "killed":
            while log.connected:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            await log.close()
        with pytest.raises(LogError):
            await reading

    run(test())


def test_over_tls_the_servers_certificate_is_checked(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.make_ca()
    shown = certificates.make_server([HOST])

    async def test(server: NatsServer) -> None:
        ours = server.endpoints(nats_ca=str(certificates.path("ca")))
        async with await NatsLog.connect(ours, name="test") as log:
            await log.ensure(Settings())
            assert (await log.state(names.LOG)).messages == 0
            await asyncio.to_thread(server.restart)
            await _epoch(log, 2)
        stranger = asyncio.create_task(NatsLog.connect(server.endpoints(), name="test"))
        await asyncio.wait({stranger}, timeout=0.3)
        assert not stranger.done()
        stranger.cancel()
        await asyncio.wait({stranger})

    tls = f'tls {{ cert_file: "{shown}", key_file: "{certificates.key_path("server")}" }}'
    with NatsServer(tmp_path / "nats", extra=tls) as server:
        run(test(server))


def test_what_it_offers_is_what_it_says() -> None:
    assert all(hasattr(nats_log, name) for name in nats_log.__all__)
