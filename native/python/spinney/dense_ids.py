"""Ids of any text as small numbers, given out again only when nobody can be holding an old answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator


class DenseIds:
    """Numbers for ids. Writers hold a lock of their own; readers call begin, translate and end, and hold none.

    A reader may have an answer in which a number still means an id that was removed meanwhile. So a removed number is
    retired at a moment, and waits until every reader that is at work began after it. Where other threads read what
    is kept here, single operations on lists and dicts are relied on to be atomic.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._ids: list[str] = []
        self._retired: deque[tuple[int, int]] = deque()
        """(moment, number), oldest first."""
        self._moment = 0
        self._at_work: list[int] = []
        """When each reader that is at work began."""
        self.translate: Callable[[int], str] = self._ids.__getitem__
        """The id of a number, for readers."""

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._numbers))

    def begin(self) -> int:
        """A reader starts work, before it asks for numbers."""
        moment = self._moment
        self._at_work.append(moment)
        return moment

    def end(self, moment: int) -> None:
        """A reader that began at this moment has translated its numbers."""
        self._at_work.remove(moment)

    def number(self, id: str) -> int:
        """The number of an id; KeyError if it has none."""
        return self._numbers[id]

    def add(self, id: str) -> int:
        """A number for a new id: readers can translate it from now on."""
        if self._retired and self._retired[0][0] <= min(tuple(self._at_work), default=self._moment):
            number = self._retired.popleft()[1]
            self._ids[number] = id
        else:
            number = len(self._ids)
            self._ids.append(id)
        self._numbers[id] = number
        return number

    def remove(self, id: str) -> None:
        """Takes the number away from an id, after the last answer that can have it."""
        self._moment += 1
        self._retired.append((self._moment, self._numbers.pop(id)))
