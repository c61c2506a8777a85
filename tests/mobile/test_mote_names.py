"""What each mote in reach is called: by its scan response, by the CRC in its presence, by what it said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hearing_kit import NOW

from spinney.mote.advert import BTHOME, COMPANY, PRESENCE, PRESENCE_DATA, SCAN, SCAN_VERSION, name_crc
from spinney_mobile import mote_names
from spinney_mobile.decode import Registry
from spinney_mobile.devices import DeviceTable
from spinney_mobile.mote_names import KEY, SILENT_SECONDS, MoteNames
from spinney_mobile.samples import Heard
from spinney_mobile.settings import Device, Devices

ONE, TWO = "C0:00:00:00:00:01", "C0:00:00:00:00:02"
ALIKE = "hut-gnyijstj", "hut-etislvlf"
"""Two names of one CRC."""


def quiet(name: str, address: str = ONE, *, seconds: float = 0.0, version: int = 1, tenths: int = 15) -> Heard:
    """An advert of presence, as passive scanners hear it."""
    data = PRESENCE_DATA.pack(version, tenths, 0, name_crc(name))
    return Heard("ble", address, NOW + seconds, services={PRESENCE: data})


def open_(address: str = ONE, name: str | None = None, *, seconds: float = 0.0) -> Heard:
    """An advert of readings, with its scan response if that has a name."""
    scan = SCAN.pack(SCAN_VERSION, 0, 0, 1, 7, 0)
    makers = {} if name is None else {COMPANY: scan}
    services = {BTHOME: bytes.fromhex("40000702d007")}
    return Heard("ble", address, NOW + seconds, name, services=services, manufacturers=makers)


class Names(MoteNames):
    """With all that they kept and counted."""

    def __init__(self, *names: str, single: tuple[str, ...] = (), kept: Mapping[str, bytes] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.kept: dict[str, bytes | None] = dict(kept or {})
        super().__init__(self.counts, kept, self.kept.update)
        self.configure([*names, *single], single)


# ---- what it is called


def test_a_name_of_settings_is_that_of_a_presence_with_its_crc() -> None:
    names = Names("hut", "box")
    assert names.hear(quiet("hut")) == {ONE}
    assert names.hear(quiet("hut")) == set(), "that is known by now"
    assert names.of(ONE) == "hut"
    assert names.of(ONE, "what a system remembers") == "hut"
    names.hear(quiet("shed", TWO))
    assert names.of(TWO, "hut") is None, "it is a mote of another name"


def test_what_is_no_mote_is_called_as_it_was_heard() -> None:
    names = Names("hut")
    assert names.hear(Heard("ble", ONE, NOW, "hut", services={BTHOME: b"\x40"})) == set()
    assert names.of(ONE, "hut") == "hut"
    assert names.of(ONE) is None


def test_a_name_that_was_heard_holds_for_presence_only_with_its_crc() -> None:
    names = Names()
    names.hear(open_(name="hut"))
    names.hear(quiet("hut"))
    assert names.of(ONE) == "hut", "no setting has it, but a scan response had"
    names.hear(quiet("shed"))
    assert names.of(ONE) is None
    names.hear(open_(name="shed"))
    assert names.of(ONE) == "shed"


def test_a_presence_of_a_later_version_says_nothing_of_the_name() -> None:
    names = Names("hut")
    names.hear(quiet("hut", version=2))
    assert names.of(ONE) is None
    names.said(ONE, "hut")
    assert names.hear(quiet("box", version=2)) == set()
    assert names.of(ONE) == "hut"


def test_other_names_in_settings_are_for_motes_that_were_heard_before() -> None:
    names = Names("box")
    names.hear(quiet("hut"))
    names.configure(["hut"], ["hut"])
    assert (names.of(ONE), names.address_of("hut")) == ("hut", ONE)


# ---- what it says itself


def test_what_a_mote_says_counts_more_than_a_crc_and_is_a_conflict_once(caplog: pytest.LogCaptureFixture) -> None:
    names = Names(ALIKE[0])
    names.hear(quiet(ALIKE[1]))
    assert names.of(ONE) == ALIKE[0]
    assert names.said(ONE, ALIKE[1]) == {ONE}
    for _ in range(3):
        assert names.hear(quiet(ALIKE[1])) == set()
        assert names.said(ONE, ALIKE[1]) == set()
    assert names.of(ONE) == ALIKE[1]
    assert names.counts["name conflicts"] == 1
    (record,) = caplog.records
    assert all(word in record.getMessage() for word in (ONE, *ALIKE))


def test_a_mote_whose_crc_is_of_no_name_that_it_says_is_not_taken_for_another_again_and_again() -> None:
    names = Names("hut")
    names.hear(quiet("hut"))
    names.said(ONE, "liar")
    for tenths in (15, 9, 8):
        assert names.hear(quiet("hut", tenths=tenths)) == set()
    assert (names.of(ONE), names.counts["name conflicts"]) == ("liar", 1)


def test_what_it_said_is_known_after_a_restart_until_it_is_another() -> None:
    before = Names()
    before.hear(quiet("shed"))
    before.said(ONE, "shed")
    assert before.kept == {KEY + ONE: b"shed"}
    kept = {key: value for key, value in before.kept.items() if value is not None}
    after = Names("hut", kept=kept)
    after.hear(open_())
    assert after.of(ONE) == "shed", "though neither a name nor a CRC is on the air"
    after.hear(quiet("shed"))
    assert after.of(ONE) == "shed"
    after.hear(quiet("hut"))
    assert after.of(ONE) == "hut", "it was given another name meanwhile"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mote_names, "MAX_MOTES", 3)
    monkeypatch.setattr(mote_names, "MAX_KEPT", 2)
    names = Names("hut")
    for number in range(5):
        address = f"C0:00:00:00:00:0{number}"
        names.hear(quiet("hut", address))
        names.said(address, f"mote{number}")
    assert [key for key, value in names.kept.items() if value is not None] == [
        "name:C0:00:00:00:00:03",
        "name:C0:00:00:00:00:04",
    ]
    assert names.of("C0:00:00:00:00:01") is None
    assert names.of("C0:00:00:00:00:04") == "mote4"


# ---- one name, two addresses


def test_the_settings_of_a_name_go_to_one_mote_and_to_another_address_when_that_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = Names(single=("hut",))
    assert names.hear(quiet("hut")) == {ONE}
    for second in range(3):
        names.hear(quiet("hut", TWO, seconds=second))
    assert names.address_of("hut") == ONE
    assert names.counts["name conflicts"] == 1
    assert TWO in caplog.records[0].getMessage()
    assert names.hear(quiet("hut", TWO, seconds=SILENT_SECONDS + 1)) == {ONE, TWO}
    assert names.address_of("hut") == TWO


def test_a_name_is_free_when_its_mote_has_another() -> None:
    names = Names(single=("hut",))
    names.hear(quiet("hut"))
    names.hear(quiet("shed"))
    assert TWO in names.hear(quiet("hut", TWO))
    assert names.address_of("hut") == TWO


def test_a_mote_that_was_connected_to_before_it_was_heard_takes_no_name_away() -> None:
    names = Names(single=("hut",))
    names.hear(quiet("hut"))
    names.said(TWO, "hut")
    assert names.address_of("hut") == ONE


# ---- what settings say of it


def table(*listed: Device, **rules: Any) -> DeviceTable:
    return DeviceTable(Registry.own(), Devices(**rules), listed)


@pytest.mark.parametrize(
    ("rules", "listed", "is_taken"),
    [
        ({"allow": "listed", "patterns": ("hut",)}, [], True),
        ({"allow": "listed", "patterns": ("hu*",)}, [], False),
        ({"allow": "listed", "patterns": ("box",)}, [], False),
        ({"allow": "listed"}, [Device(mote="hut")], True),
        ({"allow": "listed"}, [Device(mote="box")], False),
        ({}, [Device(mote="hut", allow=False)], False),
        ({}, [Device(mote="box", allow=False)], True),
        ({"patterns": ("hut",)}, [Device(mote="hut", allow=False)], False),
        ({}, [Device(mote="hut", allow=False), Device(address=ONE)], False),
        ({}, [Device(mote="hut"), Device(address=ONE, allow=False)], False),
    ],
)
def test_who_is_taken_where_no_scan_response_is_heard(
    rules: dict[str, Any], listed: list[Device], is_taken: bool
) -> None:
    devices = table(*listed, **rules)
    devices.take(quiet("hut"))
    assert devices.seen()[0].allowed is is_taken


def test_the_device_of_a_name_gives_a_mote_its_source_and_place_and_that_of_its_address_counts_before() -> None:
    hut = Device(mote="hut", name="attic", lat=45.8, long=15.9, bindkey="ab" * 16)
    devices = table(hut)
    devices.take(quiet("hut"))
    (seen,) = devices.seen()
    assert (seen.name, seen.source, seen.place) == ("hut", "attic", (45.8, 15.9))
    assert devices.of.of_source("attic") == hut
    assert devices.of.bindkey(ONE) == b"\xab" * 16
    own = Device(address=ONE, name="cellar")
    devices.configure(Devices(), [hut, own])
    assert (seen.source, seen.place) == ("cellar", None)


def test_a_device_without_a_name_for_its_source_is_known_by_the_address_of_its_mote() -> None:
    hut = Device(mote="hut", attributes={"room": "attic"})
    devices = table(hut)
    assert devices.of.of_source("c00000000001") is None
    devices.take(quiet("hut"))
    assert devices.of.source(ONE) == "c00000000001"
    assert devices.of.of_source("c00000000001") == hut


def test_of_two_motes_with_one_name_the_second_is_not_taken() -> None:
    devices = table(Device(mote="hut", name="attic"))
    devices.take(quiet("hut"))
    devices.take(quiet("hut", TWO))
    two, one = devices.seen()
    assert (one.allowed, one.source) == (True, "attic")
    assert (two.allowed, two.source) == (False, "c00000000002")
    assert devices.counts["name conflicts"] == 1
    devices.take(quiet("hut", TWO, seconds=SILENT_SECONDS + 1))
    assert (one.allowed, two.allowed, two.source) == (False, True, "attic")


def test_a_name_that_a_mote_says_settles_whether_it_is_taken() -> None:
    devices = table(Device(mote=ALIKE[0], allow=False), allow="known")
    devices.take(quiet(ALIKE[1]))
    (seen,) = devices.seen()
    assert not seen.allowed
    assert devices.said(ONE, ALIKE[1]) == {ONE}
    assert seen.allowed
