"""The subscription forest, and the plain list, of a mobile broker: is there any subscription that wants this reading?

In the forest a filter stands below one that covers it, so that the roots alone decide whether a publication is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .bounds import Bounds, bounds
from .compiled import compile_filter
from .covers import covers
from .errors import MatcherError
from .expression import Filter
from .mask_index import MaskIndex, slots


class _Node:
    """A filter in its slot; parent and children are used by the forest only."""

    __slots__ = ("_test", "bounds", "children", "filter", "id", "parent", "slot")

    def __init__(self, id: str, condition: Filter) -> None:
        self.id = id
        self.filter = condition
        self._test: Callable[[Mapping[str, Any]], bool] | None = None
        self.bounds: Bounds = bounds(condition)
        self.slot = -1
        self.parent: _Node | None = None
        self.children: dict[str, _Node] = {}

    def matches(self, publication: Mapping[str, Any]) -> bool:
        """Whether the publication matches. Compiled when first asked: a filter that is no root may never be."""
        if self._test is None:
            self._test = compile_filter(self.filter)
        return self._test(publication)


class FilterList:
    """All filters side by side."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._at: dict[int, _Node] = {}
        self._index = MaskIndex()

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, id: object) -> bool:
        return id in self._nodes

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def add(self, id: str, condition: Filter) -> None:
        """Adds a filter under an id that is not there yet."""
        if id in self._nodes:
            raise MatcherError(f"'{id}' has been added already")
        node = _Node(id, condition)
        node.slot = self._index.add(node.bounds)
        self._nodes[id] = self._at[node.slot] = node

    def remove(self, id: str) -> None:
        """Removes a filter."""
        node = self._node(id)
        self._index.remove(node.slot)
        del self._nodes[id], self._at[node.slot]

    def replace(self, id: str, condition: Filter) -> None:
        """Another filter under the same id."""
        self.remove(id)
        self.add(id, condition)

    def first_match(self, publication: Mapping[str, Any]) -> str | None:
        """The id of one filter that the publication matches; it looks no further."""
        for slot in slots(self._index.candidates(publication, self._deciding())):
            node = self._at[slot]
            if node.matches(publication):
                return node.id
        return None

    def _deciding(self) -> int:
        return self._index.live

    def _node(self, id: str) -> _Node:
        try:
            return self._nodes[id]
        except KeyError:
            raise MatcherError(f"'{id}' is not there") from None


class Forest(FilterList):
    """Filters below filters that cover them. Only roots are asked; their trees match nothing that they do not."""

    def __init__(self, covering: Callable[[Filter, Filter], bool] = covers) -> None:
        super().__init__()
        self._covers = covering
        self._roots = 0

    @property
    def roots(self) -> list[str]:
        """The ids of the filters that no other covers."""
        return [self._at[slot].id for slot in slots(self._roots)]

    def parent(self, id: str) -> str | None:
        """The filter above, None for a root."""
        above = self._node(id).parent
        return above.id if above else None

    def children(self, id: str) -> list[str]:
        """The filters directly below."""
        return list(self._node(id).children)

    def add(self, id: str, condition: Filter) -> None:
        """Adds a filter below one that covers it, above those beside it that it covers."""
        super().add(id, condition)
        node = self._nodes[id]
        self._hang(node, self._above(node, self._index.live))
        for slot in slots(self._index.within(node.bounds)):
            other = self._at[slot]
            if other is not node and other.parent is node.parent and self._covers(node.filter, other.filter):
                self._hang(other, node)

    def remove(self, id: str) -> None:
        """Removes a filter; what stood below it goes to the filter above it, or to another root that covers it."""
        node = self._node(id)
        orphans = list(node.children.values())
        for orphan in orphans:
            self._hang(orphan, node.parent)
        self._unhook(node)
        super().remove(id)
        for orphan in orphans:
            if orphan.parent is None:
                self._hang(orphan, self._above(orphan, self._roots))

    def _above(self, node: _Node, among: int) -> _Node | None:
        """A filter among a mask that covers the node's."""
        for slot in slots(self._index.containing(node.bounds) & among):
            other = self._at[slot]
            if other is not node and self._covers(other.filter, node.filter):
                return other
        return None

    def _hang(self, node: _Node, parent: _Node | None) -> None:
        self._unhook(node)
        node.parent = parent
        if parent:
            parent.children[node.id] = node
        else:
            self._roots |= 1 << node.slot

    def _unhook(self, node: _Node) -> None:
        if node.parent:
            node.parent.children.pop(node.id, None)
        self._roots &= ~(1 << node.slot)

    def _deciding(self) -> int:
        return self._roots
