"""Decoders against what the formats' makers publish, and against whatever anybody may send."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from hearing_kit import NOW, advert, bthome, recordings
from hypothesis import given
from hypothesis import strategies as st

from spinney.mote.advert import BTHOME, COMPANY, OBJECTS
from spinney_mobile.decode import Decoded, DecodeError, Registry
from spinney_mobile.decode.atc import Atc
from spinney_mobile.decode.bthome import BTHome
from spinney_mobile.decode.registry import MAX_FAILURES, OFF_SECONDS, Entry
from spinney_mobile.decode.ruuvi import Ruuvi
from spinney_mobile.decode.theengs import Theengs
from spinney_mobile.samples import Ability, Heard

# ---- BTHome: bthome.io/format and bthome.io/encryption

OBJECT_EXAMPLES = [
    ("518756", "acceleration", 22.151),
    ("0161", "battery", 97),
    ("12e204", "co2", 1250),
    ("56e803", "conductivity", 1000),
    ("0960", "count", 96),
    ("3d0960", "count", 24585),
    ("3e2a2c0960", "count", 1611213866),
    ("59ea", "count", -22),
    ("5aeaea", "count", -5398),
    ("5bea0234ea", "count", -365690134),
    ("434e34", "current", 13.39),
    ("5d02ea", "current", -5.63),
    ("08ca06", "dew_point", 17.38),
    ("5e9f8c", "direction", 359.99),
    ("400c00", "distance", 0.012),
    ("414e00", "distance", 7.8),
    ("424e3400", "duration", 13.39),
    ("4d12138a14", "energy", 344593.17),
    ("0a138a14", "energy", 1346.067),
    ("4b138a14", "gas", 1346.067),
    ("4c41018a01", "gas", 25821.505),
    ("528756", "gyroscope", 22.151),
    ("03bf13", "humidity", 50.55),
    ("2e23", "humidity", 35),
    ("05138a14", "illuminance", 13460.67),
    ("065e1f", "mass", 80.3),
    ("073e1d", "mass_lb", 74.86),
    ("14020c", "moisture", 30.74),
    ("2f23", "moisture", 35),
    ("0d120c", "pm25", 3090),
    ("0e021c", "pm10", 7170),
    ("0b021b00", "power", 69.14),
    ("5c02fbffff", "power", -12.78),
    ("04138a01", "pressure", 1008.83),
    ("3f020c", "rotation", 307.4),
    ("444e34", "speed", 133.90),
    ("451101", "temperature", 27.3),
    ("57ea", "temperature", -22),
    ("58ea", "temperature", -7.7),
    ("02ca09", "temperature", 25.06),
    ("505d396164", "timestamp", 1684093277),
    ("133301", "tvoc", 307),
    ("0c020c", "voltage", 3.074),
    ("4a020c", "voltage", 307.4),
    ("4e87562a01", "volume", 19551.879),
    ("478756", "volume", 2215.1),
    ("48dc87", "volume", 34.78),
    ("5587562a01", "volume_storage", 19551.879),
    ("49dc87", "volume_flow_rate", 34.78),
    ("4632", "uv_index", 5.0),
    ("4f87562a01", "water", 19551.879),
    ("530c48656c6c6f20576f726c6421", "text", "Hello World!"),
    ("1a01", "door", True),
    ("2100", "motion", False),
    ("3a01", "button", "press"),
    ("3afe", "button", "hold_press"),
]
KEY = bytes.fromhex("231d39c1d7cc1ab1aee224cd096db932")
SEALED_FROM = "54:48:E6:8F:80:A5"
SEALED = "41a47266c95f730011223378237214"


def told(heard: Heard, key: bytes | None = None) -> Decoded:
    found = Registry.own().decode(heard, key)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(("data", "name", "value"), OBJECT_EXAMPLES)
def test_each_object_of_bthome_is_what_its_page_says(data: str, name: str, value: float | str) -> None:
    values = told(bthome("40" + data)).values
    assert list(values) == [name]
    assert values[name] == (pytest.approx(value, abs=1e-9) if isinstance(value, int | float) else value)


def test_the_whole_table_has_abilities_that_hold_what_an_advert_can_say() -> None:
    for number, (name, size, _, _) in OBJECTS.items():
        for raw in (b"\x00", b"\xff", b"\x7f", b"\x80"):
            value = told(bthome(f"40{number:02x}" + (raw * abs(size)).hex())).values[name]
            ability = BTHome.abilities[name]
            assert ability.minimum is not None
            assert ability.maximum is not None
            assert ability.minimum <= value <= ability.maximum


def test_bthome_tells_the_packet_id_and_numbers_what_comes_twice() -> None:
    decoded = told(bthome("40000902ca0902ce090161"))
    assert decoded.repeat == 9
    assert decoded.values == {"temperature": 25.06, "temperature_2": 25.1, "battery": 97}


def test_the_second_of_two_buttons_keeps_its_number_when_the_first_is_not_pressed() -> None:
    assert told(bthome("443a003a04")).values == {"button_2": "long_press"}
    assert told(bthome("443c0203")).values == {"dimmer": "right", "dimmer_steps": 3}
    assert told(bthome("443c00003c0203")).values == {"dimmer_2": "right", "dimmer_steps_2": 3}


def test_what_the_device_is_and_raw_bytes_are_no_values() -> None:
    assert told(bthome("40f00100f10102030401610f015401ff")).values == {"battery": 97, "boolean": True}


def test_objects_before_an_unknown_one_are_used() -> None:
    assert told(bthome("400161fd010203")).values == {"battery": 97}


def test_an_encrypted_bthome_advert_is_opened_by_its_bindkey() -> None:
    decoded = told(bthome(SEALED, address=SEALED_FROM), KEY)
    assert decoded.values == {"temperature": 25.06, "humidity": 50.55}
    assert decoded.counter == decoded.repeat == 0x33221100


def test_another_version_of_bthome_is_not_read_as_the_second() -> None:
    for info in ("20", "00", "60"):
        assert BTHome().decode(bthome(f"{info}02ca09"), None) is None


@pytest.mark.parametrize(
    ("data", "address", "key", "problem"),
    [
        (SEALED, SEALED_FROM, None, "set this device's bindkey"),
        (SEALED, SEALED_FROM, bytes(16), "check this device's bindkey"),
        (SEALED, "54:48:E6:8F:80:A6", KEY, "check this device's bindkey"),
        (SEALED[:-2] + "15", SEALED_FROM, KEY, "check this device's bindkey"),
        (SEALED, SEALED_FROM, bytes(5), "a bindkey has 16 bytes, not 5"),
        (SEALED, "8C7F0D6E-5B7A-4B0C-9B0E-0A1B2C3D4E5F", KEY, "its Bluetooth address is needed"),
        ("4100112233", SEALED_FROM, KEY, "cut off"),
        ("4002ca", "x", None, "object 0x02 is cut off"),
        ("4053", "x", None, "object 0x53 is cut off"),
    ],
)
def test_a_bthome_advert_that_cannot_be_used_says_why(data: str, address: str, key: bytes | None, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        told(bthome(data, address=address), key)


# ---- Ruuvi: docs.ruuvi.com, the test vectors of each format's page

G = 9.80665e-3
RUUVI_EXAMPLES = [
    ("03291a1ece1efc18f94202ca0b53", None, (26.3, 20.5, 1027.66, -1000 * G, -1726 * G, 714 * G, 2.899, None)),
    ("03ff7f63ffff7fff7fff7fffffff", None, (127.99, 127.5, 1155.35, *[32767 * G] * 3, 65.535, None)),
    ("0300ff6300008001800180010000", None, (-127.99, 0.0, 500.0, *[-32767 * G] * 3, 0.0, None)),
    ("0512fc5394c37c0004fffc040cac364200cdcbb8334c884f", 205,
     (24.3, 53.49, 1000.44, 4 * G, -4 * G, 1036 * G, 2.977, 66)),
    ("057ffffffefffe7fff7fff7fffffdefefffecbb8334c884f", 65534,
     (163.835, 163.835, 1155.34, *[32767 * G] * 3, 3.646, 254)),
    ("058001000000008001800180010000000000cbb8334c884f", 0, (-163.835, 0.0, 500.0, *[-32767 * G] * 3, 1.6, 0)),
    ("058000ffffffff800080008000ffffffffffffffffffffff", None, (None,) * 8),
]  # fmt: skip
RUUVI_NAMES = [
    "temperature", "humidity", "pressure", "acceleration_x", "acceleration_y", "acceleration_z", "voltage", "movements"
]  # fmt: skip
AIR_NAMES = ["temperature", "humidity", "pressure", "pm1", "pm25", "pm4", "pm10", "co2", "voc_index", "nox_index",
             "illuminance"]  # fmt: skip
AIR_EXAMPLES = [
    ("e1170c5668c79e0065007004bd11ca00c90a0213e0ac000000decdee10ffffffffffcbb8334c884f", 14601710,
     (29.5, 55.3, 1011.02, 10.1, 11.2, 121.3, 455.4, 201, 20, 4, 13027.0)),
    ("e17fff9c40fffe27102710271027109c40fafadc28f0000000fffffe3fffffffffffcbb8334c884f", 16777214,
     (163.835, 100.0, 1155.34, 1000, 1000, 1000, 1000, 40000, 500, 500, 144284.0)),
    ("e18001000000000000000000000000000000000000000000000000000000ffffffffcbb8334c884f", 0,
     (-163.835, 0, 500, 0, 0, 0, 0, 0, 0, 0, 0)),
    ("e18000ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", None, (None,) * 11),
    ("06170c5668c79e007000c90501d9ffcd004c884f", 205,
     (29.5, 55.3, 1011.02, None, 11.2, None, None, 201, 10, 2, 13026.67)),
    ("067fff9c40fffe27109c40fafafeffff074c8f4f", 255,
     (163.835, 100.0, 1155.34, None, 1000, None, None, 40000, 500, 500, 65535)),
    ("06800100000000000000000000000000004c884f", 0,
     (-163.835, 0, 500, None, 0, None, None, 0, 0, 0, 0)),
    ("068000ffffffffffffffffffffffffffc0ffffff", 255, (None,) * 11),
]  # fmt: skip


def check(decoded: Decoded, names: list[str], wanted: tuple[float | None, ...]) -> None:
    for name, value in zip(names, wanted, strict=True):
        if value is None:
            assert name not in decoded.values
        else:
            assert decoded.values[name] == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("data", "sequence", "wanted"), RUUVI_EXAMPLES)
def test_ruuvi_tags(data: str, sequence: int | None, wanted: tuple[float | None, ...]) -> None:
    decoded = told(advert(makers={0x0499: data}))
    check(decoded, RUUVI_NAMES, wanted)
    assert decoded.repeat == sequence


@pytest.mark.parametrize(("data", "sequence", "wanted"), AIR_EXAMPLES)
def test_ruuvi_air(data: str, sequence: int | None, wanted: tuple[float | None, ...]) -> None:
    decoded = told(advert(makers={0x0499: data}))
    check(decoded, AIR_NAMES, wanted)
    assert decoded.repeat == sequence


def test_the_lowest_bit_of_ruuvi_airs_indexes_is_in_its_flags() -> None:
    data = bytearray.fromhex(AIR_EXAMPLES[0][0])
    data[28] |= 0xC0
    values = told(advert(makers={0x0499: data.hex()})).values
    assert (values["voc_index"], values["nox_index"]) == (21, 5)
    data = bytearray.fromhex(AIR_EXAMPLES[4][0])
    data[16] |= 0x40
    values = told(advert(makers={0x0499: data.hex()})).values
    assert (values["voc_index"], values["nox_index"], values["calibrating"]) == (11, 2, False)
    data[16] |= 0x81
    values = told(advert(makers={0x0499: data.hex()})).values
    assert (values["voc_index"], values["nox_index"], values["calibrating"]) == (11, 3, True)


def test_ruuvi_cut_off_says_so_and_other_formats_are_not_ours() -> None:
    with pytest.raises(DecodeError, match="format 5 has 18 bytes, not 4"):
        told(advert(makers={0x0499: "05010203"}))
    with pytest.raises(DecodeError, match="format 6 has 17 bytes, not 16"):
        told(advert(makers={0x0499: AIR_EXAMPLES[4][0][:32]}))
    assert Ruuvi().decode(advert(makers={0x0499: "08010203"}), None) is None
    assert Ruuvi().decode(advert(makers={0x0499: ""}), None) is None


# ---- ATC and pvvx: the firmware's published formats, and adverts recorded by users of it


@pytest.mark.parametrize(
    ("data", "count", "wanted"),
    [
        ("a4c1380283f400a22f5f0bf819", 25, {"temperature": 16.2, "humidity": 47, "battery": 95, "voltage": 3.064}),
        ("f4830238c1a4a9066911b60b58f70d", 247,
         {"temperature": 17.05, "humidity": 44.57, "battery": 88, "voltage": 2.998}),
        ("b2188d38c1a42b089011f70a43200f", 32,
         {"temperature": 20.91, "humidity": 44.96, "battery": 67, "voltage": 2.807}),
    ],
)  # fmt: skip
def test_atc_and_pvvx(data: str, count: int, wanted: dict[str, float]) -> None:
    decoded = told(advert({"181a": data}))
    assert decoded.values == wanted
    assert decoded.repeat == count


def test_pvvx_encrypted() -> None:
    heard = advert({"181a": "11d603fbfa7b6dfb1e26fd"}, address="A4:C1:38:8D:18:B2")
    key = bytes.fromhex("b9ea895fac7eea6d30532432a516f3a3")
    decoded = told(heard, key)
    assert decoded.values == {"temperature": 23.45, "humidity": 41.73, "battery": 61}
    assert decoded.repeat == 0x11
    with pytest.raises(DecodeError, match="bindkey"):
        told(heard)


def test_atc_encrypted() -> None:
    nonce = bytes.fromhex("b2188d38c1a4") + bytes.fromhex("0b161a18") + b"\x07"
    sealed = AESCCM(KEY, tag_length=4).encrypt(nonce, bytes([121, 90, 0x80 | 55]), b"\x11")
    heard = advert({"181a": (b"\x07" + sealed).hex()}, address="A4:C1:38:8D:18:B2")
    decoded = told(heard, KEY)
    assert decoded.values == {"temperature": 20.5, "humidity": 45, "battery": 55}
    assert decoded.repeat == 7


def test_environmental_sensing_of_others_is_not_atcs() -> None:
    assert Atc().decode(advert({"181a": "0102030405"}), None) is None


# ---- the recorded adverts that the virtual radio replays


def structures(data: bytes) -> tuple[dict[str, str], dict[int, str]]:
    services, makers, at = {}, {}, 0
    while at < len(data):
        size, kind, body = data[at], data[at + 1], data[at + 2 : at + 1 + data[at]]
        if kind == 0x16:
            services[body[:2][::-1].hex()] = body[2:].hex()
        elif kind == 0xFF:
            makers[int.from_bytes(body[:2], "little")] = body[2:].hex()
        at += 1 + size
    return services, makers


def test_every_recorded_advert_is_decoded() -> None:
    for recording in recordings():
        for data in recording.adverts:
            decoded = told(advert(*structures(data), address=recording.address))
            assert decoded.values
            assert not decoded.presence


# ---- the registry


class Failing:
    name = "failing"
    abilities: Mapping[str, Ability] = {}

    def decode(self, heard: Heard, _key: bytes | None) -> Decoded | None:
        if heard.name == "works":
            return Decoded({"here": True})
        raise ZeroDivisionError("a bug")


def test_a_decoder_that_raises_is_switched_off_and_the_others_go_on() -> None:
    registry = Registry.of([Failing(), BTHome()])
    for _ in range(MAX_FAILURES + 5):
        found = registry.decode(bthome("400161"), None)
        assert found is not None
        assert found[1].values == {"battery": 97}
    failing, working = registry.status()
    assert failing == {
        "name": "failing", "state": "off", "decoded": 0, "refused": 0, "failed": MAX_FAILURES,
        "error": "ZeroDivisionError: a bug",
    }  # fmt: skip
    assert working["state"] == "on"
    assert registry.decode(advert(name="works"), None) is None


class Answering:
    """Of somebody's package, and not written as ours."""

    name = "answering"
    abilities: Mapping[str, Ability] = {}

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def decode(self, _heard: Heard, _key: bytes | None) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"temperature": 20.0}, "TypeError: its answer is neither Decoded nor None: {'temperature': 20.0}"),
        (Decoded([1.0]), "a publication is an object of attributes, not list"),  # type: ignore[arg-type]
        (Decoded({"raw": b"\x01"}), "raw"),  # type: ignore[dict-item]
        (Decoded({"temperature": float("nan")}), "temperature"),
        (Decoded({"source": "another"}), "ValueError: source: reserved"),
        (Decoded({"temperature": 20.0}, counter="7"), "TypeError: counter is an int, or None, not '7'"),  # type: ignore[arg-type]
    ],
)
def test_what_another_packages_decoder_answers_is_looked_at_as_if_it_had_raised(answer: Any, error: str) -> None:
    registry = Registry([Entry(Answering(answer), is_foreign=True), Entry(BTHome())])
    for _ in range(MAX_FAILURES):
        found = registry.decode(bthome("400161"), None)
        assert found is not None
        assert found[1].values == {"battery": 97}
    assert registry.status()[0]["state"] == "off"
    assert error in registry.status()[0]["error"]


def test_what_another_packages_decoder_answers_is_made_ours() -> None:
    registry = Registry([Entry(Answering(Decoded({"temperature": 20, "humidity": None})), is_foreign=True)])  # type: ignore[dict-item]
    found = registry.decode(advert(), None)
    assert found is not None
    assert [(name, type(value)) for name, value in found[1].values.items()] == [("temperature", float)]


def test_a_decoder_that_is_off_is_tried_again_later() -> None:
    registry = Registry.of([Failing()])
    for _ in range(MAX_FAILURES):
        assert registry.decode(advert(), None) is None
    assert registry.decode(advert(name="works", time=NOW + OFF_SECONDS), None) is not None
    assert registry.status()[0]["state"] == "on"


def test_a_decoder_that_fails_now_and_then_stays() -> None:
    registry = Registry.of([Failing()])
    for _ in range(3 * MAX_FAILURES):
        assert registry.decode(advert(name="x"), None) is None
        assert registry.decode(advert(name="works"), None) is not None
    assert registry.status()[0]["state"] == "on"


def test_decoders_of_other_packages_are_found_by_their_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "spinney_acme-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: spinney-acme\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[spinney.decoders]\nacme = acme_decoder:Acme\nbad = acme_decoder:Bad\ngone = acme_gone:Gone\n"
    )
    (tmp_path / "acme_decoder.py").write_text(
        "from spinney_mobile.decode import Decoded\n"
        "class Acme:\n"
        "    name, abilities = 'acme', {}\n"
        "    def decode(self, heard, key):\n"
        "        data = heard.manufacturers.get(0xACE)\n"
        "        return Decoded({'level': float(data[0])}) if data else None\n"
        "class Bad:\n"
        "    name = 'bad'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry.installed()
    found = registry.decode(advert(makers={0xACE: "07"}), None)
    assert found is not None
    assert found[1].values == {"level": 7}
    assert registry.missing["bad"].startswith("TypeError")
    assert "acme_gone" in registry.missing["gone"]
    assert [entry["state"] for entry in registry.status()].count("missing") == 2


@pytest.mark.skipif(not Theengs.is_installed(), reason='needs TheengsDecoder: pip install "spinney[theengs]"')
def test_theengs_knows_more_and_is_asked_last() -> None:
    registry = Registry.installed()
    assert registry.entries[-1].decoder.name == "theengs"
    answer = Theengs().decode(advert(makers={0x0499: RUUVI_EXAMPLES[3][0]}), None)
    assert answer is not None
    assert answer.values["temperature"] == 24.3
    assert answer.values["pressure"] == 1000.44
    assert answer.values["voltage"] == 2.977
    assert "tempf" not in answer.values
    assert answer.repeat == 205
    hostile = Theengs().decode(advert(makers={0x0499: RUUVI_EXAMPLES[3][0]}, name='"\x01', address="{\n"), None)
    assert hostile == answer, "its answer would be no JSON with such names in it"


# ---- hostile

UUIDS = st.sampled_from([BTHOME, "0000181a-0000-1000-8000-00805f9b34fb", "0000fe95-0000-1000-8000-00805f9b34fb", ""])
COMPANIES = st.sampled_from([COMPANY, 0x0499, 0x004C])
BYTES = st.binary(max_size=60) | st.builds(
    bytes.__add__,
    st.sampled_from([b"\x40", b"\x41", b"\x44", b"\x03", b"\x05", b"\xe1", b"\x51"]),
    st.binary(max_size=60),
)


@given(
    st.dictionaries(UUIDS, BYTES, max_size=2),
    st.dictionaries(COMPANIES, BYTES, max_size=2),
    st.text(max_size=20),
    st.none() | st.binary(max_size=20),
)
def test_nothing_that_is_sent_gets_through_the_registry_as_anything_but_a_decode_error(
    services: dict[str, bytes], makers: dict[int, bytes], address: str, key: bytes | None
) -> None:
    registry = Registry.installed()
    heard = Heard("ble", address, 0.0, services=services, manufacturers=makers)
    try:
        found = registry.decode(heard, key)
    except DecodeError:
        return
    assert [entry.error for entry in registry.entries] == [None] * len(registry.entries)
    for value in found[1].values.values() if found else ():
        assert type(value) in (bool, float, str)
        assert not isinstance(value, float) or math.isfinite(value)
