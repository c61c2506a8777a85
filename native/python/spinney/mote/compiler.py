"""From a subscription to the program of one mote."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from spinney.covers import disjoint
from spinney.domain import NULL
from spinney.evaluator import may_overlap_upstream
from spinney.expression import TRUE, Property
from spinney.feed import feed
from spinney.known import Known
from spinney.ranges import domain_of
from spinney.subscription import DeadBand, StateSubscription, Subscription

from .attributes import Attribute, Mote, layout
from .code import TooLongError, assemble
from .formula import ALWAYS, NEVER, Formula, every, some, within
from .formula_builder import Verdicts, formula_of, verdicts_of
from .sums import ROUNDED

OLDEST_VERSION = 1
VERSION = 2
"""Of programs that keep a bit which the mote cannot always decide; all others are of version 1."""
STATE, WEAKER, CRITICAL = 1, 2, 4
DEBOUNCE, HEARTBEAT, DEAD_BAND, DOUBT = 1, 2, 4, 8
MAX_PROGRAM = 600
_CRC_BYTES = 4
_LONGEST = 2**32 - 1
_ULP = Fraction(1, 2**52)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program. Without a bit of its own, the mote sends the samples for which it is TRUE, and the broker decides."""

    program: bytes
    keeps_bit: bool
    reasons: tuple[str, ...] = ()
    """Why it is weaker than the subscription, or why its bit is kept elsewhere."""
    weaker: bool = False
    """It may be TRUE also where the subscription's feed is not."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """There is no program, and why."""

    why: str
    never: bool = False
    """No sample of this mote is wanted: nothing needs to be sent. Otherwise the broker needs every sample."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the broker adds to a program: the number it knows it by, its epoch as the mote's owner, and options."""

    number: int
    epoch: int = 0
    heartbeat: float = 0.0
    """Seconds of silence after which the mote says that it is there, without any change; 0 for never."""
    critical: bool = False
    """Events are indicated, so that each is acknowledged on the link."""


def compile(  # noqa: A001  # spinney.mote.compile says what it does
    subscription: Subscription,
    known: Known,
    attributes: Sequence[Attribute],
    delivery: Delivery = Delivery(0),
    *,
    version: int = OLDEST_VERSION,
) -> Compiled | Refusal:
    """The program for a mote with these attributes, where `known` says what else its publications hold.

    `version` is that of the programs that the mote understands. The program of a state filter keeps its bit where that
    is exactly what the reference does (spinney.Evaluator); from version 2 on also where all but single samples can be
    decided on the mote, which then sends those as undecided (rule S2). Otherwise it is that of the feed (rule R1),
    weaker where need be, and the reasons say why.
    """
    mote = Mote(attributes, known)
    held = "valid_for" in known.attributes and known.attributes["valid_for"].domain != NULL
    if held or "valid_for" in mote.index:
        return Refusal("it sets valid_for: what is valid is kept by the broker, unfiltered (rule L1)")
    try:
        if isinstance(subscription, StateSubscription):
            return _State(subscription, mote, delivery, version).compile()
        return _feed(subscription, mote, delivery, ())
    except TooLongError as error:
        return Refusal(str(error))


def addressed(program: bytes, number: int, epoch: int, of: int | None = None) -> bytes:
    """The same program under another number and owner epoch; and for the mote's layout, where its names differ."""
    own = struct.unpack_from("<H", program, 4)[0] if of is None else of
    body = program[:2] + struct.pack("<HHI", number, own, epoch) + program[10:-4]
    return body + struct.pack("<I", zlib.crc32(body))


def _feed(subscription: Subscription, mote: Mote, delivery: Delivery, why: tuple[str, ...]) -> Compiled | Refusal:
    """The program that sends what the broker needs to decide."""
    test, reasons = formula_of(feed(subscription), mote)
    if test == NEVER:
        return Refusal("no sample of this mote is wanted", never=True)
    if test == ALWAYS and reasons:
        return Refusal("it would filter nothing: " + "; ".join((*why, *reasons)))
    program = _program([test], mote, delivery, WEAKER if reasons else 0)
    return Compiled(program, keeps_bit=False, reasons=(*why, *reasons), weaker=bool(reasons))


class _State:
    """Compiles one state subscription."""

    def __init__(self, subscription: StateSubscription, mote: Mote, delivery: Delivery, version: int) -> None:
        self._version = version
        self._subscription = subscription
        self._mote = mote
        self._delivery = delivery
        self._band = subscription.dead_band

    def compile(self) -> Compiled | Refusal:
        subscription, mote = self._subscription, self._mote
        parts = [verdicts_of(part, mote) for part in (subscription.enter, subscription.exit, subscription.only or TRUE)]
        enter, leave, only = (part.possibly for part in parts)
        if only == NEVER or (enter == NEVER and leave == NEVER) or self._each_is_missing():
            return Refusal("no sample of this mote is wanted", never=True)
        overlaps = not disjoint(subscription.enter, subscription.exit)
        doubt = _doubt(parts)
        is_open = overlaps or doubt != NEVER
        why = [*self._obstacles(), *(reason for part in parts for reason in part.reasons)]
        why += self._obstacles_to_leaving_open(overlaps) if is_open else []
        try:
            if not why:
                return Compiled(self._program(parts, doubt if is_open else None), keeps_bit=True)
        except TooLongError as error:
            if not is_open:
                raise
            why.append(str(error))
        return _feed(subscription, mote, self._delivery, tuple(why))

    def _program(self, parts: Sequence[Verdicts], doubt: Formula | None) -> bytes:
        used, options = self._options()
        return _program([part.surely for part in parts], self._mote, self._delivery, STATE, options, used, doubt)

    def _obstacles(self) -> list[str]:
        """Why the bit cannot be kept on the mote."""
        subscription, found = self._subscription, []
        each = subscription.each
        if each is not None and domain_of(Property(each), self._mote.environment).constant() is None:
            found.append(f"EACH {each} is not the same for all samples of this mote")
        band = self._band
        if band is not None and band.attribute not in self._mote.index:
            found.append(f"the dead band's {band.attribute} is not measured by this mote")
        if subscription.debounce > _LONGEST:
            found.append("debounce is longer than the mote can count")
        return found

    def _obstacles_to_leaving_open(self, overlaps: bool) -> list[str]:
        """Why the mote cannot leave single samples to the broker (rule S2)."""
        what = "enter and exit are not proven disjoint" if overlaps else ROUNDED
        if overlaps and not may_overlap_upstream(self._subscription):
            return [f"{what}: the cloud keeps the bit (rule S2)"]
        if self._subscription.debounce or self._band is not None:
            return [f"{what}, and it has debounce or a dead band: the broker keeps the bit (rule S2)"]
        if self._version < VERSION:
            return [f"{what}: the mote's library is too old to keep the bit (rule S2)"]
        return []

    def _each_is_missing(self) -> bool:
        each = self._subscription.each
        return each is not None and domain_of(Property(each), self._mote.environment) == NULL

    def _options(self) -> tuple[int, bytes]:
        used, options = 0, b""
        if self._subscription.debounce:
            used, options = used | DEBOUNCE, struct.pack("<I", math.ceil(self._subscription.debounce))
        if self._delivery.heartbeat:
            seconds = min(math.ceil(self._delivery.heartbeat), _LONGEST)
            used, options = used | HEARTBEAT, options + struct.pack("<I", seconds)
        if self._band is not None:
            used, options = used | DEAD_BAND, options + _dead_band(self._band, self._mote)
        return used, options


def _dead_band(band: DeadBand, mote: Mote) -> bytes:
    """How far apart two raw values must be at least, and surely; between, the mote computes what doubles would give."""
    index = mote.index[band.attribute]
    item = mote.attributes[index]
    by, scale = Fraction(band.by), Fraction(item.p, item.q)
    doubt = 2 * max(abs(item.low), abs(item.high)) * scale * _ULP
    least = max(1, math.ceil((by - doubt) / scale))
    enough = max(least, math.floor((by + doubt) / scale) + 1)
    return struct.pack("<BIId", index, min(least, _LONGEST), min(enough, _LONGEST), band.by)


def _doubt(parts: Sequence[Verdicts]) -> Formula:
    """Samples of which enter or exit cannot be decided, or whether they are within FOR."""
    enter, leave, only = parts
    return some(
        within(every([only.possibly, part.possibly]), doubt)
        for part in (enter, leave)
        for doubt in (*part.doubts, *only.doubts)
    )


def _program(
    tests: Sequence[Formula],
    mote: Mote,
    delivery: Delivery,
    flags: int,
    options: bytes = b"",
    used: int = 0,
    doubt: Formula | None = None,
) -> bytes:
    """Header, options, enter, exit, FOR, what is in doubt, CRC; of version 1 where `doubt` is None."""
    codes = [assemble(test) for test in tests] + [b"", b""]
    if codes[2] and tests[2] == ALWAYS:
        codes[2] = b""
    unsure = b"" if doubt is None or doubt == NEVER else assemble(doubt)
    if unsure:
        used, options = used | DOUBT, options + bytes([len(unsure)])
    flags |= CRITICAL if delivery.critical else 0
    number, epoch = delivery.number, delivery.epoch
    sizes = [len(code) for code in codes[:3]]
    version = OLDEST_VERSION if doubt is None else VERSION
    head = struct.pack("<BBHHI4B", version, flags, number, layout(mote.attributes), epoch, *sizes, used)
    body = head + options + b"".join(codes[:3]) + unsure
    size = len(body) + _CRC_BYTES
    if size > MAX_PROGRAM:
        raise TooLongError(f"the filter takes {size} bytes, more than {MAX_PROGRAM}")
    return body + struct.pack("<I", zlib.crc32(body))
