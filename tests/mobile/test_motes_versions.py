"""Motes of the version before: their recorded adverts and `info`, and a broker that knows of modes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hearing_kit import ADDRESS, advert
from test_version_before import ADVERT, INFO, RESPONSE

from spinney.mote.advert import COMPANY
from spinney.mote.adverts import Mode
from spinney.mote.protocol import Event, EventFlag, Info, InfoFlag
from spinney_mobile.decode import Registry
from spinney_mobile.devices import DeviceTable
from spinney_mobile.motes import AdvertPolicy, Identity
from spinney_mobile.motes.adverts import OLDER
from spinney_mobile.motes.mote import AWAKE_SECONDS, IN_REACH_SECONDS, Mote
from spinney_mobile.motes.programs import Wanted
from spinney_mobile.motes.table import Plan

HEARD = advert({"fcd2": ADVERT[7:].hex()}, {COMPANY: RESPONSE[4:16].hex()})


def asked(info: Info, policy: AdvertPolicy) -> Mote:
    """A mote of ours that has been visited, and holds what is planned, which is nothing."""
    mote = Mote(ADDRESS, Identity("hut"), policy)
    mote.told(info)
    mote.want(Wanted(), 0.0)
    mote.plan = Plan()
    mote.succeeded(1.0)
    mote.hear(-60, None, 2.0, Mode.OPEN, None)
    return mote


def test_it_is_left_alone_and_said_to_be_older() -> None:
    for policy in (AdvertPolicy(), AdvertPolicy(Mode.ENCRYPTED), AdvertPolicy(Mode.OPEN)):
        mote = asked(Info.decode(INFO), policy)
        for now in (3.0, 250.0):
            mote.hear(-60, None, now, Mode.OPEN, None)
            assert mote.reason(now, now) is None, "it is not visited for its adverts"
        health = mote.health(connected=False, waiting=False)
        assert (health["adverts"], health["adverts_note"]) == ("open", OLDER)


def test_where_adverts_are_left_as_they_are_nothing_is_said() -> None:
    mote = asked(Info.decode(INFO), AdvertPolicy(None))
    assert mote.reason(3.0, 3.0) is None
    assert mote.health(connected=False, waiting=False)["adverts_note"] is None


def test_its_recorded_adverts_are_samples_where_nobody_asks_it_and_presence_where_somebody_does() -> None:
    sample = DeviceTable(Registry.own(motes=False)).take(HEARD)
    assert sample is not None
    assert sample.values == {"temperature": 21.25, "humidity": 47.5, "pressure": 1013.25, "battery": 83.0}
    assert (sample.boot, sample.sequence) == (3, 70_000)
    devices = DeviceTable(Registry.own())
    assert devices.take(HEARD) is None
    (seen,) = devices.seen()
    assert (seen.decoder, seen.battery) == ("spinney", 0.83)


@pytest.mark.parametrize("sleeps", [True, False])
def test_a_mote_that_sleeps_is_dialled_only_in_the_moment_in_which_it_is_heard(sleeps: bool) -> None:
    info = Info.decode(INFO)
    mote = Mote(ADDRESS, Identity("hut"), AdvertPolicy())
    mote.told(replace(info, flags=info.flags | (InfoFlag.SLEEPS if sleeps else InfoFlag(0)) | InfoFlag.ADVERT_MODES))
    mote.want(Wanted(), 0.0)
    mote.plan = Plan()
    mote.hear(-60, None, 100.0, Mode.OPEN, None)
    assert mote.reason(100.0 + AWAKE_SECONDS, 0.0) == "adverts"
    later = mote.reason(100.0 + IN_REACH_SECONDS, 0.0)
    assert later == (None if sleeps else "adverts")
    assert mote.reason(101.0 + IN_REACH_SECONDS, 0.0) is None


def undecided(mote: Mote) -> Mote:
    """Its newest event left a bit to its owner."""
    mote.open_bits.told([Event(7, 1, 1, 3, 9, EventFlag.UNKNOWN, 1000, {})])
    mote.next_event = 8
    return mote


def test_a_bit_to_be_written_down_is_a_reason_to_connect_while_the_mote_may_take_it() -> None:
    mote = undecided(asked(Info.decode(INFO), AdvertPolicy()))
    assert mote.reason(3.0, 3.0) == "bits"
    mote.open_bits.refused(1, 7)
    assert mote.reason(3.0, 3.0) is None, "it would refuse again"


def test_what_is_to_be_written_down_is_over_when_the_mote_restarts_or_is_anothers() -> None:
    info = Info.decode(INFO)
    restarted, released = (undecided(asked(info, AdvertPolicy())) for _ in range(2))
    restarted.told(info)
    assert restarted.open_bits.due(7) == [1]
    restarted.told(replace(info, boot=info.boot + 1))
    released.want(None, 5.0)
    assert restarted.open_bits.due(7) == released.open_bits.due(7) == []


@pytest.mark.parametrize(("said", "used"), [(0, 1), (1, 1), (2, 2), (3, 2)])
def test_programs_are_of_the_newest_version_that_both_know(said: int, used: int) -> None:
    mote = Mote(ADDRESS, Identity("hut"), AdvertPolicy())
    mote.told(replace(Info.decode(INFO), program_version=said))
    assert mote.program_version == used
