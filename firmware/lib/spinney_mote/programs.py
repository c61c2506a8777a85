"""Filter programs as they come over the air: what they consist of, and the look that each gets before it may run.

Formats in firmware/README.md. The compiler that makes them is spinney.mote on the host.
"""

from binascii import crc32

from .vm import CONTROL_SIZES, SIZES, SUM

VERSION = 2  # a program of version 2 keeps a bit that it cannot always decide; all else is of version 1
HEADER = 14
TRAILER = 4  # the CRC
MAX_SIZE = 600

STATE = 1  # flags of a program: it keeps a bit; without, it only says which samples to send
WEAKER = 2  # true also where the subscription's filter is not
CRITICAL = 4  # its events are indicated, not only notified

DEBOUNCE = 1  # options, in this order after the header: u32 seconds
HEARTBEAT = 2  # u32 seconds
DEAD_BAND = 4  # attribute, u32 surely too little, u32 surely enough, the double between
_DEAD_BAND_SIZE = 17
DOUBT = 8  # u8 bytes of a fourth part, after FOR: TRUE of a sample that the mote cannot decide. From version 2 on


class ProgramError(ValueError):
    """A program that must not run, and why."""


def layout(attributes):
    """A 16-bit sum over (name, p, q, low, high) of all attributes: a program fits no other mote."""
    total = 0
    for name, p, q, low, high in attributes:
        total = crc32(f"{name} {p}/{q} {low} {high};".encode(), total)
    return total & 0xFFFF


def number(code, at, size):
    """An unsigned number, low byte first."""
    found = 0
    while size:
        size -= 1
        found = found << 8 | code[at + size]
    return found


def options_size(options):
    """Bytes of the options."""
    return (options & 1) * 4 + (options & 2) * 2 + (options >> 2 & 1) * _DEAD_BAND_SIZE + (options >> 3 & 1)


def option_at(code, at, option):
    """Where an option of the program at `at` begins; 0 if it has none."""
    options = code[at + 13]
    return at + HEADER + options_size(options & (option - 1)) if options & option else 0


def doubt_size(code, at):
    """Bytes of the part of the program at `at` that says which samples it cannot decide."""
    option = option_at(code, at, DOUBT)
    return code[option] if option else 0


def filter_id(code, at):
    """The number that the broker knows the filter by."""
    return code[at + 2] | code[at + 3] << 8


def check(program, attributes, expected_layout):
    """Raises ProgramError unless the program is whole, of this version, made for this mote, and cannot go astray."""
    size = len(program)
    if size < HEADER + TRAILER or size > MAX_SIZE:
        raise ProgramError("a program has 18 to 600 bytes")
    version = program[0]
    if not 0 < version <= VERSION:
        raise ProgramError(f"a program of version {version}; this mote runs versions up to {VERSION}")
    if crc32(bytes(program[: size - TRAILER])) != number(program, size - TRAILER, TRAILER):
        raise ProgramError("damaged: its CRC is wrong")
    if number(program, 4, 2) != expected_layout:
        raise ProgramError("compiled for other attributes")
    options = HEARTBEAT | (DEBOUNCE | DEAD_BAND if version == 1 else DOUBT)
    if program[1] & ~(STATE | WEAKER | CRITICAL) or program[13] & ~options:
        raise ProgramError("a flag or an option that this mote does not know")
    at = HEADER + options_size(program[13])
    doubt = doubt_size(program, 0) if at < size else 0
    if at + program[10] + program[11] + program[12] + doubt + TRAILER != size or not program[10]:
        raise ProgramError("its parts do not add up to its size")
    if bool(program[11]) != bool(program[1] & STATE):
        raise ProgramError("a state filter has an exit, and nothing else has")
    if version > 1 and not program[1] & STATE:
        raise ProgramError("only a state filter needs version 2")
    band = option_at(program, 0, DEAD_BAND)
    if band and program[band] >= attributes:
        raise ProgramError("a dead band of an attribute that there is not")
    for part in (program[10], program[11], program[12], doubt):
        _check_code(program, at, at + part, attributes)
        at += part


def _check_code(code, at, end, attributes):
    """Every instruction known and whole, every attribute there, every jump to an instruction's beginning."""
    begun = landed = 0
    start = at
    while at < end:
        begun |= 1 << at - start
        size = _size(code, at, end)
        if not size or at + size > end:
            raise ProgramError("an unknown or broken instruction")
        _check_operands(code, at, attributes)
        if code[at] < 2:
            landed |= 1 << at + size + code[at + 1] - start
        at += size
    if landed & ~(begun | 1 << end - start):
        raise ProgramError("a jump out of the program or into an instruction")


def _size(code, at, end):
    """Bytes of an instruction; 0 for an unknown one."""
    op = code[at]
    if op < 0x20:
        return CONTROL_SIZES[op] if op < len(CONTROL_SIZES) else 0
    if op >> 5 != 6:
        return SIZES[op >> 5]
    if at + 1 >= end or code[at + 1] > 3:
        return 0
    return 6 + (code[at + 1] & 2) * 2


def _check_operands(code, at, attributes):
    op = code[at]
    if op >= 0x20:
        good = op & 31 < attributes or (op & 31 == SUM and op >= 0x60)
    elif op == 3 or op == 4:
        good = code[at + 1] < attributes and (op == 3 or code[at + 2] < attributes)
    else:
        good = True
    if not good:
        raise ProgramError("an attribute that there is not")
