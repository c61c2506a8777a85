"""Labels: how the evaluator of a source's bit tells the tiers above what it set the bit to (rules S2, S3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from .errors import LabelError, PublicationError
from .expression import Value
from .identity import LARGEST_NUMBER, PublicationId
from .notification import scope_key
from .publication import attribute
from .subscription import StateSubscription

Order = tuple[int, int, int]
"""Owner epoch, boot, sequence: how what is said of one source is ordered (rules I3, S2)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the bit of one source was set to, for one state subscription, and by which reading.

    It sets and never toggles: of two marks of one source, the one with the higher order holds, whichever comes first.
    An undecided mark sets nothing: the evaluator does not know its bit, and the tier above decides by the reading.
    """

    source: str
    order: Order
    bit: bool | None
    """None: undecided."""
    value: Value | None = None
    """The EACH value that the bit was set in; None while the bit is 0, and without EACH."""

    @property
    def id(self) -> PublicationId:
        """The reading that set it."""
        return PublicationId(self.source, self.order[1], self.order[2])

    def owned(self, epoch: int) -> Mark:
        """The mark of a mote as its owner passes it on."""
        return replace(self, order=(epoch, *self.order[1:]))

    def to_json(self) -> list[Any]:
        """As a list that json.dumps takes: source, epoch, boot, sequence, bit, value."""
        return [self.source, *self.order, None if self.bit is None else int(self.bit), self.value]

    @classmethod
    def from_json(cls, item: Any) -> Mark:
        """What gave this list; LabelError for anything else."""
        match item:
            case [str(source), *order, 0 | 1 as bit, value] if _is_order(order):
                return cls(source, (order[0], order[1], order[2]), bool(bit), _value(value))
            case [str(source), *order, None, None] if _is_order(order):
                return cls(source, (order[0], order[1], order[2]), None)
        raise LabelError(f"expected [source, epoch, boot, sequence, bit, value], not {str(item)[:80]}")


@dataclass(frozen=True, slots=True)
class Label:
    """One mark that a publication brought about, with the whole membership of its owner in the scopes it concerns.

    A silent one comes without a publication, before its owner gives the source up.
    """

    mark: Mark
    membership: tuple[Mark, ...] = ()
    silent: bool = False

    def marks(self) -> Iterable[Mark]:
        """All that it says."""
        return (self.mark, *self.membership)

    def to_json(self) -> dict[str, Any]:
        """As objects that json.dumps takes."""
        return {
            "mark": self.mark.to_json(),
            "membership": [mark.to_json() for mark in self.membership],
            "silent": self.silent,
        }

    @classmethod
    def from_json(cls, item: Any) -> Label:
        """What gave these objects; LabelError for anything else."""
        match item:
            case {"mark": mark, "membership": list(membership), "silent": bool(silent), **others} if not others:
                return cls(Mark.from_json(mark), tuple(Mark.from_json(one) for one in membership), silent)
        raise LabelError(f"expected a label with mark, membership and silent, not {str(item)[:80]}")


def scope_of(subscription: StateSubscription, mark: Mark) -> str | None:
    """The key of the scope that the mark's source is in; None while its bit is 0 (rule S3)."""
    if not mark.bit:
        return None
    return scope_key(scope_value(subscription, mark))


def scope_value(subscription: StateSubscription, mark: Mark) -> Value | None:
    """The scope that the mark belongs to, as a notification names it: the EACH value, None with ONCE, or the source."""
    if subscription.each is not None:
        return mark.value
    return None if subscription.once else mark.source


def _is_order(order: list[Any]) -> bool:
    return len(order) == 3 and all(type(number) is int and 0 <= number <= LARGEST_NUMBER for number in order)


def _value(value: Any) -> Value | None:
    try:
        return attribute({"value": value}, "value")
    except PublicationError as error:
        raise LabelError(f"expected an EACH value: {error}") from None
