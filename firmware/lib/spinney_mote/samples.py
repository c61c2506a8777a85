"""One numbered sample of all sensors (rule P2): int32 in the declared scales, and a bit for each that is there."""

from array import array
from struct import unpack_from

MAX_ATTRIBUTES = 29  # so that the bits, and one for the sum of a program, are a small int


class Sample:
    """The values of now. A value outside its declared range is none: the sensor is missing, and it is counted."""

    def __init__(self, ranges, boot):
        if len(ranges) > MAX_ATTRIBUTES:
            raise ValueError("at most 29 attributes")
        self.low = array("i", [low for low, high in ranges])
        self.high = array("i", [high for low, high in ranges])
        self.values = bytearray(4 * len(ranges))  # low bytes first, as the machines take them
        self.present = 0
        self.boot = boot
        self.sequence = 0
        self.time = 0
        self.aged = True  # `time` counts from the start of the board, as its clock is not set
        self.outside = 0

    def begin(self, time, aged):
        """The next sample, with nothing in it yet, taken at `time` seconds."""
        self.sequence += 1
        self.time = time
        self.aged = aged
        self.present = 0

    def value(self, index):
        """What was put there last."""
        return unpack_from("<i", self.values, 4 * index)[0]

    def put(self, index, raw):
        """What a sensor says."""
        if self.low[index] <= raw <= self.high[index]:
            self.values[4 * index : 4 * index + 4] = (raw & 0xFFFFFFFF).to_bytes(4, "little")
            self.present |= 1 << index
        else:
            self.outside += 1
