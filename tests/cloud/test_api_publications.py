"""Publications over HTTP, with the real gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import cbor2
import httpx
import orjson
import pyarrow as pa
import pytest
from api_kit import Cloud, cloud, wait_for

from spinney_cloud.names import LOG, log_subject
from spinney_cloud.nats_log import NatsLog, read_range
from spinney_cloud.records import Publications, Unpublish, decode
from spinney_cloud.users import FILE, Role, Users

PATH = "/v1/publications"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    limits = {"payload": 100_000}
    with cloud(tmp_path_factory.mktemp("publications"), "http", "gateway", limits=limits) as running:
        yield running


@pytest.fixture
def client(running: Cloud) -> Iterator[httpx.Client]:
    with running.client() as client:
        yield client


def in_log(cloud: Cloud, kind: str = "publications", tenant: str = "default") -> list[Any]:
    async def read() -> list[Any]:
        async with await NatsLog.connect(cloud.endpoints, name="test") as log:
            last = (await log.state(LOG)).last
            found = read_range(log, LOG, 1, last, filter_subject=log_subject(kind, tenant))
            return [decode(message.data) async for messages in found for message in messages]

    return asyncio.run(read())


def rows(cloud: Cloud, tenant: str = "default") -> dict[str, dict[str, Any]]:
    records: list[Publications] = in_log(cloud, tenant=tenant)
    return {row["id"]: row for record in records for row in orjson.loads(record.rows)}


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


SENML = [{"bn": "m7/", "bt": 1.7e9, "n": "NO2", "v": 57}, {"n": "temp", "v": 21.5}]


@pytest.mark.parametrize(
    ("kind", "body", "readings"),
    [
        ("application/json", b'{"NO2": 57}', [{"NO2": 57}]),
        ("application/json; charset=utf-8", b' [{"NO2": 57}, {"NO2": 58}]', [{"NO2": 57}, {"NO2": 58}]),
        ("application/senml+json", orjson.dumps(SENML), [{"NO2": 57, "temp": 21.5}]),
        ("application/senml+cbor", cbor2.dumps([{-2: "m8:", 0: "NO2", 2: 57}]), [{"NO2": 57}]),
        ("application/vnd.apache.arrow.stream", arrow(pa.table({"NO2": [57.0, 58.0]})), [{"NO2": 57}, {"NO2": 58}]),
    ],
    ids=["object", "array", "senml+json", "senml+cbor", "arrow"],
)
def test_each_form_is_in_the_log_when_it_is_answered(
    client: httpx.Client, running: Cloud, kind: str, body: bytes, readings: list[dict[str, float]]
) -> None:
    answer = client.post(PATH, content=body, headers={"Content-Type": kind})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["refused"], len(told["ids"])) == ([], len(readings))
    stored = rows(running)
    for name, reading in zip(told["ids"], readings, strict=True):
        assert reading.items() <= stored[name].items()
        source, boot, sequence = name.rsplit(":", 2)
        assert told["stored"][source] >= [int(boot), int(sequence)]


def test_numbered_ones_keep_their_ids(client: httpx.Client) -> None:
    told = client.post(PATH, json=[{"id": "m9:1:7", "NO2": 1}, {"id": "m9:1:8", "NO2": 2}]).json()
    assert (told["ids"], told["stored"]) == (["m9:1:7", "m9:1:8"], {"m9": [1, 8]})


def test_refused_ones_are_listed_and_the_rest_passes(client: httpx.Client) -> None:
    answer = client.post(PATH, json=[{"NO2": 1}, {"NO2": {"deep": 1}}, {"time": "yesterday"}, {"NO2": 2}])
    told = answer.json()
    assert (answer.status_code, len(told["ids"])) == (200, 2)
    assert [each["row"] for each in told["refused"]] == [1, 2]
    assert all(each["reason"] for each in told["refused"])


def test_when_all_are_refused_the_answer_is_a_problem(client: httpx.Client) -> None:
    answer = client.post(PATH, json=[{"NO2": []}])
    told = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert [each["row"] for each in told["refused"]] == [0]


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("text/plain", b'{"NO2": 1}', 415),
        ("", b'{"NO2": 1}', 415),
        ("application/json", b"", 400),
        ("application/json", b"NO2=1", 400),
        ("application/json", b'{"NO2": 1', 422),
        ("application/json", b'{"NO2": NaN}', 422),
        ("application/json", b'{"NO2": 1, "NO2": 2}', 422),
        ("application/json", b'[{"NO2": ' * 5_000, 422),
        ("application/json", b'{"\xff": 1}', 422),
        ("application/senml+json", b'{"NO2": 1}', 400),
        ("application/senml+cbor", b'{"NO2": 1}', 400),
        ("application/senml+cbor", b"\x9f" * 10_000, 422),
        ("application/vnd.apache.arrow.stream", b"\xff\xff\xff\xff" + bytes(100), 422),
        ("application/json", b"[" + b" " * 100_000 + b"]", 413),
    ],
)
def test_what_cannot_be_taken_is_refused(client: httpx.Client, kind: str, body: bytes, status: int) -> None:
    answer = client.post(PATH, content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text


def test_what_is_refused_becomes_a_dead_letter(client: httpx.Client) -> None:
    client.post(PATH, json={"NO2": ["dead"]})
    reasons = [each["letter"] for each in client.get("/v1/dead-letters", params={"stage": "intake"}).json()["letters"]]
    assert any("dead" in (letter.get("payload") or "") for letter in reasons)


def test_an_empty_array_stores_nothing_and_is_no_mistake(client: httpx.Client) -> None:
    answer = client.post(PATH, json=[])
    assert (answer.status_code, answer.json()["ids"]) == (200, [])


def test_unpublishing_is_in_the_log_when_it_is_answered(client: httpx.Client, running: Cloud) -> None:
    (name,) = client.post(PATH, json={"NO2": 1, "valid_for": 60}).json()["ids"]
    assert client.delete(PATH, params={"id": name}).json() == {"id": name}
    records: list[Unpublish] = in_log(running, "unpublish")
    assert [record.id for record in records] == [name]
    assert client.delete(PATH, params={"id": "no id at all"}).status_code == 422


def test_publications_are_the_senders_tenants(client: httpx.Client, running: Cloud) -> None:
    users = Users().add("otto", Role.PUBLISHER, "other", "secret of otto")
    users.save(running.settings.data)
    try:
        told = client.post(PATH, json={"NO2": 99}, auth=("otto", "secret of otto")).json()
    finally:
        (running.settings.data / FILE).unlink()
    (name,) = told["ids"]
    assert rows(running, "other")[name]["source"] == "otto"
    assert name not in rows(running)


@pytest.mark.slow
def test_without_a_gateway_the_answer_is_503_and_says_so(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with cloud(tmp_path_factory.mktemp("none"), "http") as alone, alone.client() as other:
        answer = other.post(PATH, json={"NO2": 1})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "gateway" in answer.json()["detail"]


def test_a_reader_that_nobody_waits_for_cannot_be_released(client: httpx.Client) -> None:
    assert client.post("/v1/readers/pipeline/release").status_code == 404
    assert client.post("/v1/readers/nobody/release").status_code == 422
    assert client.post("/v1/readers/matcher/release").json() == {"reader": "matcher", "floor": 0}


def test_an_answer_waits_for_no_delayed_acknowledgement(client: httpx.Client) -> None:
    seconds = sorted(client.post(PATH, json={"NO2": number}).elapsed.total_seconds() for number in range(15))
    assert seconds[7] < 0.035  # a head and a body that wait for each other take 40 ms


@pytest.mark.slow
def test_the_reader_that_holds_the_log_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = {"max_bytes": 20_000, "keeper_interval": 0.1}
    with cloud(tmp_path_factory.mktemp("held"), "http", "gateway", log=log) as running, running.client() as client:
        for _ in range(2):  # above the limit, below the hard cap
            assert client.post(PATH, json={"text": "x" * 11_000}).status_code == 200
        (hold,) = wait_for(lambda: client.get("/readyz").json()["holds"])
        assert (hold["stream"], hold["reader"]) == (LOG, "matcher")
        assert client.post("/v1/readers/matcher/release").status_code == 200
        wait_for(lambda: client.get("/readyz").json()["holds"] == [])
