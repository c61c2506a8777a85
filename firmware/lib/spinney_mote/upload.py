"""Changes of the filter table on their way in: programs in chunks, staged one by one, made all at once by a commit.

What is staged outlives a connection, so that the next one goes on where the last was cut off.
"""

from struct import pack, unpack_from

from . import wire

try:
    from micropython import const
except ImportError:
    const = int  # pyright: ignore[reportAssignmentType]  # CPython has no constants; an int stays what it is

MAX_PROGRAM = const(600)
MAX_STAGED = const(64)
MAX_STAGED_BYTES = const(4096)
OWNER_MS = const(30000)  # a central that says nothing for so long lets others change the filters
_TICKS = const(0x3FFFFFFF)


class Upload:
    """`change(add, drop)` makes a change for good, or raises ValueError with the reason."""

    def __init__(self, change):
        self._change = change
        self._staged = {}  # filter id: program, or None to drop it
        self._bytes = 0
        self._owner = None
        self._owner_ms = 0
        self._key = None  # filter id, size and CRC of the program whose chunks come
        self._program = bytearray()
        self.commits = 0

    def leave(self, central):
        """A central has gone."""
        if self._owner is central:
            self._owner = None

    def write(self, central, data, now_ms, table_crc):
        """Takes one write to `filters`; the answer. `table_crc()` gives the table's CRC."""
        if len(data) < wire.FILTER_HEAD_SIZE or len(data) > wire.FILTER_HEAD_SIZE + wire.MAX_CHUNK:
            return self._reply(data[0] if data else 0, wire.MALFORMED, 0, 0, table_crc)
        op, wanted, offset, size, crc = unpack_from(wire.FILTER_HEAD, data, 0)
        if not self._may(central, now_ms):
            return self._reply(op, wire.BUSY, wanted, 0, table_crc)
        if op == wire.PUT:
            status = self._put((wanted, size, crc), offset, data[wire.FILTER_HEAD_SIZE :])
        elif op == wire.DROP:
            status = self._stage(wanted, None)
        elif op == wire.STATUS:
            status = wire.OK
        elif op == wire.DISCARD:
            self._discard()
            status = wire.OK
        elif op == wire.COMMIT:
            return self._commit(size, crc, table_crc)
        else:
            status = wire.UNKNOWN_OP
        return self._reply(op, status, wanted, self._received((wanted, size, crc)), table_crc)

    def _may(self, central, now_ms):
        if self._owner not in (None, central) and (now_ms - self._owner_ms) & _TICKS < OWNER_MS:
            return False
        self._owner = central
        self._owner_ms = now_ms
        return True

    def _received(self, key):
        """How much of a program is here."""
        wanted, size, crc = key
        program = self._staged.get(wanted)
        if program is not None and len(program) == size and wire.program_crc(program) == crc:
            return size
        return len(self._program) if key == self._key else 0

    def _put(self, key, offset, chunk):
        size = key[1]
        if not chunk or offset + len(chunk) > size:
            return wire.MALFORMED
        if size > MAX_PROGRAM:
            return wire.TOO_LARGE
        received = self._received(key)
        if received == size:
            return wire.OK  # its answer was lost
        if offset == 0:
            self._key = key
            self._program = bytearray()
        elif key != self._key or offset != received:
            return wire.OUT_OF_ORDER
        self._program.extend(chunk)
        if len(self._program) < size:
            return wire.OK
        program = bytes(self._program)
        self._key = None
        self._program = bytearray()
        if wire.program_crc(program) != key[2]:
            return wire.DAMAGED
        if program[2:4] != pack("<H", key[0]):
            return wire.MALFORMED
        return self._stage(key[0], program)

    def _stage(self, wanted, program):
        before = self._staged.get(wanted)
        size = self._bytes - len(before or b"") + len(program or b"")
        if size > MAX_STAGED_BYTES or (wanted not in self._staged and len(self._staged) >= MAX_STAGED):
            return wire.TOO_LARGE
        self._staged[wanted] = program
        self._bytes = size
        return wire.OK

    def _commit(self, count, crc, table_crc):
        sums = {}
        for wanted in self._staged:
            program = self._staged[wanted]
            sums[wanted] = None if program is None else wire.program_crc(program)
        if count != len(sums) or crc != wire.staged_crc(sums):
            return self._reply(wire.COMMIT, wire.DAMAGED, 0, 0, table_crc)
        add = [program for program in self._staged.values() if program is not None]
        drop = [wanted for wanted in self._staged if self._staged[wanted] is None]
        self._discard()
        status = wire.OK
        words = b""
        try:
            self._change(add, drop)
            self.commits += 1
        except ValueError as error:
            status = wire.REFUSED
            words = wire.text(str(error), wire.MAX_REASON)[1:]
        except MemoryError:
            status = wire.REFUSED
            words = b"no memory"
        return self._reply(wire.COMMIT, status, 0, 0, table_crc) + words

    def _discard(self):
        self._staged = {}
        self._bytes = 0
        self._key = None
        self._program = bytearray()

    def _reply(self, op, status, wanted, received, table_crc):
        op = op & 0x7F | wire.FILTER_ANSWER
        return pack(wire.FILTER_REPLY, op, 0, status, wanted, received, len(self._staged), table_crc())
