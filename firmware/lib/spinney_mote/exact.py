"""The one comparison of doubles on a mote, in whole numbers: many boards have none, or single floats only.

It is needed only where two readings of a dead band differ by almost exactly its width, which is seldom.
"""

from .programs import number


def has_moved(code, option, before, now, scale):
    """Whether two raw values are, as doubles, apart by at least the dead band (an option of a program)."""
    steps = abs(now - before)
    if steps < number(code, option + 1, 4):
        return False
    if steps >= number(code, option + 5, 4):
        return True
    first, first_shift = _decoded(before, scale)
    second, second_shift = _decoded(now, scale)
    shift = max(first_shift, second_shift, 0)
    apart = abs((first << shift - first_shift) - (second << shift - second_shift))
    found, found_shift = nearest(apart, 1 << shift)
    bits = number(code, option + 9, 8)
    by, by_shift = bits & (1 << 52) - 1 | 1 << 52, 1075 - (bits >> 52)
    return found << max(by_shift - found_shift, 0) >= by << max(found_shift - by_shift, 0)


def _decoded(raw, scale):
    """The double nearest to raw * p / q, as (m, shift): m / 2**shift."""
    m, shift = nearest(abs(raw) * scale[0], scale[1])
    return (-m if raw < 0 else m), shift


def nearest(n, d):
    """The double nearest to n / d, halves to even, as (m, shift); n is not negative. Far from what doubles end at."""
    if not n:
        return 0, 0
    shift = 0
    while n < d << 52:
        n <<= 1
        shift += 1
    while n >= d << 53:
        d <<= 1
        shift -= 1
    m = n // d
    rest = (n - m * d) * 2
    return (m + 1 if rest > d or (rest == d and m & 1) else m), shift
