"""What a mote advertises of itself: all in the open, encrypted, or only that it is there.

The configuration fixes the mode, or the broker that owns the mote sets it and renews that at its visits. Without it for
`open_after` the mote falls back. All of it outlives a loss of power; renewing writes no flash.
"""

from struct import pack, unpack

try:
    from micropython import const
except ImportError:
    const = int  # pyright: ignore[reportAssignmentType]  # CPython has no constants; an int stays what it is

OPEN = const(0)
ENCRYPTED = const(1)
PRESENCE = const(2)
NAMES = ("open", "encrypted", "presence")
AS_CONFIGURED = const(0xFFFFFFFF)
NEVER = const(0xFFFFFFFF)
FIXED = const(1)
HAS_KEY = const(2)
FALLEN = const(4)
KEY_SPENT = const(8)
STATE = "<BBBBII"
"""Mode in force, mode that was set, bits, 0, open_after, seconds since it was renewed."""
NAME = "adverts"
_FILE = "<BBI"  # mode, quarters of open_after that have passed, open_after
_QUARTERS = const(4)


class Modes:
    """`key` is bindkey.BindKey. Time that has passed since the last visit is written in quarters, for resets."""

    def __init__(self, config, store, clock, key):
        self._config = config
        self._store = store
        self._clock = clock
        self._key = key
        self._set = OPEN
        self._after = AS_CONFIGURED
        self._quarters = 0
        self._renewed_ms = None  # by the mote's own clock; None: no broker ever said anything
        data = store.get(NAME)
        if data is not None and len(data) == 6:
            self._set, self._quarters, self._after = unpack(_FILE, data)

    def begin(self, renewed_ms=None):
        """After the clock has started; `renewed_ms` is what `renewed_ms` was before a deep sleep."""
        if self._store.get(NAME) is None:
            return
        if renewed_ms is None:
            renewed_ms = self._clock.advance() - self.open_after * 1000 * self._quarters // _QUARTERS
        self._renewed_ms = renewed_ms

    @property
    def renewed_ms(self):
        """When a broker last set or renewed the mode, None where none did."""
        return self._renewed_ms

    @property
    def open_after(self):
        """Seconds without a renewal until the mote falls back; 0: never."""
        return self._config.open_after if self._after == AS_CONFIGURED else self._after

    @property
    def fixed(self):
        """Whether the configuration says which."""
        return bool(self._config.advert_mode)

    @property
    def has_fallen(self):
        """Whether the broker that wanted mere presence has been away for too long."""
        return not self.fixed and self._set == PRESENCE and bool(self.open_after) and self._quarters >= _QUARTERS

    @property
    def mode(self):
        """What is in force. A mode of a later version is open; encrypted without a key is presence."""
        mode = NAMES.index(self._config.advert_mode) if self.fixed else self._set
        if self.has_fallen:
            mode = NAMES.index(self._config.fallback)
        if mode == ENCRYPTED and not self._key.usable:
            return PRESENCE
        return mode if mode <= PRESENCE else OPEN

    def set(self, mode, after):
        """What the broker that owns the mote wants, and that it is there. OSError where the flash takes nothing."""
        self._set = mode if mode <= PRESENCE else OPEN
        self._after = after
        self._quarters = 0
        self._renewed_ms = self._clock.advance()
        self._save()

    def watch(self, now):
        """Sees to it that time without a visit is not forgotten; to be called often."""
        if self._renewed_ms is None or self._set != PRESENCE or not self.open_after or self._quarters >= _QUARTERS:
            return
        quarters = (now - self._renewed_ms) * _QUARTERS // (self.open_after * 1000)
        if quarters > self._quarters:
            self._quarters = min(quarters, _QUARTERS)
            try:
                self._save()
            except OSError:
                return  # then a reset makes it later

    def _save(self):
        self._store.put(NAME, pack(_FILE, self._set, self._quarters, self._after))

    def state(self):
        """For whoever asks."""
        bits = (FIXED if self.fixed else 0) | (FALLEN if self.has_fallen else 0)
        bits |= (HAS_KEY if self._key.key else 0) | (KEY_SPENT if self._key.is_spent else 0)
        since = NEVER
        if self._renewed_ms is not None:
            since = min(max(0, self._clock.advance() - self._renewed_ms) // 1000, NEVER - 1)
        return pack(STATE, self.mode, self._set, bits, 0, self.open_after, since)
