"""Encrypted adverts: BTHome's published vector, what its reader makes of them, on CPython and on MicroPython."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from places import FIRMWARE
from spinney_mote import bthome, ccm
from spinney_mote.samples import Sample
from spinney_mote.sensor import Attribute

from spinney.mote.advert import BTHOME, Advert
from spinney_mobile.decode.bthome import BTHome
from spinney_mobile.samples import Heard
from spinney_tools import micropython
from spinney_tools.sim import mp_cryptolib

KEY = bytes.fromhex("231d39c1d7cc1ab1aee224cd096db932")
ADDRESS = bytes.fromhex("5448e68f80a5")
NONCE = ADDRESS + bytes.fromhex("d2fc4100112233")
PLAIN = bytes.fromhex("02ca0903bf13")
SEALED = bytes.fromhex("a47266c95f7378237214")
"""The format's own example, bthome.io/encryption: 25.06 degrees, 50.55 per cent, counter 00 11 22 33."""

ROOM = [
    Attribute("temperature", "C", 1, 100, -4000, 8500),
    Attribute("humidity", "%", 1, 100, 0, 10000),
    Attribute("pressure", "hPa", 1, 100, 30000, 110000),
    Attribute("battery", "%", 1, 1, 0, 100),
]


def block(key: bytes = KEY) -> Callable[[bytes], bytes]:
    return mp_cryptolib.aes(key, 1).encrypt


def test_the_published_vector_of_bthome() -> None:
    assert ccm.seal(block(), NONCE, PLAIN) == SEALED


def test_it_is_ccm_for_every_length() -> None:
    chance = random.Random(13)
    for size in range(40):
        key, nonce, plain = chance.randbytes(16), chance.randbytes(13), chance.randbytes(size)
        assert ccm.seal(block(key), nonce, plain) == AESCCM(key, tag_length=4).encrypt(nonce, plain, None)


def sample_of(attributes: list[Attribute], raws: list[int], sequence: int = 300) -> Sample:
    sample = Sample([(one.low, one.high) for one in attributes], 1)
    sample.sequence = sequence - 1
    sample.begin(0, True)
    for index, raw in enumerate(raws):
        sample.put(index, raw)
    return sample


def test_a_reader_of_bthome_opens_what_a_mote_encrypts() -> None:
    advert = bthome.Advert(ROOM)
    payload = advert.seal(sample_of(ROOM, [2125, 4750, 101325, 83]), block(), ADDRESS, 0x01020304)
    assert payload[:3] == b"\x02\x01\x06"
    assert payload[3] == len(payload) - 4
    assert payload[4:8] == b"\x16\xd2\xfc\x41"
    assert len(payload) <= bthome.SIZE
    assert advert.left_out == 0
    heard = Heard("ble", "54:48:E6:8F:80:A5", 0.0, services={BTHOME: bytes(payload[7:])})
    decoded = BTHome().decode(heard, KEY)
    assert decoded is not None
    assert decoded.values == {"temperature": 21.25, "humidity": 47.5, "pressure": 1013.25, "battery": 83}
    assert decoded.counter == 0x01020304


def test_what_does_not_fit_into_13_bytes_takes_turns() -> None:
    names = ("temperature", "humidity", "co2", "pm25", "pm10", "voltage", "energy")
    many = [Attribute(name, "", 1, 1, 0, 200) for name in names]
    advert = bthome.Advert(many)
    ids = set(advert.objects(len(many)))
    heard: set[int] = set()
    for turn in range(1, 9):
        payload = advert.seal(sample_of(many, [turn] + [5] * 6, turn), block(), ADDRESS, turn)
        nonce = ADDRESS + b"\xd2\xfc\x41" + bytes(payload[-8:-4])
        plain = AESCCM(KEY, tag_length=4).decrypt(nonce, bytes(payload[8:-8] + payload[-4:]), None)
        found = Advert.decode(b"\x40" + plain)
        assert len(payload) <= bthome.SIZE
        assert found.packet_id == turn
        assert found.readings[0].value == turn, "what has changed is always there"
        heard |= {reading.object_id for reading in found.readings}
    assert heard == ids
    assert bthome.ENCRYPTED_ROOM == 13


AES = """
def _double(x):
    x <<= 1
    return (x ^ 0x11B) & 0xFF if x & 0x100 else x

def _sbox():
    box, p, q = bytearray(256), 1, 1
    while True:
        p = p ^ _double(p)
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q &= 0xFF
        if q & 0x80:
            q ^= 0x09
        x = q ^ (q << 1 | q >> 7) ^ (q << 2 | q >> 6) ^ (q << 3 | q >> 5) ^ (q << 4 | q >> 4)
        box[p] = (x ^ 0x63) & 0xFF
        if p == 1:
            break
    box[0] = 0x63
    return box

def aes(key):
    box = _sbox()
    words, more = [key[at:at + 4] for at in range(0, 16, 4)], 1
    for at in range(4, 44):
        word = words[-1]
        if at % 4 == 0:
            word = bytes([box[word[1]] ^ more, box[word[2]], box[word[3]], box[word[0]]])
            more = _double(more)
        words.append(bytes([a ^ b for a, b in zip(words[at - 4], word)]))
    def encrypt(data):
        state = [a ^ b for a, b in zip(data, b"".join(words[:4]))]
        for turn in range(1, 11):
            state = [box[state[(at + 4 * (at % 4)) % 16]] for at in range(16)]
            if turn < 10:
                mixed = []
                for at in range(0, 16, 4):
                    a = state[at:at + 4]
                    whole = a[0] ^ a[1] ^ a[2] ^ a[3]
                    mixed += [a[i] ^ whole ^ _double(a[i] ^ a[(i + 1) % 4]) for i in range(4)]
                state = mixed
            state = [a ^ b for a, b in zip(state, b"".join(words[4 * turn:4 * turn + 4]))]
        return bytes(state)
    return encrypt
"""
"""The test's own AES, since MicroPython's WebAssembly build has no cryptolib; boards have."""


def test_micropython_seals_the_published_vector() -> None:
    script = f"{AES}\nfrom spinney_mote import ccm\nprint(bytes(ccm.seal(aes({KEY!r}), {NONCE!r}, {PLAIN!r})).hex())\n"
    try:
        files = micropython.library(FIRMWARE / "spinney_mote", "/lib/spinney_mote")
        assert micropython.run(script, files=files).strip() == SEALED.hex()
    except micropython.MicroPythonMissing as missing:
        pytest.skip(str(missing))
