"""What a mote advertises: a sample as BTHome v2 in 31 bytes, plain or encrypted, and the scan response that says
whether to connect.

Formats in firmware/README.md; BTHome's are published at bthome.io/format.
"""

from struct import pack_into

from . import ccm

SIZE = 31
_HEAD = b"\x02\x01\x06\x00\x16\xd2\xfc"  # flags; service data of 0xFCD2
_PLAIN = b"\x40"  # version 2, regular, not encrypted
_ENCRYPTED = b"\x41"
ROOM = 31 - 8 - 2  # for rows, after the packet id
ENCRYPTED_ROOM = ROOM - 4 - ccm.TAG  # the counter and the tag

COMPANY = 0xFFFF  # Bluetooth's number for those that have none
SCAN_VERSION = 0x51
SCAN = "<BBHBIHHHB"
"""Size, AD type, company, version, CRC of the filter table, last event (16 bits), boot (16), sequence (24)."""
SCAN_SIZE = 16

NOT_SENT = 0xFF  # the object of an attribute that BTHome has no name for

_OBJECTS = (
    # name, unit, object id, bytes (negative: signed), value = raw * p / q
    ("battery", "%", 0x01, 1, 1, 1),
    ("temperature", "C", 0x02, -2, 1, 100),
    ("humidity", "%", 0x03, 2, 1, 100),
    ("pressure", "hPa", 0x04, 3, 1, 100),
    ("illuminance", "lx", 0x05, 3, 1, 100),
    ("mass", "kg", 0x06, 2, 1, 100),
    ("dew_point", "C", 0x08, -2, 1, 100),
    ("energy", "kWh", 0x0A, 3, 1, 1000),
    ("power", "W", 0x0B, 3, 1, 100),
    ("voltage", "V", 0x0C, 2, 1, 1000),
    ("pm25", "ug/m3", 0x0D, 2, 1, 1),
    ("pm10", "ug/m3", 0x0E, 2, 1, 1),
    ("boolean", "", 0x0F, 1, 1, 1),
    ("opening", "", 0x11, 1, 1, 1),
    ("co2", "ppm", 0x12, 2, 1, 1),
    ("tvoc", "ug/m3", 0x13, 2, 1, 1),
    ("moisture", "%", 0x14, 2, 1, 100),
    ("door", "", 0x1A, 1, 1, 1),
    ("light", "", 0x1E, 1, 1, 1),
    ("motion", "", 0x21, 1, 1, 1),
    ("occupancy", "", 0x23, 1, 1, 1),
    ("presence", "", 0x25, 1, 1, 1),
    ("smoke", "", 0x29, 1, 1, 1),
    ("vibration", "", 0x2C, 1, 1, 1),
    ("window", "", 0x2D, 1, 1, 1),
    ("count", "", 0x3D, 2, 1, 1),
    ("count", "", 0x3E, 4, 1, 1),
    ("rotation", "deg", 0x3F, -2, 1, 10),
    ("distance", "mm", 0x40, 2, 1, 1),
    ("distance", "m", 0x41, 2, 1, 10),
    ("duration", "s", 0x42, 3, 1, 1000),
    ("current", "A", 0x43, 2, 1, 1000),
    ("speed", "m/s", 0x44, 2, 1, 100),
    ("temperature", "C", 0x45, -2, 1, 10),
    ("uv_index", "", 0x46, 1, 1, 10),
    ("volume", "L", 0x47, 2, 1, 10),
    ("voltage", "V", 0x4A, 2, 1, 10),
    ("gas", "m3", 0x4C, 4, 1, 1000),
    ("energy", "kWh", 0x4D, 4, 1, 1000),
    ("volume", "L", 0x4E, 4, 1, 1000),
    ("water", "L", 0x4F, 4, 1, 1000),
    ("acceleration", "m/s2", 0x51, 2, 1, 1000),
    ("conductivity", "uS/cm", 0x56, 2, 1, 1),
    ("count", "", 0x5B, -4, 1, 1),
    ("power", "W", 0x5C, -4, 1, 100),
    ("current", "A", 0x5D, -2, 1, 1000),
    ("direction", "deg", 0x5E, 2, 1, 100),
    ("precipitation", "mm", 0x5F, 2, 1, 10),
)
_ALIASES = (
    ("temp", "temperature"),
    ("rh", "humidity"),
    ("pm2_5", "pm25"),
    ("pm2.5", "pm25"),
    ("co_2", "co2"),
    ("lux", "illuminance"),
)
_UNITS = (
    # unit, the table's, times p / q
    ("°C", "C", 1, 1),
    ("Cel", "C", 1, 1),
    ("Pa", "hPa", 1, 100),
    ("kPa", "hPa", 10, 1),
    ("mbar", "hPa", 1, 1),
    ("lux", "lx", 1, 1),
    ("µg/m³", "ug/m3", 1, 1),
    ("µg/m3", "ug/m3", 1, 1),
    ("mg/m3", "ug/m3", 1000, 1),
    ("mV", "V", 1, 1000),
    ("mA", "A", 1, 1000),
    ("g", "kg", 1, 1000),
    ("Wh", "kWh", 1, 1000),
    ("kW", "W", 1000, 1),
    ("ms", "s", 1, 1000),
    ("cm", "mm", 10, 1),
    ("km/h", "m/s", 10, 36),
    ("°", "deg", 1, 1),
)


def object_for(name, unit, p, q, low, high):
    """(row, p, q): the first object of this name that holds all raw values from low to high, and the scale in its unit.

    None if BTHome has none, or not in this unit. A name may be numbered: temperature_2 is a temperature.
    """
    wanted = _meant(name.lower())
    for known, meant, times, by in _UNITS:
        if unit == known:
            unit, p, q = meant, p * times, q * by
    for row in _OBJECTS:
        if row[0] == wanted and unit in (row[1], "") and _fits(row, p, q, low) and _fits(row, p, q, high):
            return row, p, q
    return None


def _meant(wanted):
    for alias, meant in _ALIASES:
        if wanted == alias:
            return meant
    head, _, tail = wanted.rpartition("_")
    return head if head and tail.isdigit() else wanted


def objects():
    """The table: name, unit, object id, bytes (negative: signed), p, q."""
    return _OBJECTS


def scaled(raw, p, q, row):
    """A raw value in an object's own scale, rounded to the nearest, halves up."""
    below = q * row[4]
    return (2 * raw * p * row[5] + below) // (2 * below)


def _fits(row, p, q, raw):
    value = scaled(raw, p, q, row)
    bits = 8 * abs(row[3])
    if row[3] < 0:
        return -(1 << bits - 1) <= value < 1 << bits - 1
    return 0 <= value < 1 << bits


class Advert:
    """The rows of a mote's attributes (sensor.Attribute); `fill` makes the payload of a sample.

    Equal objects go together or not at all: a host tells them apart by their place only.
    """

    def __init__(self, attributes):
        self._groups = _groups(attributes)
        self._last = {}
        self._cursor = 0
        self.left_out = 0  # rows that did not fit, in all adverts

    def objects(self, count):
        """The object id of each attribute, NOT_SENT without one."""
        found = bytearray([NOT_SENT] * count)
        for number, members in self._groups:
            for index, _, _, _ in members:
                found[index] = number
        return found

    def fill(self, sample):
        """The advert of a sample: changed rows first, the others in turn, as far as there is room."""
        return _framed(_PLAIN + self._rows(sample, ROOM))

    def seal(self, sample, block, address, counter):
        """The same, encrypted: `block` is ccm.cipher's, `address` the mote's. No counter may come twice under a key."""
        number = counter.to_bytes(4, "little")
        nonce = address + _HEAD[-2:] + _ENCRYPTED + number
        sealed = ccm.seal(block, nonce, self._rows(sample, ENCRYPTED_ROOM))
        return _framed(_ENCRYPTED + sealed[: -ccm.TAG] + number + sealed[-ccm.TAG :])

    def _rows(self, sample, room):
        rows = bytearray((0, sample.sequence & 0xFF))
        chosen = self._choose(sample, room)
        for place in range(len(self._groups)):
            if chosen >> place & 1:
                for index, p, q, row in self._groups[place][1]:
                    _append(rows, row, scaled(sample.value(index), p, q, row))
        return bytes(rows)

    def sizes(self):
        """[(bytes, indexes)...] of what goes together, for whoever asks what fits."""
        return [(_size(members), [member[0] for member in members]) for _, members in self._groups]

    def _choose(self, sample, room):
        """A bit for each group that is sent."""
        chosen = 0
        count = len(self._groups)
        for changed in (True, False):
            for step in range(count):
                place = (self._cursor + step) % count
                number, members = self._groups[place]
                if chosen >> place & 1 or not _is_there(sample, members):
                    continue
                if changed and self._last.get(number) == _values(sample, members):
                    continue
                size = _size(members)
                if size <= room:
                    chosen |= 1 << place
                    room -= size
                    self._last[number] = _values(sample, members)
                elif not changed:
                    self.left_out += len(members)
        if count:
            self._cursor = (self._cursor + 1) % count
        return chosen


def _framed(data):
    payload = bytearray(_HEAD)
    payload.extend(data)
    payload[3] = len(payload) - 4
    return payload


def _groups(attributes):
    """[(object id, [(index, p, q, row)...])...], ascending."""
    found = {}
    for index in range(len(attributes)):
        of = attributes[index]
        choice = object_for(of.kind or of.name, of.unit, of.p, of.q, of.low, of.high)
        if choice is not None:
            row, p, q = choice
            found.setdefault(row[2], []).append((index, p, q, row))
    return [(number, found[number]) for number in sorted(found)]


def _is_there(sample, members):
    return all(sample.present >> member[0] & 1 for member in members)


def _values(sample, members):
    return [sample.value(member[0]) for member in members]


def _size(members):
    return len(members) * (1 + abs(members[0][3][3]))


def _append(payload, row, value):
    payload.append(row[2])
    for _ in range(abs(row[3])):
        payload.append(value & 0xFF)
        value >>= 8


def scan_response(name, crc, event, boot, sequence):
    """Name, CRC of the filter table, number of the last event, and which sample the advert is (rule I1)."""
    text = name.encode()
    room = SIZE - SCAN_SIZE - 2
    payload = bytearray(SCAN_SIZE)
    pack_into(SCAN, payload, 0, SCAN_SIZE - 1, 0xFF, COMPANY, SCAN_VERSION, crc & 0xFFFFFFFF, event & 0xFFFF,
              boot & 0xFFFF, sequence & 0xFFFF, sequence >> 16 & 0xFF)  # fmt: skip
    if text:
        short = _cut(text, room)
        payload.append(len(short) + 1)
        payload.append(9 if len(short) == len(text) else 8)
        payload.extend(short)
    return payload


def _cut(text, room):
    """At most `room` bytes, and no half of a character."""
    if len(text) <= room:
        return text
    while room and text[room] & 0xC0 == 0x80:
        room -= 1
    return text[:room]
