"""Devices: seen before any filter, allowed, named; their repeats told from new samples, old adverts from new ones."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from hearing_kit import ADDRESS, NOW, advert, bthome

from spinney_mobile import devices
from spinney_mobile.decode import Registry
from spinney_mobile.decode.spinney import Description
from spinney_mobile.device_settings import normal, source_of
from spinney_mobile.devices import REPEAT_SECONDS, DeviceTable
from spinney_mobile.samples import Heard, Sample
from spinney_mobile.settings import Device, Devices

KEY = "231d39c1d7cc1ab1aee224cd096db932"


def table(*listed: Device, **rules: Any) -> DeviceTable:
    return DeviceTable(Registry.own(), Devices(**rules), listed)


def warm(degrees: int, seconds: float = 0.0, packet_id: int | None = None, **more: Any) -> Heard:
    number = "" if packet_id is None else f"00{packet_id:02x}"
    return bthome(f"40{number}02{(degrees * 100).to_bytes(2, 'little').hex()}", time=NOW + seconds, **more)


def sealed(counter: int, degrees: int = 20) -> Heard:
    nonce = bytes.fromhex(ADDRESS.replace(":", "")) + b"\xd2\xfc\x41" + counter.to_bytes(4, "little")
    plain = b"\x02" + (degrees * 100).to_bytes(2, "little")
    both = AESCCM(bytes.fromhex(KEY), tag_length=4).encrypt(nonce, plain, None)
    return bthome((b"\x41" + both[:-4] + nonce[-4:] + both[-4:]).hex(), time=NOW + counter % 1000)


def told(table: DeviceTable, heard: Heard) -> Sample:
    sample = table.take(heard)
    assert sample is not None
    return sample


# ---- what is told


def test_an_advert_becomes_a_sample_of_its_source() -> None:
    heard = bthome("40016402ca09", rssi=-70, name="DIY")
    assert told(table(), heard) == Sample(
        "a4c138000001", {"battery": 100.0, "temperature": 25.06}, NOW, NOW, "ble:hci0", rssi=-70, battery=1.0
    )


def test_settings_name_place_and_change_what_a_device_tells() -> None:
    device = Device(
        address="a4-c1-38-00-00-01",
        name="balcony",
        lat=45.8,
        long=15.9,
        type="climate",
        raw=True,
        rename={"temperature": "temp"},
        attributes={"room": "lab 2"},
    )
    sample = told(table(device), bthome("4002ca09"))
    assert sample.source == "balcony"
    assert sample.values == {"temp": 25.06, "room": "lab 2"}
    assert (sample.place, sample.type, sample.raw) == (
        (45.8, 15.9),
        "climate",
        "0716d2fc4002ca09"[:2] + "16d2fc4002ca09",
    )


def test_what_a_mote_says_of_itself_names_it_where_only_its_adverts_are_heard() -> None:
    devices = table()
    devices.take(warm(20))
    assert devices.seen()[0].name is None
    devices.describe(ADDRESS, "hut", Description((), 1, 1))
    devices.describe("A4:C1:38:99:99:99", "never heard", Description((), 1, 1))
    assert [one.name for one in devices.seen()] == ["hut"]


def test_settings_change_while_it_runs() -> None:
    devices = table(allow="listed")
    assert devices.take(warm(20)) is None
    devices.configure(Devices(allow="listed"), [Device(address=ADDRESS, name="one")])
    assert told(devices, warm(21)).source == "one"
    devices.configure(Devices(), [Device(address=ADDRESS, name="two", allow=False)])
    assert devices.take(warm(22)) is None
    devices.configure(Devices(), [Device(address=ADDRESS, name="two")])
    assert told(devices, warm(23)).source == "two"
    assert devices.abilities("two")["temperature"].unit == "C"
    assert devices.abilities("one") == {}


@pytest.mark.parametrize(
    ("rules", "listed", "is_taken"),
    [
        ({}, [], True),
        ({}, [Device(address=ADDRESS, allow=False)], False),
        ({"allow": "listed"}, [], False),
        ({"allow": "listed"}, [Device(address=ADDRESS.lower())], True),
        ({"allow": "listed", "patterns": ("a4:c1:38:*",)}, [], True),
        ({"allow": "listed", "patterns": ("A5:*",)}, [], False),
        ({"allow": "listed", "patterns": ("DIY*",)}, [], True),
        ({"allow": "listed", "patterns": ("A4*",)}, [Device(address=ADDRESS, allow=False)], False),
    ],
)
def test_who_is_taken(rules: dict[str, Any], listed: list[Device], is_taken: bool) -> None:
    devices = table(*listed, **rules)
    assert (devices.take(warm(20, name="DIY-sensor")) is not None) is is_taken
    assert devices.seen()[0].allowed is is_taken
    assert devices.seen()[0].values == {"temperature": 20.0}, "seen before any filter"
    assert devices.counts["refused"] == (not is_taken)


def test_abilities_go_by_the_names_that_settings_give() -> None:
    devices = table(Device(address=ADDRESS, rename={"temperature_2": "outside"}))
    devices.take(bthome("4002ca0902cb09"))
    abilities = devices.abilities(source_of(ADDRESS))
    assert set(abilities) == {"temperature", "outside"}
    assert abilities["outside"].maximum == pytest.approx(3276.7)


# ---- repeats


def test_equal_bytes_are_told_once_and_again_after_a_while() -> None:
    devices = table()
    told_at = [second for second in range(0, 195, 5) if devices.take(warm(20, second)) is not None]
    assert told_at == [0, 65, 130]
    assert devices.seen()[0].repeats == 36


def test_a_numbered_advert_is_told_once_for_as_long_as_it_is_repeated() -> None:
    devices = table()
    assert [second for second in range(0, 600, 5) if devices.take(warm(20, second, packet_id=7)) is not None] == [0]
    assert devices.take(warm(20, 600, packet_id=8)) is not None
    assert devices.take(warm(20, 601, packet_id=9)) is not None, "the same value in a new sample"
    assert devices.take(warm(21, 602, packet_id=9)) is None, "another value under the same number"


def test_the_same_number_after_silence_is_another_sample() -> None:
    devices = table()
    assert devices.take(warm(20, 0, packet_id=7)) is not None
    assert devices.take(warm(25, REPEAT_SECONDS + 1, packet_id=7)) is not None


def test_two_adapters_that_hear_one_advert_are_one_sample() -> None:
    devices = table()
    first, second = warm(20), warm(20)
    object.__setattr__(second, "acquirer", "ble:hci1")
    assert devices.take(first) is not None
    assert devices.take(second) is None


def test_a_change_is_told_at_once() -> None:
    devices = table()
    assert [
        told(devices, warm(degrees, second)).values["temperature"] for second, degrees in enumerate((20, 21, 20))
    ] == [
        20.0,
        21.0,
        20.0,
    ]


# ---- old adverts sent again


def test_a_recorded_encrypted_advert_is_refused_and_shown() -> None:
    devices = table(Device(address=ADDRESS, bindkey=KEY))
    assert devices.take(sealed(100)) is not None
    assert devices.take(sealed(101)) is not None
    assert devices.take(sealed(100)) is None
    assert devices.counts["replayed"] == 1
    assert "from 101 back to 100" in (devices.seen()[0].error or "")
    assert devices.take(sealed(102)) is not None
    assert devices.seen()[0].error is None


def test_a_counter_begins_anew_at_its_end() -> None:
    devices = table(Device(address=ADDRESS, bindkey=KEY))
    assert devices.take(sealed(2**32 - 1)) is not None
    assert devices.take(sealed(0)) is not None


def test_a_device_without_its_key_is_seen_with_what_to_do() -> None:
    devices = table()
    assert devices.take(sealed(1)) is None
    assert devices.seen()[0].error == "encrypted: set this device's bindkey"
    assert devices.counts["undecodable"] == 1


# ---- what is seen


def test_what_no_decoder_knows_is_listed_with_hints_and_not_asked_about_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices = table()
    asked: list[Heard] = []
    monkeypatch.setattr(devices.registry.entries[0].decoder, "decode", lambda heard, _key: asked.append(heard))
    for second in range(50):
        assert devices.take(advert(makers={0x004C: f"0215{second:02x}"}, time=NOW + second, rssi=-80)) is None
    (seen,) = devices.seen()
    assert seen.hints == ["maker 0x004c"]
    assert (seen.heard, seen.rssi, seen.interval, seen.decoder) == (50, -80, 1.0, None)
    assert len(asked) == 1
    devices.take(advert({"fcd2": "400164"}, {0x004C: "0215"}, time=NOW + 51))
    assert devices.seen()[0].decoder == "bthome", "it looks different now"


def test_memory_is_bounded_and_listed_devices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MAX_SEEN", 10)
    found = table(Device(address=ADDRESS, bindkey=KEY))
    found.take(sealed(100))
    for number in range(50):
        found.take(warm(20, address=f"C0:00:00:00:00:{number:02X}"))
    assert len(found.seen()) == 10
    assert found.counts["forgotten"] == 41
    assert found.take(sealed(99)) is None, "its counter is remembered"
    assert found.abilities("c00000000000") == {}


def test_seen_goes_into_json() -> None:
    devices = table()
    devices.take(warm(20, rssi=-60))
    (seen,) = devices.seen()
    assert seen.to_json()["values"] == {"temperature": 20.0}
    assert seen.to_json()["source"] == "a4c138000001"


# ---- what needs no decoder


def plain(values: dict[str, Any], **more: Any) -> Heard:
    return Heard("mqtt", "kitchen", NOW, values=values, **more)


def test_an_object_is_a_sample_and_what_is_reserved_goes_where_it_belongs() -> None:
    values = {"temp": 21, "ok": True, "battery": 50, "time": NOW - 5, "lat": 45.0, "long": 16.0, "type": "climate",
              "valid_for": 60, "id": "kitchen:3:17"}  # fmt: skip
    assert told(table(), plain(values)) == Sample(
        "kitchen", {"temp": 21.0, "ok": True, "battery": 50.0}, NOW - 5, NOW, "mqtt", 3, 17,
        battery=0.5, valid_for=60.0, place=(45.0, 16.0), type="climate",
    )  # fmt: skip


def test_settings_are_for_these_devices_too() -> None:
    devices = table(Device(address="KITCHEN", name="k", lat=1.0, long=2.0, rename={"temp": "t"}, raw=True))
    sample = told(devices, plain({"temp": 21.5}))
    assert (sample.source, sample.values, sample.place) == ("k", {"t": 21.5}, (1.0, 2.0))
    assert bytes.fromhex(sample.raw or "") == b'{"temp":21.5}'
    assert table(allow="listed").take(plain({"temp": 1})) is None


@pytest.mark.parametrize("values", [{"temp": float("nan")}, {"temp": {}}, {"time": NOW}, {}, {"lat": "x", "temp": 1}])
def test_what_can_be_no_publication_is_counted_and_shown(values: dict[str, Any]) -> None:
    devices = table()
    assert devices.take(plain(values)) is None
    assert devices.counts["undecodable"] == 1
    assert devices.seen()[0].error


@pytest.mark.parametrize(("measured", "is_believed"), [(-3600, True), (59, True), (61, False), (-NOW, False)])
def test_a_clock_that_cannot_be_right_is_not_believed(measured: float, is_believed: bool) -> None:
    devices = table()
    sample = told(devices, plain({"temp": 1}, measured=NOW + measured))
    assert sample.time == (NOW + measured if is_believed else NOW)
    assert devices.counts["unbelieved"] == (not is_believed)


def test_addresses_are_one_however_they_are_written() -> None:
    assert normal("a4-c1-38-00-00-01 ") == ADDRESS
    assert source_of(ADDRESS) == "a4c138000001"
    assert source_of("zigbee2mqtt/lamp") == "zigbee2mqtt/lamp"
