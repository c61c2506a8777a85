"""What a workload is: a schema, events and subscriptions, printed as the three text files of README.md.

All numbers are drawn as integers on a decimal grid and printed as exact decimals, so that engines which work on
integers, on doubles or on text must find exactly the same matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ROWS_AT_ONCE = 50_000
"""So many rows are text at the same time: a million subscriptions would be hundreds of megabytes of it."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: integers in low..high, divided by 10^decimals; or, with `strings`, an index into these."""

    name: str
    decimals: int = 0
    low: int = 0
    high: int = 0
    strings: tuple[str, ...] = ()

    def text(self, value: int) -> str:
        """The value as it stands in the files."""
        if self.strings:
            return self.strings[value]
        if not self.decimals:
            return str(value)
        whole, fraction = divmod(value, 10**self.decimals)
        return f"{whole}.{fraction:0{self.decimals}d}"

    def schema_fields(self) -> str:
        """Name, type, decimals and limits, as a schema line has them."""
        if self.strings:
            return f"{self.name} s {self.decimals} 0 {len(self.strings)}"
        return f"{self.name} n {self.decimals} {self.text(self.low)} {self.text(self.high)}"


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload. Every file has seeds of its own, so that any of them can be generated alone."""

    name: str
    about: str
    attributes: tuple[Attribute, ...]
    sizes: tuple[int, ...]
    event_columns: Callable[[], list[Integers]]
    subscriptions: Callable[[int], Iterator[str]]

    def schema(self) -> Iterator[str]:
        """The lines of W.schema."""
        for number, attribute in enumerate(self.attributes):
            yield f"{number} {attribute.schema_fields()}"

    def events(self) -> Iterator[str]:
        """The lines of W.events: every event has all attributes."""
        for row in rows(*self.event_columns()):
            texts = (f"{i} {a.text(value)}" for i, (a, value) in enumerate(zip(self.attributes, row, strict=True)))
            yield " ".join(texts)


def rows(*columns: npt.NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """The columns row by row, as plain Python values."""
    for start in range(0, len(columns[0]), ROWS_AT_ONCE):
        yield from zip(*(column[start : start + ROWS_AT_ONCE].tolist() for column in columns), strict=True)
