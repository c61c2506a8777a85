"""What becomes of each wanted filter on one mote: a program that keeps its bit, one that sends its feed, or nothing.

A filter is specialised with the mote's constants and compiled. What compiles exactly decides on the mote; what does
only as a weaker filter sends what the broker then decides; for what does not compile the mote sends every sample.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spinney import ContentSubscription
from spinney.expression import TRUE, Property, Value
from spinney.known import Known
from spinney.mote import Attribute, Compiled, addressed
from spinney.mote import compile as compile_program
from spinney.mote.attributes import Mote
from spinney.mote.compiler import OLDEST_VERSION
from spinney.ranges import domain_of
from spinney.subscription import StateSubscription, Subscription

from ..active import ActiveFilter
from ..samples import Digest

EVERYTHING: Final = "*"
"""The digest of the program that sends every sample."""


@dataclass(frozen=True)
class Wanted:
    """What is wanted of a source that this broker owns."""

    filters: Mapping[Digest, ActiveFilter] = field(default_factory=dict)
    """Oldest first."""
    known: Known = field(default_factory=Known)
    """What its publications hold beside what the mote measures: only what is fixed, or is withdrawn before it
    changes."""
    epoch: int = 0
    """Of the lease."""


@dataclass(frozen=True, slots=True)
class Program:
    """A filter for a mote, under no number yet."""

    digest: Digest
    code: bytes
    keeps_bit: bool = False
    """It is evaluated on the mote, which sends labels; else it sends what the broker decides on."""
    exact: bool = False
    """What it lets through is wanted: nobody has to decide that again."""
    value: Value | None = None
    """The EACH value that the bit is set in."""
    why: str = ""
    """Why the mote cannot decide by itself."""

    @property
    def meaning(self) -> int:
        """Equal for programs that do the same, whatever their numbers and epochs."""
        return zlib.crc32(f"{self.keeps_bit} {self.value!r} ".encode() + self.code[:-4])


@dataclass(frozen=True, slots=True)
class NoProgram:
    """A filter that is not for a mote."""

    digest: Digest
    why: str
    never: bool
    """No sample of the mote is wanted; otherwise the broker needs every one."""


class Programs:
    """The programs of one mote. They are kept, since compiling takes a millisecond each."""

    def __init__(self) -> None:
        self.made: dict[Digest, Program | NoProgram] = {}
        """Of all filters that are wanted, once `make` is through."""
        self._from: dict[Digest, ActiveFilter] = {}
        self._known: Known | None = None
        self._attributes: tuple[Attribute, ...] = ()
        self._layout = 0
        self._version = OLDEST_VERSION

    def make(
        self, wanted: Wanted, attributes: Sequence[Attribute], layout: int, version: int = OLDEST_VERSION
    ) -> Iterator[None]:
        """Compiles what has not been; to be gone through to the end, with pauses for others as one likes.

        The layout is the mote's, which may have other names for its attributes; the version, that of its programs.
        """
        made_for = wanted.known, tuple(attributes), layout, version
        if (self._known, self._attributes, self._layout, self._version) != made_for:
            self._known, self._attributes, self._layout, self._version = made_for
            self.made.clear()
        self.made = {digest: self.made[digest] for digest in self.made if digest in wanted.filters}
        for digest, one in wanted.filters.items():
            if digest not in self.made or self._from.get(digest) != one:
                self.made[digest] = _made(digest, one.subscription, wanted.known, attributes, layout, version)
                self._from[digest] = one
                yield
        self._from = {digest: self._from[digest] for digest in wanted.filters}


def everything(attributes: Sequence[Attribute], layout: int) -> Program:
    """The program that sends every sample."""
    compiled = compile_program(ContentSubscription(filter=TRUE), Known(), attributes)
    assert isinstance(compiled, Compiled)
    return Program(EVERYTHING, addressed(compiled.program, 0, 0, layout))


def _made(
    digest: Digest,
    subscription: Subscription,
    known: Known,
    attributes: Sequence[Attribute],
    layout: int,
    version: int,
) -> Program | NoProgram:
    compiled = compile_program(subscription, known, attributes, version=version)
    if not isinstance(compiled, Compiled):
        return NoProgram(digest, compiled.why, compiled.never)
    is_state = isinstance(subscription, StateSubscription)
    exact = not is_state and not compiled.weaker
    value = None
    if compiled.keeps_bit and isinstance(subscription, StateSubscription) and subscription.each is not None:
        value = domain_of(Property(subscription.each), Mote(attributes, known).environment).constant()
    code = addressed(compiled.program, 0, 0, layout)
    return Program(digest, code, compiled.keeps_bit, exact, value, "; ".join(compiled.reasons))
