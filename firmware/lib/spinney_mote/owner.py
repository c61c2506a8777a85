"""What the broker that owns a mote sets over GATT: what is advertised, the key for that, and bits that it knows."""

from struct import unpack_from

from . import table, wire
from .programs import number


def adverts(mote, payload):
    """Sets and renews the mode, or asks where there is no payload; a status and the bytes of the answer."""
    if payload:
        if len(payload) != wire.ADVERTS_WRITE_SIZE:
            return wire.MALFORMED, b""
        mode, after, crc = unpack_from(wire.ADVERTS_WRITE, payload, 0)
        if mote.modes.fixed:
            return wire.REFUSED, b"advert_mode is set in mote.toml"
        if crc != mote.table.crc & 0xFFFFFFFF:
            return wire.REFUSED, b"the filter table is another one"
        try:
            mote.modes.set(mode, after)
        except OSError as error:
            return wire.REFUSED, b"the flash takes no mode: error %d" % error.args[0]
    return wire.OK, mote.modes.state()


def bind_key(key, what, knows):
    """Reads, makes or forgets the key; `knows`: the central is bonded, and typed the passkey for it."""
    if not knows:
        return wire.NOT_ALLOWED, b""
    try:
        if what == wire.KEY_NEW:
            key.renew()
        elif what == wire.KEY_FORGET:
            key.forget()
        elif what != wire.KEY_READ:
            return wire.MALFORMED, b""
    except OSError as error:
        return wire.REFUSED, b"the flash takes no key: error %d" % error.args[0]
    return wire.OK, key.key


def bit(mote, payload):
    """Writes down what the owner knows the bit of a filter to be after the newest event (rule S2)."""
    wanted, epoch, newest, value = unpack_from(wire.SET_BIT_WRITE, payload, 0)
    if value > 1:
        return wire.MALFORMED, b""
    image = mote.table.image
    at = mote.table.find(wanted)
    if not at or image[at + table.ENTRY] < 2 or number(image, at + table.ENTRY + 6, 4) != epoch:
        return wire.REFUSED, b"no such filter of this owner"
    if image[at + 2] & table.KNOWN:
        return wire.REFUSED, b"the bit is known"
    if mote.ring.next - 1 != newest:
        return wire.REFUSED, b"the newest event is another one"
    image[at + 2] |= table.KNOWN | (table.BIT if value else 0)
    return wire.OK, b""
