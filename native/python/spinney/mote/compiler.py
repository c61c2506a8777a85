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
from spinney.expression import TRUE, Property
from spinney.feed import feed
from spinney.known import Known
from spinney.ranges import domain_of
from spinney.subscription import DeadBand, StateSubscription, Subscription

from .attributes import Attribute, Mote, layout
from .code import TooLongError, assemble
from .formula import ALWAYS, NEVER, Formula
from .formula_builder import formula_of

VERSION = 1
STATE, WEAKER, CRITICAL = 1, 2, 4
DEBOUNCE, HEARTBEAT, DEAD_BAND = 1, 2, 4
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
    subscription: Subscription, known: Known, attributes: Sequence[Attribute], delivery: Delivery = Delivery(0)
) -> Compiled | Refusal:
    """The program for a mote with these attributes, where `known` says what else its publications hold.

    The program of a state filter keeps its bit where that is exactly what the reference does (spinney.Evaluator).
    Otherwise it is that of the feed (rule R1), weaker where need be, and the reasons say why.
    """
    mote = Mote(attributes, known)
    held = "valid_for" in known.attributes and known.attributes["valid_for"].domain != NULL
    if held or "valid_for" in mote.index:
        return Refusal("it sets valid_for: what is valid is kept by the broker, unfiltered (rule L1)")
    try:
        if isinstance(subscription, StateSubscription):
            return _State(subscription, mote, delivery).compile()
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
    program = _program([test], mote, delivery, WEAKER if reasons else 0, b"", 0)
    return Compiled(program, keeps_bit=False, reasons=(*why, *reasons), weaker=bool(reasons))


class _State:
    """Compiles one state subscription."""

    def __init__(self, subscription: StateSubscription, mote: Mote, delivery: Delivery) -> None:
        self._subscription = subscription
        self._mote = mote
        self._delivery = delivery
        self._band = subscription.dead_band

    def compile(self) -> Compiled | Refusal:
        subscription, mote = self._subscription, self._mote
        parts = [subscription.enter, subscription.exit, subscription.only or TRUE]
        built = [formula_of(part, mote) for part in parts]
        tests = [test for test, _ in built]
        why = (*self._obstacles(), *(reason for _, reasons in built for reason in reasons))
        if tests[2] == NEVER or (tests[0] == NEVER and tests[1] == NEVER) or self._each_is_missing():
            return Refusal("no sample of this mote is wanted", never=True)
        if why:
            return _feed(subscription, mote, self._delivery, why)
        used, options = self._options()
        return Compiled(_program(tests, mote, self._delivery, STATE, options, used), keeps_bit=True)

    def _obstacles(self) -> list[str]:
        """Why the bit cannot be kept on the mote."""
        subscription, found = self._subscription, []
        if not disjoint(subscription.enter, subscription.exit):
            found.append("enter and exit are not proven disjoint: the cloud keeps the bit (rule S2)")
        each = subscription.each
        if each is not None and domain_of(Property(each), self._mote.environment).constant() is None:
            found.append(f"EACH {each} is not the same for all samples of this mote")
        band = self._band
        if band is not None and band.attribute not in self._mote.index:
            found.append(f"the dead band's {band.attribute} is not measured by this mote")
        if subscription.debounce > _LONGEST:
            found.append("debounce is longer than the mote can count")
        return found

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


def _program(tests: Sequence[Formula], mote: Mote, delivery: Delivery, flags: int, options: bytes, used: int) -> bytes:
    """Header, options, enter, exit, FOR, CRC."""
    codes = [assemble(test) for test in tests] + [b"", b""]
    if codes[2] and tests[2] == ALWAYS:
        codes[2] = b""
    flags |= CRITICAL if delivery.critical else 0
    number, epoch = delivery.number, delivery.epoch
    sizes = [len(code) for code in codes[:3]]
    head = struct.pack("<BBHHI4B", VERSION, flags, number, layout(mote.attributes), epoch, *sizes, used)
    body = head + options + b"".join(codes[:3])
    return body + struct.pack("<I", zlib.crc32(body))
