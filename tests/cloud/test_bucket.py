from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from log_kit import opened, run
from servers import NatsServer

from spinney_cloud import names
from spinney_cloud.bucket import stream_of
from spinney_cloud.nats_log import Bucket, Change, Entry, TooLarge
from spinney_cloud.settings import Settings


def test_a_bucket_keeps_the_newest_value_of_each_key(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            bucket = log.bucket(names.SUBSCRIPTIONS)
            assert await bucket.load() == {}
            assert await bucket.get("a.b") is None
            assert await bucket.put("a.b", b"1") == 1
            assert await bucket.put("a.c", b"") == 2
            assert await bucket.put("a.b", b"2") == 3
            assert await bucket.load() == {"a.c": Entry(b"", 2), "a.b": Entry(b"2", 3)}
            assert await bucket.get("a.b") == Entry(b"2", 3)
            await bucket.delete("a.b")
            await bucket.delete("never.there")
            assert await bucket.load() == {"a.c": Entry(b"", 2)}
            assert await bucket.get("a.b") is None
            assert await bucket.put("a.b", b"3") == 6

    run(test())


@pytest.mark.parametrize(
    ("prefix", "keys"),
    [
        ("", {"a.b.c", "a.b.d", "a.bb.e", "f"}),
        ("a.", {"a.b.c", "a.b.d", "a.bb.e"}),
        ("a.b", {"a.b.c", "a.b.d", "a.bb.e"}),
        ("a.b.", {"a.b.c", "a.b.d"}),
        ("f", {"f"}),
        ("x.y.", set()),
    ],
)
def test_load_takes_the_keys_that_begin_so(nats: NatsServer, prefix: str, keys: set[str]) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            bucket = log.bucket(names.READERS)
            for key in ("a.b.c", "a.b.d", "a.bb.e", "f"):
                await bucket.put(key, b"x")
            assert (await bucket.load(prefix)).keys() == keys

    run(test())


@pytest.mark.slow
def test_100_000_keys_are_put_in_seconds_and_loaded_in_about_one(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            bucket = log.bucket(names.SUBSCRIPTIONS)
            keys = [names.subscription_key("default", f"o{number % 100}", f"s{number}") for number in range(100_000)]
            began = time.perf_counter()
            for key in keys:
                await bucket.put_soon(key, b"x" * 300)
            await bucket.writer.drain()
            put = time.perf_counter() - began
            loaded = await bucket.load()
            assert loaded.keys() == set(keys)
            assert put < 20
            assert time.perf_counter() - began - put < 10

    run(test())


async def changes(watch: AsyncIterator[Change], count: int) -> list[Change]:
    return [await anext(watch) for _ in range(count)]


def test_a_watch_tells_each_change_and_each_end(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            bucket = log.bucket(names.ANNOUNCEMENTS)
            await bucket.put("a", b"1")
            watch = bucket.watch()
            assert await anext(watch) == Change("a", b"1", 1)
            await bucket.put("b", b"")
            await bucket.delete("a")
            assert await changes(watch, 2) == [Change("b", b"", 2), Change("a", None, 3)]
            await watch.aclose()

    run(test())


def test_a_watch_begins_after_a_revision_and_tells_what_is_now(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            bucket = log.bucket(names.ANNOUNCEMENTS)
            for number in range(5):
                await bucket.put(f"k{number}", b"old")
            revision = max(entry.revision for entry in (await bucket.load()).values())
            await bucket.put("k1", b"new")
            await bucket.put("k1", b"newer")
            await bucket.delete("k2")
            watch = bucket.watch(after_revision=revision)
            assert await changes(watch, 2) == [Change("k1", b"newer", 7), Change("k2", None, 8)]
            await watch.aclose()

    run(test())


def test_a_watch_with_a_prefix_tells_no_other_keys(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            bucket = log.bucket(names.ANNOUNCEMENTS)
            for key in ("a.b", "a.bc", "x.b", "a.b.c"):
                await bucket.put(key, b"")
            watch = bucket.watch(prefix="a.b")
            assert [change.key for change in await changes(watch, 3)] == ["a.b", "a.bc", "a.b.c"]
            await watch.aclose()

    run(test())


def test_puts_and_watches_go_on_over_kill_9_of_the_server(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            bucket = log.bucket(names.SUBSCRIPTIONS)
            watch = bucket.watch()
            seen: dict[str, int] = {}

            async def follow() -> None:
                async for change in watch:
                    assert change.value is not None
                    assert change.revision > max(seen.values(), default=0)
                    seen[change.key] = change.revision
                    if change.key == "k2999":
                        return

            following = asyncio.create_task(follow())
            for number in range(3000):
                await bucket.put_soon(f"k{number}", b"x")
                if number in (1000, 2000):
                    nats.kill()
                    await asyncio.to_thread(nats.start)
            await following
            assert seen == {f"k{number}": number + 1 for number in range(3000)}
            await watch.aclose()

    run(test())


def test_after_a_bucket_that_lost_its_tail_a_watch_tells_all_keys_again(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            bucket = log.bucket(names.ACTIVATIONS)
            for number in range(5):
                await bucket.put(f"k{number}", b"x")
            watch = bucket.watch()
            await changes(watch, 5)
            await log.js.delete_stream(stream_of(names.ACTIVATIONS))
            await log.ensure(Settings())
            again = Bucket(log.connection, names.ACTIVATIONS)
            await again.put("k1", b"x")
            await asyncio.to_thread(nats.restart)
            assert await anext(watch) == Change("k1", b"x", 1)
            await watch.aclose()
            await again.close()

    run(test())


def test_the_mark_of_a_deleted_key_goes_in_time(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spinney_cloud.bucket.GONE_SECONDS", 1)

    async def test() -> None:
        async with opened(nats) as log:
            bucket = log.bucket(names.READERS)
            await bucket.put("kept", b"x")
            await bucket.put("gone", b"x")
            await bucket.delete("gone")
            assert (await log.state(stream_of(names.READERS))).messages == 2
            while (await log.state(stream_of(names.READERS))).messages == 2:
                await asyncio.sleep(0.05)
            assert (await bucket.load()).keys() == {"kept"}

    run(test())


def test_a_value_that_is_too_large_fails_alone(nats: NatsServer) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            bucket = log.bucket(names.READERS)
            with pytest.raises(TooLarge):
                await bucket.put("a", b"x" * 5_000_000)
            assert await bucket.put("a", b"x") == 1

    run(test())


@pytest.mark.parametrize("key", ["", "a b", "a.*", ">", "a..b", ".a", "ä"])
def test_what_cannot_be_a_key_is_refused(nats: NatsServer, key: str) -> None:
    async def test() -> None:
        async with opened(nats) as log:
            with pytest.raises(ValueError, match="not a key"):
                await log.bucket(names.READERS).put(key, b"")

    run(test())
