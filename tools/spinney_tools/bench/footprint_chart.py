"""The messaging footprint as a chart of several countings, which reads in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 560, 330
"""Of a panel."""
LEFT, RIGHT, TOP, BOTTOM = 48, 124, 42, 32
HEAD, FOOT = 34, 26
_STEP: Final = 0.2
_LABEL_PX: Final = 16
"""Between two labels at the ends of lines, at least."""
_COLOURS: Final = (
    ("#6b6b6b", "#a8a8a8", ""),
    ("#b45309", "#f0a860", "2 4"),
    ("#1d5fb4", "#7db4f5", "8 4"),
    ("#15803d", "#5ccb85", ""),
    ("#15803d", "#5ccb85", "10 3 2 3"),
    ("#6b6b6b", "#a8a8a8", "2 2"),
    ("#1d5fb4", "#7db4f5", "2 2"),
)
"""Of each line in light and in dark, and its dashes, so that colours alone tell nothing."""


@dataclass(frozen=True, slots=True)
class Line:
    """One way: the mean at each coverage, and the least and most of all runs."""

    name: str
    means: Sequence[float]
    least: Sequence[float]
    most: Sequence[float]


@dataclass(frozen=True, slots=True)
class Panel:
    """One counting of all ways."""

    title: str
    lines: Sequence[Line]


def chart(title: str, note: str, coverages: Sequence[float], panels: Sequence[Panel]) -> str:
    """An SVG of panels, two beside each other, of lines, each with the range of its runs behind it."""
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    assert len(names) <= len(_COLOURS), "each line has a look of its own"
    styles = "".join(map(_style, range(len(names))))
    dark = "".join(f".l{n}{{stroke:{c[1]}}}.f{n}{{fill:{c[1]}}}" for n, c in enumerate(_COLOURS[: len(names)]))
    height = HEAD + -(-len(panels) // 2) * HEIGHT + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13"><title>{escape(title)}</title>',
        "<style>text{fill:#24292f}.axis{stroke:#d0d7de}.line{fill:none;stroke-width:2.5}.band{opacity:.12}"
        f"{styles}@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.axis{{stroke:#3d444d}}{dark}}}</style>",
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="600">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        x, y = number % 2 * WIDTH, HEAD + number // 2 * HEIGHT
        parts.append(f'<g transform="translate({x} {y})">')
        parts += _panel(panel, coverages, names)
        parts.append("</g>")
    parts += [f'<text x="{LEFT}" y="{height - 10}" font-size="12">{escape(note)}</text>', "</svg>"]
    return "\n".join(parts) + "\n"


def _panel(panel: Panel, coverages: Sequence[float], names: Sequence[str]) -> list[str]:
    most = max(max(line.means) for line in panel.lines)
    scale = _Scale(coverages, max(1.2, math.ceil(most / _STEP) * _STEP))
    looks = [(names.index(line.name), line) for line in panel.lines]
    return [
        f'<text x="{LEFT}" y="30" font-size="14" font-weight="600">{escape(panel.title)}</text>',
        *_axes(scale),
        *(_band(look, scale, line) for look, line in looks),
        *(_line(look, scale, line) for look, line in looks),
        *_labels(looks, scale),
    ]


def _style(number: int) -> str:
    light, _, dashes = _COLOURS[number]
    dashed = f";stroke-dasharray:{dashes}" if dashes else ""
    return f".l{number}{{stroke:{light}{dashed}}}.f{number}{{fill:{light}}}"


@dataclass(frozen=True, slots=True)
class _Scale:
    """Of one panel."""

    coverages: Sequence[float]
    most: float

    def x(self, coverage: float) -> float:
        """Where a coverage is."""
        least, last = self.coverages[0], self.coverages[-1]
        return round(LEFT + (coverage - least) / ((last - least) or 1.0) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, ratio: float) -> float:
        """Where a ratio is; what is beyond the scale is at its end."""
        return round(HEIGHT - BOTTOM - min(ratio, self.most) / self.most * (HEIGHT - TOP - BOTTOM), 1)

    def points(self, ratios: Sequence[float]) -> list[str]:
        """Where the ratios of all coverages are."""
        return [f"{self.x(coverage)},{self.y(ratio)}" for coverage, ratio in zip(self.coverages, ratios, strict=True)]


def _axes(scale: _Scale) -> list[str]:
    found = []
    for number in range(round(scale.most / _STEP) + 1):
        ratio = number * _STEP
        y = scale.y(ratio)
        found.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        found.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{ratio:.1f}</text>')
    for coverage in scale.coverages:
        x = scale.x(coverage)
        found.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{coverage:.0%}</text>')
    return found


def _band(look: int, scale: _Scale, line: Line) -> str:
    around = [*scale.points(line.most), *reversed(scale.points(line.least))]
    return f'<polygon class="band f{look}" points="{" ".join(around)}"/>'


def _line(look: int, scale: _Scale, line: Line) -> str:
    return f'<polyline class="line l{look}" points="{" ".join(scale.points(line.means))}"/>'


def _labels(looks: Sequence[tuple[int, Line]], scale: _Scale) -> list[str]:
    """At the ends of their lines, moved apart where these are close."""
    found, last = [], float("-inf")
    for look, line in sorted(looks, key=lambda item: scale.y(item[1].means[-1])):
        last = max(scale.y(line.means[-1]) + 4, last + _LABEL_PX)
        found.append(f'<text class="f{look}" x="{WIDTH - RIGHT + 8}" y="{last}">{escape(line.name)}</text>')
    return found
