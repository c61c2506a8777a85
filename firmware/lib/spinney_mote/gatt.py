"""The GATT service of a mote: writes wait in a bounded queue for the main loop, events go out as the centrals ask.

`mote` is life.Life, for which the service speaks.
"""

from struct import pack, unpack_from

from . import owner, wire
from .programs import VERSION as PROGRAM_VERSION
from .ring import CRITICAL
from .upload import Upload

try:
    from micropython import const
except ImportError:
    const = int  # pyright: ignore[reportAssignmentType]  # CPython has no constants; an int stays what it is

MAX_CENTRALS = const(3)
MAX_WRITES = const(8)  # that wait for the main loop
MAX_WRITES_OF_ONE = const(4)
MAX_OWED = const(8)  # answers that found no room in the radio
EVENTS_AT_ONCE = const(4)
INFO_MS = const(1000)
INDICATION_MS = const(30000)
_BUFFER = const(256)
_TICKS = const(0x3FFFFFFF)
_NO_MEMORY = const(12)
_FLAG_READ = const(0x0002)
_FLAG_WRITE = const(0x0008)
_FLAG_NOTIFY = const(0x0010)
_FLAG_INDICATE = const(0x0020)
_FLAG_WRITE_ENCRYPTED = const(0x1000)
_FLAG_WRITE_AUTHENTICATED = const(0x2000)
_SIZES = {
    wire.ACK: 4, wire.REPLAY: 4, wire.DESCRIBE: 1, wire.CRASH: 2, wire.SAMPLING: 1, wire.PAIRING: 2, wire.LIST: 2,
    wire.BIND_KEY: 1, wire.SET_BIT: wire.SET_BIT_SIZE,
}  # fmt: skip
_MODE_FLAGS = (0, wire.ENCRYPTED, wire.PRESENCE)


class Central:
    """A connection."""

    def __init__(self, handle, now_ms):
        self.handle = handle
        self.mtu = 23
        self.trusted = False  # it may write
        self.refused = False  # it may not bond
        self.authenticated = False
        self.encrypted_ms = -1
        self.heard_ms = now_ms
        self.wants_events = False
        self.next_event = 0
        self.indicated_ms = -1  # since when an indication is under way


class Gatt:
    """`numbers` are the BTHome objects of the attributes; `bonds` is None where anyone may write."""

    def __init__(self, bluetooth, ble, mote, numbers, bonds=None, passkey=False):
        self._ble = ble
        self._mote = mote
        self._numbers = numbers
        self._bonds = bonds
        self.centrals: list = [None] * MAX_CENTRALS
        self._writes: list = [None] * MAX_WRITES
        self._first = 0
        self._next = 0
        self._owed: list = []
        self._upload = Upload(mote.change)
        self._info_ms = -1
        self._time_value = b""
        self.writes_dropped = 0
        self.writes_refused = 0
        self.answers_lost = 0
        self.not_sent = 0  # events that did not fit into what a central's MTU allows
        self._register(bluetooth, passkey)
        self.show_info()
        self.show_time()

    def _register(self, bluetooth, passkey):
        write = _FLAG_WRITE
        if self._bonds is not None:
            write |= _FLAG_WRITE_ENCRYPTED | (_FLAG_WRITE_AUTHENTICATED if passkey else 0)
        uuid = bluetooth.UUID
        parts = (
            (uuid(wire.FILTERS), write),
            (uuid(wire.EVENTS), _FLAG_NOTIFY | _FLAG_INDICATE),
            (uuid(wire.INFO), _FLAG_READ),
            (uuid(wire.TIME), _FLAG_READ | write),
            (uuid(wire.CONTROL), _FLAG_NOTIFY | write),
        )
        (handles,) = self._ble.gatts_register_services(((uuid(wire.SERVICE), parts),))
        self._filters, self._events, self._info, self._time, self._control = handles
        # 20 bytes unless set, and what is longer is cut off without a word
        self._ble.gatts_set_buffer(self._filters, _BUFFER)
        self._ble.gatts_set_buffer(self._time, 32)
        self._ble.gatts_set_buffer(self._info, wire.MAX_VALUE)
        self._ble.gatts_set_buffer(self._control, _BUFFER)

    # ---- called by interrupts

    def joined(self, handle, now_ms):
        """A central has connected; False if there are too many."""
        for place in range(MAX_CENTRALS):
            if self.centrals[place] is None:
                self.centrals[place] = Central(handle, now_ms)
                self._info_ms = -1
                return True
        return False

    def left(self, handle):
        """A central has gone."""
        for place in range(MAX_CENTRALS):
            central = self.centrals[place]
            if central is not None and central.handle == handle:
                self.centrals[place] = None
                self._upload.leave(central)

    def find(self, handle):
        """The central of a connection handle, or None."""
        for central in self.centrals:
            if central is not None and central.handle == handle:
                return central
        return None

    def written(self, handle, value_handle, now_ms):
        """Somebody wrote: the value must be taken before the next write, all else is for the main loop."""
        data = self._ble.gatts_read(value_handle)
        if value_handle == self._time:
            self._ble.gatts_write(self._time, self._time_value)  # what was written is not what is read
        central = self.find(handle)
        if central is None:
            return
        if self._next - self._first >= MAX_WRITES or self._waiting(central) >= MAX_WRITES_OF_ONE:
            self.writes_dropped += 1
            return
        self._writes[self._next % MAX_WRITES] = (central, value_handle, data, now_ms)
        self._next += 1

    def _waiting(self, central):
        count = 0
        for place in range(self._first, self._next):
            count += self._writes[place % MAX_WRITES][0] is central
        return count

    def indicated(self, handle, status):
        """An indication has arrived, or it has not: then it is sent again."""
        central = self.find(handle)
        if central is not None and central.indicated_ms >= 0:
            central.indicated_ms = -1
            if status == 0:
                central.next_event += 1

    # ---- called by the main loop

    def poll(self, now_ms):
        """Does what waits; True if there is more to do at once."""
        self._pay()
        count = 0
        while self._first < self._next and not self._owed:
            central, value_handle, data, at_ms = self._writes[self._first % MAX_WRITES]
            self._writes[self._first % MAX_WRITES] = None
            self._first += 1
            count += 1
            if central in self.centrals:
                central.heard_ms = now_ms
                self._take(central, value_handle, bytes(data), at_ms, now_ms)
        anyone = False
        for central in self.centrals:
            if central is not None:
                anyone = True
                if central.wants_events and not self._owed:  # an answer to REPLAY comes before what it asks for
                    self._send_events(central, now_ms)
        if anyone:
            self.show_time()
            if count or self._info_ms < 0 or (now_ms - self._info_ms) & _TICKS >= INFO_MS:
                self.show_info()
                self._info_ms = now_ms
        return self._first < self._next

    @property
    def pending(self):
        """Events that centrals asked for and that have not gone out; answers that have not."""
        count = len(self._owed) + self._next - self._first
        for central in self.centrals:
            if central is not None and central.wants_events:
                count += max(0, self._mote.ring.next - max(central.next_event, self._mote.ring.first))
        return count

    def _take(self, central, value_handle, data, at_ms, now_ms):
        if self._bonds is not None and not central.trusted:
            self.writes_refused += 1
            head = (data[0] & 0x7F, data[1]) if len(data) > 1 else (0, 0)
            self._answer(central, bytes((head[0], head[1], wire.NOT_ALLOWED)))
        elif value_handle == self._filters:
            reply = self._upload.write(central, data, now_ms, self._table_crc)
            self.writes_refused += reply[2] != wire.OK
            self._answer(central, reply)
        elif value_handle == self._time:
            self._set_time(data, at_ms, now_ms)
        elif value_handle == self._control:
            op, tag = (data[0], data[1]) if len(data) > 1 else (0, 0)
            status, payload = self._do(central, op, data[2:], now_ms)
            self.writes_refused += status != wire.OK
            self._answer(central, bytes((op & 0x7F, tag, status)) + payload)

    def _table_crc(self):
        return self._mote.table.crc

    def _set_time(self, data, at_ms, now_ms):
        epoch_ms = unpack_from(wire.TIME_WRITE, data, 0)[0] if len(data) == 8 else -1
        if 0 < epoch_ms < 1 << 43:  # the year 2248
            self._mote.clock.set(epoch_ms + ((now_ms - at_ms) & _TICKS))
        else:
            self.writes_refused += 1
        self.show_time()

    def _do(self, central, op, payload, now_ms):
        """A control write: the status and the bytes of its answer."""
        size = _SIZES.get(op)
        if size is not None and len(payload) != size:
            return wire.MALFORMED, b""
        if op == wire.ACK:
            self._mote.ring.ack(unpack_from("<I", payload, 0)[0])
        elif op == wire.REPLAY:
            return self._replay(central, unpack_from("<I", payload, 0)[0])
        elif op == wire.QUIET:
            central.wants_events = False
        elif op == wire.DESCRIBE:
            return wire.OK, wire.rows(self._mote.attributes, self._numbers, payload[0], central.mtu - 6)
        elif op == wire.LIST:
            first = unpack_from("<H", payload, 0)[0]
            return wire.OK, wire.filter_rows(self._mote.table.programs(), first, central.mtu - 6)
        elif op == wire.CRASH:
            at = unpack_from("<H", payload, 0)[0]
            return wire.OK, self._mote.last_crash.encode()[at : at + central.mtu - 6]
        elif op == wire.PAIRING or op == wire.FORGET:
            return self._pair(op, payload, now_ms)
        elif op == wire.ADVERTS:
            return owner.adverts(self._mote, payload)
        elif op == wire.SET_BIT:
            return owner.bit(self._mote, payload)
        elif op == wire.BIND_KEY:
            knows = self._bonds is not None and central.authenticated and central.encrypted_ms >= 0
            return owner.bind_key(self._mote.key, payload[0], knows)
        elif op == wire.SAMPLING or op == wire.REBOOT or op == wire.OTA:
            return self._mote.control(op, payload)
        elif op != wire.PING:
            return wire.UNKNOWN_OP, b""
        return wire.OK, b""

    def _replay(self, central, number):
        events = self._mote.ring
        # a number from a ring that is no more asks for all there is
        central.next_event = number if events.first <= number <= events.next else events.first
        central.wants_events = True
        central.indicated_ms = -1
        return wire.OK, pack("<II", central.next_event, events.next)

    def _pair(self, op, payload, now_ms):
        if self._bonds is None:
            return wire.REFUSED, b"this mote does not bond"
        if op == wire.FORGET:
            self._bonds.forget()
        else:
            self._bonds.open(unpack_from("<H", payload, 0)[0], now_ms)
        return wire.OK, b""

    # ---- out

    def _answer(self, central, data):
        if not self._notify(central, self._control, data):
            if len(self._owed) < MAX_OWED:
                self._owed.append((central, data))
            else:
                self.answers_lost += 1

    def _pay(self):
        while self._owed:
            central, data = self._owed[0]
            if central in self.centrals and not self._notify(central, self._control, data):
                return
            self._owed.pop(0)

    def _notify(self, central, value_handle, data):
        """False if the radio has no room now."""
        try:
            self._ble.gatts_notify(central.handle, value_handle, data[: central.mtu - 3])
        except OSError as error:
            return error.args[0] != _NO_MEMORY  # else it is gone, and an interrupt says so
        return True

    def _send_events(self, central, now_ms):
        """The next events, in order, an indicated one alone."""
        events = self._mote.ring
        uptime = self._mote.clock.advance() // 1000
        if central.indicated_ms >= 0 and (now_ms - central.indicated_ms) & _TICKS < INDICATION_MS:
            return
        central.indicated_ms = -1
        for _ in range(EVENTS_AT_ONCE):
            central.next_event = max(central.next_event, events.first)
            event = events.read(central.next_event, uptime)
            if event is None:
                return
            if len(event) > central.mtu - 3:
                self.not_sent += 1
                return  # until the central has asked for a larger MTU
            if event[18] & CRITICAL:
                self._indicate(central, event, now_ms)
                return
            if not self._notify(central, self._events, event):
                return
            central.next_event += 1
            central.heard_ms = now_ms

    def _indicate(self, central, event, now_ms):
        central.indicated_ms = now_ms
        try:
            self._ble.gatts_indicate(central.handle, self._events, event)
        except OSError:
            central.indicated_ms = -1

    # ---- what can be read

    def show_time(self):
        """Brings the value of `time` up to date."""
        clock = self._mote.clock
        epoch_ms = clock.epoch_ms()
        value = (0, 0, 0) if epoch_ms is None else (1, epoch_ms, clock.drift_ppm)
        self._time_value = pack(wire.TIME_VALUE, *value)
        self._ble.gatts_write(self._time, self._time_value)

    def show_info(self):
        """Brings `info` up to date; at each sample, too, since a central may read it before the main loop looks."""
        mote = self._mote
        events = mote.ring
        self._ble.gatts_write(
            self._info,
            wire.info(
                (
                    wire.VERSION,
                    PROGRAM_VERSION,
                    mote.table.layout,
                    mote.sample.boot,
                    mote.sample.sequence,
                    mote.table.crc,
                    events.first,
                    events.next,
                    events.dropped,
                    self.writes_refused + self.writes_dropped,
                    mote.battery(),
                    mote.free_heap(),
                    mote.boot_cause,
                    self._flags(),
                    len(mote.attributes),
                ),
                mote.version,
                mote.name,
                mote.last_crash,
                mote.attributes,
                self._numbers,
            ),
        )

    def _flags(self):
        mode = self._mote.modes.mode
        flags = wire.ADVERT_MODES | _MODE_FLAGS[mode] | (wire.SLEEPS if self._mote.sleeps else 0)
        flags |= wire.SAMPLING_ON if self._mote.sampling else 0
        if self._mote.clock.is_set:
            flags |= wire.TIME_SET
        if self._bonds is not None:
            flags |= wire.BONDED_WRITES | (wire.PAIRING_OPEN if self._bonds.is_open() else 0)
        return flags
