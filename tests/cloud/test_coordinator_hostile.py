"""What one client asks for, however large or strange, is refused at worst: it neither ends the coordinator nor comes
again at its next start, and everybody else is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import orjson
import pytest
from coordinator_kit import Kit, until, until_so
from servers import NatsServer

from spinney_cloud import activation, names
from spinney_cloud.announcements import Announcement, read_announcement
from spinney_cloud.broker_knowledge import BrokerKnowledge
from spinney_cloud.broker_service import BrokerService
from spinney_cloud.log_errors import TooLarge, Unavailable
from spinney_cloud.nats_log import read_range
from spinney_cloud.records import Announced
from spinney_cloud.settings import Limits, Settings
from spinney_cloud.subscription_service import SubscriptionService

NO2 = {"NO2": {"min": 0, "max": 400}}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def swelling() -> dict[str, Any]:
    """An announcement of less than 1 MB that takes 5 MB as it is kept."""
    constants = {f"{number:x}": 1 for number in range(256)}
    item = {"session": "s1", "sources": [{"name": f"m{number}", "constants": constants} for number in range(520)]}
    assert len(orjson.dumps(item)) < 1_000_000
    return item


async def dead_letters(kit: Kit) -> list[dict[str, Any]]:
    state = await kit.log.state(names.DEAD)
    batches = [batch async for batch in read_range(kit.log, names.DEAD, 1, state.last)]
    return [orjson.loads(message.data) for batch in batches for message in batch]


def test_an_announcement_that_cannot_be_kept_is_refused_before_anything_changes(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", {"session": "s1", "sources": [{"name": "m1", "attributes": NO2}]})
            reply = await kit.announce("b1", swelling())
            assert not reply["ok"]
            assert "announce fewer sources or attributes" in reply["error"]["message"]
            assert (await kit.subscribe("ana", "air", "NO2 > 40"))["ok"]
            await until(lambda: kit.active("b1"))
            assert [one["name"] for one in (await kit.ask("sources"))["sources"]] == ["m1"]
            assert [one.sources for _, one in await kit.records() if isinstance(one, Announced)] == [("m1",)]
            [letter] = await dead_letters(kit)
            assert (letter["client"], letter["leaf"]) == ("b1", "ann")
            await until_so(kit.has_no_requests)

    run(work())


def test_a_request_that_fails_for_a_fault_of_ours_is_refused_once_and_all_others_are_done(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    as_it_is, read = BrokerService.announced, SubscriptionService.read

    async def announced(self: BrokerService, tenant: str, client: str, item: Any, received: float) -> Any:
        seen.append(client)
        if client == "eve":
            raise RecursionError("too deep")
        return await as_it_is(self, tenant, client, item, received)

    def reading(self: SubscriptionService, asked: Any) -> Any:
        if any("evil" in one.source for one in asked):
            raise ZeroDivisionError("of a text")
        return read(self, asked)

    monkeypatch.setattr(BrokerService, "announced", announced)
    monkeypatch.setattr(SubscriptionService, "read", reading)

    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            await kit.request("eve", "ann", {"session": "s1", "sources": []})
            for number in range(20):
                await kit.request("eve" if number == 7 else "ana", "sub", "evil > 1" if number == 7 else "NO2 > 1", "x")
            await kit.request("b1", "ann", {"session": "s1", "sources": []})
            await kit.start()
            await until_so(kit.has_no_requests)
            refused = kit.heard("eve", "reply")
            assert [one["ok"] for one in refused] == [False, False]
            assert ["RecursionError" in str(refused[0]), "ZeroDivisionError" in str(refused[1])] == [True, True]
            assert [one["ok"] for one in kit.heard("ana", "reply")] == [True] * 19
            assert kit.heard("b1", "reply")[0]["ok"]
            assert [letter["client"] for letter in await dead_letters(kit)] == ["eve", "eve"]
            metrics = (await kit.log.ask("coordinator", "metrics")).decode()
            assert 'spinney_coordinator_requests_failed_total{request="ann"} 1.0' in metrics
            assert 'spinney_coordinator_requests_failed_total{request="sub"} 1.0' in metrics
            await kit.stop()
            await kit.start()
            assert (await kit.subscribe("ben", "air", "NO2 > 1"))["ok"]
            assert seen == ["eve", "b1"]

    run(work())


def test_trouble_with_the_log_is_no_fault_of_a_request_which_is_done_after_the_next_start(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_it_is = BrokerService.announced
    troubles = [Unavailable("not connected to the log's server")]

    async def announced(self: BrokerService, tenant: str, client: str, item: Any, received: float) -> Any:
        if troubles:
            raise troubles.pop()
        return await as_it_is(self, tenant, client, item, received)

    monkeypatch.setattr(BrokerService, "announced", announced)

    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.request("b1", "ann", {"session": "s1", "sources": []})
            with pytest.raises(ExceptionGroup) as failure:
                await kit.ended()
            assert failure.group_contains(Unavailable)
            assert not await kit.has_no_requests()
            await kit.start()
            await until(lambda: kit.heard("b1", "reply"))
            assert [one["ok"] for one in kit.heard("b1", "reply")] == [True]

    run(work())


def test_a_filter_that_activation_cannot_deal_with_is_passed_over_and_counted(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_it_is = activation.specialised

    def specialised(digest: str, needs: activation.Needs, *more: Any) -> Any:
        if "evil" in needs.names:
            raise RecursionError("too deep")
        return as_it_is(digest, needs, *more)

    monkeypatch.setattr(activation, "specialised", specialised)

    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", {"session": "s1", "sources": [{"name": "m", "attributes": {**NO2, "evil": {}}}]})
            await kit.subscribe("eve", "x", "evil > 1")
            await kit.subscribe("ana", "x", "NO2 > 1")
            await until(lambda: kit.active("b1"))
            assert "spinney_coordinator_filters_failed 1.0" in (await kit.log.ask("coordinator", "metrics")).decode()

    run(work())


def test_what_the_server_would_end_the_connection_for_is_not_sent(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            epoch = kit.log.connection.epoch
            with pytest.raises(TooLarge):
                await kit.log.ask("coordinator", "list", b" " * (kit.log.connection.max_payload + 1))
            await kit.log.connection.flush()
            assert kit.log.connection.epoch == epoch

    run(work())


def test_choices_that_are_too_many_to_be_kept_are_told_all_the_same(nats: NatsServer) -> None:
    """22 subscriptions choose 990 of 1,000 sources each, with names of 200 characters."""

    async def work() -> None:
        async with Kit(nats) as kit:
            long_names = [f"{number:0200}" for number in range(1000)]
            density = {"per_cell": 990, "cell": 8, "every": "1h"}
            await kit.announce(
                "b1", {"session": "s1", "sources": [{"name": name, "attributes": NO2} for name in long_names]}
            )
            for number in range(22):
                await kit.request("ana", "sub", {"text": f"NO2 = {number}", "density": density}, f"s{number}")
            await until(lambda: len(kit.replies("ana", "s21")) == 1)
            await until(lambda: len(kit.active("b1")) == 22, "all 22 filters")
            await until_so(lambda: kept_no_choice(kit), "the activation in its bucket")
            assert (await kit.subscribe("ben", "air", "NO2 > 40"))["ok"]

    run(work())


async def kept_no_choice(kit: Kit) -> bool:
    kept = (await kit.kept(names.ACTIVATIONS))["default.b1"]
    return bool(kept["filters"] == 22 and kept["chosen"] == {})


def test_thousands_of_kinds_of_sources_with_attributes_of_their_own_are_understood_in_a_moment() -> None:
    """Each attribute of each kind used to be looked for in all kinds: 15 s for this."""
    sources = [
        {"name": f"m{number}", "attributes": {f"a{number}_{at}": {} for at in range(5)}} for number in range(4000)
    ]
    announcement = read_announcement({"session": "s1", "sources": sources}, "default", "b1", 0.0)
    assert isinstance(announcement, Announcement)
    began = time.process_time()
    known = BrokerKnowledge(announcement).known.attributes
    assert time.process_time() - began < 5.0
    assert sum(name.startswith("a") for name in known) == 20_000
    assert known["a7_1"].domain.null


# ---- What takes long


LONG_TEXTS = {
    "comparisons": " OR ".join(f"a{number} > {number} AND b{number} < 1" for number in range(499)),
    "all of any": " AND ".join(f"(a{number} > 1 OR b{number} > 1)" for number in range(499)),
    "values": f"a IN ({', '.join(str(number) for number in range(9_000))})",
    "corners": f"S_WITHIN(location, POLYGON(({', '.join(f'15.{n:04} {45 + n % 2}' for n in range(3000))}, 15.0 45)))",
}


class Turns:
    """How much processor time others have to wait for in the loop, at most: time in which another process has the
    processor, or a thread has, does not count."""

    async def __aenter__(self) -> Turns:
        self.longest = 0.0
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.thread_time() - began)


def test_long_texts_leave_everybody_their_turns(nats: NatsServer) -> None:
    """What had come together used to be read in one turn: for minutes, of long texts."""

    async def work() -> None:
        async with Kit(nats) as kit, Turns() as turns:
            for number, text in enumerate(LONG_TEXTS.values()):
                assert 10_000 < len(text) < 64 * 1024
                for again in range(4):
                    await kit.request("eve", "sub", f"{text} AND c = {again}", f"s{number}")
            assert (await kit.ask("list", owner="eve"))["ok"]
            await until_so(kit.has_no_requests)
            assert [one["ok"] for one in kit.heard("eve", "reply")] == [True] * 16
        print(f"the longest turn took {turns.longest:.3f} s")
        assert turns.longest < 0.1

    run(work())


def test_how_long_a_text_may_be_is_set_and_how_much_it_may_compare_is_told(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, Settings(limits=Limits(subscription_text=20_000))) as kit:
            reply = await kit.subscribe("eve", "long", f"a = '{'x' * 20_000}'")
            assert "at most 20000 (limits.subscription_text)" in reply["error"]["message"]
            reply = await kit.subscribe("eve", "many", " OR ".join(f"a{number}>1" for number in range(1001)))
            assert reply["error"]["message"].startswith("1001 comparisons, at most 1000")
            assert (reply["error"]["line"], reply["error"]["column"]) == (1, 1)
            answer = await kit.ask("put", owner="eve", sid="long", subscription=f"a = '{'x' * 20_000}'")
            assert (answer["ok"], answer["status"]) == (False, 413)
            assert (await kit.subscribe("eve", "enough", " OR ".join(f"a{n}>1" for n in range(1000))))["ok"]

    run(work())


def test_a_long_announcement_leaves_everybody_their_turns(nats: NatsServer) -> None:
    """Of 1 MB, with 900 kinds of sources: it used to be read in one turn of a second and more."""

    async def work() -> None:
        async with Kit(nats) as kit, Turns() as turns:
            await kit.subscribe("ana", "air", "a1 > 40")
            await kit.announce("b1", {"session": "s1", "sources": many_kinds(900)})
            await until(lambda: kit.active("b1"))
        print(f"the longest turn took {turns.longest:.3f} s")
        assert turns.longest < 0.5

    run(work())


def many_kinds(count: int) -> list[dict[str, Any]]:
    return [{"name": f"m{one}", "constants": {f"a{at:x}": one for at in range(100)}} for one in range(count)]
