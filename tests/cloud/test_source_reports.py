"""What brokers report of sources, how reliable that makes each, and that it is kept."""

from __future__ import annotations

from random import Random

import pytest

from spinney.source_health import (
    BATTERIES,
    BATTERY_EDGES,
    SILENCE_EDGES,
    SILENCES,
    SourceHealth,
    battery_bucket,
    decode,
    encode,
    silence_bucket,
)
from spinney_cloud import source_report_store
from spinney_cloud.source_reports import MAX_PERIODS, PERFECT, SourceReports

HERE = SourceHealth(silent_seconds=0.0)
SILENT = SourceHealth(silent_seconds=600.0)
NOBODY_KNOWS = SourceHealth()
EVERY = 60.0


def reports(**sources: SourceHealth) -> SourceReports:
    made = SourceReports()
    made.watch(EVERY, 0.0)
    made.told("b1", sources, 0.0)
    return made


@pytest.mark.parametrize("health", [HERE, NOBODY_KNOWS, SourceHealth(0.02, 0.0)])
def test_a_source_that_is_here_or_of_which_nobody_tells_stays_perfect_for_ever(health: SourceHealth) -> None:
    kept = reports(m1=health)
    for now in range(0, 1_000_000, 10_000):
        kept.told("b1", {"m1": health}, float(now))
        assert kept.share("m1", EVERY, float(now)) == 1.0
        assert not kept.has_failed("m1", EVERY)
    assert kept.failures == 0


def test_a_share_falls_while_a_source_fails_and_rises_while_it_is_here() -> None:
    kept = reports(m1=SILENT)
    assert kept.has_failed("m1", EVERY)
    assert kept.share("m1", EVERY, 5 * EVERY) == pytest.approx(0.8**5)
    kept.told("b1", {"m1": HERE}, 5 * EVERY)
    assert not kept.has_failed("m1", EVERY)
    assert kept.share("m1", EVERY, 8 * EVERY) == pytest.approx(1 - (1 - 0.8**5) * 0.8**3)
    assert kept.share("m1", EVERY, 100 * EVERY) > PERFECT
    assert kept.failures == 1


def test_how_often_it_is_looked_at_makes_no_difference() -> None:
    often, once = reports(m1=SILENT), reports(m1=SILENT)
    for now in range(600):
        often.share("m1", EVERY, float(now))
    assert often.share("m1", EVERY, 600.0) == pytest.approx(once.share("m1", EVERY, 600.0))


def test_a_longer_period_takes_the_same_silence_for_none() -> None:
    kept = reports(m1=SILENT)
    kept.watch(3600.0, 0.0)
    assert (kept.has_failed("m1", EVERY), kept.has_failed("m1", 3600.0)) == (True, False)


def test_a_broker_that_ends_without_a_word_was_due_and_one_that_says_so_was_not() -> None:
    kept = reports(m1=HERE, m2=HERE, m3=NOBODY_KNOWS)
    kept.told("b2", {"m2": HERE}, 0.0)
    kept.ended("b1", 10.0, was_due=True)
    assert [kept.share(one, EVERY, 1e6) for one in ("m1", "m2", "m3")] == [0.8, 1.0, 1.0]  # 0.8 rests: it is not here
    kept.ended("b2", 20.0)
    assert kept.share("m2", EVERY, 30.0) == 1.0


def test_what_is_kept_and_restored_is_the_same() -> None:
    kept = reports(m1=SILENT, m2=HERE, m3=SILENT)
    kept.told("b1", {"m1": HERE, "m2": HERE, "m3": SILENT}, 3 * EVERY)
    shares = list(kept.shares(4 * EVERY))
    assert {source for source, _, _ in shares} == {"m1", "m3"}
    again = SourceReports()
    for share in source_report_store.decode(source_report_store.encode(shares)):
        again.restore(*share, now=1_000.0)
    again.told("b1", {"m1": HERE, "m2": HERE, "m3": SILENT}, 1_000.0)
    for source in ("m1", "m2", "m3"):
        expected = kept.share(source, EVERY, 6 * EVERY)
        assert again.share(source, EVERY, 1_000.0 + 2 * EVERY) == pytest.approx(expected, abs=1e-3)
        assert again.has_failed(source, EVERY) == kept.has_failed(source, EVERY)
    assert [one for one, _, _ in kept.shares(200 * EVERY)] == ["m3"]  # who is perfect again is not kept


@pytest.mark.parametrize("data", [b"", b"[]", b'{"v":2,"shares":[]}', b'{"v":1}', b'{"v":1,"shares":[["a",0,1]]}'])
def test_what_was_damaged_or_is_newer_is_not_read(data: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        source_report_store.decode(data)


def test_records_and_periods_are_bounded() -> None:
    kept = SourceReports(max_records=3)
    for number in range(MAX_PERIODS + 5):
        kept.watch(60.0 + number, 0.0)
    kept.told("b1", {f"m{number}": SILENT for number in range(5)}, 0.0)
    assert len(list(kept.shares(60.0))) == 3
    assert kept.forgotten > 0
    assert kept.has_failed("m0", 1e9)  # taken for the longest that is known


def test_a_character_says_battery_and_silence() -> None:
    codes = {encode(battery, silence) for battery in range(8) for silence in range(8)}
    assert len(codes) == 64
    for battery, charge in enumerate(BATTERIES):
        for silence, seconds in enumerate(SILENCES):
            assert decode(encode(battery, silence)) == SourceHealth(charge, seconds)
    for wrong in ("", "AA", "+", "é", " "):
        with pytest.raises(ValueError, match="base64url"):
            decode(wrong)


def test_buckets_hold_what_they_say() -> None:
    for seconds in (0.0, 299.9, 300.0, 1799.0, 1e9):
        least = SILENCES[silence_bucket(seconds)]
        assert least is not None
        assert least <= seconds
    assert silence_bucket(None) == 0
    assert [silence_bucket(edge) for edge in SILENCE_EDGES] == [2, 3, 4, 5, 6]
    assert [battery_bucket(edge) for edge in (0.0, *BATTERY_EDGES)] == list(range(1, 8))


def test_a_battery_near_an_edge_does_not_change_its_bucket_back_and_forth() -> None:
    random, bucket, changes = Random(1), battery_bucket(0.5), 0
    for _ in range(1_000):
        found = battery_bucket(0.5 + random.uniform(-0.015, 0.015), bucket)
        changes += found != bucket
        bucket = found
    assert changes == 0
    assert battery_bucket(0.4, bucket) == 4
    assert battery_bucket(0.01, bucket) == 1
