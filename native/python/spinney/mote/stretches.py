"""The raw values of one attribute for which a condition has a verdict, found by asking the reference.

Interval arithmetic (spinney.verdicts) settles whole stretches, and what it cannot settle is halved, down to one raw
value and its double: so thresholds are those of the decoding, and computations of one attribute are exact, too.
"""

from __future__ import annotations

from dataclasses import replace

from spinney.expression import Filter
from spinney.ranges import Environment
from spinney.verdicts import VERDICTS, possible

from .attributes import Attribute

MAX_QUESTIONS = 4_000
"""Of one condition. A threshold takes about 70, a computation whose result jumps takes more."""
MAX_STRETCHES = 12
"""Of one condition, so that programs stay small; nearer ones are joined."""

Stretches = list[tuple[int, int]]


def stretches(condition: Filter, wanted: bool, attribute: Attribute, known: Environment) -> tuple[Stretches, bool]:
    """Ascending stretches with the verdict, and whether they are exact or hold other values, too."""
    found: Stretches = []
    exact = True
    waiting = [(attribute.low, attribute.high)]
    questions = 0
    while waiting:
        low, high = waiting.pop()
        questions += 1
        verdict = _verdict(condition, attribute, low, high, known)
        if verdict is Ellipsis and questions + len(waiting) <= MAX_QUESTIONS:
            middle = (low + high) // 2
            waiting += [(middle + 1, high), (low, middle)]
        elif verdict is wanted or verdict is Ellipsis:
            exact = exact and verdict is not Ellipsis
            _append(found, low, high)
    while len(found) > MAX_STRETCHES:
        exact = False
        nearest = min(range(1, len(found)), key=lambda index: found[index][0] - found[index - 1][1])
        found[nearest - 1 : nearest + 1] = [(found[nearest - 1][0], found[nearest][1])]
    return found, exact


def _verdict(condition: Filter, attribute: Attribute, low: int, high: int, known: Environment) -> object:
    """The verdict for all of a stretch; Ellipsis if there may be several."""
    if low == high:
        return condition.evaluate({attribute.name: attribute.decode(low)})
    domains = {**known.domains, attribute.name: attribute.domain(low, high, null=False)}
    return VERDICTS.get(possible(condition, replace(known, domains=domains)), Ellipsis)


def _append(found: Stretches, low: int, high: int) -> None:
    if found and found[-1][1] == low - 1:
        found[-1] = (found[-1][0], high)
    else:
        found.append((low, high))
