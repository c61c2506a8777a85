"""Who may write: the keys of bonded centrals, as the radio's stack hands them over, and when others may bond."""

from struct import pack, unpack_from

try:
    from micropython import const
except ImportError:
    const = int  # pyright: ignore[reportAssignmentType]  # CPython has no constants; an int stays what it is

NAME = "bonds"
MAX_SECRETS = const(16)
MAX_SECRET = const(255)
_PAIRED = (1, 2)  # kinds of secrets that make a bond: ours and the peer's, in NimBLE's words
_TICKS = const(0x3FFFFFFF)


class Bonds:
    """Answers the stack's questions from memory; the file is written by the main loop, when something has changed.

    `store` has get(name) and put(name, bytes). New centrals may bond while it is open: for `open_s` seconds after the
    start, when a bonded central says so, and as long as there is no bond at all.
    """

    def __init__(self, store, ticks_ms, open_s=120):
        self._store = store
        self._ticks_ms = ticks_ms
        self._secrets = {}  # (kind, key): value
        self._dirty = False
        self._open_ms = open_s * 1000
        self._since_ms = ticks_ms()
        self.refused = 0
        self.accepted_ms = -1
        self._load(store.get(NAME) or b"")

    def __len__(self):
        return sum(1 for kind, _ in self._secrets if kind in _PAIRED)

    def open(self, seconds, now_ms):
        """Lets others bond for a while."""
        self._open_ms = seconds * 1000
        self._since_ms = now_ms

    def is_open(self):
        """Whether another central may bond now."""
        if self._open_ms and (self._ticks_ms() - self._since_ms) & _TICKS >= self._open_ms:
            self._open_ms = 0
        return bool(self._open_ms) or not len(self)

    def forget(self):
        """No central is bonded any longer."""
        self._secrets = {}
        self._dirty = True

    def get(self, kind, index, key):
        """What the stack asks for: by key, or the index'th of a kind; None if there is none."""
        if key is not None:
            return self._secrets.get((kind, bytes(key)))
        for known in sorted(self._secrets):
            if known[0] == kind:
                if index == 0:
                    return self._secrets[known]
                index -= 1
        return None

    def set(self, kind, key, value, asked=True):
        """What the stack wants to be kept, or forgotten; False if it must not. `asked`: for a passkey, if need be."""
        known = (kind, bytes(key))
        if value is None:
            if known in self._secrets:
                del self._secrets[known]
                self._dirty = True
            return True
        if known not in self._secrets and not self._may(kind, asked):
            return False
        if len(known[1]) > MAX_SECRET or len(value) > MAX_SECRET:
            return False
        if self._secrets.get(known) != bytes(value):
            self._secrets[known] = bytes(value)
            self._dirty = True
        if kind in _PAIRED:
            self.accepted_ms = self._ticks_ms()
        return True

    def _may(self, kind, asked):
        if kind in _PAIRED and not (asked and (self.is_open() or self._just_bonded())):
            self.refused += 1
            return False
        return len(self._secrets) < MAX_SECRETS

    def _just_bonded(self):
        """A bond is more than one secret; the second one comes at once."""
        return self.accepted_ms >= 0 and (self._ticks_ms() - self.accepted_ms) & _TICKS < 500

    def save(self):
        """Writes the file if need be."""
        if self._dirty:
            self._dirty = False
            image = bytearray()
            for kind, key in self._secrets:
                value = self._secrets[kind, key]
                image.extend(pack("<BBB", kind & 0xFF, len(key), len(value)))
                image.extend(key)
                image.extend(value)
            self._store.put(NAME, bytes(image))

    def _load(self, image):
        at = 0
        while at + 3 <= len(image) and len(self._secrets) < MAX_SECRETS:
            kind, size, more = unpack_from("<BBB", image, at)
            end = at + 3 + size
            self._secrets[kind, bytes(image[at + 3 : end])] = bytes(image[end : end + more])
            at = end + more
