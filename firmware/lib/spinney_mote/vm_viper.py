"""The same machine as vm.py as native code, which allocates nothing at all. Importing it fails where none can be made.

Under CPython, which has no viper, the same text runs as Python, so that it can be compared with vm.py.
"""

try:
    import micropython
except ImportError:  # CPython
    from . import plain_viper as micropython
    from .plain_viper import ptr8, ptr32


@micropython.viper
def run(code_: object, at: int, end: int, values_: object, present: int) -> int:  # noqa: C901  # calls would allocate
    """As vm.run."""
    code = ptr8(code_)
    values = ptr32(values_)
    hit = 0
    total = 0
    x = 0
    low = 0
    high = 0
    kind = 0
    while at < end:
        op = int(code[at])
        if op < 0x20:
            if op < 2:
                if hit == op:
                    at += int(code[at + 1])
                at += 2
            elif op == 2:
                total = 0
                at += 1
            elif op < 5:
                x = int(values[code[at + 1]])
                if op == 4:
                    at += 1
                    x *= int(values[code[at + 1]])
                low = int(code[at + 2]) | int(code[at + 3]) << 8 | int(code[at + 4]) << 16
                total += x * (low | ((int(code[at + 5]) ^ 0x80) - 0x80) << 24)
                at += 6
            else:
                hit = op - 5
                at += 1
            continue
        kind = op >> 5
        op &= 31
        if op == 29:
            hit = 1
            x = total
        else:
            hit = (present >> op) & 1
            x = int(values[op])
        at += 1
        if kind == 1:
            continue
        if kind == 2:
            hit ^= 1
            continue
        if kind == 6:
            kind = int(code[at])
            low = int(code[at + 1]) | int(code[at + 2]) << 8 | int(code[at + 3]) << 16
            low |= ((int(code[at + 4]) ^ 0x80) - 0x80) << 24
            at += 5
            if kind >= 2:
                high = int(code[at]) | int(code[at + 1]) << 8 | int(code[at + 2]) << 16
                high |= ((int(code[at + 3]) ^ 0x80) - 0x80) << 24
                at += 4
                kind = 5 if kind == 2 else 7
            else:
                kind += 3
        else:
            low = int(code[at]) | ((int(code[at + 1]) ^ 0x80) - 0x80) << 8
            at += 2
            if kind >= 5:
                high = int(code[at]) | ((int(code[at + 1]) ^ 0x80) - 0x80) << 8
                at += 2
        if hit == 0:
            continue
        if kind == 3:
            if x < low:
                hit = 0
        elif kind == 4:
            if x > low:
                hit = 0
        elif x < low or x > high:
            if kind == 5:
                hit = 0
        elif kind == 7:
            hit = 0
    return hit
