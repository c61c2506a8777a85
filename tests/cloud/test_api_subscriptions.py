"""Subscriptions, discovery and what becomes of a publication, with all processes of the cloud."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
from api_kit import Cloud, cloud, wait_for
from test_api_notifications import events, take

from spinney_cloud.api.models import Activations, Brokers, DeliveryStatus, Sources, SubscriptionPage, SubscriptionView
from spinney_cloud.api.routes_operations import PROCESSES
from spinney_cloud.names import REQUESTS, request_subject
from spinney_cloud.nats_log import NatsLog

PATH = "/v1/subscriptions"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("subscriptions"), *PROCESSES) as running:
        yield running


@pytest.fixture
def client(running: Cloud) -> Iterator[httpx.Client]:
    with running.client() as client:
        yield client
        for kept in client.get(PATH, params={"limit": 1000, "all_owners": 1}).json()["subscriptions"]:
            client.delete(f"{PATH}/{kept['sid']}", params={"owner": kept["owner"]})


def make(client: httpx.Client, sid: str, subscription: Any = "NO2 > 40", **more: Any) -> dict[str, Any]:
    params = {"owner": more.pop("owner")} if "owner" in more else {}
    answer = client.post(PATH, params=params, json={"sid": sid, "subscription": subscription, **more})
    assert answer.status_code == 201, answer.text
    told: dict[str, Any] = answer.json()
    SubscriptionView.model_validate(told)
    return told


def test_a_subscription_is_made_read_and_ended(client: httpx.Client) -> None:
    made = make(client, "air", "NO2 > 40 AND 1 = 1", labels={"floor": "2"}, options={"max_per": "10/min"})
    assert (made["normal"], made["cost"], made["owner"], made["enabled"]) == ("NO2 > 40", "indexed", "anonymous", True)
    assert (made["labels"], made["options"]) == ({"floor": "2"}, {"max_per": "10/min"})
    assert made["start"] > 0
    assert client.get(f"{PATH}/air").json() == made
    assert client.delete(f"{PATH}/air").status_code == 204
    assert client.get(f"{PATH}/air").status_code == 404
    assert client.delete(f"{PATH}/air").status_code == 404


def test_one_without_an_id_gets_one_and_says_where_it_is(client: httpx.Client) -> None:
    answer = client.post(PATH, json={"subscription": {"filter": "NO2 > 40"}})
    assert answer.status_code == 201
    assert client.get(answer.headers["location"]).json() == answer.json()


def test_an_id_is_made_once_and_put_as_often_as_one_likes(client: httpx.Client) -> None:
    make(client, "air")
    assert client.post(PATH, json={"sid": "air", "subscription": "NO2 > 50"}).status_code == 409
    changed = client.put(f"{PATH}/air", json={"subscription": "NO2 > 50"})
    assert (changed.status_code, changed.json()["normal"]) == (200, "NO2 > 50")
    new = client.put(f"{PATH}/road", json={"subscription": "NO2 > 50"})
    assert (new.status_code, new.json()["sid"]) == (201, "road")


def test_a_bad_one_is_refused_with_line_and_column(client: httpx.Client) -> None:
    answer = client.post(PATH, json={"subscription": "NO2 > 40 AND\n  room = "})
    told = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert (told["line"], told["expected"]) == (2, "a value")
    assert client.get(PATH).json()["subscriptions"] == []


@pytest.mark.parametrize(
    "more",
    [
        {"options": {"max_per": "often"}},
        {"options": {"colour": "red"}},
        {"expires": 1.0},
        {"expires": "tomorrow"},
        {"labels": {"a": 1}},
        {"labels": {"a" * 257: "b"}},
        {"enabled": "yes"},
        {"sid": "no/name"},
        {"colour": "red"},
    ],
)
def test_what_stands_beside_it_is_checked(client: httpx.Client, more: dict[str, Any]) -> None:
    answer = client.post(PATH, json={"subscription": "NO2 > 40", **more})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), answer.text


def test_pages_hold_all_and_none_twice(client: httpx.Client) -> None:
    for number in range(7):
        make(client, f"s{number}", f"NO2 > {number}")
    make(client, "s0", owner="ana")
    found, after = [], None
    for _ in range(3):
        page = client.get(PATH, params={"limit": 3, **({"after": after} if after else {})}).json()
        SubscriptionPage.model_validate(page)
        found += [each["sid"] for each in page["subscriptions"]]
        after = page["next"]
    assert after is None
    assert found == [f"s{number}" for number in range(7)]
    everybodys = client.get(PATH, params={"all_owners": 1}).json()["subscriptions"]
    assert {(each["owner"], each["sid"]) for each in everybodys} == {
        ("ana", "s0"),
        *(("anonymous", sid) for sid in found),
    }


def test_labels_choose(client: httpx.Client) -> None:
    make(client, "a", labels={"floor": "1", "kind": "air"})
    make(client, "b", labels={"floor": "2", "kind": "air"})
    chosen = client.get(PATH, params=[("label", "kind:air"), ("label", "floor:2")]).json()["subscriptions"]
    assert [each["sid"] for each in chosen] == ["b"]
    assert client.get(PATH, params={"label": "floor"}).status_code == 422


def test_a_disabled_one_is_kept_and_does_not_match(client: httpx.Client, running: Cloud) -> None:
    make(client, "off")
    assert client.post(f"{PATH}/off/disable").json()["enabled"] is False
    assert client.get(f"{PATH}/off").json()["enabled"] is False
    assert client.post(f"{PATH}/none/disable").status_code == 404
    found = asyncio.run(_published(running, [{"NO2": 57}], enable="off"))
    assert [(each["sid"], each["publication"]["NO2"]) for each in found] == [("off", 58)]


async def _published(cloud: Cloud, rows: list[dict[str, Any]], *, enable: str) -> list[Any]:
    """What a listener hears of these rows, and of one more once the subscription is enabled."""
    async with httpx.AsyncClient(base_url=cloud.url, timeout=15) as web, web.stream("GET", "/v1/notifications") as all_:
        await web.post("/v1/publications", json=rows)
        assert (await web.post(f"{PATH}/{enable}/enable")).json()["enabled"] is True
        await web.post("/v1/publications", json={"NO2": 58})
        return await take(events(all_), 1)


@pytest.mark.slow
def test_one_that_expires_is_gone(client: httpx.Client) -> None:
    make(client, "soon", expires=time.time() + 1.5)
    assert client.get(f"{PATH}/soon").status_code == 200
    wait_for(lambda: client.get(f"{PATH}/soon").status_code == 404)


def test_a_publication_reaches_its_subscribers_stream(client: httpx.Client, running: Cloud) -> None:
    make(client, "air", "NO2 > 40")
    make(client, "hot", "WHEN temp > 25 UNTIL temp <= 22")

    async def heard() -> list[Any]:
        async with (
            httpx.AsyncClient(base_url=running.url, timeout=15) as web,
            web.stream("GET", f"{PATH}/hot/notifications") as hot,
            web.stream("GET", "/v1/notifications") as everything,
        ):
            stored = await web.post("/v1/publications", json=[{"NO2": 57, "temp": 20}, {"temp": 26}, {"temp": 21}])
            (_, second, third) = stored.json()["ids"]
            found = await take(events(hot), 2)
            assert [(each["why"], each["publication"]["id"]) for each in found] == [("enter", second), ("exit", third)]
            return await take(events(everything), 3)

    assert [each["sid"] for each in asyncio.run(heard())] == ["air", "hot", "hot"]
    status = client.get(f"{PATH}/air/delivery").json()
    DeliveryStatus.model_validate(status)
    assert client.get(f"{PATH}/none/delivery").status_code == 404
    assert client.get(f"{PATH}/none/notifications").status_code == 404
    delivered = wait_for(lambda: client.get(f"{PATH}/hot/delivery").json()["delivered"] == 2)
    assert delivered


ANNOUNCEMENT = {
    "session": "s1",
    "validity": 600,
    "sources": [
        {"name": "m7", "constants": {"room": "kit"}, "attributes": {"NO2": {"min": 0, "max": 400, "unit": "ug/m3"}}},
        {"name": "m8", "constants": {"lat": 45.9, "long": 15.97}, "attributes": {"temp": {}}},
    ],
    "place": {"lat": 45.81, "long": 15.97, "radius": 200},
    "battery": 0.8,
}


def announce(cloud: Cloud, client: str) -> None:
    request = {"v": 1, "client": client, "tenant": "default", "leaf": "ann", "sid": None, "received": time.time()}

    async def announced() -> None:
        async with await NatsLog.connect(cloud.endpoints, name="test") as log:
            data = orjson.dumps({**request, "payload": orjson.dumps(ANNOUNCEMENT).decode()})
            await (await log.writer(REQUESTS).put(request_subject(client), data))

    asyncio.run(announced())


def names(client: httpx.Client, **params: Any) -> list[str]:
    answer = client.get("/v1/sources", params=params)
    assert answer.status_code == 200, answer.text
    Sources.model_validate(answer.json())
    return [each["name"] for each in answer.json()["sources"]]


def test_sources_brokers_and_activations_are_found(client: httpx.Client, running: Cloud) -> None:
    make(client, "air", "NO2 > 40")
    announce(running, "pi")
    wait_for(lambda: names(client))
    assert names(client) == ["m7", "m8"]
    assert names(client, near="45.81,15.97", within="2km") == ["m7"]
    assert names(client, near="45.9,15.97", within="1km") == ["m8"]
    assert names(client, near="45.905,15.97", within="600m") == ["m8"]  # it is at 556 m
    assert names(client, near="45.905,15.97", within="0.6km") == ["m8"]
    assert names(client, near="45.905,15.97", within="500") == []
    assert names(client, near="45.9,15.97") == ["m8", "m7"]
    assert names(client, attribute="NO2") == ["m7"]
    assert names(client, limit=1) == ["m7"]
    brokers = client.get("/v1/brokers").json()
    Brokers.model_validate(brokers)
    assert [(each["broker"], each["battery"]) for each in brokers["brokers"]] == [("pi", 0.8)]

    def active() -> list[Any]:
        told = client.get("/v1/activations").json()
        Activations.model_validate(told)
        found: list[Any] = told["activations"][0]["active"]
        return found

    (feed,) = wait_for(active)
    assert feed["kind"] == "content"


@pytest.mark.parametrize(
    "params",
    [
        {"within": "2km"},
        {"near": "45.81"},
        {"near": "95,16"},
        {"near": "45.81,15.97", "within": "2 miles"},
        {"near": "45.81,15.97", "within": "99999km"},
        {"limit": 0},
        {"after": "nonsense"},
    ],
)
def test_a_question_that_makes_no_sense_is_refused(client: httpx.Client, params: dict[str, Any]) -> None:
    answer = client.get("/v1/sources", params=params)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_all_are_ready_and_show_metrics(client: httpx.Client) -> None:
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["why"]) == (200, [])
    metrics = client.get("/metrics").text
    for process in PROCESSES:
        assert f'spinney_up{{process="{process}"}} 1\n' in metrics
        assert f"\nspinney_{process}_" in metrics or metrics.startswith(f"spinney_{process}_")


@pytest.mark.slow
def test_a_process_that_is_killed_is_named_and_comes_back(client: httpx.Client, running: Cloud) -> None:
    running.processes.pop("coordinator").stop(signal.SIGKILL)
    answer = wait_for(lambda: (found := client.get("/readyz")).status_code == 503 and found)
    assert "coordinator: does not answer" in answer.json()["why"]
    assert client.get(PATH).status_code == 503
    running.start("coordinator")
    wait_for(lambda: client.get("/readyz").status_code == 200)
