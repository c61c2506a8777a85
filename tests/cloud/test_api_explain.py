"""Explanations and dry runs, of a log that the test wrote itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import orjson
import pytest
from api_kit import Cloud, cloud

from spinney import parse
from spinney_cloud.api import dry_run, explaining, slow_work
from spinney_cloud.api.errors import Problem
from spinney_cloud.api.slow_work import SlowWork
from spinney_cloud.cells import cell_at
from spinney_cloud.completeness import Answer
from spinney_cloud.names import LOG, log_subject
from spinney_cloud.nats_log import Message, NatsLog
from spinney_cloud.records import Publications, Run, SubscriptionChange, encode
from spinney_cloud.settings import Settings
from spinney_cloud.subscriptions import form_of

ROWS = 60
PER_RECORD = 5


def record(tenant: str, source: str, boot: int, first: int, rows: Sequence[dict[str, Any]]) -> Publications:
    full = [{"id": f"{source}:{boot}:{first + at}", "source": source, **row} for at, row in enumerate(rows)]
    run = Run(source, boot, first, len(rows), source, None, 1)
    return Publications(tenant, time.time(), (run,), orjson.dumps(full))


def write(cloud: Cloud, records: Sequence[Publications]) -> None:
    async def written() -> None:
        async with await NatsLog.connect(cloud.endpoints, name="test") as log:
            writer = log.writer(LOG)
            stored = [await writer.put(log_subject("publications", each.tenant), encode(each)) for each in records]
            await asyncio.gather(*stored)

    asyncio.run(written())


def ramp() -> list[Publications]:
    """Temperatures 0 to 59, in records of 5, and another tenant's in between."""
    own = [
        record("default", "m1", 1, first, [{"temp": first + at, "room": "kit"} for at in range(PER_RECORD)])
        for first in range(0, ROWS, PER_RECORD)
    ]
    others = [record("other", "m1", 1, first, [{"temp": 1000 + first}]) for first in range(len(own))]
    return [each for pair in zip(own, others, strict=True) for each in pair]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("filled"), "http") as running:
        write(running, ramp())
        yield running


@pytest.fixture
def client(filled: Cloud) -> Iterator[httpx.Client]:
    with filled.client() as client:
        yield client


def test_an_explanation_names_the_part_that_decides(client: httpx.Client) -> None:
    body = {"subscription": "temp > 40 AND room = 'kit'", "publication": {"temp": 57, "room": "hall"}}
    told = client.post("/v1/explain", json=body).json()
    (result,) = told["results"]
    assert (told["kind"], told["cost"], result["verdict"]) == ("content", "indexed", False)
    assert result["reasons"] == ["false: room = 'kit'   (room is 'hall')"]
    assert result["parts"]["feed"]["parts"][0] == {"text": "temp > 40", "verdict": True, "values": {"temp": 57.0}}


def test_a_state_subscription_is_explained_by_its_words(client: httpx.Client) -> None:
    body = {"subscription": "WHEN temp > 25 UNTIL temp <= 22 FOR room = 'kit' EACH room", "publication": {"temp": 30}}
    (result,) = client.post("/v1/explain", json=body).json()["results"]
    assert {name: part["verdict"] for name, part in result["parts"].items()} == {
        "feed": False,
        "for": None,
        "when": True,
        "until": False,
    }
    assert result["each"] is None


def test_a_top_k_subscription_is_explained_with_its_score(client: httpx.Client) -> None:
    body = {"subscription": "TOP 3 OVER 1h BY temp * 2 WHERE temp > 1", "publication": {"temp": 30}}
    (result,) = client.post("/v1/explain", json=body).json()["results"]
    assert (result["verdict"], result["score"]) == (True, 60.0)


def test_with_at_most_an_explanation_names_the_cell_that_counts(client: httpx.Client) -> None:
    asked = {"text": "NO2 > 40", "density": {"cell": 8, "at_most": "1/5m"}}
    publication = {"NO2": 57, "lat": 45.8, "long": 15.97}
    result = client.post("/v1/explain", json={"subscription": asked, "publication": publication}).json()["results"][0]
    assert result["cell"] == cell_at(45.8, 15.97, 8)
    state = client.post("/v1/explain", json={"subscription": {**asked, "text": "WHEN NO2 > 40 UNTIL NO2 < 20"},
                                             "publication": publication})  # fmt: skip
    assert state.status_code == 422
    assert "at_most: for content subscriptions only" in state.text


def test_the_last_of_the_log_are_explained_newest_first_and_only_the_tenants_own(client: httpx.Client) -> None:
    told = client.post("/v1/explain", json={"subscription": "temp >= 58", "last": 7}).json()
    assert [result["publication"]["temp"] for result in told["results"]] == [59, 58, 57, 56, 55, 54, 53]
    assert [result["verdict"] for result in told["results"]] == [True, True] + 5 * [False]
    assert told["cut"] is None


def test_more_than_the_log_has_is_all_it_has(client: httpx.Client) -> None:
    told = client.post("/v1/explain", json={"subscription": "temp >= 58", "last": 1000}).json()
    assert [result["publication"]["temp"] for result in told["results"]] == list(range(ROWS - 1, -1, -1))


@pytest.mark.parametrize(
    ("body", "status", "fields"),
    [
        ({"subscription": "temp >\n > 3", "publication": {}}, 422, {"line": 2, "column": 2, "found": ">"}),
        ({"subscription": {"filter": {"op": "<", "args": [1]}}, "publication": {}}, 422, {"path": "filter.args"}),
        ({"subscription": "temp > 3"}, 422, {}),
        ({"subscription": "temp > 3", "publication": {}, "last": 3}, 422, {}),
        ({"subscription": "temp > 3", "publication": {"temp": {"deep": 1}}}, 422, {}),
        ({"subscription": "temp > 3", "publication": {"time": "yesterday"}}, 422, {}),
        ({"subscription": "temp > 3", "last": 0}, 422, {}),
        ({"subscription": 5, "last": 1}, 422, {}),
        ({"subscription": "(" * 200_000, "last": 1}, 422, {}),
    ],
)
def test_what_cannot_be_explained_is_refused_and_says_where(
    client: httpx.Client, body: dict[str, Any], status: int, fields: dict[str, Any]
) -> None:
    answer = client.post("/v1/explain", json=body)
    told = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert told["detail"]
    assert {name: told.get(name) for name in fields} == fields


def dry(client: httpx.Client, subscription: Any, last: str = "1h", **more: Any) -> dict[str, Any]:
    answer = client.post(
        "/v1/subscriptions",
        params={"dry_run": 1, "last": last},
        json={"sid": "dry", "subscription": subscription, **more},
    )
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_a_dry_run_delivers_what_matched(client: httpx.Client) -> None:
    told = dry(client, "temp >= 57")
    assert [note["publication"]["temp"] for note in told["notifications"]] == [57, 58, 59]
    assert (told["readings"], told["count"], told["cut"]) == (ROWS, 3, [])
    assert {(note["sid"], note["why"]) for note in told["notifications"]} == {("dry", "match")}


def test_a_dry_run_obeys_the_options_that_are_given_in_either_place(client: httpx.Client) -> None:
    inside = dry(client, {"text": "temp >= 50", "max_per": "4/1h"})
    beside = dry(client, "temp >= 50", options={"max_per": "4/1h"})
    for told in (inside, beside):
        assert [note["publication"]["temp"] for note in told["notifications"]] == [50, 51, 52, 53]
        assert (told["count"], told["left_out"]) == (4, {"rate": 5, "held": 1})
    limited = dry(client, {"text": "temp >= 50", "density": {"cell": 8, "at_most": "2/1h"}})
    assert limited["count"] in (2, 4), "4 if an hour ended meanwhile"
    assert limited["left_out"] == {"at_most": 10 - limited["count"]}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"subscription": "temp > 0", "options": {"max_per": "ten"}}, "max_per"),
        ({"subscription": {"text": "temp > 0", "max_per": "ten"}}, "max_per"),
        (
            {"subscription": "WHEN temp > 1 UNTIL temp < 0", "options": {"density": {"cell": 8, "at_most": "1/5m"}}},
            "at_most",
        ),
        ({"subscription": "temp > 0", "options": {"nothing": 1}}, "no such option: nothing"),
    ],
)
def test_a_dry_run_refuses_options_as_a_subscription_does(
    client: httpx.Client, body: dict[str, Any], named: str
) -> None:
    answer = client.post("/v1/subscriptions", params={"dry_run": 1}, json=body)
    assert answer.status_code == 422
    assert named in answer.json()["detail"]


def test_a_dry_run_of_a_log_without_history_says_that_nobody_knows_what_is_missing(client: httpx.Client) -> None:
    told = dry(client, "temp >= 57")["completeness"]
    assert (told["verdict"], [one["reason"] for one in told["reasons"]]) == ("unknown", ["before"])
    assert told["text"].startswith("It is not known how many are missing: nothing was written down")


def test_a_dry_run_keeps_state_and_windows(client: httpx.Client) -> None:
    told = dry(client, "WHEN temp > 10 UNTIL temp > 30")
    assert [(note["why"], note["publication"]["temp"]) for note in told["notifications"]][:2] == [
        ("enter", 11),
        ("exit", 31),
    ]
    ranks = dry(client, "TOP 1 OVER LAST 10 BY temp DESC")["notifications"]
    assert [note["publication"]["temp"] for note in ranks] == list(range(ROWS))


def test_a_dry_run_that_is_to_fetch_says_when_there_is_nobody_to_ask(client: httpx.Client) -> None:
    asked = {"dry_run": 1, "fetch": 1}
    answer = client.post("/v1/subscriptions", params=asked, json={"subscription": "temp >= 57"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert "coordinator is not there" in answer.json()["detail"]
    for seconds in (0, 31, "x"):
        answer = client.post(
            "/v1/subscriptions", params={**asked, "fetch_seconds": seconds}, json={"subscription": "a = 1"}
        )
        assert answer.status_code == 422


def test_a_dry_run_of_a_time_without_records_delivers_nothing(client: httpx.Client) -> None:
    told = dry(client, "temp >= 0", last="1ms")
    assert (told["readings"], told["count"], told["since"]) == (0, 0, None)


def test_a_dry_run_leaves_nothing_behind(client: httpx.Client, filled: Cloud) -> None:
    before = asyncio.run(_log_end(filled))
    dry(client, "temp >= 57")
    assert asyncio.run(_log_end(filled)) == before


async def _log_end(cloud: Cloud) -> int:
    async with await NatsLog.connect(cloud.endpoints, name="test") as log:
        return (await log.state(LOG)).last


def test_a_dry_run_tells_nothing_of_other_subscriptions_in_the_log(client: httpx.Client, filled: Cloud) -> None:
    told = dry(client, "temp >= 57")
    before = told["count"]

    async def subscribed() -> None:
        async with await NatsLog.connect(filled.endpoints, name="test") as log:
            stored = dry_run.private("default", "anonymous", "another", form_of(parse("temp >= 0")))
            change = SubscriptionChange("default", stored.key, stored.to_json())
            await (await log.writer(LOG).put(log_subject("subscription", "default"), encode(change)))

    asyncio.run(subscribed())
    write(filled, [record("default", "m3", 1, 0, [{"temp": 99}])])
    assert dry(client, "temp >= 57")["count"] == before + 1


def test_a_dry_run_says_when_it_is_cut(client: httpx.Client, filled: Cloud) -> None:
    rows = [{"hum": 1}] * 1500
    write(filled, [record("default", "m2", 1, 0, rows)])
    told = dry(client, "hum = 1")
    assert (told["count"], len(told["notifications"]), told["cut"]) == (1500, 1000, ["notifications"])


@pytest.mark.parametrize(
    ("constant", "value", "bound"),
    [("MAX_ROWS", 12, "rows"), ("MAX_SECONDS", 0.0, "time"), ("MAX_BYTES", 500, "memory")],
)
def test_a_replay_ends_at_its_bounds_and_says_so(
    monkeypatch: pytest.MonkeyPatch, constant: str, value: float, bound: str
) -> None:
    monkeypatch.setattr(dry_run, constant, value)
    form = form_of(parse("temp >= 0"))
    replay = dry_run.Replay.of(dry_run.private("default", "ana", "dry", form), Settings())
    for sequence, item in enumerate(ramp(), 1):
        if item.tenant == "default":
            replay.feed([Message(sequence, 1.0 + sequence, log_subject("publications", "default"), encode(item))])
    told = replay.result(form, Answer("content"))
    assert told["cut"] == [bound]
    assert told["readings"] < ROWS


def test_an_explanation_that_grows_too_large_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "MAX_CHARACTERS", 1_000)
    explained = explaining.explain_all(parse("temp > 0"), [{"temp": 1.0}] * 1_000)
    assert (explained.cut, len(explained.results) < 100) == ("size", True)


def test_when_too_many_wait_the_next_is_told_to_come_later() -> None:
    async def test() -> None:
        work, end = SlowWork(), asyncio.Event()

        async def one() -> None:
            async with work.turn():
                await end.wait()

        tasks = [asyncio.create_task(one()) for _ in range(slow_work.AT_ONCE + slow_work.MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(Problem) as refused:
            await asyncio.wait_for(one(), 1)
        assert refused.value.status_code == 429
        end.set()
        await asyncio.gather(*tasks)
        await one()

    asyncio.run(test())
