"""Subscriptions through requests and asks: decided in order, in the log before the bucket, once whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import orjson
import pytest
from coordinator_kit import Kit, until, until_so
from servers import NatsServer

from spinney_cloud import broker_service, names, records
from spinney_cloud.settings import Limits, Settings
from spinney_cloud.subscriptions import StoredSubscription


@pytest.fixture(autouse=True)
def no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests count the log's records; those of the history have tests of their own (test_history)."""

    async def nothing(_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(broker_service, "rewrite", nothing)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_subscription_is_in_log_and_bucket_and_answered(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            reply = await kit.subscribe("ana", "air", "NO2 > 40 AND NOT NO2 <= 10")
            assert reply == {
                "request": "sub", "sid": "air", "ok": True, "normal": "NO2 > 40", "cost": "indexed", "start": 1,
            }  # fmt: skip
            [(sequence, record)] = await kit.records()
            assert isinstance(record, records.SubscriptionChange)
            key = names.subscription_key("default", "ana", "air")
            assert (sequence, record.key, record.tenant) == (1, key, "default")
            kept = (await kit.kept(names.SUBSCRIPTIONS))[key]
            assert record.value == {**kept, "start": 0}
            stored = StoredSubscription.from_json(kept)
            assert (stored.start, stored.source, stored.owner, stored.sid) == (
                1, "NO2 > 40 AND NOT NO2 <= 10", "ana", "air",
            )  # fmt: skip

    run(work())


def test_who_leaves_a_subscription_to_the_pipeline_hears_that_it_must_be_running(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            reply = await kit.subscribe("ana", "air", '{"text": "NO2 > 40", "on": "pipeline"}')
            assert reply["ok"]
            assert reply["on"].startswith("pipeline: it must be running")
            assert "on" not in await kit.subscribe("ana", "air", '{"text": "NO2 > 40", "on": "broker"}')
            wrong = await kit.subscribe("ana", "air", '{"text": "NO2 > 40",\n "on": "spark"}')
            assert (wrong["ok"], wrong["error"]["path"], wrong["error"]["line"]) == (False, "on", 2)

    run(work())


def test_what_every_publication_is_asked_for_is_said_to_be_scanned(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            assert (await kit.subscribe("ana", "a", "NO2 IS NULL"))["cost"] == "scanned"

    run(work())


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ("NO2 >", {"line": 1, "column": 6}),
        ("NO2 > 1 AND\n bad(", {"line": 2}),
        ('{"filter": "NO2 > 1",\n "density": {"per_cell": 0}}', {"line": 2, "column": 13, "path": "density"}),
        ('{"text": "WHEN x > 1 UNTIL x < 0", "density": {"cell": 8, "at_most": "1/5m"}}', {"path": "density"}),
        ('{"text": "TOP 3 OVER 1h BY x", "density": {"cell": 8, "at_most": "1/5m"}}', {"path": "density"}),
        ('{"text": "NO2 > 1", "max_per": "often"}', {"path": "max_per"}),
        ('{"text": "NO2 > 1", "labels": {"a": 1}}', {"path": "labels.a"}),
        ('{"text": "NO2 > 1", "enabled": "no"}', {"path": "enabled"}),
        ('{"text": "NO2 > 1", "wish": 1}', {"path": "wish"}),
        ('{"text": "NO2 > 1", "text": "NO2 > 2"}', {}),
        ('{"text": "NO2 > 1", "owner": "somebody"}', {"path": "owner"}),
        ('{"text": "NO2 > 1", "expires": 5}', {"expected": "a time to come"}),
        ("[1]", {}),
    ],
)
def test_a_bad_one_is_refused_with_its_place_and_kept_as_a_dead_letter(
    nats: NatsServer, payload: str, error: dict[str, Any]
) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            reply = await kit.subscribe("ana", "air", payload)
            assert not reply["ok"]
            assert reply["error"]["message"]
            assert reply["error"].items() >= error.items()
            assert await kit.records() == []
            assert (await kit.log.state(names.DEAD)).messages == 1
            assert (await kit.subscribe("ana", "air", "NO2 > 1"))["ok"]  # and it harms nothing else

    run(work())


def test_a_payload_that_is_no_text_is_refused_with_its_place(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.request("ana", "sub", None, "air", payload_b64="Tk8y/yA+IDQw")
            [reply] = await until(lambda: kit.replies("ana", "air"))
            assert (reply["ok"], reply["error"]["line"], reply["error"]["column"]) == (False, 1, 4)

    run(work())


def test_the_same_again_changes_nothing_and_another_begins_anew(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            first = await kit.subscribe("ana", "air", "NO2 > 40")
            assert await kit.subscribe("ana", "air", "NO2 > 40") == first
            assert len(await kit.records()) == 1
            created = (await kit.ask("get", owner="ana", sid="air"))["subscription"]["created"]
            assert (await kit.subscribe("ana", "air", "NO2 > 41"))["start"] == 2
            kept = (await kit.ask("get", owner="ana", sid="air"))["subscription"]
            assert (kept["created"], kept["start"], kept["source"]) == (created, 2, "NO2 > 41")

    run(work())


def test_an_empty_payload_ends_it_and_ending_again_harms_nothing(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.subscribe("ana", "air", "NO2 > 40")
            for _ in range(2):
                assert await kit.subscribe("ana", "air", "") == {
                    "request": "sub", "sid": "air", "ok": True, "ended": True,
                }  # fmt: skip
            [_, (_, record)] = await kit.records()
            assert isinstance(record, records.SubscriptionChange)
            assert record.value is None
            assert await kit.kept(names.SUBSCRIPTIONS) == {}

    run(work())


def test_requests_for_one_subscription_are_done_in_their_order(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            for number in range(100):
                await kit.request("ana", "sub", f"NO2 > {number}" if number % 7 else "", "air")
            await until(lambda: len(kit.replies("ana", "air")) >= 100)
            values = [
                record.value for _, record in await kit.records() if isinstance(record, records.SubscriptionChange)
            ]
            sources = [value and value["source"] for value in values]
            assert sources == [f"NO2 > {number}" if number % 7 else None for number in range(1, 100)]
            [kept] = (await kit.kept(names.SUBSCRIPTIONS)).values()
            assert kept["source"] == "NO2 > 99"

    run(work())


@pytest.mark.parametrize("together", [1, 50])
def test_killed_at_any_moment_all_is_done_once_and_in_order(nats: NatsServer, together: int) -> None:
    """Requests that were under way come again; their records are not stored twice, and none overtakes another."""

    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            lines = [kit.line("ana", "sub", f"NO2 > {number}", f"s{number % 60}") for number in range(300)]
            for at in range(0, 300, together):
                await kit.together(lines[at : at + together])
            for heard in (1, 40, 100, 220):
                await kit.start()
                await until(lambda heard=heard: len(kit.out) >= heard)
                await kit.kill()
            await kit.start()
            await until_so(kit.has_no_requests)
            assert len(kit.out) >= 300
            assert all(one[2]["ok"] for one in kit.out)
            seen: dict[str, list[int]] = {}
            for _, record in await kit.records():
                assert isinstance(record, records.SubscriptionChange)
                seen.setdefault(record.key, []).append(int(record.value["normal"].split()[-1]))
            assert sorted(number for numbers in seen.values() for number in numbers) == list(range(300))
            assert all(numbers == sorted(numbers) for numbers in seen.values())
            for key, kept in (await kit.kept(names.SUBSCRIPTIONS)).items():
                assert kept["normal"] == f"NO2 > {seen[key][-1]}"
                record = dict(await kit.records())[kept["start"]]
                assert isinstance(record, records.SubscriptionChange)
                assert record.value == {**kept, "start": 0}

    run(work())


def test_a_server_that_is_killed_loses_no_request(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            for number in range(200):
                await kit.request("ana", "sub", f"NO2 > {number}", f"s{number}")
                if number == 100:
                    nats.kill()
                    nats.start()
            await until(lambda: len({one[2]["sid"] for one in kit.out}) == 200, seconds=30)
            assert len(await kit.kept(names.SUBSCRIPTIONS)) == 200

    run(work())


def test_without_a_gateway_requests_stay_until_there_is_one(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.gateway(False)
            await kit.request("ana", "sub", "NO2 > 1", "air")
            sample = "spinney_coordinator_replies_under_way"
            await until(lambda: kit.service and kit.service.metrics.get_sample_value(sample))
            health = orjson.loads(await kit.log.ask("coordinator", "health"))
            assert health["lag_seconds"] > 0.0
            assert b"spinney_coordinator_requests_lag_seconds 0.0\n" not in await kit.log.ask("coordinator", "metrics")
            await kit.kill()
            await kit.gateway(True)
            await kit.start()
            replies = await until(lambda: kit.replies("ana", "air"))
            assert {one["start"] for one in replies} == {1}  # the last words of the killed one may have come, too
            assert len(await kit.records()) == 1

    run(work())


@pytest.mark.parametrize("together", [1, 6])
def test_what_was_decided_is_not_decided_again_after_a_crash(nats: NatsServer, together: int) -> None:
    """Requests that had nothing to do in their time would undo what came after them, in the bucket or in the log."""

    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.subscribe("ana", "again", "NO2 > 1")
            await kit.subscribe("ana", "byhttp", "NO2 > 1")
            await kit.gateway(False)
            asked = (("ended", "", "NO2 > 1"), ("again", "NO2 > 1", "NO2 > 2", ""), ("byhttp", "NO2 > 2"))
            lines = [kit.line("ana", "sub", text, sid) for sid, *texts in asked for text in texts]
            for at in range(0, len(lines), together):
                await kit.together(lines[at : at + together])
            await until_so(lambda: has_in_log(kit, 6))
            await kit.ask("put", owner="ana", sid="byhttp", subscription="NO2 > 3")
            before = await kit.kept(names.SUBSCRIPTIONS)
            assert sorted(one["source"] for one in before.values()) == ["NO2 > 1", "NO2 > 3"]
            changes = await kit.records()
            await kit.kill()
            await kit.gateway(True)
            await kit.start()
            await until_so(kit.has_no_requests)
            assert await kit.kept(names.SUBSCRIPTIONS) == before
            assert await kit.records() == changes
            assert (await kit.subscribe("ana", "ended", ""))["ended"]  # what is new is decided
            assert await kit.has_kept(names.SUBSCRIPTIONS, 1)

    run(work())


async def has_in_log(kit: Kit, count: int) -> bool:
    return len(await kit.records()) == count


def test_what_only_the_log_has_comes_into_the_bucket(nats: NatsServer) -> None:
    """A crash, or a backup, may come between log and bucket."""

    async def work() -> None:
        async with Kit(nats) as kit:
            for sid in "abc":
                await kit.subscribe("ana", sid, "NO2 > 1")
            older = await kit.kept(names.SUBSCRIPTIONS)
            await kit.subscribe("ana", "a", "NO2 > 2")
            await kit.subscribe("ana", "b", "")
            await kit.subscribe("ana", "d", "NO2 > 4")
            newer = await kit.kept(names.SUBSCRIPTIONS)
            await kit.kill()
            bucket = kit.log.bucket(names.SUBSCRIPTIONS)
            for key in newer:
                await bucket.delete(key)
            for key, value in older.items():
                await bucket.put(key, orjson.dumps(value))
            await kit.start()
            assert await kit.kept(names.SUBSCRIPTIONS) == newer
            assert len(await kit.records()) == 6
            assert await kit.subscribe("ana", "d", "NO2 > 4") == kit.replies("ana", "d")[0]

    run(work())


def test_what_the_log_has_lost_begins_anew_in_it(nats: NatsServer) -> None:
    """As after a power cut: there may be other records at those places by now."""

    async def work() -> None:
        async with Kit(nats) as kit:
            for sid in "abc":
                await kit.subscribe("ana", sid, "NO2 > 1")
            await kit.kill()
            state = await kit.log.state(names.LOG)
            for sequence in (2, 3):
                await kit.log.connection.api(f"STREAM.MSG.DELETE.{names.LOG}", {"seq": sequence})
            key = names.subscription_key("default", "ana", "c")
            value = (await kit.kept(names.SUBSCRIPTIONS))[key]
            await kit.log.bucket(names.SUBSCRIPTIONS).put(key, orjson.dumps({**value, "start": 1}))
            tick = records.encode(records.Tick())
            await (await kit.log.writer(names.LOG).put(names.log_subject("tick", "all"), tick))
            for number in range(2):
                await kit.start()
                kept = await kit.kept(names.SUBSCRIPTIONS)
                assert sorted(one["start"] for one in kept.values()) == [1, state.last + 2, state.last + 3], number
                logged = dict(await kit.records())
                for key, value in kept.items():
                    record = logged[value["start"]]
                    assert isinstance(record, records.SubscriptionChange)
                    assert (record.key, record.value) == (key, {**value, "start": 0})
                await kit.kill()

    run(work())


def test_a_restart_knows_all_from_the_bucket(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, Settings(limits=Limits(subscriptions=2))) as kit:
            first = await kit.subscribe("ana", "a", "NO2 > 1")
            await kit.subscribe("ana", "b", {"text": "NO2 > 2", "expires": time.time() + 1.0})
            assert not (await kit.subscribe("ana", "c", "NO2 > 3"))["ok"]
            await kit.kill()
            await kit.start()
            assert await kit.subscribe("ana", "a", "NO2 > 1") == first
            await until_so(lambda: kit.has_kept(names.SUBSCRIPTIONS, 1))
            assert (await kit.subscribe("ana", "c", "NO2 > 3"))["ok"]

    run(work())


def test_what_expires_is_ended_in_log_and_bucket(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            expires = time.time() + 0.4
            await kit.subscribe("ana", "a", {"text": "NO2 > 1", "valid_until": expires})
            await kit.subscribe("ana", "b", "NO2 > 1")
            await until_so(lambda: kit.has_kept(names.SUBSCRIPTIONS, 1))
            assert time.time() >= expires
            (_, record) = (await kit.records())[-1]
            key = names.subscription_key("default", "ana", "a")
            assert record == records.SubscriptionChange("default", key, None, request=2)

    run(work())


def test_asks_put_get_disable_list_and_delete(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            put = await kit.ask(
                "put", owner="ana", sid="air", subscription={"filter": "NO2 > 40"}, enabled=True, expires=None,
                labels={"floor": "2"}, options={"max_per": "10/min"}, create=True,
            )  # fmt: skip
            assert put["ok"]
            kept = put["subscription"]
            assert (kept["cost"], kept["labels"], kept["options"], kept["start"]) == (
                "indexed", {"floor": "2"}, {"max_per": "10/min"}, 1,
            )  # fmt: skip
            again = await kit.ask("put", owner="ana", sid="air", subscription="NO2 > 1", create=True)
            assert (again["ok"], again["status"]) == (False, 409)
            bad = await kit.ask("put", owner="ana", sid="x", subscription="NO2 >", options={})
            assert (bad["status"], bad["error"]["line"], bad["error"]["column"]) == (422, 1, 6)
            bad = await kit.ask("put", owner="ana", sid="x", subscription="NO2 > 1", options={"loud": True})
            assert (bad["status"], "loud" in bad["error"]["message"]) == (422, True)
            off = (await kit.ask("disable", owner="ana", sid="air"))["subscription"]
            assert (off["enabled"], off["start"]) == (False, 2)
            assert (await kit.ask("disable", owner="ana", sid="air"))["subscription"]["start"] == 2
            assert (await kit.ask("enable", owner="ana", sid="air"))["subscription"]["start"] == 3
            assert (await kit.ask("get", owner="ben", sid="air"))["status"] == 404
            assert (await kit.ask("get", owner="ana", sid="air", tenant="other"))["status"] == 404
            assert (await kit.ask("delete", owner="ana", sid="air"))["ok"]
            assert (await kit.ask("delete", owner="ana", sid="air"))["status"] == 404
            assert (await kit.ask("get", owner="ana", sid="not a name"))["status"] == 404
            assert (await kit.ask("get", owner="ana"))["status"] == 422

    run(work())


def test_lists_come_page_by_page_by_owner_and_label(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            for number in range(25):
                owner = "ana" if number % 5 else "ben"
                labels = {"kind": "even" if number % 2 == 0 else "odd"}
                await kit.request(owner, "sub", {"text": f"NO2 > {number}", "labels": labels}, f"s{number:02}")
            await kit.request("ana", "sub", "NO2 > 0", "other", tenant="elsewhere")
            await until(lambda: len(kit.out) == 26)

            async def all_of(**question: Any) -> list[str]:
                found, after = [], None
                while True:
                    answer = await kit.ask("list", limit=4, after=after, **question)
                    assert len(answer["subscriptions"]) <= 4
                    found += [f"{one['owner']}/{one['sid']}" for one in answer["subscriptions"]]
                    after = answer["next"]
                    if after is None:
                        return found

            ana = [f"ana/s{number:02}" for number in range(25) if number % 5]
            ben = [f"ben/s{number:02}" for number in range(25) if number % 5 == 0]
            assert await all_of(owner="ana") == ana
            assert await all_of(owner=None) == ana + ben
            assert await all_of(owner="ana", labels={"kind": "even"}) == [one for one in ana if int(one[-2:]) % 2 == 0]
            assert await all_of(owner="nobody") == []
            await kit.subscribe("ana", "s01", "")
            await kit.subscribe("ana", "s99", "NO2 > 1")
            assert await all_of(owner="ana") == [*ana[1:], "ana/s99"]

    run(work())


def test_a_request_that_cannot_be_read_is_put_aside(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            writer = kit.log.writer(names.REQUESTS)
            for data in (b"", b"[]", b'{"v":1}', b'{"v":9,"client":"a","leaf":"sub","received":1,"tenant":"default"}'):
                await writer.put(names.request_subject("ana"), data)
            await kit.request("ana", "dance", "", None)
            assert (await kit.subscribe("ana", "air", "NO2 > 1"))["ok"]
            assert (await kit.log.state(names.DEAD)).messages == 5

    run(work())


def test_a_damaged_value_is_passed_over_and_counted(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            await kit.log.bucket(names.SUBSCRIPTIONS).put(names.subscription_key("default", "ana", "x"), b"{}")
            await kit.start()
            assert (await kit.subscribe("ana", "air", "NO2 > 1"))["ok"]
            metrics = (await kit.log.ask("coordinator", "metrics")).decode()
            assert "spinney_coordinator_damaged 1.0" in metrics
            assert "spinney_coordinator_subscriptions 1.0" in metrics

    run(work())
