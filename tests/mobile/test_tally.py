"""What a broker tells of what it and its motes sent and spared: when it is said, and what motes kept back."""

from __future__ import annotations

import json

from spinney_mobile.motes import AdvertPolicy
from spinney_mobile.motes.identity import Identity
from spinney_mobile.motes.mote import Mote
from spinney_mobile.tally import LONGEST_SECONDS, TALLY_READINGS, TALLY_SECONDS, Tally


def test_it_is_said_for_so_many_readings_and_now_and_then() -> None:
    counts = {"sent": 60, "spared": 30, "motes_spared": 9, "bytes_sent": 10_000}
    tally = Tally(lambda: counts)
    assert tally.next("s1", 0.0) is None  # no link yet
    tally.opened(0.0)
    assert tally.next("s1", TALLY_SECONDS) is None
    counts["motes_spared"] = 10
    assert tally.next("s1", 2 * TALLY_SECONDS - 1) is None  # it is not asked more often
    assert json.loads(tally.next("s1", 2 * TALLY_SECONDS) or b"") == {"session": "s1", "counts": counts}
    counts["sent"] += TALLY_READINGS - 1
    assert tally.next("s1", 3 * TALLY_SECONDS) is None
    later = 2 * TALLY_SECONDS + LONGEST_SECONDS
    assert tally.next("s1", later - 1) is None
    assert json.loads(tally.next("s1", later + TALLY_SECONDS) or b"")["counts"] == counts
    assert tally.next("s1", later + 2 * LONGEST_SECONDS) is not None, "though nothing has changed"


def test_of_a_hundred_messages_one_at_most_is_a_tally() -> None:
    counts = {"sent": 0}
    tally = Tally(lambda: counts)
    tally.opened(0.0)
    said = []
    for second in range(4 * 3600):
        counts["sent"] += 2
        if tally.next("s1", float(second)) is not None:
            said.append(second)
    assert said[:4] == [50, 100, 150, 200]
    assert len(said) * TALLY_READINGS <= counts["sent"]


def test_what_has_gone_along_with_an_announcement_is_not_said_again() -> None:
    counts = {"sent": 150}
    tally = Tally(lambda: counts)
    tally.opened(0.0)
    assert tally.along(TALLY_SECONDS - 1) == {"counts": {"sent": 150}}
    counts["sent"] = 249
    assert tally.next("s1", 2 * TALLY_SECONDS) is None
    counts["sent"] = 250
    assert json.loads(tally.next("s1", 3 * TALLY_SECONDS) or b"")["counts"] == {"sent": 250}
    assert tally.along(4 * TALLY_SECONDS) == {"counts": {"sent": 250}}


def test_who_announces_often_says_it_along_and_never_alone() -> None:
    counts = {"sent": 0}
    tally = Tally(lambda: counts)
    tally.opened(0.0)
    alone = []
    for second in range(4 * 3600):
        counts["sent"] += second % 12 == 0
        if second % 300 == 0:
            tally.along(float(second))
        if tally.next("s1", float(second)) is not None:
            alone.append(second)
    assert alone == []


def test_a_new_link_is_told_anew() -> None:
    tally = Tally(lambda: {"sent": TALLY_READINGS})
    tally.opened(0.0)
    assert tally.next("s1", TALLY_SECONDS)
    tally.opened(TALLY_SECONDS)
    assert json.loads(tally.next("s2", 2 * TALLY_SECONDS) or b"")["session"] == "s2"


def test_without_anybody_who_counts_nothing_is_said() -> None:
    tally = Tally()
    tally.opened(0.0)
    assert (tally.due, tally.next("s1", 1e6), tally.along(1e6)) == (None, None, {})


def test_numbers_that_a_mote_skips_are_samples_that_it_kept_back() -> None:
    mote = Mote("AA", Identity("m1"), AdvertPolicy())
    said = [(1, 10, True), (1, 14, True), (1, 14, True), (1, 20, False), (1, 21, True), (2, 3, True), (2, 4, True)]
    assert [mote.kept_back(boot, number, came=came) for boot, number, came in said] == [0, 3, 0, 6, 0, 0, 0]
    assert mote.kept_back(1, 30, came=True) == 0  # another boot, before or after
