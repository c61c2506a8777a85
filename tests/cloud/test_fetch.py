"""What a dry run fetches from mobile brokers: from those who may have something, what is theirs, and nothing forged."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest
from clouds import Cloud
from fetch_kit import FakeBroker, asking, broker, dry, held, metric, values
from gateway_kit import run, until
from security_kit import KINDS, REAL, Guarded, password

from spinney_cloud.names import LOG, REQUESTS
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.service import read_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One for all tests; each has brokers and sources of its own."""
    with Cloud(tmp_path_factory.mktemp("cloud") / "data", program=REAL).start() as cloud:
        yield cloud


async def ends(cloud: Cloud) -> list[int]:
    """Of the streams in which anything could be kept."""
    _, endpoints = read_run(cloud.data / "run" / "run.json")
    async with await NatsLog.connect(endpoints, name="test") as log:
        return [(await log.state(stream)).last for stream in (LOG, REQUESTS)]


def test_only_brokers_that_may_have_something_are_asked_and_older_ones_are_named(cloud: Cloud) -> None:
    async def test() -> None:
        port = cloud.port("MQTT")
        async with broker(port, "new", "n1") as new, broker(port, "old") as old, broker(port, "poor") as poor:
            await old.announce("o1", askable=False)
            low = [{"name": "p1", "attributes": {"co2": {"min": 0, "max": 50}}}]
            await poor.say({"session": "s1", "sources": low})
            await poor.hears("request")
            await poor.say({"session": "s1", "fetch": True})
            run_ = asking(cloud, "co2 > 100")
            question = await new.next_question()
            assert question["filter"] == "co2 > 100"
            assert question["since"] == 3600
            await new.answer(question["id"], held("n1", 110), held("n1", 120))
            told = await run_
            assert values(told) == [110, 120]
            by_name = {one["broker"]: one for one in told["fetched"]["brokers"]}
            assert by_name.keys() == {"new", "old"}, "what poor announces cannot match"
            assert (by_name["new"]["asked"], by_name["new"]["answered"], by_name["new"]["readings"]) == (True, True, 2)
            assert (by_name["old"]["asked"], by_name["old"]["answered"]) == (False, False)
            assert "old was not asked: it is older than this cloud" in told["fetched"]["text"]
            assert not old.asked
            assert not poor.asked

    run(test())


def test_nothing_fetched_is_kept_anywhere(cloud: Cloud) -> None:
    async def test() -> None:
        async with broker(cloud.port("MQTT"), "kept", "k1") as kept:
            await until(lambda: kept.acts, "an activation")
            before = await ends(cloud)
            run_ = asking(cloud, "co2 > 100 AND source = 'k1'")
            question = await kept.next_question()
            await kept.answer(question["id"], held("k1", 110))
            assert (await run_)["count"] == 1
            assert await ends(cloud) == before
            run_ = asking(cloud, "co2 > 100 AND source = 'k1'", fetch=0)
            assert (await run_)["count"] == 0
            assert "fetched" not in await run_

    run(test())


def test_who_was_not_asked_or_answers_something_else_is_refused_and_harms_nobody(cloud: Cloud) -> None:
    async def test() -> None:
        port = cloud.port("MQTT")
        async with broker(port, "good", "g1") as good, broker(port, "evil", "e1") as evil, broker(port, "out") as out:
            refused = await metric(cloud, 'spinney_http_fetch_parts_total{what="refused"}')
            run_ = asking(cloud, "co2 > 100 AND source IN ('g1', 'e1')")
            question, of_evil = await good.next_question(), await evil.next_question()
            assert question["id"] == of_evil["id"]
            await out.answer(question["id"], held("g1", 666))  # it was not asked
            await evil.answer("0" * 32, held("e1", 666))  # nobody asks that
            for nothing in ({"fetched": None}, {"fetched": {"id": 7}}, {"fetched": {"id": "x" * 300}}):
                await evil.say({"session": "s1", **nothing})
            forged = [held("g1", 667), held("nobody", 668), held("e1", 50), [1.0, 0, {"co2": 669}], "nonsense"]
            old = held("e1", 670, age=7200.0)
            await evil.answer(question["id"], *forged, old, held("e1", 130), more=True)
            await evil.answer(question["id"], held("e1", 671), part=5)  # parts are missing
            await evil.answer(question["id"], held("e1", 672), part=1)  # it is over for evil
            await good.answer(question["id"], held("g1", 120))
            told = await run_
            assert sorted(values(told)) == [120, 130]
            assert told["fetched"]["refused"] == 6
            by_name = {one["broker"]: one["text"] for one in told["fetched"]["brokers"]}
            assert by_name == {"good": "good had 1", "evil": "evil did not answer: part 1 is missing; 1 came"}
            assert told["completeness"]["verdict"] != "complete"
            assert len(out.refused) == 1
            await until(lambda: len(evil.refused) == 6, f"six refusals: {evil.refused}")
            await good.answer(question["id"], held("g1", 673))  # it is finished
            await until(lambda: good.refused, "a refusal")
            assert await metric(cloud, 'spinney_http_fetch_parts_total{what="refused"}') == refused + 5

    run(test())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"readings": "all"}, "expected session, part, more and readings"),
        ({"part": "0"}, "expected session, part, more and readings"),
        ({"whole": {"m1": -1}}, "whole: expected seconds"),
        ({"whole": [1]}, "whole: expected seconds"),
        ({"whole": {"m1": True}}, "whole: expected seconds"),
    ],
)
def test_a_part_that_is_none_ends_its_brokers_answer(cloud: Cloud, said: dict[str, object], why: str) -> None:
    async def test() -> None:
        async with broker(cloud.port("MQTT"), "bad", "b1") as bad:
            run_ = asking(cloud, "co2 > 100 AND source = 'b1'")
            question = await bad.next_question()
            item = {"id": question["id"], "part": 0, "more": False, "readings": [], **said}
            await bad.say({"session": "s1", "fetched": item})
            (one,) = (await run_)["fetched"]["brokers"]
            assert one["answered"] is False
            assert why in one["text"]

    run(test())


def test_a_broker_of_another_session_is_not_believed(cloud: Cloud) -> None:
    async def test() -> None:
        async with broker(cloud.port("MQTT"), "again", "a1") as again:
            run_ = asking(cloud, "co2 > 100 AND source = 'a1'")
            question = await again.next_question()
            again.session = "s0"
            await again.answer(question["id"], held("a1", 110))
            again.session = "s1"
            told = await run_
            assert (told["count"], told["fetched"]["brokers"][0]["answered"]) == (0, False)

    run(test())


def test_more_than_was_asked_for_is_cut_and_said(cloud: Cloud) -> None:
    async def test() -> None:
        async with broker(cloud.port("MQTT"), "much", "m1") as much:
            run_ = asking(cloud, "co2 > 100 AND source = 'm1'")
            question = await much.next_question()
            for part in range(4):
                some = [held("m1", 200) for _ in range(1_000)]
                await much.answer(question["id"], *some, part=part, more=True, whole={"m1": 3000})
            told = await run_
            (one,) = told["fetched"]["brokers"]
            assert (one["cut"], one["answered"]) == (True, False)
            assert 1_000 <= told["count"] <= 3_000
            assert told["completeness"]["verdict"] != "complete"

    run(test())


def test_who_does_not_answer_in_time_is_named_and_what_came_counts(cloud: Cloud) -> None:
    async def test() -> None:
        port = cloud.port("MQTT")
        async with broker(port, "mute", "q1"), broker(port, "half", "q2") as half:
            begun = time.monotonic()
            run_ = asking(cloud, "co2 > 100 AND source IN ('q1', 'q2')", fetch_seconds=1)
            question = await half.next_question()
            await half.answer(question["id"], held("q2", 110), more=True, whole={"q2": 3000})
            told = await run_
            assert 1 <= time.monotonic() - begun < 20
            assert values(told) == [110]
            by_name = {one["broker"]: one["text"] for one in told["fetched"]["brokers"]}
            assert by_name == {
                "mute": "mute did not answer in time",
                "half": "half did not answer in time; 1 came",
            }
            await half.answer(question["id"], held("q2", 120), part=1)
            await until(lambda: half.refused, "a refusal of what comes too late")

    run(test())


def test_what_the_log_has_too_counts_once(cloud: Cloud) -> None:
    async def test() -> None:
        async with broker(cloud.port("MQTT"), "twice", "t1") as twice:
            await until(lambda: twice.acts, "an activation")
            _, _, row = held("t1", 110, number=7)
            await twice.publish([row])
            await twice.hears("stored")
            run_ = asking(cloud, "co2 > 100 AND source = 't1'")
            question = await twice.next_question()
            await twice.answer(question["id"], held("t1", 110, number=7), held("t1", 120, number=8, age=0.0))
            told = await run_
            assert values(told) == [110, 120]
            assert (told["fetched"]["readings"], told["fetched"]["repeated"]) == (1, 1)

    run(test())


def test_a_state_takes_what_was_fetched_in_the_order_of_its_source(cloud: Cloud) -> None:
    async def stored(order: FakeBroker, number: int) -> None:
        await until(lambda: order.stored().get("s1") == (1, number), f"number {number} to be stored")

    async def test() -> None:
        async with broker(cloud.port("MQTT"), "order", "s1") as order:
            await until(lambda: order.acts, "an activation")
            for number, co2 in ((2, 700), (6, 900)):
                await order.publish([held("s1", co2, number=number)[2]])
                await stored(order, number)  # each in a record of its own: nothing is put between readings of one
            run_ = asking(cloud, "WHEN co2 > 500 UNTIL co2 < 400 FOR source = 's1'")
            question = await order.next_question()
            assert "co2" in question["filter"]
            await order.answer(
                question["id"],
                held("s1", 600, number=1, age=3.0),
                held("s1", 300, number=3, age=2.0),
                held("s1", 350, number=4, age=1.5),
                whole={"s1": 3600},
            )
            told = await run_
            assert [(note["why"], note["publication"]["co2"]) for note in told["notifications"]] == [
                ("enter", 600), ("exit", 300), ("enter", 900),
            ]  # fmt: skip
            assert told["completeness"]["verdict"] == "unknown", "when each would have come is not known"

    run(test())


def test_a_tenant_has_so_many_questions_at_once_and_no_more(cloud: Cloud) -> None:
    async def test() -> None:
        async with broker(cloud.port("MQTT"), "busy", "u1") as busy:
            text = "co2 > 100 AND source = 'u1'"
            first = [asking(cloud, text, fetch_seconds=20) for _ in range(2)]
            questions = [await busy.next_question(count) for count in (1, 2)]
            told = await dry(cloud, text, status=429)
            assert told["detail"] == "mobile brokers are being asked already"
            for question in questions:
                await busy.answer(question["id"])
            assert [one["count"] for one in await asyncio.gather(*first)] == [0, 0]
            third = asking(cloud, text)
            await busy.answer((await busy.next_question(3))["id"], held("u1", 110))
            assert (await third)["count"] == 1

    run(test())


def test_a_gateway_that_dies_meanwhile_costs_an_answer_and_no_more(cloud: Cloud) -> None:
    async def test() -> None:
        async with broker(cloud.port("MQTT"), "cut", "c1") as cut:
            text = "co2 > 100 AND source = 'c1'"
            run_ = asking(cloud, text, fetch_seconds=2)
            await cut.next_question()
            gateway = cloud.child("gateway")
            assert gateway is not None
            gateway.send_signal(signal.SIGKILL)
            told = await run_
            assert (told["count"], told["fetched"]["brokers"][0]["answered"]) == (0, False)

            async def works() -> bool:
                before = len(cut.asked)
                again = asking(cloud, text, fetch_seconds=5)
                question = await cut.next_question(before + 1)
                await cut.answer(question["id"], held("c1", 110))
                return bool((await again)["count"] == 1)

            await until(works, "the next gateway to pass answers on")

    run(test())


# ---- tenants, and what users may


@pytest.fixture(scope="module", params=KINDS)
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """With users, on each MQTT server as it is set up."""
    with Guarded(tmp_path_factory.mktemp("guarded"), request.param) as guarded:
        yield guarded


def test_a_tenant_asks_its_own_brokers_and_only_they_can_answer(guarded: Guarded) -> None:
    async def test() -> None:
        port = guarded.mqtt_port
        users = {name: {"user": name, "password": password(name)} for name in ("mob", "eve")}
        async with broker(port, "mob", "m1", **users["mob"]) as mob, broker(port, "eve", "m1", **users["eve"]) as eve:
            run_ = asking(guarded.cloud, "co2 > 100", auth=("ops", password("ops")))
            question = await mob.next_question()
            await eve.answer(question["id"], held("m1", 666))
            await until(lambda: eve.refused, "a refusal")
            await mob.answer(question["id"], held("m1", 110))
            told = await run_
            assert values(told) == [110]
            assert [one["broker"] for one in told["fetched"]["brokers"]] == ["mob"]
            run_ = asking(guarded.cloud, "co2 > 100", auth=("olga", password("olga")))
            question = await eve.next_question()
            await mob.answer(question["id"], held("m1", 666))
            await eve.answer(question["id"], held("m1", 120))
            assert values(await run_) == [120]
            assert (len(mob.asked), len(eve.asked)) == (1, 1)
            await dry(guarded.cloud, "co2 > 100", status=403, auth=("pat", password("pat")))

    run(test())
