"""Events that wait for a broker: a bounded ring, replayed from any number on until they are acknowledged.

The number of an event is the ring's own. A gap in the numbers is an event that was dropped, and is counted.
"""

from struct import pack_into, unpack_from

HEAD = "<IHIIIBII"
"""Number, filter id, owner epoch, boot, sequence, flags, time, bits of the values that are there; then those, int32."""
HEAD_SIZE = 27
MAX_EVENT = HEAD_SIZE + 4 * 29
NO_SECONDS = 0xFFFFFFFF  # an age that is not known, or too long

BIT = 1  # flags of an event: what the bit was set to
LABEL = 2  # the sample set the bit of a state filter; without, the sample is one that a content filter wants
PRESENCE = 4  # nothing but a sign of life: the bit is as it was
UNKNOWN = 8  # the bit is not known; without LABEL and PRESENCE, the owner is to decide what the sample sets it to
AGE = 16  # `time` is the sample's age in seconds; without, epoch seconds
CRITICAL = 32
WEAKER = 64
LAST = 128  # no other event of the same sample follows
_FLAGS_AT = 18


class Ring:
    """A fixed number of bytes. When they are full, the oldest event goes."""

    def __init__(self, capacity=4096, first=1):
        if capacity < MAX_EVENT + 1:
            raise ValueError("a ring holds at least one event")
        self.memory = bytearray(capacity)
        self.next = first  # number of the next event
        self.first = first  # number of the oldest event in the ring
        self.dropped = 0
        self._head = 0  # where the oldest begins
        self._used = 0
        self._flags_at = 0  # of the newest event

    def __len__(self):
        return self.next - self.first

    def add(self, filter_id, epoch, sample, flags):
        """Puts the sample in, as an event of a filter; its number."""
        size = HEAD_SIZE + 4 * _ones(sample.present)
        while len(self.memory) - self._used < size + 1:
            self._drop()
            self.dropped += 1
        if sample.aged:
            flags |= AGE
        event = bytearray(size)
        time = sample.time & 0xFFFFFFFF
        head = (self.next, filter_id, epoch, sample.boot, sample.sequence, flags, time, sample.present)
        pack_into(HEAD, event, 0, *head)
        at = HEAD_SIZE
        for place in range(0, len(sample.values), 4):
            if sample.present >> place // 4 & 1:
                event[at : at + 4] = sample.values[place : place + 4]
                at += 4
        self._flags_at = (self._head + self._used + 1 + _FLAGS_AT) % len(self.memory)
        self._write(size, event)
        self.next += 1
        return self.next - 1

    def end_sample(self):
        """Says of the newest event that it is its sample's last."""
        self.memory[self._flags_at] |= LAST

    def ack(self, number):
        """Forgets all events up to a number; others may not be forgotten, so a number never given is ignored."""
        if number < self.next:
            while self.first <= number and self.first < self.next:
                self._drop()

    def read(self, number, uptime):
        """The event with this number as it is sent now, its time made an age if the clock was not set; None if gone."""
        if not self.first <= number < self.next:
            return None
        at = self._head
        for _ in range(number - self.first):
            at = (at + self.memory[at] + 1) % len(self.memory)
        event = bytearray(self.memory[at])
        for index in range(len(event)):
            event[index] = self.memory[(at + 1 + index) % len(self.memory)]
        if event[18] & AGE:
            age = uptime - unpack_from("<I", event, 19)[0]
            pack_into("<I", event, 19, age if age >= 0 else NO_SECONDS)
        return event

    def _write(self, size, event):
        memory = self.memory
        at = (self._head + self._used) % len(memory)
        memory[at] = size
        for byte in event:
            at = (at + 1) % len(memory)
            memory[at] = byte
        self._used += size + 1

    def _drop(self):
        size = self.memory[self._head] + 1
        self._head = (self._head + size) % len(self.memory)
        self._used -= size
        self.first += 1


def _ones(bits):
    count = 0
    while bits:
        bits &= bits - 1
        count += 1
    return count
