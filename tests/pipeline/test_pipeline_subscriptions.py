"""Which subscriptions there are at a record: the same whoever asks, and however he got there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from engine_logs import ends
from kit import direct, for_broker, for_pipeline, make_log, messages, publications, purge, put, server_of
from servers import NatsServer

from spinney_cloud.names import SUBSCRIPTIONS
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.pipeline.scan import Scan
from spinney_cloud.pipeline.subscriptions import (
    Subscriptions,
    SubscriptionsUnknown,
    Where,
    at,
    initial,
    load,
    save,
    saved,
)
from spinney_cloud.records import Announced, SubscriptionChange, decode
from spinney_cloud.subscriptions import StoredSubscription

HISTORY = [
    for_pipeline("a", "x > 1"),
    for_broker(for_pipeline("b", "x > 1")),
    for_pipeline("c", "WHEN x > 1 UNTIL x < 0"),
    publications("m1", 1, [{"x": 2}]),
    Announced("default", ("m1", "m2"), True),
    for_pipeline("a", "x > 2"),
    Announced("default", ("m1",), False),
    ends("c"),
    for_pipeline("d", "x > 3", tenant="other"),
    for_pipeline("a", "x > 2"),
]


def what(found: Subscriptions) -> object:
    """All of it that can be compared."""
    tenants = [found.tenant(name) for name in ("default", "other")]
    return [(sorted(each.standing.items()), list(each.away), each.by_digest, each.running) for each in tenants]


def by_reading_all(nats: NatsServer, upto: int) -> Subscriptions:
    found = Subscriptions()
    for message in messages(nats, 1, upto):
        found.apply(decode(message.data), message.sequence, message.time)
    return found


@pytest.fixture
def where(nats: NatsServer, tmp_path: Path) -> Where:
    make_log(nats)
    put(nats, HISTORY)
    return Where(server_of(nats), str(tmp_path / "lake"))


def test_a_set_is_the_same_however_one_came_to_it(nats: NatsServer, where: Where) -> None:
    for record in (3, 4, 6, 10, 7, 1, 10, 9):
        assert what(at(where, record)) == what(load(where, record)) == what(by_reading_all(nats, record)), record
    with direct(nats) as log:
        scan = Scan(log)
        for record in (3, 5, 8, 10):
            scan.seek(record)
            found = at(where, record, scan.subscriptions)
            whole = by_reading_all(nats, record)
            assert found.tenant("default").standing == whole.tenant("default").standing, record


def test_who_begins_again_in_the_same_words_goes_on(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, HISTORY)
    found = by_reading_all(nats, 10).find(for_pipeline("a", "x > 2").key)
    assert found is not None
    assert found.begun == 6


def test_the_lake_knows_what_the_log_has_forgotten(nats: NatsServer, where: Where) -> None:
    wanted = {record: what(by_reading_all(nats, record)) for record in (7, 10)}
    save(where.open(), load(where, 7))
    purge(nats, 7)
    again = saved(where.open())
    assert again is not None
    assert (again.at, what(again)) == (7, wanted[7])
    assert what(load(where, 10)) == wanted[10]
    save(where.open(), load(where, 10))
    with pytest.raises(
        SubscriptionsUnknown, match=r"record 9 .*has those of record 10, and the log begins at record 8"
    ):
        load(where, 9)


def test_a_log_that_begins_beyond_what_the_lake_knows_is_told(nats: NatsServer, where: Where) -> None:
    save(where.open(), load(where, 3))
    purge(nats, 6)
    with pytest.raises(SubscriptionsUnknown, match="begins at record 7"):
        load(where, 8)


@pytest.mark.usefixtures("where")
def test_the_first_start_takes_from_the_bucket_what_no_record_will_bring(nats: NatsServer) -> None:
    async def fill() -> None:
        async with await NatsLog.connect(nats.endpoints(), name="test") as log:
            bucket = log.bucket(SUBSCRIPTIONS)
            for sequence, change in enumerate(HISTORY, 1):
                if isinstance(change, SubscriptionChange) and change.value is None:
                    await bucket.delete(change.key)
                elif isinstance(change, SubscriptionChange):
                    value = {**(change.value or {}), "start": sequence}
                    await bucket.put(change.key, orjson.dumps(value))

    asyncio.run(fill())
    purge(nats, 9)
    with direct(nats) as log:
        found = initial(log, 9)
    assert list(found.tenant("other").standing) == [HISTORY[8].key]  # type: ignore[union-attr]
    assert not found.tenant("default").standing, "what record 10 says is yet to come"


def test_a_damaged_subscription_harms_no_other() -> None:
    found = Subscriptions()
    bad = for_pipeline("a", "x > 1")
    found.apply(SubscriptionChange(bad.tenant, bad.key, {"v": 1}), 1, 0.0)
    found.apply(SubscriptionChange("other", bad.key, bad.value), 2, 0.0)
    found.apply(for_pipeline("b", "x > 1"), 3, 0.0)
    assert (found.damaged, len(found)) == (2, 1)
    kept = Subscriptions.from_rows(found.rows(), 3)
    assert isinstance(kept.find(for_pipeline("b", "x > 1").key).stored, StoredSubscription)  # type: ignore[union-attr]
