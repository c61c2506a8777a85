"""A few days of a mote, told alike by CPython and MicroPython: what they print must be equal. It imports no test."""

import json
import struct
import sys

import spinney_boot
from spinney_mote import bindkey, bthome, ccm, mote, owner, presence, wire
from spinney_mote.ota import Ota
from spinney_mote.sensor import Attribute, Sensor

WRAP = 1 << 30


class Story:
    """A board: `machine` and `time` in one."""

    DEEPSLEEP_RESET = 4

    def __init__(self):
        self.ms = 0
        self.cause = 1
        self.rtc = b""
        self.slept = []
        self.feeds = 0
        self.resets = 0

    def reset_cause(self):
        return self.cause

    def RTC(self):  # noqa: N802
        return self

    def memory(self, data=None):
        if data is None:
            return self.rtc
        self.rtc = bytes(data)
        return None

    def WDT(self, timeout):  # noqa: N802
        print("watchdog", timeout)
        return self

    def feed(self):
        self.feeds += 1

    def reset(self):
        self.resets += 1

    def deepsleep(self, ms):
        self.slept.append(ms)

    def ticks_ms(self):
        return self.ms % WRAP

    def ticks_diff(self, later, earlier):
        return (later - earlier + WRAP // 2) % WRAP - WRAP // 2

    def time_ns(self):
        return self.ms * 1000000

    def sleep_ms(self, ms):
        self.ms += ms


class Scripted(Sensor):
    """Goes up and down by a degree."""

    driver = "scripted"
    measures = (Attribute("temperature", "C", 1, 100, -4000, 8500, "temperature"),)
    raw = 2000

    def _begin(self):
        return 300

    def _fetch(self, values):
        Scripted.raw = 2700 if Scripted.raw == 2000 else 2000
        values[0] = Scripted.raw


class Holder:
    """Stands in for the module of a driver of the owner's own."""

    Scripted = Scripted


def run(life, story, ms):
    ends = len(story.slept)
    end_ms = story.ms + ms
    while story.ms < end_ms and len(story.slept) == ends:
        story.ms += life.turn()


def tell(program, bundle, key, folder):
    """Prints what happens."""
    sys.modules["spinney_mote.drivers.scripted"] = Holder
    story = Story()
    files = spinney_boot.Files(folder)
    settings = {
        "sensors": [{"driver": "scripted"}, {"driver": "none"}],
        "deep_sleep": True,
        "watchdog_s": 20,
        "unknown": [1],
        "name": 5,
        "ota_key": key,
    }
    life = begin(story, files, settings)
    life.change([program], [])
    life.clock.set(1790000000000)
    for _ in range(6):
        run(life, story, 61000)
        print("slept", story.slept, life.sample.boot, life.sample.sequence, life.store.flash_writes)
        story.ms += story.slept[-1]
        story.cause = Story.DEEPSLEEP_RESET
        life = begin(story, files, settings)
        show(life)
    life.clock.set(1790000000000 + story.ms * 2)
    print("time", life.clock.drift_ppm, life.clock.epoch_ms(), list(life.clock.state()))
    print("control", life.control(wire.OTA, b"\x09"), life.control(wire.SAMPLING, b"\x00"), life.battery())
    adverts(life, story)
    update(files, bundle, bytes([int(key[at : at + 2], 16) for at in range(0, len(key), 2)]))
    crash(files)
    story.cause = 3
    life = begin(story, files, settings)
    show(life)


def begin(story, files, settings):
    life = mote.assemble(story, None, files, json.dumps(settings), story)
    life.begin()
    print("begins", life.is_woken, life.sample.boot, len(life.table), life.table.crc, len(life.config.problems))
    return life


def show(life):
    uptime = life.clock.advance() // 1000
    for number in range(life.ring.first, life.ring.next):
        print("event", number, list(life.ring.read(number, uptime)))


class NoCipher:
    """Stands in for AES, which this build of MicroPython has not: alike on both is what counts here."""

    def __init__(self, key, _mode):
        self.key = key

    def encrypt(self, data):
        return bytes([(31 * data[at] + self.key[at] + data[at - 1]) & 0xFF for at in range(16)])


class Cryptolib:
    aes = NoCipher


def adverts(life, story):
    """Sets modes, waits for the fallback, takes counters over a loss of power, and looks at what is advertised."""
    crc = life.table.crc & 0xFFFFFFFF
    for write in (b"", b"\x02", struct.pack("<BII", 2, 0, crc ^ 1), struct.pack("<BII", 9, 0, crc)):
        print("adverts", owner.adverts(life, write))
    print("adverts", owner.adverts(life, struct.pack("<BII", 2, 7200, crc)), life.modes.mode)
    key = bytes(range(16))
    life.store.put(bindkey.NAME, struct.pack("<16sI", key, 70))
    for _ in range(2):
        life.key.__init__(life.store)
        print("counters", life.key.take(), life.key.take(), list(life.key.place()))
    for what in range(4):
        print("key", owner.bind_key(life.key, what if what != 1 else 0, what != 2))
    for _ in range(9):
        life.modes.watch(life.clock.advance())
        print("mode", life.modes.mode, list(life.modes.state()))
        story.ms += 900000
    print("presence", list(presence.advert("hut", 87, crc, presence.EVENTS)))
    before = sys.modules.get("cryptolib")
    sys.modules["cryptolib"] = Cryptolib
    sealed = bthome.Advert(life.attributes).seal(life.sample, ccm.cipher(key), b"\xc0\x49\xef\x12\x34\x56", 300)
    print("sealed", ccm.is_there(), list(sealed))
    if before is None:
        del sys.modules["cryptolib"]
    else:
        sys.modules["cryptolib"] = before


def update(files, bundle, key):
    ota = Ota(files, key)
    ota.begin(len(bundle))
    for offset in range(0, len(bundle), 180):
        ota.write(offset, bundle[offset : offset + 180])
    ota.commit()
    print(
        "starts", [spinney_boot.choose(files) for _ in range(5)], files.names("set1"), files.names("set1/spinney_mote")
    )
    print("failed", spinney_boot.read_pointer(files).failed)
    files.remove_folder("set1")
    print("left", files.names(""))


def crash(files):
    try:
        raise ValueError("no such thing")
    except ValueError as error:
        for _ in range(2):
            spinney_boot.record_crash(error, files)
            print("crash written", files.writes)
    print(spinney_boot.read_checked(files, spinney_boot.CRASH).decode().strip().split("\n")[-1])
