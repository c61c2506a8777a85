"""What the broker that owns a mote sets over GATT: what is advertised, and the key that it is encrypted with."""

from struct import unpack_from

from . import wire


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
