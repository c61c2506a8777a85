"""The key of encrypted adverts, and their counter, which never repeats under it.

Counters are taken from flash in blocks, before one of them is used: a loss of power leaves some out. Deep sleep keeps
the place in its block. A key whose counter is lost or has come to its end is used no more.
"""

from binascii import crc32
from struct import pack, unpack

NAME = "bindkey"
KEY_BYTES = 16
RESERVED = 4096  # counters taken by one write of flash
MOST = 0xFFFFFFFF
_FILE = "<16sI"  # the key, and the first counter that is not taken yet
_PLACE = "<II"
PLACE_BYTES = 8


class BindKey:
    """`store` has get(name), put(name, bytes) and remove(name)."""

    def __init__(self, store):
        self._store = store
        self.key = b""
        self._next = 0
        self._end = 0
        self.is_spent = False  # the counter has come to its end, or cannot be taken
        data = store.get(NAME)
        if data is not None and len(data) == KEY_BYTES + 4:
            self.key, self._end = unpack(_FILE, data)
            self._next = self._end

    @property
    def usable(self):
        """Whether adverts can be encrypted."""
        return bool(self.key) and not self.is_spent

    def place(self):
        """What `wake` needs after deep sleep."""
        return pack(_PLACE, crc32(self.key), self._next)

    def wake(self, place):
        """Goes on where `place` was, if that was with this key and in this block."""
        mark, following = unpack(_PLACE, place)
        if mark == crc32(self.key) and self._end - RESERVED <= following <= self._end:
            self._next = following

    def take(self):
        """A counter that no advert had under this key, None where there is none."""
        if not self.usable:
            return None
        if self._next >= self._end and not self._reserve():
            self.is_spent = True
            return None
        self._next += 1
        return self._next - 1

    def _reserve(self):
        end = self._next + RESERVED
        if end > MOST:
            return False
        try:
            self._store.put(NAME, pack(_FILE, self.key, end))
        except OSError:
            return False  # the flash takes nothing
        self._end = end
        return True

    def renew(self):
        """Another key, by chance; the counter starts anew."""
        from os import urandom

        key = urandom(KEY_BYTES)
        self._store.put(NAME, pack(_FILE, key, 0))
        self.key = key
        self._next = self._end = 0
        self.is_spent = False

    def forget(self):
        """No key any longer."""
        self._store.remove(NAME)
        self.key = b""
