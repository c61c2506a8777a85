"""The messaging footprint as a chart, which reads in light and in dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 130, 48, 56
_MOST: Final = 1.2
_STEP: Final = 0.2
_LABEL_PX: Final = 16
"""Between two labels at the ends of lines, at least."""
_COLOURS: Final = (
    ("#6b6b6b", "#a8a8a8", ""),
    ("#b45309", "#f0a860", "2 4"),
    ("#1d5fb4", "#7db4f5", "8 4"),
    ("#15803d", "#5ccb85", ""),
    ("#15803d", "#5ccb85", "10 3 2 3"),
)
"""Of each line in light and in dark, and its dashes, so that colours alone tell nothing."""


@dataclass(frozen=True, slots=True)
class Line:
    """One way: the mean at each coverage, and the least and most of all runs."""

    name: str
    means: Sequence[float]
    least: Sequence[float]
    most: Sequence[float]


def chart(title: str, note: str, coverages: Sequence[float], lines: Sequence[Line]) -> str:
    """An SVG of lines, each with the range of its runs behind it. At most five lines."""
    styles = "".join(_style(number) for number in range(len(lines)))
    dark = "".join(f".l{n}{{stroke:{c[1]}}}.f{n}{{fill:{c[1]}}}" for n, c in enumerate(_COLOURS[: len(lines)]))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13"><title>{escape(title)}</title>',
        "<style>text{fill:#24292f}.axis{stroke:#d0d7de}.line{fill:none;stroke-width:2.5}.band{opacity:.15}"
        f"{styles}@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.axis{{stroke:#3d444d}}{dark}}}</style>",
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="600">{escape(title)}</text>',
        *_axes(coverages),
        *(_band(number, coverages, line) for number, line in enumerate(lines)),
        *(_line(number, coverages, line) for number, line in enumerate(lines)),
        *_labels(lines),
        f'<text x="{LEFT}" y="{HEIGHT - 10}" font-size="12">{escape(note)}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _style(number: int) -> str:
    light, _, dashes = _COLOURS[number]
    dashed = f";stroke-dasharray:{dashes}" if dashes else ""
    return f".l{number}{{stroke:{light}{dashed}}}.f{number}{{fill:{light}}}"


def _x(coverage: float, coverages: Sequence[float]) -> float:
    share = (coverage - coverages[0]) / ((coverages[-1] - coverages[0]) or 1.0)
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _y(ratio: float) -> float:
    return round(HEIGHT - BOTTOM - min(ratio, _MOST) / _MOST * (HEIGHT - TOP - BOTTOM), 1)


def _axes(coverages: Sequence[float]) -> list[str]:
    found = []
    for number in range(round(_MOST / _STEP) + 1):
        ratio = number * _STEP
        y = _y(ratio)
        found.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        found.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{ratio:.1f}</text>')
    for coverage in coverages:
        x = _x(coverage, coverages)
        found.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{coverage:.0%}</text>')
    return found


def _points(coverages: Sequence[float], ratios: Sequence[float]) -> list[str]:
    return [f"{_x(coverage, coverages)},{_y(ratio)}" for coverage, ratio in zip(coverages, ratios, strict=True)]


def _band(number: int, coverages: Sequence[float], line: Line) -> str:
    around = [*_points(coverages, line.most), *reversed(_points(coverages, line.least))]
    return f'<polygon class="band f{number}" points="{" ".join(around)}"/>'


def _line(number: int, coverages: Sequence[float], line: Line) -> str:
    return f'<polyline class="line l{number}" points="{" ".join(_points(coverages, line.means))}"/>'


def _labels(lines: Sequence[Line]) -> list[str]:
    """At the ends of their lines, moved apart where these are close."""
    found, last = [], float("-inf")
    for number, line in sorted(enumerate(lines), key=lambda item: _y(item[1].means[-1])):
        last = max(_y(line.means[-1]) + 4, last + _LABEL_PX)
        found.append(f'<text class="f{number}" x="{WIDTH - RIGHT + 8}" y="{last}">{escape(line.name)}</text>')
    return found
