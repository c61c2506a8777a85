"""The pipeline's messages in the notification log: each once, beside the matcher's, whatever was killed when."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from kit import direct, make_log, publications, put
from servers import NatsServer

from spinney_cloud.matcher_start import Place, begin
from spinney_cloud.names import NOTES, READERS
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.notes import MATCHER, PIPELINE, Note, Notes, decode, encode
from spinney_cloud.pipeline.direct_get import DirectGet
from spinney_cloud.pipeline.notify import READER, Notifier
from spinney_cloud.positions import Position
from spinney_cloud.settings import Settings
from spinney_cloud.snapshots import Snapshots
from spinney_cloud.subscription_journal import Journal

LATER = 4e9
"""Notifications are no older than their record."""


def message(at: int, part: int = 0, by: str = PIPELINE) -> Notes:
    note = Note("ana", "air", "match", None, 0, f"m1:1:{at}")
    return Notes("default", at, LATER, part, True, ({"id": f"m1:1:{at}"},), (note,), by)


def stored(log: DirectGet) -> list[tuple[int, int, str]]:
    found = [decode(each.data) for each in log.range(NOTES, 1, log.bounds(NOTES).last)]
    return [(each.at, each.part, each.by) for each in found]


def test_what_is_there_is_not_stored_again(nats: NatsServer) -> None:
    make_log(nats)
    with direct(nats) as log:
        first = Notifier(log)
        first.start()
        first.store([message(3), message(3, 1), message(5)])
        again = Notifier(log)
        again.start()
        again.store([message(3, 1), message(5), message(5, 1), message(6)])
        assert (again.messages, again.repeated, again.notes) == (2, 2, 2)
        assert [place for *place, _ in stored(log)] == [[3, 0], [3, 1], [5, 0], [5, 1], [6, 0]]


@pytest.mark.parametrize("noted", [1, 10**6])
def test_the_place_is_found_though_it_was_not_noted(nats: NatsServer, noted: int) -> None:
    """Killed between the messages and the note; or the notification log is another one."""
    make_log(nats)
    with direct(nats) as log:
        Notifier(log).store([message(3), message(4)])
        log.publish(f"$KV.{READERS}.{READER}", Position(NOTES, noted, noted, 1.0).encode())
        again = Notifier(log)
        again.start()
        again.store([message(3), message(4)])
        assert (again.messages, again.repeated) == (0, 2)


def test_a_thousand_messages_are_stored_in_order_through_a_lost_connection(nats: NatsServer) -> None:
    make_log(nats)
    with direct(nats) as log:
        notifier = Notifier(log)
        notifier.store([message(at) for at in range(1, 500)])
        log.close()
        notifier.store([message(at) for at in range(500, 1001)])
        assert [at for at, *_ in stored(log)] == list(range(1, 1001))
        assert log.reconnected == 2


def test_the_matcher_finds_its_own_place_among_ours(nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    put(nats, [publications("m1", number, [{"x": 1}]) for number in range(1, 7)])
    with direct(nats) as log:
        Notifier(log).store([message(2, by=MATCHER), message(3), message(6)])

    async def place() -> Place:
        settings = Settings(data=tmp_path)
        snapshots = Snapshots(tmp_path / "snapshots", 2)
        async with await NatsLog.connect(nats.endpoints(), name="test") as log:
            with Journal(snapshots.folder) as journal:
                return (await begin(log, settings, snapshots, journal)).stored

    assert asyncio.run(place()) == Place(2, 0)


def test_who_wrote_a_message_is_in_it() -> None:
    assert decode(encode(message(1))) == message(1)
    assert b'"by"' not in encode(replace(message(1), by=MATCHER)), "as it always was"
