"""The radio of a mote: adverts, connections, bonds. Interrupts note down what happened, `poll` does what follows."""

from . import ccm, modes, presence, wire
from .bonds import Bonds
from .bthome import Advert, scan_response
from .gatt import MAX_CENTRALS, Gatt

try:
    from micropython import const
except ImportError:
    const = int  # pyright: ignore[reportAssignmentType]  # CPython has no constants; an int stays what it is

_CENTRAL_CONNECT = const(1)
_CENTRAL_DISCONNECT = const(2)
_GATTS_WRITE = const(3)
_GATTS_READ_REQUEST = const(4)
_GATTS_INDICATE_DONE = const(20)
_MTU_EXCHANGED = const(21)
_ENCRYPTION_UPDATE = const(28)
_GET_SECRET = const(29)
_SET_SECRET = const(30)
_PASSKEY_ACTION = const(31)
_PASSKEY_INPUT = const(2)
_PASSKEY_DISPLAY = const(3)
_PASSKEY_COMPARE = const(4)
_DISPLAY_ONLY = const(0)
_NO_INPUT_OUTPUT = const(3)
_TICKS = const(0x3FFFFFFF)

STRANGER_MS = const(30000)  # how long a central that may not write keeps a connection without a word
IDLE_MS = const(300000)  # and one that may
BURST_MS = const(5000)  # a bond and the encryption that came with it are no further apart
PASSKEY_MS = const(60000)  # nor is a bond from the question for its passkey
NEWS_MS = const(5000)  # for how long a new event makes the adverts come fast


class Radio:
    """`bluetooth` is the board's module, `mote` is life.Life, `store` keeps the bonds.

    With a passkey (0 to 999999) only who knows it can bond; without, whoever comes while pairing is open.
    """

    def __init__(self, bluetooth, mote, store, ticks_ms, bonded_writes=True, passkey=None, pairing_s=120):
        self._bluetooth = bluetooth
        self._mote = mote
        self._ticks_ms = ticks_ms
        self._passkey = passkey
        self._bonds = Bonds(store, ticks_ms, pairing_s) if bonded_writes else None
        self._advert = Advert(mote.attributes)
        self._sample = None  # what is advertised, or why it is not
        self._payload = b""
        self._mode = -1  # that the payload was made for
        self._shown = None  # what the radio was told to advertise
        self._news_ms = -1  # when the newest event was made
        self._newest = 0
        self._ble = bluetooth.BLE()
        self.gatt: Gatt | None = None
        self._asked_ms = -1  # when the stack last asked for the passkey
        self.turned_away = 0  # centrals that were too many, idle, or strangers that bonded

    def start(self):
        """Switches the radio on; nothing is advertised until a sample is shown."""
        ble = self._ble
        ble.irq(self._irq)
        ble.active(True)
        ble.config(gap_name=self._mote.name, mtu=wire.MTU)
        if self._bonds is not None:
            try:
                # authenticated only where somebody compares something
                ble.config(bond=True, le_secure=True, mitm=self._passkey is not None)
                ble.config(io=_NO_INPUT_OUTPUT if self._passkey is None else _DISPLAY_ONLY)
            except (ValueError, OSError):
                self._bonds = None  # this board cannot bond: then anyone may write
        numbers = self._advert.objects(len(self._mote.attributes))
        passkey = self._passkey is not None
        self.gatt = Gatt(self._bluetooth, ble, self._mote, numbers, self._bonds, passkey)

    def stop(self):
        """Switches the radio off; what is bonded is kept."""
        if self.gatt is None:
            return
        if self._bonds is not None:
            self._bonds.save()
        self._ble.active(False)
        self.gatt = None
        self._shown = None

    def show(self, sample):
        """Advertises a new sample from now on, or that the mote is there; switches the radio on if need be."""
        if self.gatt is None:
            self.start()
        self._sample = sample
        self._mode = -1
        self._tell()
        if self.gatt is not None:
            self.gatt.show_info()

    def poll(self):
        """Does what waits; to be called often while the mote is awake. True if there is more to do at once."""
        if self.gatt is None:
            return False
        now_ms = self._ticks_ms()
        more = self.gatt.poll(now_ms)
        self._turn_away(now_ms)
        self._tell()
        if self._bonds is not None:
            self._bonds.save()
        return more

    @property
    def busy(self):
        """Whether somebody is connected."""
        return self._count() > 0

    def _count(self):
        if self.gatt is None:
            return 0
        return sum(1 for central in self.gatt.centrals if central is not None)

    def _tell(self):
        """Brings the radio's advert up to date: it ends with each connection, and only a free place takes another."""
        if self._sample is None or self.gatt is None:
            return
        mote = self._mote
        connectable = self._count() < MAX_CENTRALS
        events = mote.ring
        mode = self._fill()
        sequence = 0 if mode == modes.PRESENCE else mote.sample.sequence
        response = scan_response(mote.name, mote.table.crc, events.next - 1, mote.sample.boot, sequence)
        wanted = (self._payload, response, connectable, self._interval_ms(mode))
        if wanted != self._shown:
            try:
                self._ble.gap_advertise(
                    wanted[3] * 1000, adv_data=self._payload, resp_data=response, connectable=connectable
                )
                self._shown = wanted
            except OSError:
                self._shown = None  # the stack is busy with a connection: again at the next poll

    def _fill(self):
        """The payload of the mode in force, which is given back: of a sample once, of mere presence as it changes."""
        mote = self._mote
        mode = mote.modes.mode
        if mode == modes.ENCRYPTED and mode != self._mode:
            self._payload = self._sealed()
            mode = mote.modes.mode  # of another mote if the key's counter has come to its end just now
        elif mode == modes.OPEN and mode != self._mode:
            self._payload = self._advert.fill(self._sample)
        if mode == modes.PRESENCE:
            bits = presence.EVENTS if mote.ring.first < mote.ring.next else 0
            bits |= 0 if mote.clock.is_set else presence.CLOCK_UNSET
            self._payload = presence.advert(mote.name, mote.battery(), mote.table.crc, bits)
        self._mode = mode
        return mode

    def _sealed(self):
        """None where nothing can be encrypted; then that is so from now on."""
        key = self._mote.key
        counter = key.take()
        if counter is None:
            return None
        address = bytes(self._ble.config("mac")[1])
        return self._advert.seal(self._sample, ccm.cipher(key.key), address, counter)

    def _interval_ms(self, mode):
        """A mote that sleeps is on the air for a moment, one that has nothing to say is seldom; both may be told."""
        config = self._mote.config
        if self._mote.sleeps:
            return min(config.advert_interval_ms, config.advert_fast_ms)
        if mode != modes.PRESENCE:
            return config.advert_interval_ms
        events = self._mote.ring
        if events.next != self._newest:
            self._newest = events.next
            self._news_ms = self._ticks_ms()
        if events.first == events.next:
            return max(config.advert_interval_ms, config.advert_idle_ms)
        if (self._ticks_ms() - self._news_ms) & _TICKS < NEWS_MS:
            return min(config.advert_interval_ms, config.advert_fast_ms)
        return config.advert_interval_ms

    def _turn_away(self, now_ms):
        """Ends connections that only take up room."""
        for central in self.gatt.centrals if self.gatt is not None else ():
            if central is None:
                continue
            limit_ms = IDLE_MS if self._bonds is None or central.trusted else STRANGER_MS
            if (now_ms - central.heard_ms) & _TICKS >= limit_ms:
                central.heard_ms = now_ms
                self._drop(central.handle)

    def _drop(self, handle):
        self.turned_away += 1
        try:
            self._ble.gap_disconnect(handle)
        except OSError:
            return  # it is gone already

    # ---- interrupts

    def _irq(self, event, data):
        gatt = self.gatt
        if event == _GET_SECRET:
            return self._bonds.get(*data) if self._bonds is not None else None
        if event == _SET_SECRET:
            return self._set_secret(*data)
        if gatt is None:
            return None
        if event == _GATTS_WRITE:
            gatt.written(data[0], data[1], self._ticks_ms())
        elif event == _GATTS_READ_REQUEST:
            return 0
        elif event == _CENTRAL_CONNECT:
            self._shown = None
            if not gatt.joined(data[0], self._ticks_ms()):
                self._drop(data[0])
        elif event == _CENTRAL_DISCONNECT:
            gatt.left(data[0])
        elif event == _MTU_EXCHANGED:
            central = gatt.find(data[0])
            if central is not None:
                central.mtu = min(data[1], wire.MTU)
        elif event == _GATTS_INDICATE_DONE:
            gatt.indicated(data[0], data[2])
        elif event == _ENCRYPTION_UPDATE:
            self._encrypted(data[0], data[1], data[2], data[3])
        elif event == _PASSKEY_ACTION:
            self._answer_passkey(data[0], data[1])
        return None

    def _set_secret(self, kind, key, value):
        if self._bonds is None:
            return False
        now_ms = self._ticks_ms()
        asked = self._passkey is None or self._is_recent(self._asked_ms, now_ms, PASSKEY_MS)
        refused = self._bonds.refused
        kept = self._bonds.set(kind, key, value, asked)
        if self._bonds.refused != refused:
            self._refuse(now_ms)
        elif kept and value is not None:
            self._accept(now_ms)
        return kept

    def _accept(self, now_ms):
        """A bond was made: that is about the connection that was encrypted just now, or will be at once."""
        for central in self.gatt.centrals if self.gatt is not None else ():
            if central is not None and self._is_recent(central.encrypted_ms, now_ms, BURST_MS):
                central.trusted = central.authenticated or self._passkey is None

    def _refuse(self, now_ms):
        """A bond was refused; which connection it was for is not said, so all that it may be are ended."""
        for central in self.gatt.centrals if self.gatt is not None else ():
            if central is None:
                continue
            if central.encrypted_ms < 0:
                central.refused = True  # its encryption is still to come
            elif self._is_recent(central.encrypted_ms, now_ms, BURST_MS):
                central.trusted = False
                self._drop(central.handle)

    def _encrypted(self, handle, encrypted, authenticated, bonded):
        central = self.gatt.find(handle) if self.gatt is not None else None
        if central is None or self._bonds is None:
            return
        now_ms = self._ticks_ms()
        central.encrypted_ms = now_ms if encrypted else -1
        central.authenticated = bool(authenticated)
        central.heard_ms = now_ms
        if central.refused:
            central.trusted = False
            self._drop(handle)
            return
        known = bonded or self._is_recent(self._bonds.accepted_ms, now_ms, BURST_MS)
        central.trusted = bool(encrypted and known and (authenticated or self._passkey is None))

    def _is_recent(self, at_ms, now_ms, limit_ms):
        return at_ms >= 0 and (now_ms - at_ms) & _TICKS < limit_ms

    def _answer_passkey(self, handle, action):
        self._asked_ms = self._ticks_ms()
        if self._passkey is not None and action in (_PASSKEY_INPUT, _PASSKEY_DISPLAY):
            self._ble.gap_passkey(handle, action, self._passkey)
        elif action == _PASSKEY_COMPARE:
            self._ble.gap_passkey(handle, action, 0)  # nobody is there who could compare
