"""What the five characteristics carry: numbers and layouts, nothing else. On the host: spinney.mote.protocol.

Formats in firmware/README.md.
"""

from binascii import crc32
from struct import pack

try:
    from micropython import const
except ImportError:
    const = int  # pyright: ignore[reportAssignmentType]  # CPython has no constants; an int stays what it is

VERSION = const(1)
SERVICE = "e44c0001-7dff-4244-8d30-07b10a20c995"
FILTERS = "e44c0002-7dff-4244-8d30-07b10a20c995"
EVENTS = "e44c0003-7dff-4244-8d30-07b10a20c995"
INFO = "e44c0004-7dff-4244-8d30-07b10a20c995"
TIME = "e44c0005-7dff-4244-8d30-07b10a20c995"
CONTROL = "e44c0006-7dff-4244-8d30-07b10a20c995"

MTU = const(247)
MAX_CHUNK = const(180)
MAX_NOTE = const(244)
MAX_VALUE = const(512)

# filters: one change is staged after the other; COMMIT makes all of them at once
FILTER_HEAD = "<BHHHI"
"""Op, filter id, offset of the chunk, size of the program, CRC-32 of the program; then the chunk."""
FILTER_HEAD_SIZE = const(11)
PUT = const(1)
DROP = const(2)
COMMIT = const(3)  # offset 0, size: number of changes staged, CRC: staged_crc() of them
STATUS = const(4)  # where to go on with a program of this id, size and CRC
DISCARD = const(5)  # forget what is staged
FILTER_ANSWER = const(0x80)  # added to the op of an answer
FILTER_REPLY = "<BBBHHHI"
"""Op | FILTER_ANSWER, 0, status, filter id, bytes of the program that are there, changes staged, CRC of the table."""

# control: op, a tag that its answer repeats, and what the op needs
ACK = const(1)  # u32: forget all events up to this number
REPLAY = const(2)  # u32: send all events from this number on, and those to come; u32 the first, u32 the next new one
QUIET = const(3)  # send no more events
DESCRIBE = const(4)  # u8: the rows of the attributes from this one on, as many as fit
CRASH = const(5)  # u16: the text of the last crash from this byte on
SAMPLING = const(6)  # u8: 0 off, 1 on
REBOOT = const(7)
OTA = const(8)  # for ota.py; the answer is u32 offset of the next chunk, u32 bytes of the bundle
PAIRING = const(9)  # u16: seconds in which others may pair; 0 ends it
FORGET = const(10)  # forget all bonds
PING = const(11)
LIST = const(12)  # u16: the filters from this id on, as many as fit: id u16, CRC-32 of the program u32
ADVERTS = const(13)  # nothing: asks; or ADVERTS_WRITE. The answer is modes.STATE
BIND_KEY = const(14)  # u8: KEY_READ, KEY_NEW, KEY_FORGET; the answer is the key, or nothing
SET_BIT = const(15)  # SET_BIT_WRITE: the owner knows the bit of a filter, which the mote does not
ADVERTS_WRITE = "<BII"
"""Mode, seconds without a renewal until the mote falls back, CRC of the table that the owner has committed."""
ADVERTS_WRITE_SIZE = const(9)
SET_BIT_WRITE = "<HIIB"
"""Filter id, owner epoch, number of the newest event that the owner has, the bit: 0 or 1."""
SET_BIT_SIZE = const(11)
KEY_READ = const(0)
KEY_NEW = const(1)
KEY_FORGET = const(2)

OK = const(0)
UNKNOWN_OP = const(1)
MALFORMED = const(2)
NOT_ALLOWED = const(3)
REFUSED = const(4)  # the reason follows in words
BUSY = const(5)  # another central is changing the filters, or the queue is full
DAMAGED = const(6)  # a CRC does not fit
OUT_OF_ORDER = const(7)  # not the offset that is awaited: the answer says which
TOO_LARGE = const(8)

INFO_HEAD = "<BBHIIIIIIIBIBBB"
"""Version, program version, layout, boot, sequence, CRC of the table, first event, next event, events dropped,
writes refused, battery in per cent (255: not known), free heap, cause of the boot, flags, number of attributes; then
texts (u8 size, UTF-8): version, name, last crash; then rows of attributes; then CRC-32."""
NO_BATTERY = const(255)
TIME_SET = const(1)
SAMPLING_ON = const(2)
BONDED_WRITES = const(4)
PAIRING_OPEN = const(8)
ADVERT_MODES = const(16)  # it knows ADVERTS and BIND_KEY
SLEEPS = const(32)  # deeply: it can be connected to for a moment only, and each connection costs it
ENCRYPTED = const(64)  # what it advertises; neither of these two, or both: open
PRESENCE = const(128)
ROW = "<iiiiB"
"""After name and unit (u8 size, UTF-8): p, q, low, high, BTHome object (255: none)."""

TIME_VALUE = "<Bqi"
"""1 if the clock is set, epoch milliseconds (0 if not), drift in millionths."""
TIME_WRITE = "<q"

MAX_REASON = const(80)
_MAX_CRASH = const(64)
_MAX_NAME = const(24)


def text(value, most):
    """Size and UTF-8, cut between characters."""
    encoded = value.encode()
    if len(encoded) > most:
        while most and encoded[most] & 0xC0 == 0x80:
            most -= 1
        encoded = encoded[:most]
    return bytes([len(encoded)]) + encoded


def row(attribute, number):
    """What the host must know of an attribute; `number` is its BTHome object."""
    head = text(attribute.name, _MAX_NAME) + text(attribute.unit, _MAX_NAME)
    return head + pack(ROW, attribute.p, attribute.q, attribute.low, attribute.high, number)


def rows(attributes, numbers, first, room):
    """The rows from the first on, as many as there is room for."""
    found = bytearray()
    for index in range(first, len(attributes)):
        one = row(attributes[index], numbers[index])
        if len(found) + len(one) > room:
            break
        found.extend(one)
    return found


def filter_rows(programs, first, room):
    """Id and CRC of each program of a table from an id on, as many as there is room for."""
    found = bytearray()
    for program in programs:
        wanted = program[2] | program[3] << 8
        if wanted >= first:
            if len(found) + 6 > room:
                break
            found.extend(pack("<HI", wanted, program_crc(program)))
    return found


def info(head, version, name, crash, attributes, numbers):
    """The value of `info`: the head is a tuple for INFO_HEAD."""
    value = bytearray(pack(INFO_HEAD, *head))
    value.extend(text(version, _MAX_NAME))
    value.extend(text(name, _MAX_NAME))
    value.extend(text(crash, _MAX_CRASH))
    value.extend(rows(attributes, numbers, 0, MAX_VALUE - 4 - len(value)))
    value.extend(pack("<I", crc32(bytes(value))))
    return value


def program_crc(program):
    """With its own CRC first: in the order in which it stands, CRC-32 is the same for every program."""
    return crc32(program[:-4], crc32(program[-4:]))


def staged_crc(staged):
    """One sum over staged changes, {filter id: CRC-32 of its program, or None to drop it}, in order of their ids."""
    total = 0
    for wanted in sorted(staged):
        crc = staged[wanted]
        total = crc32(pack("<HBI", wanted, crc is not None, crc or 0), total)
    return total
