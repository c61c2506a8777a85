"""New library files over the air: staged beside those that run, verified, switched to by one write, and on trial first.

The format of a bundle is in firmware/README.md; spinney.mote.bundle on the host makes it.
"""

import hashlib
import struct

from spinney_boot import NO_SET, SLOTS, TRIAL_BOOTS, Files, Pointer, read_pointer, slot_folder, write_pointer

MAGIC = b"SKO1"
HEAD = "<4sHBB"  # magic, bytes of the manifest, files, 0
HEAD_SIZE = 8
TAG_SIZE = 32
ENTRY = "<I32sB"  # bytes of the file, its SHA-256, bytes of its name, which follows
ENTRY_SIZE = 37
MAX_MANIFEST = 4096
MAX_BUNDLE = 400_000
ROOT = "spinney_mote/"
BEGIN = 1  # first byte of what `control` takes: u32 bytes of the bundle
CHUNK = 2  # u32 offset, then the bytes
COMMIT = 3
ABORT = 4
WHERE = 5  # nothing but the answer
_PAGE = 2048  # what is written at once
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"
_BLOCK = 64  # of SHA-256


class OtaError(Exception):
    """Why an update does not go on."""


def tag_of(key, manifest) -> bytes:
    """HMAC-SHA256: who has no key cannot make files that a mote with a key takes."""
    key = key + bytes(_BLOCK - len(key))
    inner = hashlib.sha256(bytes([byte ^ 0x36 for byte in key]) + manifest).digest()
    return hashlib.sha256(bytes([byte ^ 0x5C for byte in key]) + inner).digest()


class Ota:
    """One update at a time. Its methods raise OtaError, after which all begins anew, unless they say otherwise."""

    def __init__(self, files: Files, key: bytes = b"", running: int = 0):
        self._files = files
        self._key = key
        self._running = running  # the set that runs
        self._clear()

    def _clear(self) -> None:
        self._total = 0  # bytes of the bundle; 0 while there is no update
        self._received = 0
        self._manifest = bytearray()
        self._manifest_bytes = 0
        self._entries: list = []  # (name, bytes, SHA-256)
        self._at = 0  # the entry that is received
        self._left = 0  # bytes that its file lacks
        self._page = bytearray()
        self._folder = ""

    @property
    def is_open(self) -> bool:
        """Whether an update is under way."""
        return self._total > 0

    @property
    def received(self) -> int:
        """The offset of the next chunk: where to go on after a lost connection."""
        return self._received

    def begin(self, total: int) -> None:
        """Makes room for a bundle of so many bytes. What was staged before is dropped."""
        self._clear()
        pointer = read_pointer(self._files)
        if pointer.trial in SLOTS:
            raise OtaError("the last update is on trial still")
        if not HEAD_SIZE + TAG_SIZE < total <= MAX_BUNDLE:
            raise OtaError("a bundle has at most %d bytes, not %d" % (MAX_BUNDLE, total))
        self._folder = slot_folder(SLOTS[0] if pointer.good != SLOTS[0] else SLOTS[1])
        self._files.remove_folder(self._folder)
        self._total = total

    def write(self, offset: int, chunk) -> int:
        """Takes the next chunk and gives the offset of the one after it. A chunk out of turn changes nothing."""
        if not self._total:
            raise OtaError("no update has begun")
        if offset != self._received:
            raise OtaError("the next offset is %d, not %d" % (self._received, offset))
        if offset + len(chunk) > self._total:
            self._fail("more than the %d bytes that were announced" % self._total)
        self._received += len(chunk)
        chunk = memoryview(bytes(chunk))
        while len(chunk):
            chunk = chunk[self._take_manifest(chunk) if not self._entries else self._take_file(chunk) :]
        return self._received

    def commit(self) -> None:
        """Reads all back, and if it is what was sent, has the next start try it."""
        if not self._total or self._received != self._total:
            raise OtaError("%d of %d bytes are here" % (self._received, self._total))
        if not self._entries or self._at != len(self._entries):
            self._fail("the files do not fill the bundle")
        for name, size, digest in self._entries:
            if self._digest(name, size) != digest:
                self._fail("%s is not what was sent" % name)
        pointer = read_pointer(self._files)
        trial = SLOTS[0] if self._folder == slot_folder(SLOTS[0]) else SLOTS[1]
        write_pointer(self._files, Pointer(pointer.good, trial, TRIAL_BOOTS, NO_SET))
        self._clear()

    def abort(self) -> None:
        """Forgets an update that is under way."""
        self._clear()

    def healthy(self) -> bool:
        """Called once this start did all that a mote does: a set on trial becomes the good one; whether one did."""
        pointer = read_pointer(self._files)
        if pointer.trial not in SLOTS or pointer.trial != self._running:
            return False
        write_pointer(self._files, Pointer(pointer.trial))
        return True

    def control(self, payload):
        """One write to `control`, without its op and tag: why it was refused ("" if not), and the answer.

        The answer is the offset of the next chunk and the bytes of the bundle, 0 while there is no update. Who asks
        where to go on is also told which set runs, is good, is on trial, and has failed.
        """
        refused = ""
        try:
            self._do(payload[0] if payload else 0, payload)
        except OtaError as error:
            refused = str(error)
        answer = struct.pack("<II", self._received, self._total)
        if payload and payload[0] == WHERE:
            pointer = read_pointer(self._files)
            answer += bytes((self._running, pointer.good, pointer.trial, pointer.failed))
        return refused, answer

    def _do(self, op: int, payload) -> None:
        if op in (BEGIN, CHUNK):
            if len(payload) < 5:
                raise OtaError("too short")
            number = struct.unpack("<I", bytes(payload[1:5]))[0]
            if op == BEGIN:
                self.begin(number)
            else:
                self.write(number, payload[5:])
        elif op == COMMIT:
            self.commit()
        elif op == ABORT:
            self.abort()
        elif op != WHERE:
            raise OtaError("no such step of an update")

    def _fail(self, why: str) -> None:
        self._clear()
        raise OtaError(why)

    def _take_manifest(self, chunk) -> int:
        """Collects head, entries and tag; how many bytes it took."""
        wanted = HEAD_SIZE if not self._manifest_bytes else self._manifest_bytes + TAG_SIZE
        taken = chunk[: wanted - len(self._manifest)]
        self._manifest.extend(taken)
        if len(self._manifest) == wanted:
            if self._manifest_bytes:
                self._open_manifest()
            else:
                self._manifest_bytes = self._read_head()
        return len(taken)

    def _read_head(self) -> int:
        magic, size, count, _ = struct.unpack(HEAD, self._manifest)
        if magic != MAGIC or not count or not HEAD_SIZE < size <= MAX_MANIFEST:
            self._fail("not a bundle that this mote knows")
        return size

    def _open_manifest(self) -> None:
        manifest = bytes(self._manifest[: self._manifest_bytes])
        if tag_of(self._key, manifest) != bytes(self._manifest[self._manifest_bytes :]):
            self._fail("the bundle is damaged, or made with another ota_key")
        entries = self._read_entries(manifest)
        whole = self._manifest_bytes + TAG_SIZE + sum(size for _, size, _ in entries)
        if whole != self._total:
            self._fail("the bundle must have %d bytes, not %d" % (whole, self._total))
        if not any(name.startswith(ROOT + "__init__.") for name, _, _ in entries):
            self._fail("the bundle lacks %s__init__" % ROOT)
        self._files.make_folder(self._folder)
        self._entries = entries
        self._manifest = bytearray()
        self._left = entries[0][1]
        self._skip_empty()

    def _read_entries(self, manifest) -> list:
        entries = []
        at = HEAD_SIZE
        while at < len(manifest):
            if at + ENTRY_SIZE > len(manifest):
                self._fail("the manifest ends in the middle")
            size, digest, length = struct.unpack(ENTRY, manifest[at : at + ENTRY_SIZE])
            name = _text(manifest[at + ENTRY_SIZE : at + ENTRY_SIZE + length])
            if not is_library_file(name):
                self._fail("a file name that is none of the library's")
            entries.append((name, size, digest))
            at += ENTRY_SIZE + length
        if at != len(manifest) or len(entries) != manifest[6]:
            self._fail("the manifest does not add up")
        return entries

    def _take_file(self, chunk) -> int:
        taken = chunk[: min(self._left, _PAGE - len(self._page))]
        self._page.extend(taken)
        self._left -= len(taken)
        if len(self._page) == _PAGE or not self._left:
            self._write_page()
        if not self._left:
            self._next_file()
        return len(taken)

    def _write_page(self) -> None:
        name = self._entries[self._at][0]
        path = self._folder + "/" + name
        self._files.make_folder(path[: path.rfind("/")])
        self._files.append(path, self._page)
        self._page = bytearray()

    def _next_file(self) -> None:
        self._at += 1
        if self._at < len(self._entries):
            self._left = self._entries[self._at][1]
            self._skip_empty()

    def _skip_empty(self) -> None:
        if not self._left:
            self._write_page()
            self._next_file()

    def _digest(self, name: str, size: int) -> bytes:
        data = self._files.read(self._folder + "/" + name)
        return hashlib.sha256(data).digest() if data is not None and len(data) == size else b""


def is_library_file(name: str) -> bool:
    """Whether a set may hold a file of this name; nothing outside the library's folder can be written."""
    if not name.startswith(ROOT) or name.count("/") > 2:
        return False
    stem, _, ending = name.rpartition(".")
    parts = stem.split("/")
    return ending in ("py", "mpy") and all(part and all(letter in _LETTERS for letter in part) for part in parts)


def _text(data) -> str:
    return "".join([chr(byte) for byte in data])
