"""The machine that runs filter programs, in plain Python: for boards without a native emitter, and for CPython.

One bit of result, one sum, forward jumps; no stack, no text. It allocates nothing: an int of more than 30 bits would be
an object, so the sum and whatever is compared are two, the low 14 bits and all above them.
programs.check() has looked at every program before it is run, so nothing is checked here.
"""

SIZES = b"\x00\x01\x01\x03\x03\x05\x06\x05"
"""Bytes of an instruction by its kind, the top three bits; those of kind 0 are below."""
CONTROL_SIZES = b"\x02\x02\x01\x06\x07\x01\x01"
"""JUMP_FALSE, JUMP_TRUE, CLEAR, ADD, ADD_PRODUCT, NO, YES."""
SUM = 29
"""The attribute's number under which tests find the sum."""


def run(code, at, end, values, present):
    """1 if the code from `at` to `end` holds for a sample: int32s, low byte first, and a bit for each that is there."""
    hit = high = low = 0
    present |= 1 << SUM
    while at < end:
        op = code[at]
        if op >= 0x20:
            index = op & 31
            hit = present >> index & 1
            if op < 0x60:
                hit ^= op >> 6
            elif hit and index == SUM:
                hit = _test(code, at, high, low)
            elif hit:
                index *= 4
                hit = _test(code, at, _high(values, index), (values[index + 1] & 63) << 8 | values[index])
            at += SIZES[op >> 5] + (code[at + 1] & 2) * 2 if op >> 5 == 6 else SIZES[op >> 5]
            continue
        if op < 2:
            at += code[at + 1] if hit == op else 0
        elif op == 2:
            high = low = 0
        elif op < 5:
            term_high = 0
            term_low = 1
            for step in range(1, op):  # one or two attributes, then a number
                more = step + 1 < op
                data = values if more else code
                place = code[at + step] * 4 if more else at + step
                by_high = _high(data, place)
                by = (data[place + 1] & 63) << 8 | data[place]
                if -4 <= by_high < 4:
                    by += by_high << 14
                else:  # as the product is an int32, the other factor has 16 bits
                    by, term_low = term_low + (term_high << 14), by
                    term_high = by_high
                term_low *= by
                term_high = term_high * by + (term_low >> 14)
                term_low &= 0x3FFF
            low += term_low
            high += term_high + (low >> 14)
            low &= 0x3FFF
        else:
            hit = op - 5
        at += CONTROL_SIZES[op]
    return hit


def _test(code, at, high, low):
    """1 if a number is within the constants of a test."""
    kind = code[at] >> 5
    at += 1
    size = 2
    if kind == 6:
        kind = b"\x03\x04\x05\x07"[code[at]]
        at += 1
        size = 4
    apart = _apart(code, at, size, high, low)
    if kind == 3:
        return 1 if apart >= 0 else 0
    if kind == 4:
        return 1 if apart <= 0 else 0
    inside = apart >= 0 and _apart(code, at + size, size, high, low) <= 0
    return 1 if inside == (kind == 5) else 0


def _apart(code, at, size, high, low):
    """Below, at or above 0 as a number is below, at or above a constant of two bytes or four."""
    if size == 4:
        return high - _high(code, at) or low - ((code[at + 1] & 63) << 8 | code[at])
    x = code[at] | ((code[at + 1] ^ 0x80) - 0x80) << 8
    return high - (x >> 14) or low - (x & 0x3FFF)


def _high(code, at):
    """An int32 without its low 14 bits."""
    return ((code[at + 3] ^ 0x80) - 0x80) << 10 | code[at + 2] << 2 | code[at + 1] >> 6
