"""The advert of a mote that says that it is there, and nothing that it measured. Format in firmware/README.md."""

from binascii import crc32
from struct import pack_into

VERSION = 1
_HEAD = (
    b"\x02\x01\x06\x1b\x21"
    b"\x95\xc9\x20\x0a\xb1\x07\x30\x8d\x44\x42\xff\x7d\x01\x00\x4c\xe4"  # flags; service data of wire.SERVICE
)
DATA = "<BBII"
"""Version, battery and bits, CRC of the filter table, CRC-32 of the name."""
BATTERY_UNKNOWN = 15
EVENTS = 16
CLOCK_UNSET = 32


def advert(name, battery, crc, bits):
    """`battery` in per cent, above 100 where it is not known."""
    payload = bytearray(_HEAD) + bytearray(10)
    bucket = battery // 10 if battery <= 100 else BATTERY_UNKNOWN
    pack_into(DATA, payload, len(_HEAD), VERSION, bucket | bits, crc & 0xFFFFFFFF, crc32(name.encode()))
    return payload
