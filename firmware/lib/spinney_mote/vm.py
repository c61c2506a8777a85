"""The machine that runs filter programs, in plain Python: for boards without a native emitter, and for CPython.

One bit of result, one sum, forward jumps; no stack, no text, and no allocation while numbers have 30 bits: one with
more costs up to 144 bytes, which the native machine saves.
programs.check() has looked at every program before it is run, so nothing is checked here.
"""

SIZES = b"\x00\x01\x01\x03\x03\x05\x06\x05"
"""Bytes of an instruction by its kind, the top three bits; those of kind 0 are below."""
CONTROL_SIZES = b"\x02\x02\x01\x06\x07\x01\x01"
"""JUMP_FALSE, JUMP_TRUE, CLEAR, ADD, ADD_PRODUCT, NO, YES."""
SUM = 29
"""The attribute's number under which tests find the sum."""


def run(code, at, end, values, present):
    """1 if the code from `at` to `end` holds for a sample: an array of int32 and a bit for each that is there."""
    hit = total = 0
    present |= 1 << SUM
    while at < end:
        op = code[at]
        if op >= 0x20:
            hit = present >> (op & 31) & 1
            if op < 0x60:
                hit ^= op >> 6
            elif hit:
                hit = _test(code, at, total if op & 31 == SUM else values[op & 31])
            at += SIZES[op >> 5] + (code[at + 1] & 2) * 2 if op >> 5 == 6 else SIZES[op >> 5]
        else:
            if op < 2:
                at += code[at + 1] if hit == op else 0
            elif op == 2:
                total = 0
            elif op < 5:
                total += _term(code, at, values)
            else:
                hit = op - 5
            at += CONTROL_SIZES[op]
    return hit


def _test(code, at, x):
    """1 if x is within the constants of a test."""
    kind = code[at] >> 5
    if kind == 6:
        kind = code[at + 1]
        if kind == 0:
            return 1 if x >= _long(code, at + 2) else 0
        if kind == 1:
            return 1 if x <= _long(code, at + 2) else 0
        inside = _long(code, at + 2) <= x <= _long(code, at + 6)
        return 1 if inside == (kind == 2) else 0
    if kind == 3:
        return 1 if x >= _short(code, at + 1) else 0
    if kind == 4:
        return 1 if x <= _short(code, at + 1) else 0
    inside = _short(code, at + 1) <= x <= _short(code, at + 3)
    return 1 if inside == (kind == 5) else 0


def _term(code, at, values):
    """What ADD and ADD_PRODUCT add."""
    if code[at] == 3:
        return values[code[at + 1]] * _long(code, at + 2)
    return values[code[at + 1]] * values[code[at + 2]] * _long(code, at + 3)


def _short(code, at):
    x = code[at] | code[at + 1] << 8
    return x - 0x10000 if x > 0x7FFF else x


def _long(code, at):
    return code[at] | code[at + 1] << 8 | code[at + 2] << 16 | ((code[at + 3] ^ 0x80) - 0x80) << 24
