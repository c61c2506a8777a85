"""A mote's own adverts: samples under the mote's numbers where they are whole and exact, presence otherwise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hearing_kit import ADDRESS, advert, bthome
from spinney_mote import bthome as mote_bthome
from spinney_mote.sensor import Attribute as MoteAttribute

from spinney.mote.advert import COMPANY, SCAN, SCAN_VERSION
from spinney.mote.protocol import AttributeRow
from spinney_mobile.decode import Decoded
from spinney_mobile.decode.spinney import Description, Spinney
from spinney_mobile.samples import Heard

TEMPERATURE = AttributeRow("temp", "C", 1, 10, -400, 850, 0x02)
DOOR = AttributeRow("door", "", 1, 1, 0, 1, 0x1A)
SAMPLE = "4000050284081a01"  # packet id 5, 21.80 C, door open


def scan(sequence: int, boot: int = 3) -> str:
    return SCAN.pack(SCAN_VERSION, 0, 0, boot & 0xFFFF, sequence & 0xFFFF, sequence >> 16 & 0xFF).hex()


def heard(data: str = SAMPLE, sequence: int | None = 5, boot: int = 3) -> Heard:
    return advert({"fcd2": data}, {} if sequence is None else {COMPANY: scan(sequence, boot)})


def told(heard: Heard, description: Description | None = None) -> Decoded:
    decoder = Spinney()
    if description is not None:
        decoder.describe(ADDRESS, description)
    decoded = decoder.decode(heard, None)
    assert decoded is not None
    return decoded


def of(*rows: AttributeRow, boot: int = 3, sequence: int = 0) -> Description:
    return Description(rows, boot, sequence)


def test_a_described_motes_advert_is_the_sample_by_its_own_names_and_number() -> None:
    assert told(heard(), of(TEMPERATURE, DOOR)) == Decoded({"temp": 21.8, "door": 1.0}, 5, None, 3, 5)


def test_until_it_is_described_it_is_there_and_no_more() -> None:
    decoded = told(heard())
    assert decoded.presence
    assert decoded.values == {"temperature": 21.8, "door": True}, "to be seen, not to be used"
    assert decoded.sequence is None


@pytest.mark.parametrize(
    ("why", "heard", "rows"),
    [
        ("the advert is another sample than the scan response says", heard(sequence=6), (TEMPERATURE, DOOR)),
        ("no scan response was heard", heard(sequence=None), (TEMPERATURE, DOOR)),
        ("an attribute had no room", heard("4000050284 08".replace(" ", "")), (TEMPERATURE, DOOR)),
        ("the mote has another attribute by now", heard(), (TEMPERATURE,)),
        ("an attribute is not advertised", heard(), (TEMPERATURE, AttributeRow("door", "", 1, 1, 0, 1, None))),
        ("BTHome's scale is coarser", heard(), (AttributeRow("temp", "C", 1, 1000, 0, 9, 0x02), DOOR)),
        ("it was rounded", heard("4000050285081a01"), (TEMPERATURE, DOOR)),
        ("another unit", heard(), (AttributeRow("temp", "F", 1, 10, 0, 9, 0x02), DOOR)),
        ("it cannot be read", heard(""), (TEMPERATURE,)),
    ],
)
def test_presence_only(why: str, heard: Heard, rows: tuple[AttributeRow, ...]) -> None:
    assert told(heard, of(*rows)).presence, why


@pytest.mark.parametrize(
    ("known", "advertised", "meant"),
    [
        ((3, 5), (3, 6), (3, 6)),
        ((3, 0x1000005), (3, 6), (3, 0x1000006)),
        ((3, 0x1000005), (3, 0xFFFFFF), (3, 0xFFFFFF)),
        ((3, 0xFFFFFF), (3, 2), (3, 0x1000002)),
        ((0x1FFFF, 9), (0, 4), (0x20000, 4)),
        ((0x10003, 9), (4, 1), (0x10004, 1)),
        ((0, 9), (0xFFFF, 1), (0xFFFF, 1)),
    ],
)
def test_the_whole_number_is_the_nearest_that_ends_so(
    known: tuple[int, int], advertised: tuple[int, int], meant: tuple[int, int]
) -> None:
    boot, sequence = advertised
    data = f"4000{sequence & 0xFF:02x}028408"
    decoded = told(heard(data, sequence, boot), of(TEMPERATURE, boot=known[0], sequence=known[1]))
    assert (decoded.boot, decoded.sequence) == meant


def test_where_motes_are_never_asked_their_adverts_are_taken_for_what_they_are() -> None:
    decoder = Spinney(is_asked=False)
    assert decoder.decode(heard(), None) == Decoded({"temperature": 21.8, "door": True}, 5, None, 3, 5)
    other = decoder.decode(heard(sequence=6), None)
    assert other is not None
    assert other.presence


def test_other_sensors_are_not_motes() -> None:
    assert Spinney().decode(bthome(SAMPLE), None) is None
    assert Spinney().decode(advert({"fcd2": SAMPLE}, {COMPANY: "0215"}), None) is None


def test_what_the_firmware_itself_advertises_is_read_exactly() -> None:
    attributes = [MoteAttribute("temp", "C", 1, 10, -400, 850), MoteAttribute("rh", "%", 1, 2, 0, 200)]
    encoder = mote_bthome.Advert(attributes)

    rows = [
        AttributeRow(each.name, each.unit, each.p, each.q, each.low, each.high, number)
        for each, number in zip(attributes, encoder.objects(2), strict=True)
    ]
    for raw in range(-400, 851, 7):
        sample = SimpleNamespace(value=[raw, 101].__getitem__, values=[raw, 101], present=3, sequence=0x10203)
        payload = bytes(encoder.fill(sample))
        response = bytes(mote_bthome.scan_response("hut", 0, 0, 7, 0x10203))
        data, maker = payload[7:].hex(), response[4:16].hex()
        decoded = told(advert({"fcd2": data}, {COMPANY: maker}), of(*rows, boot=7))
        assert decoded.values == {"temp": raw / 10, "rh": 50.5}
        assert (decoded.boot, decoded.sequence) == (7, 0x10203)
