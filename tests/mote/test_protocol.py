"""The layouts of the five characteristics, held equal on both sides; filters on their way in; bonds; the service."""

from __future__ import annotations

import contextlib
import os
import random
import struct
import zlib
from types import SimpleNamespace
from typing import Any

import pytest
from places import FIRMWARE
from spinney_mote import bonds, bthome, config, modes, presence, ring, samples, table, upload, wire
from spinney_mote import gatt as gatt_module
from spinney_mote.bonds import Bonds
from spinney_mote.gatt import Gatt
from spinney_mote.radio import Radio
from spinney_mote.sensor import Attribute
from spinney_mote.upload import Upload

from spinney.mote import advert, adverts, link, protocol
from spinney.mote.protocol import (
    Answer,
    ControlOp,
    Event,
    EventFlag,
    FilterOp,
    FilterReply,
    Info,
    InfoFlag,
    MoteTime,
    ProtocolError,
    Status,
)
from spinney_tools import micropython


def test_the_constants_of_mote_and_host_are_equal() -> None:
    for name in ("VERSION", "SERVICE", "FILTERS", "EVENTS", "INFO", "TIME", "CONTROL", "MTU", "MAX_CHUNK", "MAX_NOTE"):
        assert getattr(wire, name) == getattr(protocol, name), name
    for kind in (FilterOp, ControlOp, Status):
        for member in kind:
            assert getattr(wire, member.name) == member, member
    for mine, theirs in [
        (wire.FILTER_HEAD, protocol.FILTER_HEAD),
        (wire.FILTER_REPLY, protocol.FILTER_REPLY),
        (wire.INFO_HEAD, protocol.INFO_HEAD),
        (wire.ROW, protocol.ROW),
        (wire.TIME_VALUE, protocol.TIME_VALUE),
        (wire.TIME_WRITE, protocol.TIME_WRITE),
        (wire.SET_BIT_WRITE, protocol.SET_BIT_WRITE),
        (ring.HEAD, protocol.EVENT_HEAD),
        ("<" + bthome.SCAN[4:], advert.SCAN),
    ]:
        assert mine == theirs.format
    assert wire.FILTER_ANSWER == protocol.FILTER_ANSWER
    assert protocol.FILTER_HEAD.size == wire.FILTER_HEAD_SIZE
    assert protocol.SET_BIT_WRITE.size == wire.SET_BIT_SIZE
    assert wire.MAX_VALUE == protocol.MAX_VALUE
    assert wire.NO_BATTERY == protocol.NO_BATTERY
    assert bthome.NOT_SENT == protocol.NO_OBJECT
    assert ring.NO_SECONDS == protocol.NO_SECONDS
    assert {flag.name: flag.value for flag in EventFlag} == {
        flag.name: getattr(ring, str(flag.name)) for flag in EventFlag
    }
    for flag in InfoFlag:
        assert getattr(wire, str(flag.name)) == flag, flag
    assert (adverts.WRITE.format, adverts.STATE.format) == (wire.ADVERTS_WRITE, modes.STATE)
    assert (modes.AS_CONFIGURED, modes.NEVER) == (adverts.AS_CONFIGURED, adverts.NEVER)
    assert list(adverts.Mode) == [modes.OPEN, modes.ENCRYPTED, modes.PRESENCE]
    assert list(adverts.Bits) == [modes.FIXED, modes.HAS_KEY, modes.FALLEN, modes.KEY_SPENT]
    assert bytes((wire.KEY_READ, wire.KEY_NEW, wire.KEY_FORGET)) == (
        adverts.KEY_READ + adverts.KEY_NEW + adverts.KEY_FORGET
    )
    assert (advert.PRESENCE_DATA.format, advert.PRESENCE_VERSION) == (presence.DATA, presence.VERSION)
    assert (presence.EVENTS, presence.CLOCK_UNSET) == (advert.PRESENCE_EVENTS, advert.PRESENCE_CLOCK_UNSET)
    assert (upload.MAX_STAGED, upload.MAX_STAGED_BYTES) == (link.MAX_STAGED, link.MAX_STAGED_BYTES)
    assert upload.MAX_PROGRAM == protocol.MAX_PROGRAM
    assert (bthome.COMPANY, bthome.SCAN_VERSION) == (advert.COMPANY, advert.SCAN_VERSION)


def test_everything_fits_into_one_notification() -> None:
    assert ring.MAX_EVENT <= protocol.MAX_NOTE <= protocol.MTU - 3
    assert protocol.FILTER_HEAD.size + protocol.MAX_CHUNK <= protocol.MTU - 3
    assert protocol.FILTER_REPLY.size + wire.MAX_REASON <= protocol.MTU - 3


def test_an_event_of_the_ring_reads_back() -> None:
    sample = samples.Sample([(-1000, 1000)] * 5, 3)
    sample.begin(1_700_000_000, False)
    sample.put(1, -7)
    sample.put(4, 1000)
    events = ring.Ring(4096, 41)
    events.add(513, 70_000, sample, ring.LABEL | ring.BIT)
    assert Event.decode(bytes(events.read(41, 0))) == Event(
        41, 513, 70_000, 3, sample.sequence, EventFlag.LABEL | EventFlag.BIT, 1_700_000_000, {1: -7, 4: 1000}
    )
    sample.begin(100, True)
    events.add(1, 1, sample, 0)
    assert Event.decode(bytes(events.read(42, 160))).time == 60
    assert Event.decode(bytes(events.read(42, 50))).time is None


HEAD = (1, 1, 1241, 5, 70_000, 0xDEADBEEF, 17, 20, 2, 9, 87, 60_000, 4, 3, 2)
ROWS = [Attribute("temperature", "°C", 1, 100, -4000, 8500), Attribute("wind_chill", "°C", 1, 10, -400, 400)]


def info_bytes(attributes: list[Attribute] = ROWS, crash: str = "ValueError: x") -> bytes:
    numbers = bthome.Advert(attributes).objects(len(attributes))
    head = (*HEAD[:-1], len(attributes))
    return bytes(wire.info(head, "0.1.0", "hut", crash, attributes, numbers))


def test_info_reads_back() -> None:
    info = Info.decode(info_bytes())
    assert (info.layout, info.boot, info.sequence, info.table_crc) == (1241, 5, 70_000, 0xDEADBEEF)
    assert (info.first_event, info.next_event, info.events_dropped, info.writes_refused) == (17, 20, 2, 9)
    assert (info.battery, info.free_heap, info.boot_cause) == (87, 60_000, 4)
    assert info.flags == InfoFlag.TIME_SET | InfoFlag.SAMPLING_ON
    assert (info.firmware, info.name, info.last_crash) == ("0.1.0", "hut", "ValueError: x")
    assert [(row.name, row.unit, row.p, row.q, row.low, row.high, row.object_id) for row in info.attributes] == [
        ("temperature", "°C", 1, 100, -4000, 8500, 0x02),
        ("wind_chill", "°C", 1, 10, -400, 400, None),
    ]


def test_info_never_exceeds_what_a_value_may_hold() -> None:
    many = [Attribute(f"long_name_of_attribute_{number}", "µg/m³", 1, 100, -4000, 8500) for number in range(29)]
    value = info_bytes(many, "é" * 200)
    assert len(value) <= protocol.MAX_VALUE
    info = Info.decode(value)
    assert info.attribute_count == 29 > len(info.attributes) > 5
    rest = protocol.decode_rows(bytes(wire.rows(many, bytearray(29), len(info.attributes), 241)))
    assert rest[0].name == many[len(info.attributes)].name[:24]
    assert info.last_crash == "é" * 32


def test_damage_to_info_is_seen() -> None:
    good = info_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 0x10
        with pytest.raises(ProtocolError):
            Info.decode(bytes(bad))
    with pytest.raises(ProtocolError, match="version 2"):
        Info.decode(b"\2" + good[1:])


def test_any_bytes_are_read_or_refused() -> None:
    chance = random.Random(7)
    good = info_bytes()
    for _ in range(5000):
        data = bytearray(chance.randbytes(chance.randrange(60)) if chance.random() < 0.5 else good)
        if data and chance.random() < 0.9:
            data[chance.randrange(len(data))] = chance.randrange(256)
        if len(data) > 4 and chance.random() < 0.5:
            data[-4:] = struct.pack("<I", zlib.crc32(bytes(data[:-4])))
        for reader in (Info.decode, Event.decode, Answer.decode, MoteTime.decode, protocol.decode_rows):
            with contextlib.suppress(ProtocolError):
                reader(bytes(data))


# ---- filters on their way in


class Table:
    """What an upload changes."""

    def __init__(self) -> None:
        self.changes: list[tuple[list[bytes], list[int]]] = []
        self.refuse = ""

    def change(self, add: list[bytes], drop: list[int]) -> None:
        if self.refuse:
            raise table.TableError(self.refuse)
        self.changes.append((add, drop))


def program(number: int, size: int = 300) -> bytes:
    return bytes([1, 0]) + struct.pack("<H", number) + bytes(range(4, 256))[: size - 4] + bytes(max(0, size - 256))


class Writer:
    def __init__(self) -> None:
        self.table = Table()
        self.upload = Upload(self.table.change)
        self.now_ms = 0

    def write(self, data: bytes, central: object = "a") -> tuple[int, FilterReply, str]:
        answer = Answer.decode(bytes(self.upload.write(central, data, self.now_ms, lambda: 77)))
        return answer.status, FilterReply.decode(answer), answer.reason

    def put(self, number: int, data: bytes, offset: int = 0) -> tuple[int, int]:
        status, reply, _ = self.write(protocol.put_write(number, data, offset))
        return status, reply.received

    def commit(self, staged: dict[int, bytes | None]) -> tuple[int, str]:
        data = protocol.filter_write(FilterOp.COMMIT, 0, 0, len(staged), protocol.staged_crc(staged))
        status, _, reason = self.write(data)
        return status, reason


def test_chunks_in_order_become_a_program_and_a_commit_makes_all_changes_at_once() -> None:
    writer = Writer()
    one, two = program(1), program(2, 40)
    assert writer.put(1, one) == (Status.OK, 180)
    assert writer.put(1, one, 180) == (Status.OK, 300)
    assert writer.put(2, two) == (Status.OK, 40)
    assert writer.write(protocol.filter_write(FilterOp.DROP, 3))[0] == Status.OK
    assert writer.table.changes == []
    assert writer.commit({1: one, 2: two, 3: None}) == (Status.OK, "")
    assert writer.table.changes == [([one, two], [3])]


def test_an_upload_goes_on_where_it_was_cut_off_and_a_repeated_chunk_does_no_harm() -> None:
    writer = Writer()
    one = program(1)
    writer.put(1, one)
    status, reply, _ = writer.write(protocol.filter_write(FilterOp.STATUS, 1, 0, 300, protocol.program_crc(one)))
    assert (status, reply.received) == (Status.OK, 180)
    assert writer.put(1, one, 180) == (Status.OK, 300)
    assert writer.put(1, one, 180) == (Status.OK, 300)
    assert writer.commit({1: one}) == (Status.OK, "")


def test_what_is_out_of_order_damaged_or_too_large_is_refused() -> None:
    writer = Writer()
    one = program(1)
    assert writer.put(1, one, 180) == (Status.OUT_OF_ORDER, 0)
    writer.put(1, one)
    assert writer.put(1, one, 200) == (Status.OUT_OF_ORDER, 180)
    assert writer.put(1, program(1, 301), 180)[0] == Status.OUT_OF_ORDER
    bad = bytearray(protocol.put_write(1, one, 180))
    bad[-1] ^= 1
    assert writer.write(bytes(bad))[0] == Status.DAMAGED
    assert writer.put(1, program(1, 601))[0] == Status.TOO_LARGE
    assert writer.put(9, program(1, 50))[0] == Status.MALFORMED
    assert writer.write(protocol.filter_write(FilterOp.PUT, 1, 0, 10, 0, bytes(11)))[0] == Status.MALFORMED
    assert writer.write(b"\1")[0] == Status.MALFORMED
    assert writer.write(protocol.filter_write(FilterOp.PUT, 1, 0, 300, 0, bytes(181)))[0] == Status.MALFORMED
    assert writer.write(bytes([99]) + bytes(10))[0] == Status.UNKNOWN_OP
    assert writer.table.changes == []


def test_a_commit_of_other_changes_than_those_staged_is_refused() -> None:
    writer = Writer()
    one, two = program(1, 50), program(2, 50)
    writer.put(1, one)
    assert writer.commit({1: two})[0] == Status.DAMAGED
    assert writer.commit({1: one, 2: two})[0] == Status.DAMAGED
    assert writer.commit({2: one})[0] == Status.DAMAGED
    assert writer.commit({1: None})[0] == Status.DAMAGED
    assert writer.table.changes == []
    writer.table.refuse = "full: 9000 bytes would be needed"
    assert writer.commit({1: one}) == (Status.REFUSED, "full: 9000 bytes would be needed")


def test_what_is_staged_is_bounded() -> None:
    writer = Writer()
    statuses = [writer.put(number, program(number, 170))[0] for number in range(30)]
    assert statuses == [Status.OK] * 24 + [Status.TOO_LARGE] * 6
    writer.write(protocol.filter_write(FilterOp.DISCARD))
    drops = [writer.write(protocol.filter_write(FilterOp.DROP, number))[0] for number in range(70)]
    assert drops == [Status.OK] * 64 + [Status.TOO_LARGE] * 6


def test_another_central_waits_until_the_first_is_gone_or_silent() -> None:
    writer = Writer()
    drop = protocol.filter_write(FilterOp.DROP, 3)
    assert writer.write(drop, "a")[0] == Status.OK
    assert writer.write(drop, "b")[0] == Status.BUSY
    writer.upload.leave("a")
    assert writer.write(drop, "b")[0] == Status.OK
    writer.now_ms += upload.OWNER_MS
    assert writer.write(drop, "a")[0] == Status.OK


# ---- bonds


class Store:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.writes = 0

    def get(self, name: str) -> bytes | None:
        return self.files.get(name)

    def put(self, name: str, data: bytes) -> bool:
        self.writes += 1
        self.files[name] = data
        return True


def test_bonds_are_kept_in_one_write_and_found_again() -> None:
    store, now = Store(), [0]
    first = Bonds(store, lambda: now[0])
    assert first.set(1, b"ours", b"key 1")
    assert first.set(2, b"peer", b"key 2")
    assert store.writes == 0
    first.save()
    first.save()
    assert store.writes == 1
    again = Bonds(store, lambda: now[0], open_s=0)
    assert again.get(2, 0, b"peer") == b"key 2"
    assert again.get(1, 0, None) == b"key 1"
    assert again.get(1, 1, None) is None
    assert again.set(2, b"peer", None)
    assert again.get(2, 0, b"peer") is None


def test_others_may_bond_only_while_pairing_is_open() -> None:
    now = [0]
    found = Bonds(Store(), lambda: now[0], open_s=60)
    assert found.set(2, b"first", b"x")
    now[0] = 60_000
    assert not found.set(2, b"second", b"x")
    assert found.refused == 1
    assert found.set(2, b"first", b"new key")  # a bond that is there may change its key
    found.open(10, now[0])
    assert found.set(2, b"second", b"x")
    now[0] += 10_000
    assert not found.set(2, b"third", b"x")
    found.forget()
    assert found.is_open()  # nobody would be left to open it


def test_without_the_question_for_a_passkey_no_bond_is_kept() -> None:
    found = Bonds(Store(), lambda: 0)
    assert not found.set(2, b"peer", b"x", asked=False)
    assert found.get(2, 0, b"peer") is None


def test_secrets_are_bounded_and_a_damaged_file_is_no_bond() -> None:
    found = Bonds(Store(), lambda: 0)
    kept = [found.set(2, b"%d" % number, b"x") for number in range(20)]
    assert kept == [True] * bonds.MAX_SECRETS + [False] * 4
    store = Store()
    chance = random.Random(3)
    for size in range(40):
        store.files["bonds"] = chance.randbytes(size)
        Bonds(store, lambda: 0).save()


# ---- the service, on a radio that has no room


class Ble:
    """The part of bluetooth.BLE that the service uses."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.sent: list[tuple[int, int, bytes]] = []
        self.room = 100
        self.refuse = 0  # so many, then there is room again
        self.buffers: dict[int, int] = {}
        self.dropped: list[int] = []
        self.irq: Any = lambda handler: setattr(self, "handler", handler)
        self.handler: Any = None
        self.active = self.config = self.gap_advertise = lambda *_, **__: None

    def gatts_register_services(self, services: Any) -> Any:
        return (tuple(range(1, 1 + len(services[0][1]))),)

    def gatts_set_buffer(self, handle: int, size: int) -> None:
        self.buffers[handle] = size

    def gatts_write(self, handle: int, data: bytes) -> None:
        self.values[handle] = bytes(data)

    def gatts_read(self, handle: int) -> bytes:
        return self.values[handle]

    def gap_disconnect(self, handle: int) -> None:
        self.dropped.append(handle)

    def gatts_notify(self, handle: int, value: int, data: bytes) -> None:
        if not self.room or self.refuse:
            self.refuse = max(0, self.refuse - 1)
            raise OSError(12)
        self.room -= 1
        self.sent.append((handle, value, bytes(data)))


class Life:
    name, version, last_crash, sampling, boot_cause = "hut", "0.1.0", "E" * 300, True, 1
    attributes = ROWS

    def __init__(self) -> None:
        self.sample = samples.Sample([(0, 9)], 1)
        self.table = SimpleNamespace(layout=1, crc=2)
        self.modes = SimpleNamespace(mode=modes.OPEN)
        self.config = config.Config()
        self.sleeps = False
        self.ring = ring.Ring(4096)
        self.clock = SimpleNamespace(epoch_ms=lambda: None, advance=lambda: 0, is_set=False, drift_ppm=0)

        self.store = Store()

    change = control = free_heap = battery = lambda *_: 0


def service() -> tuple[Gatt, Ble, Life]:
    ble, life = Ble(), Life()
    return Gatt(SimpleNamespace(UUID=str), ble, life, bytearray(2)), ble, life


CONTROL_HANDLE = 5


def ask(gatt: Any, ble: Ble, op: int, payload: bytes = b"", handle: int = 0) -> None:
    ble.values[CONTROL_HANDLE] = bytes([op, 1]) + payload
    gatt.written(handle, CONTROL_HANDLE, 0)


def test_buffers_hold_what_is_written() -> None:
    _, ble, _ = service()
    for handle, size in [(1, protocol.FILTER_HEAD.size + protocol.MAX_CHUNK), (4, 8), (CONTROL_HANDLE, 244)]:
        assert ble.buffers[handle] > size, "a longer write is cut off, so a byte more must be seen"


def test_events_wait_for_room_and_for_an_mtu_that_holds_them() -> None:
    gatt, ble, life = service()
    gatt.joined(0, 0)
    life.sample.begin(1, False)
    for _ in range(10):
        life.ring.add(1, 1, life.sample, ring.LABEL)
    ask(gatt, ble, ControlOp.REPLAY, struct.pack("<I", 1))
    gatt.poll(0)
    assert gatt.not_sent == 1
    gatt.find(0).mtu = 247
    ble.sent.clear()
    ble.room = 2
    gatt.poll(0)
    assert [Event.decode(data).number for _, _, data in ble.sent] == [1, 2]
    ble.room = 100
    for _ in range(9):
        gatt.poll(0)
    assert [Event.decode(data).number for _, _, data in ble.sent] == list(range(1, 11))
    assert gatt.pending == 0


def test_an_answer_without_room_comes_later_and_before_the_events_it_asks_for() -> None:
    gatt, ble, life = service()
    gatt.joined(0, 0)
    gatt.find(0).mtu = 247
    life.sample.begin(1, False)
    life.ring.add(1, 1, life.sample, ring.LABEL)
    ble.refuse = 1
    ask(gatt, ble, ControlOp.REPLAY, struct.pack("<I", 1))
    gatt.poll(0)
    assert ble.sent == []
    gatt.poll(0)
    gatt.poll(0)
    assert [value for _, value, _ in ble.sent] == [CONTROL_HANDLE, 2]


def test_writes_that_wait_are_bounded_for_each_central_and_counted() -> None:
    gatt, ble, _ = service()
    gatt.joined(0, 0)
    gatt.joined(1, 0)
    for _ in range(20):
        ask(gatt, ble, ControlOp.PING)
    ask(gatt, ble, ControlOp.PING, handle=1)
    assert gatt.writes_dropped == 20 - gatt_module.MAX_WRITES_OF_ONE
    gatt.poll(0)
    assert sum(handle == 1 for handle, _, _ in ble.sent) == 1


def test_too_many_centrals_are_not_taken_and_a_place_becomes_free() -> None:
    gatt, _, _ = service()
    assert [gatt.joined(handle, 0) for handle in range(4)] == [True, True, True, False]
    gatt.left(1)
    assert gatt.joined(9, 0)


def test_a_whole_crash_is_read_in_parts() -> None:
    gatt, ble, life = service()
    gatt.joined(0, 0)
    gatt.find(0).mtu = 247
    text = b""
    while True:
        ask(gatt, ble, ControlOp.CRASH, struct.pack("<H", len(text)))
        gatt.poll(0)
        part = Answer.decode(ble.sent[-1][2]).payload
        if not part:
            break
        text += part
    assert text.decode() == life.last_crash


def test_a_number_that_the_ring_does_not_know_asks_for_all_events() -> None:
    gatt, ble, life = service()
    gatt.joined(0, 0)
    gatt.find(0).mtu = 247
    life.sample.begin(1, False)
    life.ring.add(1, 1, life.sample, ring.LABEL)
    ask(gatt, ble, ControlOp.REPLAY, struct.pack("<I", 999_999))
    gatt.poll(0)
    assert Answer.decode(ble.sent[0][2]).payload == struct.pack("<II", 1, 2)
    assert Event.decode(ble.sent[1][2]).number == 1


# ---- who may write, by what a stack says and in which order

ENCRYPTED, SECRET, PASSKEY = 28, 30, 31
OURS = (SECRET, (1, b"peer", b"key"))
PEERS = (SECRET, (2, b"peer", b"key"))
BONDED = (ENCRYPTED, (0, True, True, True, 16))
NOT_BONDED = (ENCRYPTED, (0, True, True, False, 16))
UNAUTHENTICATED = (ENCRYPTED, (0, True, False, True, 16))
ASKED = (PASSKEY, (0, 3, 0))
KNOWN_SECRETS = b"\2\5\1other1"


@pytest.mark.parametrize(
    ("passkey", "is_open", "told", "trusted", "dropped"),
    [
        (None, True, [OURS, PEERS, BONDED], True, False),
        (None, True, [NOT_BONDED, PEERS], True, False),
        (None, True, [NOT_BONDED], False, False),
        (None, True, [], False, False),
        (None, False, [PEERS, BONDED], False, True),
        (None, False, [NOT_BONDED, PEERS], False, True),
        (None, False, [BONDED], True, False),
        (7, True, [ASKED, PEERS, BONDED], True, False),
        (7, True, [PEERS, BONDED], False, True),
        (7, True, [ASKED, PEERS, UNAUTHENTICATED], False, False),
        (7, False, [UNAUTHENTICATED], False, False),
    ],
)
def test_who_may_write(
    passkey: int | None, is_open: bool, told: list[tuple[int, Any]], trusted: bool, dropped: bool
) -> None:
    ble, life, now = Ble(), Life(), [1000]
    ble.gap_passkey = lambda *_: None  # type: ignore[attr-defined]
    life.store.files["bonds"] = KNOWN_SECRETS
    bluetooth = SimpleNamespace(UUID=str, BLE=lambda: ble)
    radio = Radio(bluetooth, life, life.store, lambda: now[0], passkey=passkey, pairing_s=60 if is_open else 0)
    radio.start()
    ble.handler(1, (0, 0, b"address"))
    for event, data in told:
        now[0] += 100
        ble.handler(event, data)
    ask(radio.gatt, ble, ControlOp.PING)
    radio.poll()
    assert [Answer.decode(data).status for _, _, data in ble.sent] == [Status.OK if trusted else Status.NOT_ALLOWED]
    assert bool(ble.dropped) == dropped


def test_one_central_too_many_is_sent_away() -> None:
    ble, life = Ble(), Life()
    radio = Radio(SimpleNamespace(UUID=str, BLE=lambda: ble), life, life.store, lambda: 0)
    radio.start()
    for handle in range(gatt_module.MAX_CENTRALS + 1):
        ble.handler(1, (handle, 0, b"address"))
    assert ble.dropped == [gatt_module.MAX_CENTRALS]
    assert radio.turned_away == 1


# ---- MicroPython

ADVERT = """
import sys
from spinney_mote import bthome, wire, upload, bonds, gatt, radio
from spinney_mote.samples import Sample
from spinney_mote.sensor import Attribute
sample = Sample([(-4000, 8500), (0, 10000)], 1)
sample.put(0, -1234); sample.put(1, 5055); sample.sequence = 258
rows = [Attribute("temperature", "C", 1, 100, -4000, 8500), Attribute("humidity", "%", 1, 100, 0, 10000)]
print(bytes(bthome.Advert(rows).fill(sample)).hex())
print(bytes(bthome.scan_response("kitchen", 0xDEADBEEF, 70001, 65537, 0x1234567)).hex())
numbers = bthome.Advert(rows).objects(2)
head = (1, 1, 1241, 5, 70000, 0xDEADBEEF, 17, 20, 2, 9, 87, 60000, 4, 3, 2)
print(bytes(wire.info(head, "0.1.0", "hut", "", rows, numbers)).hex())
print(wire.staged_crc({1: 5, 7: None, 3: 0xFFFFFFFF}))
"""


def test_micropython_makes_the_same_bytes() -> None:
    try:
        micropython.module()
    except micropython.MicroPythonMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    advertised, response, info, crc = micropython.run(ADVERT, files=micropython.library(FIRMWARE)).split()
    rows = [Attribute("temperature", "C", 1, 100, -4000, 8500), Attribute("humidity", "%", 1, 100, 0, 10000)]
    sample = SimpleNamespace(value=(-1234, 5055).__getitem__, present=3, sequence=258)
    assert bytes.fromhex(advertised) == bthome.Advert(rows).fill(sample)
    assert bytes.fromhex(response) == bthome.scan_response("kitchen", 0xDEADBEEF, 70_001, 65_537, 0x1234567)
    assert [row.object_id for row in Info.decode(bytes.fromhex(info)).attributes] == [2, 3]
    assert int(crc) == wire.staged_crc({1: 5, 7: None, 3: 0xFFFFFFFF})


def test_another_program_of_the_same_id_and_size_has_another_sum() -> None:
    """A program ends with its own CRC, and CRC-32 over both is one number for all programs."""

    def sealed(body: bytes) -> bytes:
        return body + zlib.crc32(body).to_bytes(4, "little")

    one, other = sealed(b"\x01\x00\x07\x00 temp > 3"), sealed(b"\x01\x00\x07\x00 temp > 4")
    assert zlib.crc32(one) == zlib.crc32(other)
    assert protocol.program_crc(one) != protocol.program_crc(other)
    assert protocol.table_crc([one]) != protocol.table_crc([other])
    assert protocol.staged_crc({7: one}) != protocol.staged_crc({7: other})
    for program in (one, other):
        assert wire.program_crc(program) == protocol.program_crc(program)
