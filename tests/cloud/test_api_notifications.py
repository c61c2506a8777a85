"""Server-sent events over real connections, of a notification log that the test writes itself."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx
import orjson
import pytest
from api_kit import Cloud, cloud
from test_api_auth import PASSWORDS, with_all_roles

from spinney_cloud import notes
from spinney_cloud.api.server import STOP_SECONDS
from spinney_cloud.names import NOTES, notes_subject
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.notes import Note, Notes
from spinney_cloud.users import FILE, Role

DEADLINE = 15.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("events"), "http") as running:
        yield running


def told(at: int, *whom: tuple[str, str], tenant: str = "default") -> Notes:
    """One publication, for each (owner, sid)."""
    name = f"m1:1:{at}"
    listed = tuple(Note(owner, sid, "match", None, 0, name) for owner, sid in whom)
    return Notes(tenant, at, time.time(), 0, True, ({"id": name, "NO2": at},), listed)


async def write(cloud: Cloud, items: Sequence[Notes]) -> list[int]:
    async with await NatsLog.connect(cloud.endpoints, name="test") as log:
        writer = log.writer(NOTES)
        stored = [await writer.put(notes_subject(each.tenant), notes.encode(each)) for each in items]
        return [(await each).sequence for each in stored]


class Event(dict[str, Any]):
    """What one event says, with `event_id`."""


async def events(response: httpx.Response) -> AsyncIterator[Event]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if not line and "data" in fields:
            yield Event(orjson.loads(fields["data"]), event_id=fields.get("id"), event=fields.get("event"))
        fields = {**fields, name: value} if line else {}


async def take(stream: AsyncIterator[Event], count: int) -> list[Event]:
    async with asyncio.timeout(DEADLINE):
        return [await anext(stream) for _ in range(count)]


def client(cloud: Cloud, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=cloud.url, timeout=DEADLINE, **options)


def test_events_come_as_they_are_found_and_only_ones_own(running: Cloud) -> None:
    async def test() -> None:
        async with client(running) as web, web.stream("GET", "/v1/notifications") as response:
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            stream = events(response)
            items = [
                told(1, ("anonymous", "air"), ("ana", "air")),
                told(2, ("ana", "air")),
                told(3, ("anonymous", "air"), tenant="other"),
                told(4, ("anonymous", "road")),
            ]
            first, _, _, fourth = await write(running, items)
            found = await take(stream, 2)
            assert [each["sid"] for each in found] == ["air", "road"]
            assert [each["event_id"] for each in found] == [f"{first}.0", f"{fourth}.0"]
            assert found[0]["publication"] == {"id": "m1:1:1", "NO2": 1}

    asyncio.run(test())


def test_a_client_goes_on_after_the_last_event_it_had(running: Cloud) -> None:
    async def test() -> None:
        stored = await write(running, [told(at, ("anonymous", "air"), ("anonymous", "road")) for at in range(3)])
        async with client(running) as web:
            headers = {"Last-Event-ID": f"{stored[1]}.0"}
            async with web.stream("GET", "/v1/notifications", headers=headers) as response:
                stream = events(response)
                found = await take(stream, 3)
                expected = [f"{stored[1]}.1", f"{stored[2]}.0", f"{stored[2]}.1"]
                assert [each["event_id"] for each in found] == expected
                (live,) = await write(running, [told(9, ("anonymous", "air"))])
                assert (await take(stream, 1))[0]["event_id"] == f"{live}.0"
            async with web.stream("GET", "/v1/notifications", params={"after": f"{stored[2]}.0"}) as response:
                assert (await take(events(response), 1))[0]["event_id"] == f"{stored[2]}.1"

    asyncio.run(test())


def test_an_event_id_that_is_none_is_answered_by_a_gap(running: Cloud) -> None:
    async def test() -> None:
        async with client(running) as web:
            headers = {"Last-Event-ID": "yesterday"}
            async with web.stream("GET", "/v1/notifications", headers=headers) as response:
                assert (await take(events(response), 1))[0]["event"] == "gap"

    asyncio.run(test())


def test_only_operators_listen_for_others(running: Cloud) -> None:
    async def test() -> None:
        with_all_roles().save(running.settings.data)
        try:
            async with client(running, auth=("operator", PASSWORDS[Role.OPERATOR])) as web:
                url = "/v1/notifications?owner=ana"
                async with web.stream("GET", url) as response:
                    await write(running, [told(1, ("subscriber", "air")), told(2, ("ana", "air"))])
                    assert (await take(events(response), 1))[0]["publication"]["NO2"] == 2
            async with client(running, auth=("subscriber", PASSWORDS[Role.SUBSCRIBER])) as web:
                assert (await web.get("/v1/notifications?owner=ana")).status_code == 403
        finally:
            (running.settings.data / FILE).unlink()

    asyncio.run(test())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["user", "token"])
def test_a_stream_ends_when_its_listener_is_removed(running: Cloud, how: str) -> None:
    async def test() -> None:
        users, secret, token = with_all_roles().add_token("subscriber", 3600.0)
        users.save(running.settings.data)
        password = httpx.BasicAuth("subscriber", PASSWORDS[Role.SUBSCRIBER])
        options: dict[str, Any] = (
            {"auth": password} if how == "user" else {"headers": {"Authorization": f"Bearer {secret}"}}
        )
        try:
            async with client(running, **options) as web, web.stream("GET", "/v1/notifications") as response:
                stream = events(response)
                await write(running, [told(1, ("subscriber", "air"))])
                assert (await take(stream, 1))[0]["sid"] == "air"
                left = users.remove("subscriber") if how == "user" else users.revoke("subscriber", token.id)
                left.save(running.settings.data)
                async with asyncio.timeout(DEADLINE):
                    assert [each async for each in stream] == []
        finally:
            (running.settings.data / FILE).unlink()

    asyncio.run(test())


def test_a_client_that_goes_is_forgotten(running: Cloud) -> None:
    async def streams(web: httpx.AsyncClient) -> float:
        text = (await web.get("/metrics")).text
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("spinney_http_streams "))

    async def test() -> None:
        async with client(running) as web:
            async with web.stream("GET", "/v1/notifications") as response:
                lines = response.aiter_lines()
                await anext(lines)
                assert await streams(web) == 1
            async with asyncio.timeout(DEADLINE):
                while await streams(web):
                    pass

    asyncio.run(test())


@pytest.mark.slow
def test_streams_end_when_the_process_is_told_to(tmp_path_factory: pytest.TempPathFactory) -> None:
    with cloud(tmp_path_factory.mktemp("ends"), "http") as running:

        async def test() -> float:
            async with client(running) as web, web.stream("GET", "/v1/notifications") as response:
                stream = events(response)
                await write(running, [told(1, ("anonymous", "air"))])
                await take(stream, 1)
                began = time.monotonic()
                running.processes["http"].popen.terminate()
                async with asyncio.timeout(DEADLINE):
                    assert [each async for each in stream] == []
                return time.monotonic() - began

        assert asyncio.run(test()) < STOP_SECONDS, "else it was cut off"
        process = running.processes.pop("http")
        assert process.stop() == 0
        assert "Traceback" not in process.log()


def test_a_stream_that_nobody_reads_delays_no_other(running: Cloud) -> None:
    async def test() -> None:
        lazy_reader, lazy = await asyncio.open_connection("127.0.0.1", running.http_port, limit=1024)
        lazy.write(b"GET /v1/notifications HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await lazy_reader.readuntil(b"\r\n\r\n")
        async with client(running) as web, web.stream("GET", "/v1/notifications") as response:
            stream = events(response)
            for batch in range(20):
                await write(running, [told(at, ("anonymous", "x" * 60)) for at in range(100)])
                found = await take(stream, 100)
                assert len(found) == 100, batch
        lazy.close()

    asyncio.run(test())


@pytest.mark.slow
def test_a_process_that_was_killed_goes_on_at_the_same_port_and_streams_resume(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with cloud(tmp_path_factory.mktemp("killed"), "http") as running:

        async def heard(after: str | None, count: int) -> list[Event]:
            headers = {} if after is None else {"Last-Event-ID": after}
            async with (
                client(running, headers=headers) as web,
                web.stream("GET", "/v1/notifications") as response,
            ):
                if after is None:
                    await write(running, [told(1, ("anonymous", "air"))])
                return await take(events(response), count)

        (first,) = asyncio.run(heard(None, 1))
        running.processes.pop("http").stop(signal.SIGKILL)
        asyncio.run(write(running, [told(2, ("anonymous", "air"))]))
        running.start("http")
        (second,) = asyncio.run(heard(first["event_id"], 1))
        assert second["publication"]["NO2"] == 2
