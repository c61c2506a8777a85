"""Adverts: what a mote encodes is BTHome v2 in 31 bytes, and reads back on the host as the same sample."""

from __future__ import annotations

import contextlib
import random
from types import SimpleNamespace
from typing import Any

import pytest
from spinney_mote import bthome
from spinney_mote.sensor import Attribute

from spinney.mote import advert
from spinney.mote.protocol import ProtocolError

# The examples of the format's page, bthome.io/format: object with its data, name, value.
EXAMPLES = [
    ("0161", "battery", 97),
    ("02ca09", "temperature", 25.06),
    ("03bf13", "humidity", 50.55),
    ("04138a01", "pressure", 1008.83),
    ("05138a14", "illuminance", 13460.67),
    ("065e1f", "mass", 80.3),
    ("08ca06", "dew_point", 17.38),
    ("0960", "count", 96),
    ("0a138a14", "energy", 1346.067),
    ("0b021b00", "power", 69.14),
    ("0c020c", "voltage", 3.074),
    ("0d120c", "pm25", 3090),
    ("0e021c", "pm10", 7170),
    ("12e204", "co2", 1250),
    ("133301", "tvoc", 307),
    ("14020c", "moisture", 30.74),
    ("2e23", "humidity", 35),
    ("2f23", "moisture", 35),
    ("3d0960", "count", 24585),
    ("3e2a2c0960", "count", 1611213866),
    ("3f020c", "rotation", 307.4),
    ("400c00", "distance", 0.012),
    ("414e00", "distance", 7.8),
    ("424e3400", "duration", 13.39),
    ("434e34", "current", 13.39),
    ("444e34", "speed", 133.90),
    ("451101", "temperature", 27.3),
    ("4632", "uv_index", 5.0),
    ("478756", "volume", 2215.1),
    ("4a020c", "voltage", 307.4),
    ("57ea", "temperature", -22),
    ("58ea", "temperature", -7.7),
    ("2101", "motion", True),
    ("1a00", "door", False),
]


@pytest.mark.parametrize(("data", "name", "value"), EXAMPLES)
def test_the_host_reads_the_examples_of_the_format(data: str, name: str, value: float | bool) -> None:
    found = advert.Advert.decode(bytes.fromhex("40" + data))
    assert [(one.name, one.value) for one in found.readings] == [(name, pytest.approx(value, rel=1e-12))]
    assert found.unread == 0


def sample_of(values: dict[int, int], sequence: int = 1) -> Any:
    present = sum(1 << index for index in values)
    return SimpleNamespace(value=values.__getitem__, present=present, sequence=sequence)


def service_data(payload: bytes) -> bytes:
    """What a scanner finds in an advert, which must be flags and this."""
    assert len(payload) <= 31
    assert payload[:3] == b"\x02\x01\x06"
    assert payload[3] == len(payload) - 4
    assert payload[4:7] == b"\x16\xd2\xfc"
    return bytes(payload[7:])


def ids_of(data: bytes) -> list[int]:
    return [reading.object_id for reading in advert.Advert.decode(data).readings]


CLIMATE = [
    Attribute("pressure", "Pa", 1, 1, 30000, 110000),
    Attribute("temperature", "C", 1, 100, -4000, 8500),
    Attribute("humidity", "%", 1, 100, 0, 10000),
]


def test_a_sample_reads_back_with_the_object_ids_ascending() -> None:
    climate = [CLIMATE[1], CLIMATE[2], CLIMATE[0]]
    data = service_data(bthome.Advert(climate).fill(sample_of({0: -1234, 1: 5055, 2: 100883}, sequence=258)))
    assert data.hex() == "400002" + "022efb" + "03bf13" + "04138a01"
    found = advert.Advert.decode(data)
    assert found.packet_id == 2
    assert [(one.name, one.value) for one in found.readings] == [
        ("temperature", -12.34),
        ("humidity", 50.55),
        ("pressure", 1008.83),
    ]


def test_a_missing_attribute_is_not_sent() -> None:
    data = service_data(bthome.Advert(CLIMATE).fill(sample_of({2: 4200})))
    assert ids_of(data) == [0x03]


def test_a_declared_scale_becomes_the_standards_rounded_to_the_nearest() -> None:
    fine = [Attribute("temperature", "C", 1, 1000, -40000, 85000)]
    for raw, sent in [(21004, 2100), (21005, 2101), (-21005, -2100), (-21006, -2101), (5, 1), (4, 0)]:
        found = advert.Advert.decode(service_data(bthome.Advert(fine).fill(sample_of({0: raw}))))
        assert found.readings[0].raw == sent


def object_id(name: str, unit: str, p: int, q: int, low: int, high: int) -> int | None:
    choice = bthome.object_for(name, unit, p, q, low, high)
    return None if choice is None else choice[0][2]


def test_a_range_that_an_object_cannot_hold_gets_a_coarser_one_or_none() -> None:
    assert object_id("temperature", "C", 1, 100, -4000, 8500) == 0x02
    assert object_id("temperature", "°C", 1, 1, -270, 1300) == 0x45
    assert object_id("temperature", "C", 1, 1, 0, 9000) is None
    assert object_id("temp", "C", 1, 100, -4000, 8500) == 0x02
    assert object_id("temperature_2", "C", 1, 100, -4000, 8500) == 0x02
    assert object_id("pm2_5", "ug/m3", 1, 1, 0, 1000) == 0x0D
    assert object_id("wind_chill", "C", 1, 100, -4000, 8500) is None


def test_another_unit_is_converted_or_not_sent() -> None:
    assert object_id("temperature", "F", 1, 100, -4000, 8500) is None
    attributes = [
        Attribute("pressure", "Pa", 1, 10, 300_000, 1_100_000),
        Attribute("supply", "mV", 1, 1, 0, 6000, "voltage"),
    ]
    found = advert.Advert.decode(service_data(bthome.Advert(attributes).fill(sample_of({0: 1_008_834, 1: 3074}))))
    assert [(one.name, one.value) for one in found.readings] == [("pressure", 1008.83), ("voltage", 3.074)]


def many() -> list[Attribute]:
    names = ["temperature", "humidity", "pressure", "illuminance", "pm25", "pm10", "co2", "tvoc", "voltage", "battery"]
    return [Attribute(name, "", 1, 1, 0, 100) for name in names]


def test_what_does_not_fit_is_sent_in_turn() -> None:
    attributes = many()
    encoder = bthome.Advert(attributes)
    seen: set[int] = set()
    for sequence in range(12):
        found = ids_of(service_data(encoder.fill(sample_of(dict.fromkeys(range(10), 7), sequence))))
        assert found == sorted(found)
        assert len(found) >= 6
        seen.update(found)
    assert len(seen) == 10
    assert encoder.left_out > 0


def test_changed_rows_go_first() -> None:
    encoder = bthome.Advert(many())
    values = dict.fromkeys(range(10), 7)
    for sequence in range(20):
        encoder.fill(sample_of(values, sequence))
    for sequence in range(20, 40):
        index = (3 * sequence + 5) % 10  # not the one whose turn it would be
        values[index] += 1
        number = object_id(many()[index].name, "", 1, 1, 0, 100)
        assert number in ids_of(service_data(encoder.fill(sample_of(values, sequence))))


def test_equal_objects_go_together_or_not_at_all() -> None:
    two = [Attribute("temperature", "C", 1, 100, 0, 9000), Attribute("temperature_2", "C", 1, 100, 0, 9000)]
    encoder = bthome.Advert(two)
    assert ids_of(service_data(encoder.fill(sample_of({0: 1, 1: 2})))) == [2, 2]
    assert ids_of(service_data(encoder.fill(sample_of({1: 2})))) == []


def test_the_packet_id_counts_with_the_samples() -> None:
    encoder = bthome.Advert(CLIMATE)
    ids = [advert.Advert.decode(service_data(encoder.fill(sample_of({2: 1}, n)))).packet_id for n in range(250, 260)]
    assert ids == [250, 251, 252, 253, 254, 255, 0, 1, 2, 3]


def test_the_table_of_the_mote_equals_that_of_the_host() -> None:
    for name, _, number, size, p, q in bthome.objects():
        if number in advert.BINARY:
            assert (advert.BINARY[number], size, p, q) == (name, 1, 1, 1)
        else:
            assert advert.OBJECTS[number][:2] == (name, size)
    numbers = [row[2] for row in bthome.objects()]
    assert numbers == sorted(set(numbers))


def parse_structures(payload: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at < len(payload):
        size = payload[at]
        found[payload[at + 1]] = bytes(payload[at + 2 : at + 1 + size])
        at += 1 + size
    assert at == len(payload)
    return found


def test_the_scan_response_says_who_and_whether_to_connect() -> None:
    payload = bthome.scan_response("kitchen", 0xDEADBEEF, 70_001, 65_537, 0x1234567)
    parts = parse_structures(payload)
    assert parts[9] == b"kitchen"
    assert parts[0xFF][:2] == b"\xff\xff"
    found = advert.ScanData.decode(parts[0xFF][2:])
    assert found == advert.ScanData(0xDEADBEEF, 70_001 & 0xFFFF, 1, 0x234567)
    assert found.names(advert.Advert(0x67, ()))
    assert not found.names(advert.Advert(0x68, ()))


@pytest.mark.parametrize("name", ["", "a", "thirteen-byte", "fourteen-bytes", "žžžžžžž", "€€€€€"])
def test_a_long_name_is_cut_between_characters(name: str) -> None:
    payload = bthome.scan_response(name, 0, 0, 0, 0)
    parts = parse_structures(payload)
    assert len(payload) <= 31
    said = parts.get(9, parts.get(8, b"")).decode()
    assert name.startswith(said)
    assert (9 in parts) == (said == name and name != "")
    assert len(said.encode()) >= min(len(name.encode()), 11)


def test_any_bytes_are_an_advert_or_refused() -> None:
    chance = random.Random(4)
    for _ in range(5000):
        data = b"\x40" + chance.randbytes(chance.randrange(24))
        with contextlib.suppress(ProtocolError):
            assert advert.Advert.decode(data).unread >= 0
        with contextlib.suppress(ProtocolError):
            advert.ScanData.decode(data)


def test_other_versions_and_cut_off_objects_are_refused() -> None:
    for data in ("", "20", "4002ca"):
        with pytest.raises(ProtocolError):
            advert.Advert.decode(bytes.fromhex(data))
    assert advert.Advert.decode(b"\x41\x01\x02").encrypted
    assert advert.Advert.decode(bytes.fromhex("400161" + "ee01")).unread == 2
