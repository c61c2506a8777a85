"""Motes and brokers of the version before: what those sent, recorded, and what this one sends them."""

from __future__ import annotations

from enum import IntFlag
from pathlib import Path

from mote_world import READINGS, World
from spinney_mote import bthome, modes, wire
from spinney_mote.samples import Sample
from spinney_mote.sensor import Attribute

from spinney.mote import adverts, protocol
from spinney.mote.advert import Advert, ScanData
from spinney.mote.adverts import Mode
from spinney.mote.protocol import Info, InfoFlag

ATTRIBUTES = [
    Attribute("temperature", "C", 1, 100, -4000, 8500),
    Attribute("humidity", "%", 1, 100, 0, 10000),
    Attribute("pressure", "hPa", 1, 100, 30000, 110000),
    Attribute("battery", "%", 1, 1, 0, 100),
    Attribute("pm1", "ug/m3", 1, 1, 0, 1000),
]
RAW = (2125, 4750, 101325, 83, 12)
ADVERT = bytes.fromhex("0201061216d2fc4000700153024d08038e1204cd8b01")
RESPONSE = bytes.fromhex("0fffffff51efbeadde130003007011010409687574")
INFO = bytes.fromhex(
    "0101d9040300000070110100efbeadde110000001400000002000000090000005360ea000004070505302e312e3003687574000b74656d70"
    "657261747572650143010000006400000060f0ffff34210000020868756d6964697479012501000000640000000000000010270000030870"
    "7265737375726503685061010000006400000030750000b0ad01000407626174746572790125010000000100000000000000640000000103"
    "706d310575672f6d33010000000100000000000000e8030000ffdf0e01cb"
)
"""Sample 70000 of boot 3, by firmware 0.1.0 of before there were modes."""
FLAGS_AT = 38


class InfoFlagBefore(IntFlag):
    """As the hosts of before have it."""

    TIME_SET = 1
    SAMPLING_ON = 2
    BONDED_WRITES = 4
    PAIRING_OPEN = 8


def test_an_open_mote_advertises_what_it_did_before() -> None:
    sample = Sample([(one.low, one.high) for one in ATTRIBUTES], 3)
    sample.sequence = 69_999
    sample.begin(100, True)
    for index, raw in enumerate(RAW):
        sample.put(index, raw)
    assert bytes(bthome.Advert(ATTRIBUTES).fill(sample)) == ADVERT
    assert bytes(bthome.scan_response("hut", 0xDEADBEEF, 19, 3, 70_000)) == RESPONSE


def test_what_a_mote_of_before_says_is_read_as_ever() -> None:
    found = Advert.decode(ADVERT[7:])
    said = ScanData.decode(RESPONSE[4:16])
    assert {one.name: one.value for one in found.readings} == {
        "temperature": 21.25, "humidity": 47.5, "pressure": 1013.25, "battery": 83,
    }  # fmt: skip
    assert said.names(found)
    assert said == ScanData(0xDEADBEEF, 19, 3, 70_000)
    info = Info.decode(INFO)
    assert (info.name, info.boot, info.sequence, info.battery) == ("hut", 3, 70_000, 83)
    assert InfoFlag.ADVERT_MODES not in info.flags
    assert adverts.in_force(info) is None, "it knows no modes and is left alone"


def test_a_host_of_before_reads_the_info_of_a_mote_with_modes() -> None:
    """The same version and layout; it leaves out the flags that it does not know."""
    numbers = bthome.Advert(ATTRIBUTES).objects(len(ATTRIBUTES))
    flags = wire.ADVERT_MODES | wire.SLEEPS | wire.PRESENCE | wire.TIME_SET | wire.SAMPLING_ON | wire.BONDED_WRITES
    head = (1, 1, 1241, 3, 70_000, 0xDEADBEEF, 17, 20, 2, 9, 83, 60_000, 4, flags, 5)
    value = bytes(wire.info(head, "0.1.0", "hut", "", ATTRIBUTES, numbers))
    differing = [at for at, (one, other) in enumerate(zip(value, INFO, strict=True)) if one != other]
    assert differing == [FLAGS_AT, *range(len(INFO) - 4, len(INFO))], "the flags, and the CRC"
    before = InfoFlagBefore(value[FLAGS_AT])
    assert InfoFlagBefore.TIME_SET | InfoFlagBefore.SAMPLING_ON | InfoFlagBefore.BONDED_WRITES in before
    assert InfoFlagBefore.PAIRING_OPEN not in before
    assert adverts.in_force(Info.decode(value)) is Mode.PRESENCE
    assert protocol.VERSION == 1


def test_a_broker_of_before_leaves_a_mote_open(tmp_path: Path) -> None:
    """It sets the clock, takes events, acknowledges them, and knows of no modes."""
    world = World(tmp_path)
    life = world.start()
    for _ in range(24):
        life.clock.set(1_700_000_000_000 + world.ms)
        life.ring.ack(life.ring.next - 1)
        for _ in range(60):
            world.ms += 60_000
            READINGS["value"] = 2000
            life.turn()
    assert life.modes.mode == modes.OPEN
    assert life.store.get(modes.NAME) is None


def test_both_bits_of_the_mode_are_one_that_is_not_known_and_count_as_open() -> None:
    numbers = bthome.Advert(ATTRIBUTES).objects(len(ATTRIBUTES))
    for flags, mode in (
        (wire.ADVERT_MODES, Mode.OPEN),
        (wire.ADVERT_MODES | wire.ENCRYPTED, Mode.ENCRYPTED),
        (wire.ADVERT_MODES | wire.ENCRYPTED | wire.PRESENCE, Mode.OPEN),
    ):
        head = (1, 1, 1241, 3, 70_000, 0, 17, 20, 2, 9, 83, 60_000, 4, flags, 5)
        info = Info.decode(bytes(wire.info(head, "0.1.0", "hut", "", ATTRIBUTES, numbers)))
        assert adverts.in_force(info) is mode
