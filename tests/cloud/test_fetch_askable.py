"""Which mobile brokers the coordinator says can be asked, in which session, and whose a source is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from coordinator_kit import Kit, until_so
from servers import NatsServer

from spinney_cloud.announcement_table import Announcements
from spinney_cloud.announcements import Announcement, AnnouncementError, Askable, Reporting, decode, read_announcement
from spinney_cloud.fetch import askable

NO2 = {"NO2": {"min": 0, "max": 400}}
OLDER, AWAY = "it is older than this cloud", "it is not connected"


def said(*sources: str, session: str = "s1", **more: Any) -> dict[str, Any]:
    return {"session": session, "sources": [{"name": name, "attributes": NO2} for name in sources], **more}


def read(item: dict[str, Any]) -> Announcement:
    found = read_announcement(item, "default", "b1", 100.0)
    assert isinstance(found, Announcement)
    return found


async def can_be_asked(kit: Kit, client: str, session: str = "s1") -> None:
    await kit.request(client, "ann", {"session": session, "fetch": True})

    async def told() -> bool:
        answer = await kit.ask("askable", filter="TRUE")
        return bool(answer["asked"].get(client) == session)

    await until_so(told, f"{client} to be askable")


def test_a_broker_says_that_it_can_be_asked_and_that_is_kept() -> None:
    assert read_announcement({"session": "s1", "fetch": True}, "default", "b1", 1.0) == Askable("s1")
    report = {"session": "s1", "report": {"run": "r", "epoch": 1}}
    assert read_announcement(report, "default", "b1", 1.0) == Reporting("s1", report["report"])
    assert read_announcement({**report, "fetch": True}, "default", "b1", 1.0) == Reporting("s1", report["report"], True)
    assert not read(said("m1")).fetch
    one = read(said("m1", fetch=True))
    assert one.fetch
    assert decode(one.encode()) == one
    for bad in (False, 1, "yes", None):
        with pytest.raises(AnnouncementError, match="fetch: expected true"):
            read_announcement({"session": "s1", "fetch": bad}, "default", "b1", 1.0)


def test_what_an_older_cloud_has_kept_is_read_and_cannot_be_asked() -> None:
    item = json.loads(read(said("m1")).encode())
    assert "fetch" not in item
    assert not decode(json.dumps(item).encode()).fetch


def test_it_holds_within_a_session_and_not_in_the_next() -> None:
    table = Announcements()
    table.put("default", "b1", read(said("m1", fetch=True)))
    again = table.decide("default", "b1", read(said("m1", "m2")), 101.0).after
    assert again is not None
    assert again.fetch
    next_session = table.decide("default", "b1", read(said("m1", session="s2")), 102.0).after
    assert next_session is not None
    assert not next_session.fetch, "it may be an older broker now"


def test_who_can_be_asked_is_said_and_why_others_are_not(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            for client in ("new", "old", "gone"):
                await kit.announce(client, said(f"{client}1"))
            for client in ("new", "gone"):
                await can_be_asked(kit, client)
            await kit.request("gone", "ann", {"session": "s1", "away": True})

            async def away() -> bool:
                return "gone" in (await kit.ask("askable", filter="NO2 > 40"))["not_asked"]

            await until_so(away, "the will")
            expected = {"asked": {"new": "s1"}, "not_asked": {"old": OLDER, "gone": AWAY}, "not_named": 0, "ok": True}
            assert await kit.ask("askable", filter="NO2 > 40") == expected
            assert (await kit.ask("askable", filter="NO2 > 4000"))["asked"] == {}, "nobody announces so much"
            assert (await kit.ask("askable", filter="source = 'old1'"))["not_asked"] == {"old": OLDER}
            assert (await kit.ask("askable", filter="NO2 >"))["ok"] is False
            assert (await kit.ask("askable", tenant="other", filter="TRUE"))["not_asked"] == {}
            await kit.kill()
            await kit.start()
            assert await kit.ask("askable", filter="NO2 > 40") == expected, "it is in the bucket"

    asyncio.run(work())


def test_no_more_than_so_many_are_asked_or_named(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(askable, "MAX_ASKED", 2)
    monkeypatch.setattr(askable, "MAX_NAMED", 1)

    async def work() -> None:
        async with Kit(nats) as kit:
            for number in range(5):
                await kit.announce(f"b{number}", said(f"m{number}"))
            for number in range(2):
                await can_be_asked(kit, f"b{number}")
            for number in range(2, 5):
                await kit.request(f"b{number}", "ann", {"session": "s1", "fetch": True})

            async def told() -> bool:
                answer = await kit.ask("askable", filter="TRUE")
                return "that is the limit" in str(answer["not_asked"])

            await until_so(told, "the others to be too many")
            answer = await kit.ask("askable", filter="TRUE")
            assert (list(answer["asked"]), list(answer["not_asked"]), answer["not_named"]) == (["b0", "b1"], ["b2"], 2)

    asyncio.run(work())


def test_a_source_is_its_owners_or_whoevers_announces_it_while_it_has_none(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", said("m1", "both", lease=["both"]))
            await kit.announce("b2", said("m2", "both", lease=["both"]))
            names = ["m1", "m2", "both", "nobody's"]
            answer = await kit.ask("owned", sources={"b1": names, "b2": names, "b3": names})
            assert answer["owned"] == {"b1": ["m1", "both"], "b2": ["m2"], "b3": []}

    asyncio.run(work())
