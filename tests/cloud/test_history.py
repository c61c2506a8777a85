"""The history in the log: what brokers announce, are told, own and report, before it can be at work; again at times."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from coordinator_kit import Kit, until, until_so
from servers import NatsServer
from test_activation import announcement, source

from spinney import parse
from spinney_cloud import names
from spinney_cloud.announcement_table import Change
from spinney_cloud.announcements import AnnouncementError
from spinney_cloud.completeness import Judge, entries, rewriting
from spinney_cloud.completeness.reading import LOOKBACK_SECONDS, judge_of, log_sayings, tell
from spinney_cloud.completeness.recorder import Recorder, entry_of
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.records import History, decode, encode
from spinney_cloud.subscriptions import form_of

NO2 = {"min": 0, "max": 400}
REPORT = {"run": "r1", "epoch": 7}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 240))


def said(session: str = "s1", *sources: str, **more: Any) -> dict[str, Any]:
    sources = sources or ("m1",)
    return {"session": session, "sources": [source(name, NO2=NO2) for name in sources], "lease": list(sources), **more}


async def activated(kit: Kit) -> None:
    """A subscription, and a broker that is told of it."""
    await kit.subscribe("ana", "a", "NO2 > 40")
    await kit.announce("b1", said())
    await until(lambda: kit.active("b1"))


async def history(kit: Kit, tenant: str = "default") -> list[dict[str, Any]]:
    return [one.value for _, one in await kit.records() if isinstance(one, History) and one.tenant == tenant]


async def whats(kit: Kit) -> list[str]:
    return [one["what"] for one in await history(kit)]


async def verdict(kit: Kit, text: str) -> str:
    """Of the time from the last thing that was said until now, as far as the history tells."""
    state = await kit.log.state(names.LOG)
    sayings, is_whole = await log_sayings(kit.log, "default", 1, state.last)
    assert is_whole
    judge = judge_of(form_of(parse(text)), sayings[-1].at, sayings[-1].at + 1)
    assert isinstance(judge, Judge)
    tell(judge, sayings)
    return judge.answer().verdict


async def reported(kit: Kit, session: str = "s1", **more: Any) -> None:
    """The broker says that it has what it was told last."""
    before = len(await history(kit))
    epoch = kit.heard("b1", "act")[-1]["epoch"]
    await kit.request("b1", "ann", {"session": session, "report": {"run": "r1", "epoch": epoch, **more}})
    await until_so(lambda: _more(kit, before))


async def _more(kit: Kit, before: int) -> bool:
    return len(await history(kit)) > before


def test_what_a_broker_is_told_is_in_the_log_before_and_what_it_reports_proves_it(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.subscribe("ana", "a", "NO2 > 40")
            assert (await kit.announce("b1", said()))["reports"] == entries.REPORTS
            await until(lambda: kit.active("b1"))
            assert list(dict.fromkeys(await whats(kit))) == ["announced", "leased", "activated"]
            assert await verdict(kit, "NO2 > 50") == "unknown", "it has not reported yet"
            await reported(kit)
            assert await verdict(kit, "NO2 > 50") == "complete"
            assert await verdict(kit, "NO2 > 30") == "at least"
            assert await verdict(kit, "NO2 > 500") == "complete", "the limits that it announces exclude that"
            await kit.subscribe("ana", "b", "NO2 > 20")
            await until(lambda: len(kit.active("b1")) == 1 and "NO2 > 20" in str(kit.active("b1")))
            assert (await whats(kit))[-1] == "activated"
            assert await verdict(kit, "NO2 > 30") == "at least", "it has not acknowledged that"
            await reported(kit, pending=["m1"])
            assert await verdict(kit, "NO2 > 30") == "at least", "the mote has not committed that"
            await reported(kit)
            assert await verdict(kit, "NO2 > 30") == "complete"
            await kit.request("b1", "ann", {"session": "s1", "away": True})
            await until_so(lambda: _ends_with(kit, "away"))
            assert await verdict(kit, "NO2 > 30") == "at least"
            await kit.announce("b1", said("s2"))
            assert "present" in await whats(kit)

    run(work())


async def _ends_with(kit: Kit, what: str) -> bool:
    return (await whats(kit))[-1] == what


def test_no_broker_is_told_before_it_is_written_down(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    told_early: list[int] = []

    async def work() -> None:
        async with Kit(nats, coordinator=False) as kit:
            written: set[int] = set()
            write = Recorder.write

            async def watched(self: Recorder, tenant: str, *values: Mapping[str, Any]) -> None:
                await write(self, tenant, *values)
                written.update(one["epoch"] for one in values if one["what"] == "activated")

            out = NatsLog.out

            async def sent(self: NatsLog, client: str, leaf: str, data: bytes) -> None:
                if leaf == "act" and json.loads(data)["epoch"] not in written:
                    told_early.append(json.loads(data)["epoch"])
                await out(self, client, leaf, data)

            monkeypatch.setattr(Recorder, "write", watched)
            monkeypatch.setattr(NatsLog, "out", sent)
            await kit.start()
            await activated(kit)
            assert written

    run(work())
    assert told_early == []


def test_announcements_that_say_nothing_new_are_not_written_down(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", said())
            await until(lambda: kit.heard("b1", "act"))
            before = len(await history(kit))
            await kit.announce("b1", said(have=kit.heard("b1", "act")[-1]["epoch"]))
            await kit.announce("b1", said(have=kit.heard("b1", "act")[-1]["epoch"], battery=0.5))
            assert len(await history(kit)) == before

    run(work())


def test_after_a_restart_all_of_it_is_written_again_and_proves_the_same(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await activated(kit)
            await reported(kit)
            await kit.stop()
            before = len(await history(kit))
            await kit.start()
            await until_so(lambda: _more(kit, before + 3))
            again = (await history(kit))[before:]
            assert [one["what"] for one in again] == ["announced", "leased", "activated", "reported"]
            state = await kit.log.state(names.LOG)
            sayings, _ = await log_sayings(kit.log, "default", 1, state.last)
            for some in (sayings, [one for one in sayings if one.tenant != "default"] + sayings[-4:]):
                judge = judge_of(form_of(parse("NO2 > 50")), sayings[-1].at, sayings[-1].at + 1)
                tell(judge, sorted(some, key=lambda one: one.sequence))
                assert judge.answer().verdict == "complete"

    run(work())


def test_what_an_older_cloud_told_in_between_is_not_known(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await activated(kit)
            await reported(kit)
            await kit.stop()
            bucket = kit.log.bucket(names.ACTIVATIONS)
            entry = await bucket.get("default.b1")
            assert entry is not None
            older = json.loads(entry.value)
            del older["recorded"], older["report"]
            await bucket.put("default.b1", json.dumps(older).encode())
            await kit.start()
            await until_so(lambda: _has(kit, "broken"))
            assert await verdict(kit, "NO2 > 50") == "unknown"

    run(work())


async def _has(kit: Kit, what: str) -> bool:
    return what in await whats(kit)


def test_that_history_is_kept_is_said_for_all_and_again(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "AGAIN_SECONDS", 0.2)

    async def work() -> None:
        async with Kit(nats) as kit:
            await until_so(lambda: _kept(kit))
            assert LOOKBACK_SECONDS > 2 * 3600

    run(work())


async def _kept(kit: Kit) -> bool:
    return [one["what"] for one in await history(kit, "all")][:3] == ["kept"] * 3


def test_a_report_of_an_older_session_and_one_that_makes_no_sense_change_nothing(nats: NatsServer) -> None:
    async def work() -> None:
        async with Kit(nats) as kit:
            await kit.announce("b1", said())
            await until(lambda: kit.heard("b1", "act"))
            before = await whats(kit)
            await kit.request("b1", "ann", {"session": "s0", "report": REPORT})
            refused = await kit.announce("b1", {"session": "s1", "report": {"run": 5}})
            assert (refused["ok"], refused["error"]["path"]) == (False, "report.run")
            assert await whats(kit) == before

    run(work())


# ---- entries


def test_entries_are_read_as_they_were_written() -> None:
    kitchen = announcement("b1", [source("m1", NO2=NO2, constants={"room": "kit"}), source("m2", NO2=NO2)])
    value = decode(encode(History("default", entries.announced(kitchen))))
    assert isinstance(value, History)
    read = entries.read_entry(value.value, "default", 5.0)
    assert isinstance(read, entries.Announced)
    assert {name: one.attributes for name, one in read.announcement.sources.items()} == {
        name: one.attributes for name, one in kitchen.sources.items()
    }
    assert len(value.value["kinds"]) == 2
    with pytest.raises(entries.EntryError, match="version 2"):
        entries.read_entry({**entries.away("b1"), "v": 2}, "default", 0.0)
    for damaged in ({"v": 1, "what": "activated"}, {"v": 1}, {"v": 1, "what": "music"}):
        with pytest.raises(entries.EntryError):
            entries.read_entry(damaged, "default", 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        5, {}, {"run": ""}, {"run": "r" * 65}, {"run": "r", "epoch": -1}, {"run": "r", "epoch": True},
        {"run": "r", "pending": "m1"}, {"run": "r", "pending": [1]}, {"run": "r", "seconds": -1},
        {"run": "r", "pending": ["m"] * 1001}, {"run": "r", "music": 1}, {"run": "r", "lost": 2**60},
    ],
)  # fmt: skip
def test_a_report_that_cannot_be_one_is_refused(wrong: Any) -> None:
    with pytest.raises(AnnouncementError):
        entries.read_report(wrong)


def test_of_a_change_that_is_said_which_matters_later() -> None:
    before = announcement("b1", [source("m1", NO2=NO2)])
    assert entry_of("b1", Change(before, announcement("b1", [source("m1", NO2=NO2)]))) is None
    moved = announcement("b1", [source("m1", NO2=NO2)], place={"lat": 45.8, "long": 15.9, "radius": 100})
    cases = [(None, before, "announced"), (before, moved, "announced"), (before, None, "over")]
    for old, new, what in cases:
        told = entry_of("b1", Change(old, new))
        assert told is not None
        assert told["what"] == what
