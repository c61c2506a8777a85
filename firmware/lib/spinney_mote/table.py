"""All filter programs in one bytearray, each with its status; changed by building the next one aside.

Until the new one is whole the old one stays. The status is not under the CRC, since every sample may change it.
"""

from binascii import crc32
from struct import pack_into

from .programs import TRAILER, check, filter_id, number

MAGIC = 0x4653
VERSION = 1
HEADER = 20  # magic u16, version u8, 0, generation u32, bytes of entries u32, CRC of the programs u32, of this u32
ENTRY = 15  # before each program: its size u16, then its status: flags u8, run since u32, flipped at i32, told at u32

KNOWN = 1  # flags of a status: the bit is known
BIT = 2
RUN = 4  # samples on end would set the bit...
RUN_GOAL = 8  # ...to this
FLIPPED = 16  # it is known where the dead band's attribute was when the bit last flipped
TOLD = 32  # an event was made


class TableError(ValueError):
    """A change that cannot be made, or bytes that are no table."""


class Table:
    """The programs, by ascending filter id."""

    def __init__(self, attributes, layout, capacity=8192):
        self.attributes = attributes
        self.layout = layout
        self.capacity = capacity
        self.image = _sealed(bytearray(HEADER), 0)

    @property
    def crc(self):
        """Over all programs in order: equal for equal sets of programs, whatever was written when."""
        return number(self.image, 12, 4)

    @property
    def generation(self):
        """How often the set was changed."""
        return number(self.image, 4, 4)

    def __len__(self):
        count = 0
        at = self.first()
        while at:
            count += 1
            at = self.after(at)
        return count

    def first(self):
        """Where the first entry begins; 0 if there is none."""
        return HEADER if len(self.image) > HEADER else 0

    def after(self, at):
        """Where the next entry begins; 0 after the last."""
        image = self.image
        at += ENTRY + (image[at] | image[at + 1] << 8)
        return at if at < len(image) else 0

    def find(self, wanted):
        """Where the entry of a filter id begins; 0 if there is none."""
        at = self.first()
        while at and filter_id(self.image, at + ENTRY) != wanted:
            at = self.after(at)
        return at

    def program(self, wanted):
        """The program of a filter id; None if there is none."""
        at = self.find(wanted)
        return bytes(self.image[at + ENTRY : at + ENTRY + number(self.image, at, 2)]) if at else None

    def programs(self):
        """All of them, by ascending filter id."""
        at = self.first()
        while at:
            yield bytes(self.image[at + ENTRY : at + ENTRY + number(self.image, at, 2)])
            at = self.after(at)

    def change(self, add=(), drop=()):
        """Adds or replaces some programs and drops some ids, all or nothing; True if anything changed.

        A program that is there already keeps its bit; one that replaces another starts with an unknown bit.
        """
        for program in add:
            check(program, self.attributes, self.layout)
        entries = {}
        at = self.first()
        while at:
            end = at + ENTRY + number(self.image, at, 2)
            entries[filter_id(self.image, at + ENTRY)] = self.image[at:end]
            at = self.after(at)
        before = dict(entries)
        for wanted in drop:
            entries.pop(wanted, None)
        for program in add:
            wanted = filter_id(program, 0)
            old = before.get(wanted)
            entries[wanted] = old if old is not None and old[ENTRY:] == program else _entry(program)
        if entries == before:
            return False
        size = HEADER + sum(len(entry) for entry in entries.values())
        if size > self.capacity:
            raise TableError(f"full: {size} bytes would be needed, there are {self.capacity}")
        self.image = _built(entries, self.generation + 1)
        return True

    def forget(self):
        """After a start, a join or a reboot: every bit is unknown, and runs and dead bands start anew (rule S2)."""
        at = self.first()
        while at:
            for index in range(at + 2, at + ENTRY):
                self.image[index] = 0
            at = self.after(at)

    def load(self, image):
        """Becomes what was written down, bits included; TableError or ProgramError if it is not whole or not ours."""
        if not is_whole(image):
            raise TableError("not a whole table")
        if len(image) > self.capacity:
            raise TableError(f"a table of {len(image)} bytes; there are {self.capacity}")
        loaded = Table(self.attributes, self.layout, self.capacity)
        loaded.image = bytearray(image)
        at = loaded.first()
        while at:
            end = at + ENTRY + number(image, at, 2)
            check(loaded.image[at + ENTRY : end], self.attributes, self.layout)
            at = loaded.after(at)
        self.image = loaded.image


def _entry(program):
    entry = bytearray(ENTRY + len(program))
    pack_into("<H", entry, 0, len(program))
    entry[ENTRY:] = program
    return entry


def _built(entries, generation):
    image = bytearray(HEADER)
    for wanted in sorted(entries):
        image.extend(entries[wanted])
    return _sealed(image, generation)


def _sealed(image, generation):
    """Writes the header, by which the table is one."""
    crc = _programs_crc(image)
    pack_into("<HBBIII", image, 0, MAGIC, VERSION, 0, generation, len(image) - HEADER, crc)
    pack_into("<I", image, 16, crc32(bytes(image[:16])))
    return image


def _programs_crc(image):
    """-1 where the entries do not add up."""
    crc = 0
    at = HEADER
    while at < len(image):
        end = at + ENTRY + number(image, at, 2) if at + ENTRY <= len(image) else 0
        if not at < end <= len(image):
            return -1
        # its own CRC first: in the order in which it stands, CRC-32 is the same for every program
        crc = crc32(bytes(image[at + ENTRY : end - TRAILER]), crc32(bytes(image[end - TRAILER : end]), crc))
        at = end
    return crc


def is_whole(image):
    """Whether these bytes are a table that was written to its end."""
    if len(image) < HEADER or number(image, 0, 2) != MAGIC or image[2] != VERSION:
        return False
    if crc32(bytes(image[:16])) != number(image, 16, 4) or number(image, 8, 4) != len(image) - HEADER:
        return False
    return _programs_crc(image) == number(image, 12, 4)
