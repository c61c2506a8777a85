"""The coordinator at work: announcements in, activations out, leases kept, and all of it again after a kill."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from coordinator_kit import Kit, until, until_so
from servers import NatsServer

from spinney import parse, source_health
from spinney_cloud import names, records
from spinney_cloud.settings import Coordinator, Settings
from spinney_cloud.subscriptions import form_of

NO2 = {"NO2": {"min": 0, "max": 400, "unit": "ug/m3"}}
ANNOUNCED = {"request": "ann", "ok": True, "session": "s1", "members": ["health", "fetch"], "reports": 1}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def said(*sources: str, session: str = "s1", **more: Any) -> dict[str, Any]:
    return {"session": session, "sources": [{"name": name, "attributes": NO2} for name in sources], **more}


def digest(text: str) -> str:
    return form_of(parse(text)).digest


async def announced_records(kit: Kit) -> list[tuple[tuple[str, ...], bool]]:
    return [(one.sources, one.over) for _, one in await kit.records() if isinstance(one, records.Announced)]


def test_a_broker_is_told_what_is_wanted_of_it_and_each_change(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.subscribe("ana", "a", "NO2 > 40 AND room IS NULL")
            assert await kit.announce("b1", said("m1")) == ANNOUNCED
            await until(lambda: kit.active("b1"))
            [first] = kit.heard("b1", "act")
            assert (first["full"], first["drop"]) == (True, [])
            assert first["add"] == [
                {
                    "filter": digest("NO2 > 40 AND room IS NULL"),
                    "kind": "content",
                    "subscription": {"text": "NO2 > 40"},
                }
            ]
            await kit.subscribe("ana", "b", "NO2 < 10")
            await until(lambda: len(kit.active("b1")) == 2)
            await kit.subscribe("ana", "a", "")
            await until(lambda: list(kit.active("b1")) == [digest("NO2 < 10")])
            assert [message["epoch"] - first["epoch"] for message in kit.heard("b1", "act")] == [0, 1, 2]
            assert all(not message["full"] for message in kit.heard("b1", "act")[1:])

    run(work())


def test_a_change_adds_before_it_drops_in_one_epoch(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", said("m1"))
            await kit.subscribe("ana", "a", "NO2 > 40")
            await until(lambda: kit.active("b1"))
            await kit.subscribe("ana", "b", "NO2 > 30")
            await until(lambda: list(kit.active("b1")) == [digest("NO2 > 30")])
            message = kit.heard("b1", "act")[-1]
            assert [one["filter"] for one in message["add"]] == [digest("NO2 > 30")]
            assert message["drop"] == [digest("NO2 > 40")]

    run(work())


def test_the_full_set_comes_when_a_broker_has_lost_count_and_else_not(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.subscribe("ana", "a", "NO2 > 40")
            await kit.announce("b1", said("m1"))
            await until(lambda: kit.active("b1"))
            epoch = kit.heard("b1", "act")[-1]["epoch"]
            await kit.announce("b1", said("m1", have=epoch))
            await kit.announce("b1", said("m1"))  # the same session: no reason to think that it lost anything
            await kit.announce("b1", said("m1", have=epoch, session="s2"))
            await kit.subscribe("ana", "b", "NO2 < 10")
            await until(lambda: len(kit.active("b1")) == 2)
            assert len(kit.heard("b1", "act")) == 2
            await kit.announce("b1", said("m1", have=epoch))
            await until(lambda: len(kit.heard("b1", "act")) == 3)
            await kit.announce("b1", said("m1", session="s3"))
            await until(lambda: len(kit.heard("b1", "act")) == 4)
            for message in kit.heard("b1", "act")[2:]:
                assert message["full"]
                assert len(message["add"]) == 2

    run(work())


def test_a_restart_tells_nobody_what_it_has_already(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            for number in range(5):
                await kit.subscribe("ana", f"s{number}", f"NO2 BETWEEN {number * 10} AND {number * 10 + 5}")
            await kit.announce("b1", said("m1", lease=["m1"]))
            await until(lambda: len(kit.active("b1")) == 5)
            epoch = kit.heard("b1", "act")[-1]["epoch"]
            await until_so(lambda: _is_epoch(kit, "default.b1", epoch))
            await kit.kill()
            await kit.start()
            await kit.subscribe("ana", "new", "NO2 > 300")
            await until(lambda: len(kit.active("b1")) == 6)
            last = kit.heard("b1", "act")[-1]
            assert (last["full"], last["epoch"], len(last["add"]), "leases" in last) == (False, epoch + 1, 1, False)

    run(work())


def test_what_changed_while_it_was_down_is_told_after_a_restart(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", said("m1"))
            await kit.subscribe("ana", "a", "NO2 > 40")
            await until(lambda: kit.active("b1"))
            await kit.kill()
            await kit.request("ana", "sub", "NO2 > 30", "a")
            await kit.start()
            await until(lambda: list(kit.active("b1")) == [digest("NO2 > 30")])

    run(work())


def test_sources_that_come_and_go_are_in_the_log(nats: NatsServer) -> None:
    async def work() -> None:
        settings = Settings(coordinator=Coordinator(away_grace=0.3))
        async with Kit(nats, settings) as kit:
            await kit.announce("b1", said("m1", "m2"))
            await kit.announce("b2", said("m2"))
            await kit.announce("b1", said("m2"))
            assert await announced_records(kit) == [(("m1", "m2"), False), (("m1",), True)]
            assert (await kit.announce("b2", {"session": "s1", "over": True}))["ok"]
            await kit.request("b1", "ann", {"session": "old", "away": True})
            await kit.request("b1", "ann", {"session": "s1", "away": True})
            began = time.monotonic()
            await until_so(lambda: _is_last_announced(kit, (("m2",), True)))
            assert time.monotonic() - began > 0.2
            assert await kit.kept(names.ANNOUNCEMENTS) == {}
            await kit.announce("b1", said("m2", session="s2"))
            assert (await announced_records(kit))[-1] == (("m2",), False)

    run(work())


def test_who_comes_back_within_the_grace_was_never_gone(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats, Settings(coordinator=Coordinator(away_grace=0.5))) as kit:
            await kit.announce("b1", said("m1", lease=["m1"]))
            await until(lambda: kit.heard("b1", "act"))
            await kit.request("b1", "ann", {"session": "s1", "away": True})
            await kit.subscribe("ana", "a", "NO2 > 40")
            assert kit.active("b1") == {}  # it is told when it is back
            await kit.announce("b1", said("m1", session="s2", lease=["m1"]))
            await until(lambda: kit.active("b1"))
            assert await announced_records(kit) == [(("m1",), False)]
            [brokers] = (await kit.ask("brokers"))["brokers"]
            assert (brokers["away"], brokers["leases"]) == (False, {"m1": 1})

    run(work())


def test_what_a_broker_has_sent_and_spared_is_shown_while_it_is_there(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.request("b1", "ann", {"session": "s1", "counts": {"sent": 1}})  # of nobody
            await kit.announce("b1", said("m1"))
            assert (await kit.ask("brokers"))["brokers"][0]["counts"] is None
            await kit.request("b1", "ann", {"session": "s1", "counts": {"sent": 7, "spared": 93}})
            await kit.request("b1", "ann", {"session": "s0", "counts": {"sent": 8}})  # of an older link
            await kit.announce("b1", said("m1"))
            assert (await kit.ask("brokers"))["brokers"][0]["counts"] == {"sent": 7, "spared": 93}
            await kit.announce("b1", {**said("m1"), "counts": {"sent": 9}})
            assert (await kit.ask("brokers"))["brokers"][0]["counts"] == {"sent": 9}
            await kit.announce("b1", {"session": "s1", "over": True})
            await kit.announce("b1", said("m1"))
            assert (await kit.ask("brokers"))["brokers"][0]["counts"] is None

    run(work())


def test_validity_ends_an_announcement_also_over_a_restart(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", said("m1", validity=1))
            await until_so(kit.has_no_requests)  # else it would come again, and be as new
            await kit.kill()
            await kit.start()
            await until_so(lambda: _is_last_announced(kit, (("m1",), True)))
            assert (await kit.ask("sources"))["sources"] == []

    run(work())


def test_a_lease_has_one_owner_whose_epoch_grows_and_the_loser_is_told(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", said("m1", lease=["m1"]))
            await until(lambda: kit.heard("b1", "act"))
            assert kit.heard("b1", "act")[0]["leases"] == [{"source": "m1", "owner": "b1", "epoch": 1}]
            assert (await kit.kept(names.ACTIVATIONS))["default.b1"]["leases"] == {"m1": 1}
            await kit.announce("b2", said("m1", lease=["m1"]))
            await until(lambda: kit.heard("b2", "act"))
            assert kit.heard("b2", "act")[0]["leases"] == [{"source": "m1", "owner": "b1", "epoch": 1}]
            await kit.kill()
            await kit.start()
            await kit.announce("b1", said("m1", lease=[]))
            await until(
                lambda: kit.heard("b2", "act")[-1].get("leases") == [{"source": "m1", "owner": "b2", "epoch": 2}]
            )
            await until(lambda: kit.heard("b1", "act")[-1].get("leases") == [])
            kept = await kit.kept(names.ACTIVATIONS)
            assert (kept["default.b1"]["leases"], kept["default.b2"]["leases"]) == ({}, {"m1": 2})

    run(work())


def test_a_lease_is_stored_before_it_is_told(nats: NatsServer) -> None:
    """Else a coordinator that is killed in between would give its epoch out again."""

    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.gateway(False)
            await kit.request("b1", "ann", said("m1", lease=["m1"]))
            await until_so(lambda: _holds(kit, "default.b1", {"m1": 1}))
            await kit.kill()
            await kit.gateway(True)
            await kit.start()
            await kit.announce("b1", said("m1", session="s2", lease=["m1"]))
            await until(lambda: kit.heard("b1", "act"))
            assert kit.heard("b1", "act")[-1]["leases"] == [{"source": "m1", "owner": "b1", "epoch": 1}]

    run(work())


def test_a_bad_announcement_is_refused_and_the_one_before_holds(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", said("m1"))
            reply = await kit.announce("b1", said("m1", battery=7))
            assert (reply["ok"], reply["error"]["path"]) == (False, "battery")
            await kit.request("b1", "ann", "{")
            await until(lambda: len(kit.heard("b1", "reply")) == 3)
            assert [one["name"] for one in (await kit.ask("sources"))["sources"]] == ["m1"]

    run(work())


def test_tenants_do_not_see_one_another(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.subscribe("ben", "early", "NO2 < 9", tenant="there")
            await kit.announce("b1", said("m1"), tenant="here")
            await kit.subscribe("ana", "a", "NO2 > 40", tenant="there")
            await kit.subscribe("ana", "b", "NO2 > 50", tenant="here")
            await until(lambda: kit.active("b1"))
            assert list(kit.active("b1")) == [digest("NO2 > 50")]
            assert (await kit.ask("sources", tenant="there"))["sources"] == []

    run(work())


def test_discovery_is_asked_page_by_page(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            for number in range(5):
                await kit.announce(f"b{number}", said(f"m{number}", place={"lat": 45 + number, "long": 16}))
            await kit.subscribe("ana", "a", "NO2 > 40")
            await until(lambda: all(kit.active(f"b{number}") for number in range(5)))
            near = await kit.ask("sources", near=[47.1, 16.0], within=120_000.0, attribute="NO2")
            assert [one["name"] for one in near["sources"]] == ["m2", "m3"]
            first = await kit.ask("brokers", limit=3)
            rest = await kit.ask("brokers", limit=3, after=first["next"])
            assert [one["broker"] for one in first["brokers"] + rest["brokers"]] == [f"b{i}" for i in range(5)]
            assert rest["next"] is None
            shown = (await kit.ask("activations", limit=1))["activations"][0]
            assert (shown["broker"], shown["count"]) == ("b0", 1)
            assert shown["active"][0]["filter"] == digest("NO2 > 40")
            assert (await kit.ask("brokers", limit=0))["status"] == 422

    run(work())


def code(silent: float, battery: float = 1.0) -> str:
    return source_health.encode(source_health.battery_bucket(battery), source_health.silence_bucket(silent))


DENSE = {"filter": "NO2 > 40", "density": {"per_cell": 1, "cell": 8, "every": "2s"}}
PLACE = {"lat": 45.8, "long": 15.9}


async def choices(kit: Kit) -> dict[str, tuple[str, float]]:
    """By chosen source: of which broker, and its reliability."""
    shown = (await kit.ask("activations"))["activations"]
    return {
        choice["source"]: (one["broker"], choice["reliability"])
        for one in shown
        for active in one["active"]
        for choice in active["chosen"]
    }


def test_motes_with_clean_air_keep_their_reputation(nats: NatsServer) -> None:
    """For many periods nothing they measure is wanted, so that nothing of theirs is in the log."""

    async def work() -> None:
        async with Kit(nats) as kit:
            for number, health in enumerate(({"health": code(0)}, {"health": code(0)}, {})):
                await kit.announce(f"b{number}", said(f"m{number}", place=PLACE, **health))
            await kit.subscribe("ana", "a", DENSE | {"density": {"per_cell": 3, "cell": 8, "every": "1s"}})
            await until(lambda: all(kit.active(f"b{number}") for number in range(3)))
            before = await choices(kit)
            quiet = time.monotonic() + 2.6
            while time.monotonic() < quiet:
                await asyncio.sleep(0.2)
                assert await choices(kit) == before == {f"m{number}": (f"b{number}", 1.0) for number in range(3)}

    run(work())


def test_a_source_that_was_due_and_is_silent_gives_way_and_a_restart_forgets_nothing_of_it(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            answer = await kit.announce("b1", said("m1", place=PLACE, health=code(0)))
            assert answer["members"] == ["health", "fetch"]
            await kit.announce("b2", said("m2", place=PLACE, health=code(0, 0.5)))
            await kit.subscribe("ana", "a", DENSE)
            await until(lambda: kit.active("b1"))
            await kit.request("b1", "ann", {"session": "s1", "health": {"m1": code(700)}})
            await until(lambda: kit.active("b2") and not kit.active("b1"))
            metrics = (await kit.log.ask("coordinator", "metrics", b"")).decode()
            assert "spinney_coordinator_sources_failed 1.0" in metrics

            async def is_kept() -> bool:
                kept = await kit.kept(names.RELIABILITIES)
                return any(source == "m1" for one in kept.values() for source, _, _ in one["shares"])

            await until_so(is_kept, "the reliability of m1 in its bucket")
            await kit.kill()
            await kit.start()
            await kit.announce("b3", said("m3", place=PLACE, health=code(700)))
            await until_so(lambda: choices(kit), "a choice after the restart")
            assert (await choices(kit))["m2"] == ("b2", 1.0)
            silent = {one["name"]: one["silent"] for one in (await kit.ask("sources"))["sources"]}
            assert silent == {"m1": 600.0, "m2": 0.0, "m3": 600.0}  # what was told is known still
            await kit.request("b1", "ann", {"session": "s1", "health": code(0)})
            await kit.request("b2", "ann", {"session": "s1", "health": {"m2": code(700)}})

            async def serves() -> bool:
                return "m1" in await choices(kit)

            await until_so(serves, "m1 serves again")
            assert 0.0 < (await choices(kit))["m1"][1] < 0.95

    run(work())


def test_health_of_an_announcement_that_is_not_current_is_ignored(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", said("m1", place=PLACE, health=code(0)))
            for item in ({"session": "s0", "health": code(700)}, {"session": "s1", "health": code(700) * 2},
                         {"session": "s1", "health": {"m9": code(700)}}):  # fmt: skip
                await kit.request("b1", "ann", item)
            refused = await kit.announce("b1", {"session": "s1", "health": "?"})
            assert refused["error"]["path"] == "health"
            [shown] = (await kit.ask("sources"))["sources"]
            assert (shown["name"], shown["silent"], shown["battery"]) == ("m1", 0.0, 1.0)
            # Nothing new is said of it: what was said holds within the session, silences until then only.
            for told, left in ((code(0), 0.0), (code(700), None)):
                await kit.request("b1", "ann", {"session": "s1", "health": told})
                await kit.announce("b1", said("m1", place=PLACE))
                [shown] = (await kit.ask("sources"))["sources"]
                assert (shown["silent"], shown["battery"]) == (left, 1.0)
            await kit.announce("b1", said("m1", session="s2", place=PLACE))
            assert (await kit.ask("sources"))["sources"][0]["silent"] is None

    run(work())


def test_a_large_set_comes_in_parts_that_follow_one_another(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            room = "x" * 2_000
            for number in range(300):
                await kit.request("ana", "sub", f"NO2 = {number} AND room <> '{room}{number}'", f"s{number}")
            await until(lambda: len(kit.out) == 300)
            item = said("m1")
            item["sources"][0]["attributes"] = {**NO2, "room": {}}
            await kit.announce("b1", item)
            await until(lambda: len(kit.heard("b1", "act")) > 1 and len(kit.active("b1")) == 300)
            told = kit.heard("b1", "act")
            assert [one["full"] for one in told[:2]] == [True, False]
            assert ["more" in one for one in told] == [True] * (len(told) - 1) + [False]

    run(work())


def test_a_gateway_that_is_away_is_waited_for(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", said("m1"))
            await until(lambda: kit.heard("b1", "act"))
            await kit.gateway(False)
            await kit.request("ana", "sub", "NO2 > 40", "a")
            await until_so(lambda: _is_pending(kit))
            await kit.gateway(True)
            await until(lambda: kit.active("b1"), seconds=30)
            await until(lambda: kit.replies("ana", "a"), seconds=30)

    run(work())


def test_changes_reach_fifty_brokers_at_once_with_thousands_of_subscriptions(nats: NatsServer) -> None:
    """In 100 ms, as with ten times as many subscriptions. Of twenty the quickest: a busy machine delays the others."""

    async def work() -> None:
        async with Kit(nats) as kit:
            for number in range(1_000):
                lat = 45 + number / 1_000
                await kit.request("ana", "sub", f"NO2 > 40 AND lat BETWEEN {lat} AND {lat + 0.02}", f"s{number}")
            await until(lambda: len(kit.out) == 1_000)
            for number in range(50):
                await kit.announce(f"b{number}", said(f"m{number}", place=_place(number)))
            await until(lambda: all(kit.active(f"b{number}") for number in range(50)))
            taken = []
            for number in range(20):
                began, before = time.monotonic(), len(kit.heard(f"b{number}", "act"))
                await kit.request("ana", "sub", f"NO2 = {number} AND lat > 45", f"new{number}")
                await until(lambda at=number, count=before: len(kit.heard(f"b{at}", "act")) > count)
                taken.append(time.monotonic() - began)
            assert min(taken) < 0.1
            taken = []
            for number in range(20):
                began, before = time.monotonic(), len(kit.heard(f"b{number}", "act"))
                epoch = kit.heard(f"b{number}", "act")[-1]["epoch"]
                await kit.request(f"b{number}", "ann", said(f"m{number}", place=_place(number + 25), have=epoch))
                await until(lambda at=number, count=before: len(kit.heard(f"b{at}", "act")) > count)
                taken.append(time.monotonic() - began)
            assert min(taken) < 0.1

    run(work())


async def _is_epoch(kit: Kit, key: str, epoch: int) -> bool:
    return bool((await kit.kept(names.ACTIVATIONS))[key]["epoch"] == epoch)


async def _is_last_announced(kit: Kit, last: tuple[tuple[str, ...], bool]) -> bool:
    return (await announced_records(kit))[-1] == last


async def _is_pending(kit: Kit) -> bool:
    return bool((await kit.ask("activations"))["activations"][0]["pending"])


async def _holds(kit: Kit, key: str, leases: dict[str, int]) -> bool:
    kept = (await kit.kept(names.ACTIVATIONS)).get(key, {})
    return kept.get("leases") == leases


def _place(number: int) -> dict[str, float]:
    return {"lat": 45 + number / 50, "long": 15.9, "radius": 500}
