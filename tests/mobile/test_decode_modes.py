"""Adverts of motes that do not speak in the open: mere presence, and readings under a bind key."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from hearing_kit import ADDRESS, NOW, advert

from spinney.mote.advert import BTHOME, COMPANY, SCAN, SCAN_VERSION, Presence, name_crc
from spinney.mote.protocol import SERVICE, AttributeRow, ProtocolError
from spinney_mobile.acquire.service_data import FRESH_SECONDS, ServiceData
from spinney_mobile.credentials import BindKeysError, bind_keys
from spinney_mobile.decode import Decoded, Registry
from spinney_mobile.decode.decoder import KeyMissing, WrongKey
from spinney_mobile.decode.spinney import Description, Spinney
from spinney_mobile.devices import DeviceTable
from spinney_mobile.samples import Heard
from spinney_mobile.settings import Device, Devices

KEY = bytes(range(16))
TEMPERATURE = AttributeRow("temp", "C", 1, 10, -400, 850, 0x02)


def there(bits: int = 8, *, version: int = 1, crc: int = 0x11223344, more: bytes = b"") -> Heard:
    """A mote's presence: version, battery and flags, CRC of its table, CRC of its name."""
    data = struct.pack("<BBII", version, bits, crc, zlib.crc32(b"hut")) + more
    return Heard("ble:hci0", ADDRESS, NOW, services={SERVICE: data})


def sealed(counter: int, key: bytes = KEY, *, packet: int = 5, sequence: int | None = 5) -> Heard:
    """21.8 C, as BTHome encrypts it; with a mote's scan response unless `sequence` is None."""
    head, number = b"\x41", counter.to_bytes(4, "little")
    nonce = bytes.fromhex(ADDRESS.replace(":", "")) + b"\xd2\xfc" + head + number
    text = AESCCM(key, tag_length=4).encrypt(nonce, bytes([0x00, packet, 0x02, 0x84, 0x08]), None)
    scan = {} if sequence is None else {COMPANY: SCAN.pack(SCAN_VERSION, 0, 0, 3, sequence, 0).hex()}
    return advert({"fcd2": (head + text[:-4] + number + text[-4:]).hex()}, scan)


# ---- presence


@pytest.mark.parametrize("asked", [True, False])
def test_presence_is_a_mote_and_never_a_sample(asked: bool) -> None:
    decoder = Spinney(asked)
    assert decoder.decode(there(), None) == Decoded({"battery": 80.0}, presence=True)
    decoder.describe(ADDRESS, Description((TEMPERATURE,), 3, 0))
    scan = {COMPANY: SCAN.pack(SCAN_VERSION, 0x11223344, 0, 3, 0, 0)}
    heard = Heard("ble:hci0", ADDRESS, NOW, services=there().services, manufacturers=scan)
    assert decoder.decode(heard, None) == Decoded({"battery": 80.0}, presence=True)


@pytest.mark.parametrize("name", ["own", "installed"])
def test_a_table_of_devices_knows_a_mote_by_its_presence_with_its_battery_and_takes_no_sample(name: str) -> None:
    devices = DeviceTable(getattr(Registry, name)())
    for bits, battery in ((7, 0.7), (0x1F, 0.7), (0x15, 0.5)):
        assert devices.take(there(bits)) is None
        (seen,) = devices.seen()
        assert (seen.decoder, seen.battery, seen.error) == ("spinney", battery, None)
        assert devices.battery(seen.source or "") == battery
    assert devices.counts["presence"] == 3


def test_what_presence_says() -> None:
    told = Presence.decode(there(0x10 | 0x20 | 10).services[SERVICE])
    assert told == Presence(0x11223344, name_crc("hut"), 1.0, has_events=True, clock_is_set=False)
    unknown = Presence.decode(there(15).services[SERVICE])
    assert unknown is not None
    assert unknown.battery is None
    assert Presence.decode(there(version=2).services[SERVICE]) is None, "it is there, and nothing else is known"
    for cut in range(10):
        with pytest.raises(ProtocolError):
            Presence.decode(there().services[SERVICE][:cut])


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02later"])
def test_presence_that_is_cut_off_or_of_a_later_version_is_presence(data: bytes) -> None:
    heard = Heard("ble:hci0", ADDRESS, NOW, services={SERVICE: data})
    assert Spinney().decode(heard, None) == Decoded({}, presence=True)


OPEN_1, OPEN_2, PRESENT_1, PRESENT_2 = b"\x40\x00\x01", b"\x40\x00\x02", b"\x01\x08", b"\x01\x18"


@pytest.mark.parametrize(
    ("told", "current"),
    [
        ([(OPEN_1, None, 0)], BTHOME),
        ([(None, PRESENT_1, 0)], SERVICE),
        ([(OPEN_1, PRESENT_1, 0)], SERVICE),
        ([(OPEN_1, PRESENT_1, 0), (OPEN_1, PRESENT_2, 1)], SERVICE),
        ([(OPEN_1, PRESENT_1, 0), (OPEN_2, PRESENT_1, 1)], BTHOME),
        ([(OPEN_1, PRESENT_1, 0), (OPEN_2, PRESENT_1, 1), (OPEN_2, PRESENT_1, FRESH_SECONDS)], BTHOME),
        ([(OPEN_1, PRESENT_1, 0), (OPEN_2, PRESENT_1, 1), (OPEN_2, PRESENT_1, 2 + FRESH_SECONDS)], SERVICE),
    ],
)
def test_of_readings_and_presence_that_a_system_tells_together_one_is_on_the_air(
    told: list[tuple[bytes | None, bytes | None, float]], current: str
) -> None:
    data = ServiceData()
    for readings, presence, now in told:
        given = {BTHOME: readings, SERVICE: presence, "other": b"x"}
        found = data.current(ADDRESS, {uuid: value for uuid, value in given.items() if value is not None}, now)
    assert found.keys() == {current, "other"}


# ---- encrypted


def test_with_its_key_an_encrypted_advert_is_the_sample_under_the_motes_number() -> None:
    decoder = Spinney()
    decoder.describe(ADDRESS, Description((TEMPERATURE,), 3, 0))
    assert decoder.decode(sealed(77), KEY) == Decoded({"temp": 21.8}, 5, 77, 3, 5)
    other = decoder.decode(sealed(78, packet=6), KEY)
    assert other is not None
    assert other.presence, "the scan response is another sample's"


def test_without_its_key_or_with_another_it_is_said() -> None:
    decoder = Spinney()
    with pytest.raises(KeyMissing):
        decoder.decode(sealed(1), None)
    with pytest.raises(WrongKey):
        decoder.decode(sealed(1), bytes(16))


def test_missing_wrong_and_replayed_are_counted_and_said_and_the_next_is_taken() -> None:
    devices = DeviceTable(Registry.own(motes=False))
    assert devices.take(sealed(1)) is None
    assert devices.counts["no key"] == devices.counts["undecodable"] == 1
    assert "bindkey" in (devices.seen()[0].error or "")
    devices.configure(Devices(), (), {ADDRESS.lower(): bytes(16).hex()})
    assert devices.take(sealed(2)) is None
    assert (devices.counts["wrong key"], devices.counts["undecodable"]) == (1, 2)
    devices.configure(Devices(), (), {ADDRESS.lower(): KEY.hex()})
    sample = devices.take(sealed(3, packet=6, sequence=6))
    assert sample is not None
    assert (sample.values, sample.boot, sample.sequence) == ({"temperature": 21.8}, 3, 6)
    assert devices.take(sealed(2)) is None
    assert devices.counts["replayed"] == 1
    sample = devices.take(sealed(4, packet=7, sequence=7))
    assert sample is not None
    assert devices.seen()[0].error is None


def test_under_another_key_the_counter_begins_anew() -> None:
    devices = DeviceTable(Registry.own(motes=False), keys={ADDRESS: KEY.hex()})
    assert devices.take(sealed(9_000)) is not None
    other = bytes(reversed(KEY))
    devices.configure(Devices(), (), {ADDRESS: other.hex()})
    assert devices.take(sealed(1, other, packet=6, sequence=6)) is not None
    assert devices.counts["replayed"] == 0


def test_where_samples_come_over_gatt_a_missing_key_is_no_fault() -> None:
    devices = DeviceTable(Registry.own())
    assert devices.take(sealed(1), over_gatt=True) is None
    assert devices.counts["no key"] == 0
    assert devices.seen()[0].error is None


# ---- the file of keys


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "bindkeys.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def entry(address: str, key: bytes) -> str:
    return f'[[device]]\naddress = "{address}"\nname = "hut"\nbindkey = "{key.hex()}"\n'


def test_keys_are_read_from_a_file_and_that_of_a_device_counts_before_them(tmp_path: Path) -> None:
    file = key_file(tmp_path, "# keys\n" + entry("a4-c1-38-00-00-01", KEY) + entry("C0:00:00:00:00:02", bytes(16)))
    keys = bind_keys(file)
    devices = DeviceTable(Registry.own(motes=False), keys=keys)
    assert devices.of.bindkey(ADDRESS) == KEY
    assert devices.of.bindkey("C0:00:00:00:00:03") is None
    own = Device(address=ADDRESS, bindkey="ab" * 16)
    assert DeviceTable(Registry.own(), listed=(own,), keys=keys).of.bindkey(ADDRESS) == b"\xab" * 16
    assert bind_keys(None) == {}


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (entry(ADDRESS, KEY), 0o640, "chmod 600"),
        (entry(ADDRESS, KEY), 0o604, "chmod 600"),
        (entry(ADDRESS, KEY[:15]), 0o600, "32 hex digits"),
        (f'[[device]]\nbindkey = "{KEY.hex()}"', 0o600, "needs address"),
        (f'[device]\nbindkey = "{KEY.hex()}"', 0o600, "tables"),
        (f'bindkey = "{KEY.hex()}', 0o600, "TOML"),
        ("#" * (1 << 20) + "\n", 0o600, "more than"),
    ],
)
def test_a_file_of_keys_that_will_not_do_says_why_and_tells_no_key(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    file = key_file(tmp_path, text, mode)
    with pytest.raises(BindKeysError, match=why) as found:
        bind_keys(file)
    assert str(file) in str(found.value)
    assert KEY.hex()[:20] not in str(found.value)
    assert found.value.__cause__ is None


def test_a_file_of_keys_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BindKeysError, match="No such file"):
        bind_keys(tmp_path / "none.toml")
