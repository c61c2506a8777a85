"""Writes the land that the dashboard draws where it has no tiles: Natural Earth's 1:50m land, generalised.

    npm pack world-atlas@2 && tar xzf world-atlas-*.tgz
    python -m spinney_tools.make_land package/land-50m.json

Natural Earth is in the public domain. The file holds rings of whole hundredths of a degree, longitude then latitude,
each point as the step from the one before. Rings that cross the antimeridian go on beyond 180 degrees.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

from spinney_tools import clone

OUT = "cloud/spinney_cloud/dashboard/static/land.json"
SOURCE = "Natural Earth 4.1, 1:50m land, public domain (naturalearthdata.com); generalised by make_land.py"
SCALE = 100
TOLERANCE = 0.06
"""Degrees that a coast may be off."""
SMALLEST = 0.05
"""Square degrees; smaller islands are left out."""

Point = tuple[float, float]


def main(arguments: Sequence[str]) -> int:
    """Reads the TopoJSON file that is named, writes ours."""
    topology = json.loads(Path(arguments[0]).read_text())
    rings = [packed for ring in land(topology) if area(ring) >= SMALLEST and len(packed := pack(simplified(ring))) > 6]
    out = clone.root() / OUT
    out.write_text(json.dumps({"source": SOURCE, "scale": SCALE, "rings": rings}, separators=(",", ":")) + "\n")
    print(f"{out}: {len(rings)} rings, {sum(map(len, rings)) // 2} points, {out.stat().st_size} bytes")
    return 0


def land(topology: dict[str, Any]) -> Iterator[list[Point]]:
    """Each ring of the land, in degrees."""
    (scale_x, scale_y), (left, bottom) = topology["transform"]["scale"], topology["transform"]["translate"]
    arcs = []
    for arc in topology["arcs"]:
        steps = accumulate(arc, lambda at, step: [at[0] + step[0], at[1] + step[1]])
        arcs.append([(x * scale_x + left, y * scale_y + bottom) for x, y in steps])
    for geometry in topology["objects"]["land"]["geometries"]:
        for ring in chain.from_iterable(geometry["arcs"]):
            parts = [arcs[number] if number >= 0 else arcs[~number][::-1] for number in ring]
            yield unwrapped(list(chain(parts[0], *(part[1:] for part in parts[1:]))))


def unwrapped(ring: list[Point]) -> list[Point]:
    """Without jumps from one side of the map to the other; one that goes around the pole is closed along it."""
    turns = accumulate((round((a[0] - b[0]) / 360) for a, b in pairwise(ring)), initial=0)
    found = [(x + 360 * turn, y) for (x, y), turn in zip(ring, turns, strict=True)]
    if abs(found[-1][0] - found[0][0]) > 180:
        pole = math.copysign(90, found[0][1])
        found += [(found[-1][0], pole), (found[0][0], pole), found[0]]
    return found


def area(ring: Sequence[Point]) -> float:
    """Square degrees, near enough."""
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring))) / 2


def simplified(ring: list[Point]) -> list[Point]:
    """By Douglas and Peucker's rule, without recursion."""
    kept = {0, len(ring) - 1}
    todo = [(0, len(ring) - 1)]
    while todo:
        first, last = todo.pop()
        far, at = max(
            ((_off(ring[i], ring[first], ring[last]), i) for i in range(first + 1, last)), default=(0.0, first)
        )
        if far > TOLERANCE:
            kept.add(at)
            todo += [(first, at), (at, last)]
    return [ring[i] for i in sorted(kept)]


def _off(point: Point, a: Point, b: Point) -> float:
    """The distance of a point from a line; from the end where both ends are one."""
    length = math.dist(a, b)
    if not length:
        return math.dist(point, a)
    return abs((b[0] - a[0]) * (a[1] - point[1]) - (a[0] - point[0]) * (b[1] - a[1])) / length


def pack(ring: Sequence[Point]) -> list[int]:
    """Whole numbers, each point as the step from the one before; points that fall together are one."""
    points = [(round(x * SCALE), round(y * SCALE)) for x, y in ring]
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(points)]
    return [*points[0], *chain.from_iterable(step for step in steps if step != (0, 0))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
