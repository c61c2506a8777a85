"""Writes tests/vectors/generated.json from the reference meaning: python -m spinney_tools.make_vectors [--check].

Random filters of every kind with publications, each with its verdict and why. The same on every machine: the only
randomness is Random(seed).random(), which Python keeps for good. Powers with a fractional exponent are left out, since
mathematical libraries differ in them, all but square roots.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from spinney import Filter, parse_filter
from spinney.evaluate import Verdict
from spinney.expression import properties
from spinney.publication import RESERVED
from spinney.text_writer import literal_text

VECTORS = Path(__file__).parents[2] / "tests" / "vectors" / "generated.json"
SEED = 20261118
PER_VERDICT: dict[Verdict, int] = {True: 48, False: 48, None: 24}
"""Vectors of one kind by their verdict: fewer of the unknown ones, which are much alike."""
MAX_TRIES = 6_000
"""For one kind: some cannot be unknown, or not false."""

T = TypeVar("T")
Publication = dict[str, Any]

NUMBERS = (-10, -2.5, -1, -0.5, 0, 0.1, 0.5, 1, 1.5, 2, 3, 4, 10, 40, 1e300, 5e-324, 9007199254740993)
STRINGS = (
    "",
    "a",
    "ab",
    "air",
    "air/no2",
    "AIR/NO2",
    "lab 1",
    "Lab 2",
    "Straße",
    "STRASSE",
    "it's",
    "100%",
    "a_b",
    "\\",
    "😀",
    "\uffff",
)
PATTERNS = (
    "%",
    "_",
    "a%",
    "%2",
    "air/%",
    "AIR%",
    "%a%",
    "l_b%",
    "100\\%",
    "a\\_b",
    "\\\\",
    "stra_e",
    "strasse",
    "_",
    "%😀",
)
MOMENTS = ("1970-01-01T00:00:00Z", "2026-11-18T00:00:00Z", "2026-11-18T12:30:00.25Z", "2026-11-19T00:00:00Z")
SECONDS = (0, 1794960000, 1795005000.25, 1795046400, 1795000000, 1795100000)
DAYS = ("1970-01-01", "2026-11-18", "2026-11-19")
LONGS = (-180, -175, -1, 0, 0.5, 1, 1.5, 2, 3, 4, 5, 15.97, 16.05, 175, 180)
LATS = (-45, -1, 0, 0.5, 1, 1.5, 2, 3, 4, 5, 45.81, 45.87)
GEOMETRIES = (
    "POINT(1 1)",
    "POINT(15.97 45.81)",
    "BBOX(0, 0, 4, 4)",
    "BBOX(15.9, 45.7, 16.1, 45.9)",
    "BBOX(170, -50, -170, 50)",
    "POLYGON((0 0, 4 0, 4 4, 0 4, 0 0))",
    "POLYGON((0 0, 5 0, 5 5, 0 5, 0 0), (1 1, 3 1, 3 3, 1 3, 1 1))",
    "POLYGON((0 0, 3 1, 1 4, 0 0))",
    "POLYGON((-2 -2, 0 0, 5 -2, 0 5, -2 -2))",
    "MULTIPOLYGON(((0 0, 2 0, 2 2, 0 2, 0 0)), ((3 3, 5 3, 5 5, 3 5, 3 3)))",
)
NULLABLE = ("a", "s", "flag", "location", "a / b", "x", "a + b")
EXPONENTS = ("2", "3", "-1", "0", "0.5", "10")
COMPARISONS = ("=", "<>", "<", ">", "<=", ">=")


class Maker:
    """Random pieces of filters and publications."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random  # noqa: S311  # vectors are no secrets

    def pick(self, items: Sequence[T]) -> T:
        """One of them."""
        return items[int(self._random() * len(items))]

    def chance(self, share: float) -> bool:
        """True in this share of all cases."""
        return self._random() < share

    def number(self) -> str:
        """A number in text."""
        return literal_text(float(self.pick(NUMBERS)))

    def string(self) -> str:
        """A string in text."""
        return literal_text(self.pick(STRINGS))

    def pattern(self) -> str:
        """A pattern in text."""
        return literal_text(self.pick(PATTERNS))

    def sum(self, depth: int = 2) -> str:
        """A computation in text."""
        if depth == 0 or self.chance(0.2):
            return self.pick(["a", "b", "a", "b", self.number()])
        left, right = self.sum(depth - 1), self.sum(depth - 1)
        shapes = (f"({left} + {right})", f"({left} - {right})", f"({left} * {right})", f"({left} / {right})")
        return self.pick([*shapes, f"({left} % {right})", f"({left} div {right})", f"abs({left})", f"({left}) ^ 2"])

    def moment(self) -> str:
        """An instant or an interval in text."""
        if self.chance(0.4):
            return self.interval()
        return self.pick((f"TIMESTAMP('{self.pick(MOMENTS)}')", f"DATE('{self.pick(DAYS)}')"))

    def interval(self) -> str:
        """An interval in text."""
        start, end = sorted((self.pick(MOMENTS), self.pick(MOMENTS)))
        return f"INTERVAL('{self.pick((start, start, '..'))}', '{self.pick((end, end, '..'))}')"

    def publication(self) -> Publication:
        """Mostly with what a filter expects, now and then without, or with another type."""
        usual: dict[str, Sequence[Any]] = {
            **dict.fromkeys(("a", "b"), NUMBERS),
            **dict.fromkeys(("s", "t"), STRINGS),
            "flag": (True, False),
            "time": SECONDS,
            "long": LONGS,
            "lat": LATS,
        }
        publication: Publication = {}
        for name, values in usual.items():
            if self.chance(0.85):
                usual_type = name in RESERVED or self.chance(0.93)
                publication[name] = self.pick(values) if usual_type else self.pick((1, "1", True))
        return publication


def _numbers(make: Maker) -> str:
    return f"{make.pick('ab')} {make.pick(COMPARISONS)} {make.number()}"


def _strings(make: Maker) -> str:
    return f"{make.pick('st')} {make.pick(COMPARISONS)} {make.string()}"


def _in(make: Maker) -> str:
    name, value = make.pick((("a", make.number), ("s", make.string)))
    values = ", ".join(value() for _ in range(make.pick((1, 2, 3, 5))))
    return f"{name} {make.pick(('IN', 'IN', 'NOT IN'))} ({values})"


def _casei(make: Maker) -> str:
    return make.pick(
        (
            f"CASEI(s) {make.pick(COMPARISONS)} CASEI({make.string()})",
            f"CASEI(s) IN (CASEI({make.string()}), CASEI({make.string()}), 'ab')",
            f"CASEI(s) LIKE CASEI({make.pattern()})",
            "CASEI(s) = CASEI(t)",
        )
    )


def _distance(make: Maker) -> str:
    metres = make.pick(("1000", "8000", "500e3", "5e6", "1e7"))
    lat, long = literal_text(float(make.pick(LATS))), literal_text(float(make.pick(LONGS)))
    return f"distance(lat, long, {lat}, {long}) {make.pick(('<', '<=', '>', '>='))} {metres}"


def _spatial(make: Maker) -> str:
    sides = make.pick((("location", "{}"), ("location", "{}"), ("{}", "location")))
    return f"S_{make.pick(('INTERSECTS', 'WITHIN'))}({', '.join(sides)})".format(make.pick(GEOMETRIES))


def _before_after(make: Maker) -> str:
    sides = make.pick((f"time, {make.moment()}", f"{make.moment()}, time"))
    return f"T_{make.pick(('BEFORE', 'AFTER'))}({sides})"


def _constants(make: Maker) -> str:
    constant, operator = make.pick(("TRUE", "FALSE")), make.pick(("AND", "OR"))
    return f"{constant} {operator} {make.pick(('flag = TRUE', 'NOT flag = TRUE', 'FALSE'))}"


def _logic(make: Maker, depth: int = 2) -> str:
    if depth == 0 or make.chance(0.15):
        return make.pick(_SIMPLE)(make)
    parts = [f"({_logic(make, depth - 1)})" for _ in range(make.pick((2, 2, 3)))]
    return make.pick((" AND ".join(parts), " OR ".join(parts), f"NOT {parts[0]}"))


KINDS: dict[str, Callable[[Maker], str]] = {
    "numbers": _numbers,
    "strings": _strings,
    "booleans": lambda make: f"flag {make.pick(COMPARISONS)} {make.pick(('TRUE', 'FALSE'))}",
    "attributes": lambda make: f"{make.pick('abst')} {make.pick(COMPARISONS)} {make.pick('abst')}",
    "literals": lambda make: f"{make.number()} {make.pick(COMPARISONS)} {make.pick((make.number(), make.string()))}",
    "between": lambda make: f"a {make.pick(('', 'NOT '))}BETWEEN {make.number()} AND {make.pick((make.number(), 'b'))}",
    "in": _in,
    "like": lambda make: f"s {make.pick(('', '', 'NOT '))}LIKE {make.pattern()}",
    "casei": _casei,
    "is null": lambda make: f"{make.pick(NULLABLE)} IS {make.pick(('', 'NOT '))}NULL",
    "arithmetic": lambda make: f"{make.sum()} {make.pick(COMPARISONS)} {make.sum(1)}",
    "powers": lambda make: f"a ^ {make.pick(EXPONENTS)} {make.pick(COMPARISONS)} {make.number()}",
    "distance": _distance,
    "spatial": _spatial,
    "instants": lambda make: f"time {make.pick(COMPARISONS)} TIMESTAMP('{make.pick(MOMENTS)}')",
    "dates": lambda make: f"time {make.pick(COMPARISONS)} DATE('{make.pick(DAYS)}')",
    "before and after": _before_after,
    "during": lambda make: f"T_DURING(time, {make.interval()})",
}
_SIMPLE = tuple(KINDS.values())
KINDS |= {"logic": _logic, "deep logic": lambda make: _logic(make, 4), "constants": _constants}


@dataclass(frozen=True, slots=True)
class Vector:
    """A filter in CQL2 Text, a publication, the verdict, and the parts that decided it."""

    kind: str
    filter: str
    publication: Publication
    verdict: Verdict
    why: list[tuple[str, Verdict]]


def why(condition: Filter, publication: Publication) -> list[tuple[str, Verdict]]:
    """The deciding parts, each with its own verdict, in the order they are written."""
    return [(part.text, part.verdict) for part in condition.explain(publication).reasons()]


def vectors(kind: str) -> Iterator[Vector]:
    """So many of each verdict, as far as the kind has them, none twice."""
    make, counts, seen = Maker(f"{SEED} {kind}"), Counter[Verdict](), set[str]()
    for _ in range(MAX_TRIES):
        text, publication = KINDS[kind](make), make.publication()
        condition = parse_filter(text)
        names = properties(condition)
        used = {name: publication[name] for name in sorted(publication) if name in names or name == "flag"}
        verdict = condition.evaluate(used)
        key = json.dumps([condition.to_text(), used])
        if key not in seen and counts[verdict] < PER_VERDICT[verdict]:
            seen.add(key)
            counts[verdict] += 1
            yield Vector(kind, condition.to_text(), used, verdict, why(condition, used))
        if counts == PER_VERDICT:
            return


def file_text() -> str:
    """The whole file: one vector to a line."""
    lines = [
        json.dumps(
            {
                "kind": vector.kind,
                "filter": vector.filter,
                "publication": vector.publication,
                "verdict": vector.verdict,
                "why": vector.why,
            },
            ensure_ascii=False,
        )
        for kind in KINDS
        for vector in vectors(kind)
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or with --check say whether it is as it should be."""
    parser = argparse.ArgumentParser(prog="make_vectors", description="Writes tests/vectors/generated.json.")
    parser.add_argument("--check", action="store_true", help="only say whether the file is fresh")
    text = file_text()
    if not parser.parse_args(arguments).check:
        VECTORS.write_text(text, encoding="utf-8")
        print(f"wrote {VECTORS}")
        return 0
    fresh = VECTORS.exists() and VECTORS.read_text(encoding="utf-8") == text
    print(f"{VECTORS} is {'fresh' if fresh else 'stale: run python -m spinney_tools.make_vectors'}")
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main())
