"""Why a publication matches a filter or not: the evaluator's own trace, as words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .evaluate import Trace, Verdict, evaluate
from .expression import And, Filter, Not, Or, Value, properties
from .publication import attribute

_WORDS = {True: "true", False: "false", None: "unknown"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One part of a filter, its verdict, the attributes it read (None: missing), and the parts below it."""

    text: str
    verdict: Verdict
    values: Mapping[str, Value | None]
    parts: tuple[Explanation, ...] = ()

    @property
    def matches(self) -> bool:
        """Only true matches."""
        return self.verdict is True

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, level: int) -> Iterator[str]:
        reason = ""
        if not self.parts:
            missing = [name for name, value in self.values.items() if value is None]
            known = [f"{name} is {_show(value)}" for name, value in self.values.items() if value is not None]
            reason = "; ".join(known + [f"{name} is missing" for name in missing])
        yield "  " * level + f"{_WORDS[self.verdict]}: {self.text}" + (f"   ({reason})" if reason else "")
        for part in self.parts:
            yield from part._lines(level + 1)

    def to_json(self) -> dict[str, Any]:
        """The same as objects that json.dumps takes."""
        own: dict[str, Any] = {"text": self.text, "verdict": self.verdict, "values": dict(self.values)}
        return own | ({"parts": [part.to_json() for part in self.parts]} if self.parts else {})

    def reasons(self) -> tuple[Explanation, ...]:
        """The smallest parts that made the verdict what it is."""
        if not self.parts:
            return (self,)
        return tuple(leaf for part in self.parts if self._decides(part) for leaf in part.reasons())

    def _decides(self, part: Explanation) -> bool:
        return len(self.parts) == 1 or part.verdict is self.verdict


def _show(value: Value | None) -> str:
    from .text_writer import literal_text

    return "missing" if value is None else literal_text(value)


def explain(condition: Filter, publication: Mapping[str, Any]) -> Explanation:
    """Evaluates with a trace and puts the trace in the filter's shape."""
    trace: Trace = []
    evaluate(condition, publication, trace)
    done: list[Explanation] = []
    for part, verdict in trace:  # parts come before the whole, so a whole finds its own on top
        count = len(part.operands) if isinstance(part, And | Or) else 1 if isinstance(part, Not) else 0
        below = tuple(done[len(done) - count :])
        del done[len(done) - count :]
        values = {name: attribute(publication, name) for name in sorted(properties(part))}
        done.append(Explanation(part.to_text(), verdict, values, below))
    return done[0]
