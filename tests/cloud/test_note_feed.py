"""Notifications as server-sent events: live, resumed, filtered, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from servers import NatsServer

from spinney_cloud import note_feed
from spinney_cloud.names import NOTES, notes_subject
from spinney_cloud.nats_log import NatsLog, Writer
from spinney_cloud.note_feed import NoteFeed
from spinney_cloud.notes import Note, Notes, encode
from spinney_cloud.settings import Settings

SECONDS = 10.0

Scenario = Callable[[NatsLog, Writer], Awaitable[None]]


def run(nats: NatsServer, scenario: Scenario) -> None:
    async def whole() -> None:
        async with await NatsLog.connect(nats.endpoints(), name="test") as log:
            await log.ensure(Settings())
            await scenario(log, log.writer(NOTES))

    asyncio.run(asyncio.wait_for(whole(), 3 * SECONDS))


async def tell(writer: Writer, *who: str, tenant: str = "default") -> int:
    """One message with a notification for each `owner/sid`; its sequence."""
    notes = tuple(Note(*name.split("/"), "match", None, 0, "m7:1:1") for name in who)
    data = encode(Notes(tenant, 1, 1.0, 0, True, ({"id": "m7:1:1"},), notes))
    return (await (await writer.put(notes_subject(tenant), data))).sequence


class Reading:
    """One connection's events, as a browser would take them apart."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.events: list[dict[str, Any]] = []
        self.comments = 0
        self.over = asyncio.Event()
        self._more = asyncio.Event()
        self._chunks = chunks
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for chunk in self._chunks:
            assert chunk.endswith(b"\n\n")
            for block in chunk.decode().removesuffix("\n\n").split("\n\n"):
                fields = dict(line.split(": ", 1) for line in block.splitlines())
                if "data" in fields:
                    self.events.append(fields | orjson.loads(fields["data"]))
                self.comments += "" in fields
            self._more.set()
        self.over.set()

    async def until(self, count: int) -> list[dict[str, Any]]:
        while len(self.events) < count:
            self._more.clear()
            async with asyncio.timeout(SECONDS):
                await self._more.wait()
        return self.events

    def sids(self) -> list[str]:
        return [event["sid"] for event in self.events if "sid" in event]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def listening(feed: NoteFeed, count: int) -> None:
    async with asyncio.timeout(SECONDS):
        while feed.connections != count:
            await asyncio.sleep(0)


def test_each_connection_gets_its_owners_notifications_and_only_those(nats: NatsServer) -> None:
    async def scenario(log: NatsLog, writer: Writer) -> None:
        async with NoteFeed(log) as feed:
            all_of_ana, one_of_ana = Reading(feed.events("ana", "default")), Reading(feed.events("ana", "default", "b"))
            of_bob, other_tenant = Reading(feed.events("bob", "default")), Reading(feed.events("ana", "other"))
            await listening(feed, 4)
            sequence = await tell(writer, "ana/a", "bob/x", "ana/b")
            await tell(writer, "ana/c", tenant="other")
            await all_of_ana.until(2)
            await other_tenant.until(1)
            assert all_of_ana.sids() == ["a", "b"]
            assert [event["id"] for event in one_of_ana.events] == [orjson.loads(one_of_ana.events[0]["data"])["id"]]
            assert one_of_ana.sids() == ["b"]
            assert of_bob.sids() == ["x"]
            assert other_tenant.sids() == ["c"]
            place = await log.state(NOTES)
            assert place.first == sequence
            for each in (all_of_ana, one_of_ana, of_bob, other_tenant):
                await each.close()
            assert feed.connections == 0

    run(nats, scenario)


def test_a_connection_resumes_within_a_message_and_goes_on_live(nats: NatsServer) -> None:
    async def scenario(log: NatsLog, writer: Writer) -> None:
        first = await tell(writer, "ana/a", "ana/b", "bob/x", "ana/c")
        await tell(writer, "bob/y")
        await tell(writer, "ana/d")
        async with NoteFeed(log) as feed:
            reading = Reading(feed.events("ana", "default", None, f"{first}.0"))
            await listening(feed, 1)
            await tell(writer, "ana/e")
            await reading.until(4)
            assert reading.sids() == ["b", "c", "d", "e"]
            await reading.close()

    run(nats, scenario)


@pytest.mark.slow
def test_resuming_under_load_misses_nothing_and_repeats_nothing(nats: NatsServer) -> None:
    async def scenario(log: NatsLog, writer: Writer) -> None:
        total = 4000

        async def load() -> None:
            for number in range(total):
                await writer.put(
                    notes_subject("default"),
                    encode(
                        Notes("default", number, 1.0, 0, True, (), (Note("ana", f"n{number}", "match", 0, None, "x"),))
                    ),
                )
                if number % 50 == 0:
                    await asyncio.sleep(0)

        async with NoteFeed(log) as feed:
            loading = asyncio.create_task(load())
            sids: list[str] = []
            after = "0.0"
            while len(sids) < total:
                chunks = feed.events("ana", "default", None, after)
                stop = len(sids) + 700
                async with asyncio.timeout(SECONDS):
                    async for chunk in chunks:
                        for block in chunk.decode().removesuffix("\n\n").split("\n\n"):
                            if block.startswith("id: "):
                                name, data = block.splitlines()
                                after = name.removeprefix("id: ")
                                sids.append(orjson.loads(data.removeprefix("data: "))["sid"])
                        if len(sids) >= min(stop, total):
                            break
            await loading
            assert sids == [f"n{number}" for number in range(total)]

    run(nats, scenario)


def test_what_is_no_longer_there_is_told_as_a_gap(nats: NatsServer) -> None:
    async def scenario(log: NatsLog, writer: Writer) -> None:
        first = await tell(writer, "ana/a")
        await tell(writer, "ana/b")
        last = await tell(writer, "ana/c")
        await log.purge(NOTES, last - 1)
        async with NoteFeed(log) as feed:
            readings = [
                Reading(feed.events("ana", "default", None, after)) for after in (f"{first - 1}.0", "999.0", "x")
            ]
            await readings[0].until(2)
            await readings[1].until(1)
            await readings[2].until(1)
            assert [event.get("event") for event in readings[0].events] == ["gap", None]
            assert readings[0].sids() == ["c"]
            assert "truncated" in readings[1].events[0]["reason"]
            assert readings[2].events[0]["reason"] == "not an id of an event"
            for each in readings:
                await each.close()

    run(nats, scenario)


def test_a_connection_that_reads_too_slowly_is_cut_and_can_resume(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(note_feed, "MAX_WAITING", 3)

    async def scenario(log: NatsLog, writer: Writer) -> None:
        async with NoteFeed(log) as feed:
            slow, quick = feed.events("ana", "default"), Reading(feed.events("ana", "default"))
            assert await anext(slow) == b"retry: 2000\n\n"
            waiting = asyncio.ensure_future(anext(slow))
            await listening(feed, 2)
            await tell(writer, "ana/a")
            await waiting
            for sid in "bcdef":
                await tell(writer, f"ana/{sid}")
                await quick.until(ord(sid) - ord("a") + 1)
            rest = Reading(slow)
            await rest.until(4)
            await rest.over.wait()
            assert rest.sids() == ["b", "c", "d"]
            cut = rest.events[-1]
            assert (cut["event"], cut["reason"]) == ("cut", "too slow")
            resumed = Reading(feed.events("ana", "default", None, cut["resume"]))
            await resumed.until(2)
            assert resumed.sids() == ["e", "f"]
            assert quick.sids() == list("abcdef")
            await resumed.close()
            await quick.close()

    run(nats, scenario)


def test_silence_is_filled_with_comments(nats: NatsServer) -> None:
    async def scenario(log: NatsLog, writer: Writer) -> None:
        async with NoteFeed(log, keepalive_seconds=0.01) as feed:
            reading = Reading(feed.events("ana", "default"))
            async with asyncio.timeout(SECONDS):
                while reading.comments < 2:
                    await asyncio.sleep(0)
            await tell(writer, "ana/a")
            await reading.until(1)
            await reading.close()

    run(nats, scenario)


def test_the_feed_goes_on_when_the_logs_server_comes_back(nats: NatsServer) -> None:
    async def scenario(log: NatsLog, writer: Writer) -> None:
        async with NoteFeed(log) as feed:
            reading = Reading(feed.events("ana", "default"))
            await listening(feed, 1)
            await tell(writer, "ana/a")
            await reading.until(1)
            await asyncio.to_thread(nats.kill)
            await asyncio.to_thread(nats.start)
            await tell(writer, "ana/b")
            await reading.until(2)
            assert reading.sids() == ["a", "b"]
            await reading.close()

    run(nats, scenario)
