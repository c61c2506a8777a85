"""The picture at README's head: what is pruned where, by the numbers of the run that it is drawn from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from ..mote_setting import SAMPLES, SENSORS
from ..table import number

PICTURE: Final = Path("tools/pictures/forest.svg")
_STYLE: Final = """
    text { fill: #24332a } .small { font-size: 14px; fill: #55655b } .name { font-size: 17px; font-weight: 600 }
    .count { font-size: 26px; font-weight: 700 } .card { fill: #f3f7f3; stroke: #b9cabd } .leaf { fill: #4c8c5a }
    .branch { stroke: #4c8c5a; fill: none } .cut { stroke: #b9cabd; fill: none; stroke-dasharray: 3 6 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6efe8 } .small { fill: #a9b8ad } .card { fill: #1d2620; stroke: #3d5043 } .leaf { fill: #7cc08a }
      .branch { stroke: #7cc08a } .cut { stroke: #3d5043 }
    }
  """
_CUTS: Final = (
    "M196 96 C 236 60, 262 60, 292 44 M196 116 C 236 100, 262 96, 296 88",
    "M196 168 C 236 196, 262 200, 296 208 M196 186 C 236 226, 262 236, 292 250",
)
_BRANCHES: Final = ((5, "M196 142 C 240 142, 262 142, 306 142"), (4.5, "M466 142 L 534 142"), (4, "M694 142 L 762 142"))
_LEAVES: Final = (306, 534, 762)
_CARDS: Final = ((24, 172), (306, 160), (534, 160), (762, 174))
"""From the left, and how wide."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Means of thirty hours."""

    stretches: int
    origin: str
    passed: float
    """Samples that motes' filters let through."""
    told: float
    missed: float
    filter_bytes: int


def draw(found: Numbers) -> str:
    """The SVG."""
    measured, passed, told = number(sum(SENSORS) * SAMPLES), number(found.passed), number(found.told)
    missed = "none missed" if not found.missed else f"{number(found.missed)} changes missed"
    what = (
        f"35 motes measured {measured} readings in thirty hours. The state filters on them let {passed} through, and "
        f"subscribers were told of {told} events. Simulated: means of {found.stretches:,} stretches, {found.origin}."
    )
    cards = (
        ("35 motes", measured, ("readings measured", "in thirty hours")),
        ("mobile brokers", passed, ("readings passed", "the motes' filters")),
        ("cloud", "", ("knows who asks what,", "keeps what is asked,", "and tells it")),
        ("10 subscribers", told, ("events told,", missed)),
    )
    foot = f"Simulated: means of {found.stretches:,} stretches of thirty hours, {found.origin}"
    return "\n".join([*_frame(what), *_texts(cards), *_edge(found.filter_bytes, foot), "  </g>", "</svg>", ""])


def _frame(what: str) -> Iterator[str]:
    yield (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 300" role="img" aria-labelledby="title what" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', sans-serif\">"
    )
    yield '  <title id="title">Readings are pruned where they grow</title>'
    yield f'  <desc id="what">{escape(what)}</desc>'
    yield f"  <style>{_STYLE}</style>"
    yield from (f'  <path class="cut" stroke-width="2" d="{path}"/>' for path in _CUTS)
    yield from (f'  <path class="branch" stroke-width="{width}" d="{path}"/>' for width, path in _BRANCHES)
    yield from (f'  <path class="leaf" d="M{left} 142 l-14 -8 l0 16 z"/>' for left in _LEAVES)
    yield from (
        f'  <rect class="card" x="{left}" y="74" width="{width}" height="136" rx="14"/>' for left, width in _CARDS
    )
    yield '  <g text-anchor="middle">'


def _texts(cards: tuple[tuple[str, str, tuple[str, ...]], ...]) -> Iterator[str]:
    for (left, width), (name, count, lines) in zip(_CARDS, cards, strict=True):
        middle = left + width // 2
        yield _text("name", middle, 106, name)
        if count:
            yield _text("count", middle, 150, count)
        first = 176 if count else 140
        yield from (
            _text("small", middle, first + place * (19 if count else 22), line) for place, line in enumerate(lines)
        )


def _edge(filter_bytes: int, foot: str) -> Iterator[str]:
    yield _text("small", 250, 34, "what nobody asked for ends here")
    way = f"The question travels the other way: temperature > 10 becomes a filter of {filter_bytes} bytes"
    yield _text("small", 480, 266, f"{way} on the motes that it concerns")
    yield _text("small", 480, 288, foot)


def _text(kind: str, x: int, y: int, text: str) -> str:
    return f'    <text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'
