"""The matcher process with a real nats-server: killed, restarted, and compared with an engine that never was."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import orjson
import psutil
import pytest
from engine_logs import begins, brief, ends, readings
from log_kit import run
from matcher_kit import Feed, MatcherProcess, feeding
from servers import NatsServer

from spinney_cloud.names import LOG, NOTES, READERS, SUBSCRIPTIONS
from spinney_cloud.notes import Notes, encode
from spinney_cloud.positions import Position
from spinney_cloud.records import Record, SubscriptionChange, Tick
from spinney_cloud.settings import Log, Matching, Settings

SETTINGS = Settings(
    matching=Matching(snapshot_interval=0.2, snapshots_kept=3), log=Log(duplicate_window=3600.0, content_window=60.0)
)
SLOW = SETTINGS.model_copy(update={"matching": Matching(snapshot_interval=3600.0)})


@pytest.fixture
def matcher(nats: NatsServer, tmp_path: Path) -> Iterator[MatcherProcess]:
    with MatcherProcess(tmp_path / "data", nats, SETTINGS) as process:
        yield process


def content(messages: list[Notes]) -> list[bytes]:
    return [encode(one) for one in messages]


async def check_told(feed: Feed, settings: Settings = SETTINGS) -> list[Notes]:
    """The notification log has what the log says, once each and in order."""
    told = await feed.notes()
    assert content(told) == content(await feed.what_the_log_says(settings))
    return told


def test_it_tells_all_three_kinds_and_goes_on_after_a_stop(nats: NatsServer, matcher: MatcherProcess) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            matcher.start()
            await feed.put(
                begins("hot", "x > 2"),
                begins("room", "WHEN x > 2 UNTIL x <= 2 EACH room"),
                begins("top", "TOP 1 OVER LAST 9 BY x"),
            )
            last = await feed.put(readings("m", 1, {"x": 1}, {"x": 3, "room": "a"}))
            await feed.read_up_to(last)
            assert sorted(brief(await check_told(feed))) == [
                ("hot", "match", None, "m:1:2"),
                ("room", "enter", "a", "m:1:2"),
                ("top", "top", None, "m:1:1"),
            ]
            assert matcher.stop() == 0
            last = await feed.put(ends("hot"), readings("m", 2, {"x": 3, "room": "a"}, {"x": 0, "room": "a"}))
            matcher.start()
            await feed.read_up_to(last)
            told = await check_told(feed)
            assert sorted(brief(told)[3:]) == [("room", "exit", "a", "m:1:3"), ("top", "top", None, "m:1:3")]

    run(test())


def test_it_ticks_when_something_falls_due_and_no_record_comes(nats: NatsServer, matcher: MatcherProcess) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            matcher.start()
            await feed.put(begins("on", {"text": "WHEN x > 2 UNTIL x <= 2", "reorder": 0.3}))
            last = await feed.put(readings("m", 1, {"x": 3}))
            await feed.read_up_to(last + 2)  # a tick that says what time it is, and the one that is due
            (told,) = await check_told(feed)
            assert brief([told]) == [("on", "enter", "m", "m:1:1")]
            assert told.at == (await feed.log.state(LOG)).last
            assert last < told.at <= last + 3

    run(test())


def test_a_subscription_that_has_ended_meanwhile_gets_what_it_was_owed(nats: NatsServer, tmp_path: Path) -> None:
    """The bucket has it no more; the journal of the snapshot has."""

    async def test() -> None:
        with MatcherProcess(tmp_path / "data", nats, SLOW) as matcher:
            async with feeding(nats, SLOW) as feed:
                matcher.start()
                last = await feed.put(begins("hot", "x > 2"), begins("on", "WHEN x > 2 UNTIL x <= 2"))
                await feed.read_up_to(last)
                assert matcher.stop() == 0  # with a snapshot
                await feed.put(
                    readings("m", 1, {"x": 3}),
                    ends("hot"),
                    begins("on", {"text": "WHEN x > 2 UNTIL x <= 2"}),
                    readings("m", 2, {"x": 4}),
                )
                last = await feed.put(readings("m", 3, {"x": 0}))
                matcher.start()
                await feed.read_up_to(last)
                assert sorted(brief(await check_told(feed, SLOW))) == [
                    ("hot", "match", None, "m:1:1"),
                    ("on", "enter", "m", "m:1:1"),
                    ("on", "exit", "m", "m:1:3"),
                ]

    run(test())


def test_what_is_stored_is_not_even_sent_again(nats: NatsServer, tmp_path: Path) -> None:
    """The log would keep one of two, but only for its window of two minutes."""

    async def test() -> None:
        with MatcherProcess(tmp_path / "data", nats, SLOW) as matcher:
            async with feeding(nats, SLOW) as feed:
                matcher.start()
                await feed.put(begins("all", "x > 0"))
                await feed.read_up_to(await feed.put(*(readings("m", n, {"x": 1}) for n in range(1, 30))))
                matcher.kill()
                matcher.start()
                await feed.read_up_to(await feed.put(readings("m", 30, {"x": 1})))
                samples = await feed.metrics()
                assert samples["spinney_matcher_readings_total"] == 30
                assert samples["spinney_matcher_notes_total"] == 1
                assert samples["spinney_matcher_note_messages_repeated_total"] == 0
                assert len(await check_told(feed, SLOW)) == 30

    run(test())


async def limit_notes(feed: Feed, max_bytes: int) -> None:
    info = await feed.log.connection.api(f"STREAM.INFO.{NOTES}")
    await feed.log.connection.api(f"STREAM.UPDATE.{NOTES}", {**info["config"], "max_bytes": max_bytes})


def is_writing(pid: int) -> bool:
    """Whether a process has a copy that is at work."""
    try:
        return any(copy.status() != psutil.STATUS_ZOMBIE for copy in psutil.Process(pid).children())
    except psutil.NoSuchProcess:  # it has ended between the two questions
        return False


def test_no_snapshot_overtakes_notifications_that_cannot_be_stored(nats: NatsServer, matcher: MatcherProcess) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            matcher.start()
            first = await feed.snapshot_beyond(await feed.put(begins("all", "x > 0")))
            await limit_notes(feed, 1)
            last = await feed.put(readings("m", 1, {"x": 1}))
            async with asyncio.timeout(20):
                while not list((matcher.folder / "snapshots").glob(f"{last:020d}*")):
                    await asyncio.sleep(0.01)
                while (await feed.health())["ready"]:
                    await asyncio.sleep(0.01)
                assert matcher.process is not None
                while is_writing(matcher.process.pid):
                    await asyncio.sleep(0.01)
                for _ in range(2):  # after each record it looks round
                    more = await feed.put(Tick())
                    while (health := await feed.health())["sequence"] < more:
                        await asyncio.sleep(0.01)
            assert (health["snapshot"], health["stored"]) == (first, first)
            assert "not stored" in health["why"]
            matcher.kill()
            matcher.start(wait=False)
            await limit_notes(feed, -1)
            await feed.read_up_to(last)
            assert brief(await check_told(feed)) == [("all", "match", None, "m:1:1")]

    run(test())


def some_records(random_: random.Random, numbers: dict[str, int], count: int) -> list[Record]:
    """Readings with duplicates, and now and then a change of subscriptions."""
    out: list[Record] = []
    texts = ["x > 5", "WHEN x > 5 UNTIL x < 3 EACH room", "TOP 2 OVER 0.2s BY x DESC", "TOP 2 OVER LAST 9 BY x"]
    for _ in range(count):
        if random_.random() < 0.1:
            sid = f"s{random_.randrange(6)}"
            out.append(ends(sid) if random_.random() < 0.3 else begins(sid, random_.choice(texts)))
            continue
        source = random_.choice("abc")
        first = max(1, numbers.get(source, 1) - random_.choice([0, 0, 0, 2]))
        rows = [{"x": random_.randrange(10), "room": random_.choice("pq")} for _ in range(5)]
        numbers[source] = first + 5
        out.append(readings(source, first, *rows, numbered=1))
    return out


async def kill_at_random(feed: Feed, matcher: MatcherProcess, rounds: int, seed: int) -> None:
    print(f"seed {seed}")
    random_ = random.Random(seed)
    numbers: dict[str, int] = {}
    for number in range(rounds):
        failpoint = (f"matcher.told:{random_.randrange(1, 30)}", None, "snapshot.publish", "snapshot.written")[
            number % 4
        ]
        matcher.start(wait=False, failpoint=failpoint)
        await feed.put(*some_records(random_, numbers, 40))
        if failpoint is None or failpoint == "snapshot.written":  # which kills the copy
            await asyncio.sleep(random_.random() * 0.6)
            print(f"round {number}: kill -9")
            matcher.kill()
        else:
            print(f"round {number}: {failpoint}")
            while matcher.process is not None and matcher.process.poll() is None:
                await feed.put(*some_records(random_, numbers, 5))
                await asyncio.sleep(0.01)
            matcher.kill()
    matcher.start()
    await feed.read_up_to(await feed.put(begins("last", "TRUE"), readings("z", 1, {"x": 1})))
    assert len(await check_told(feed)) > rounds


@pytest.mark.slow
def test_killed_at_any_instant_it_tells_everything_once_and_in_order(nats: NatsServer, matcher: MatcherProcess) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            await kill_at_random(feed, matcher, rounds=5, seed=random.randrange(10**6))

    run(test())


@pytest.mark.soak
def test_killed_at_any_instant_it_tells_everything_once_and_in_order_many_times(
    nats: NatsServer, matcher: MatcherProcess
) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            await kill_at_random(feed, matcher, rounds=60, seed=random.randrange(10**6))

    asyncio.run(test())


def test_it_survives_that_nats_is_killed(nats: NatsServer, matcher: MatcherProcess) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            matcher.start()
            await feed.put(begins("all", "x > 0"))
            await feed.read_up_to(await feed.put(readings("m", 1, {"x": 1})))
            nats.kill()
            nats.start()
            await feed.read_up_to(await feed.put(readings("m", 2, {"x": 1})))
            assert [note[3] for note in brief(await check_told(feed))] == ["m:1:1", "m:1:2"]

    run(test())


def test_a_damaged_snapshot_is_set_aside_and_the_one_before_is_used(nats: NatsServer, matcher: MatcherProcess) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            matcher.start()
            first = await feed.put(begins("on", "WHEN x > 2 UNTIL x <= 2"), readings("m", 1, {"x": 3}))
            await feed.snapshot_beyond(first)
            second = await feed.put(readings("m", 2, {"x": 0}))
            await feed.snapshot_beyond(second)
            matcher.kill()
            newest = max((matcher.folder / "snapshots").glob("*.snapshot"))
            newest.write_bytes(newest.read_bytes()[:-1] + b"!")
            matcher.start()
            last = await feed.put(readings("m", 3, {"x": 3}))
            await feed.read_up_to(last)
            assert len(await check_told(feed)) == 3
            assert "is damaged and set aside" in matcher.log()

    run(test())


def test_its_position_lets_the_keeper_purge_what_no_snapshot_needs(nats: NatsServer, matcher: MatcherProcess) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            matcher.start()
            floors = []
            for number in range(5):
                last = await feed.put(readings("m", number, {"x": 3}))
                floors.append(await feed.snapshot_beyond(last))
            bucket = feed.log.bucket(READERS)

            async def position() -> Position:
                entry = await bucket.get("matcher")
                return Position.decode(entry.value) if entry else Position(LOG, 0, 0, 0.0)

            async with asyncio.timeout(20):
                while (await position()).floor < floors[-3]:
                    await asyncio.sleep(0.05)
            found = await position()
            assert (found.stream, found.floor, found.sequence) == (LOG, floors[-3], last)
            assert len(list((matcher.folder / "snapshots").glob("*.snapshot"))) == 3

    run(test())


async def in_bucket(feed: Feed, change: SubscriptionChange, start: int) -> None:
    assert change.value is not None
    await feed.log.bucket(SUBSCRIPTIONS).put(change.key, orjson.dumps({**change.value, "start": start}))


def test_without_a_snapshot_or_after_a_gap_the_bucket_says_what_began_before_the_log(
    nats: NatsServer, matcher: MatcherProcess
) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            begun = begins("old", "x > 0")
            await in_bucket(feed, begun, await feed.put(begun))
            await feed.log.purge(LOG, await feed.put(readings("m", 1, {"x": 1})))
            matcher.start()
            await feed.snapshot_beyond(await feed.put(readings("m", 2, {"x": 1})))
            matcher.kill()
            begun = begins("new", "x > 0")
            await in_bucket(feed, begun, await feed.put(begun))
            await feed.log.purge(LOG, await feed.put(readings("m", 3, {"x": 1})))
            last = await feed.put(readings("m", 4, {"x": 1}))
            matcher.start()
            await feed.read_up_to(last)
            told = sorted((note[3], note[0]) for note in brief(await feed.notes()))
            assert told == [("m:1:2", "old"), ("m:1:4", "new"), ("m:1:4", "old")]
            assert "are gone, and were not matched" in matcher.log()

    run(test())


def test_sequences_that_are_used_again_after_a_power_cut_do_not_confuse_it(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        with MatcherProcess(tmp_path / "data", nats, SLOW) as matcher:
            async with feeding(nats, SLOW) as feed:
                matcher.start()
                await feed.put(begins("all", "x > 0"))
                await feed.read_up_to(await feed.put(*(readings("m", n, {"x": 1}) for n in range(1, 6))))
                matcher.stop()  # with a snapshot of the last record
            # the log loses its tail: made anew up to record 3
            async with feeding(nats, SLOW) as feed:
                kept = [begins("all", "x > 0"), readings("m", 1, {"x": 1}), readings("m", 2, {"x": 1})]
                await feed.log.connection.api(f"STREAM.DELETE.{LOG}")
                await feed.log.ensure(SLOW)
                await feed.put(*kept)
                last = await feed.put(*(readings("n", n, {"x": 1}) for n in range(1, 9)))
                matcher.start()
                await feed.read_up_to(last)
                told = [note[3] for note in brief(await feed.notes())]
                assert [f"n:1:{n}" for n in range(1, 9)] == [one for one in told if one.startswith("n")]
                assert "is not of this log" in matcher.log()

    run(test())


def test_metrics_and_health(nats: NatsServer, matcher: MatcherProcess) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            matcher.start()
            await feed.put(begins("all", "x > 0"))
            last = await feed.put(readings("m", 1, {"x": 1}, {"x": 2}), readings("m", 1, {"x": 1}))
            health = await feed.read_up_to(last)
            assert health["ready"]
            samples = await feed.metrics()
            assert samples["spinney_matcher_readings_total"] == 3
            assert samples["spinney_matcher_duplicates_total"] == 1
            assert samples["spinney_matcher_notes_total"] == 2
            assert samples['spinney_matcher_subscriptions{kind="content"}'] == 1

    run(test())


def test_a_record_that_cannot_be_read_is_passed_over(nats: NatsServer, matcher: MatcherProcess) -> None:
    async def test() -> None:
        async with feeding(nats, SETTINGS) as feed:
            matcher.start()
            writer = feed.log.writer(LOG)
            await feed.put(begins("all", "x > 0"))
            await writer.put("spinney_cloud.log.publications.default", b"not a record")
            await writer.put(
                "spinney_cloud.log.publications.default",
                b'{"v":1,"kind":"publications","tenant":"default","received":1,"runs":[]}\n[{]',
            )
            await writer.drain()
            last = await feed.put(Tick(), readings("m", 1, {"x": 1}))
            await feed.read_up_to(last)
            assert [note[3] for note in brief(await feed.notes())] == ["m:1:1"]
            assert matcher.log().count("passed over") == 2

    run(test())
