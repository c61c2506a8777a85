"""The wiring pictures: one for each driver, as the generator draws them, readable on light and on dark pages."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from spinney_mote.drivers import DRIVERS

from spinney_tools.make_wiring import FOLDER, WIDTH, WIRINGS, svg

SVG = "{http://www.w3.org/2000/svg}"
CHARACTER = {"title": 9.6, "note": 7.2, "": 8.2}
"""Pixels that a character takes at most, on average over words, by class of text."""


def test_every_driver_has_a_picture_and_no_other_is_there() -> None:
    assert set(WIRINGS) == set(DRIVERS)
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(DRIVERS)


@pytest.mark.parametrize("driver", sorted(WIRINGS))
def test_the_picture_in_the_repository_is_what_is_drawn(driver: str) -> None:
    assert (FOLDER / f"{driver}.svg").read_text(encoding="utf-8") == svg(WIRINGS[driver]), (
        "run: python -m spinney_tools.make_wiring"
    )


@pytest.mark.parametrize("driver", sorted(WIRINGS))
def test_texts_stay_within_the_picture(driver: str) -> None:
    root = ElementTree.fromstring(svg(WIRINGS[driver]))
    height = float(root.attrib["height"])
    texts = list(root.iter(f"{SVG}text"))
    assert texts
    for text in texts:
        size = len(text.text or "") * CHARACTER[text.get("class", "")]
        before = {"end": size, "middle": size / 2, "start": 0}[text.get("text-anchor", "start")]
        left = float(text.attrib["x"]) - before
        assert left >= 8, text.text
        assert left + size <= WIDTH - 8, text.text
        assert 16 <= float(text.attrib["y"]) <= height - 6, text.text


@pytest.mark.parametrize("driver", sorted(WIRINGS))
def test_every_colour_has_one_for_dark_pages(driver: str) -> None:
    style = ElementTree.fromstring(svg(WIRINGS[driver])).findtext(f"{SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    coloured = re.compile(r"(\.?[\w.]+) \{ [^}]*#")
    assert {name for name in coloured.findall(light) if "title" not in name} == set(coloured.findall(dark))


def test_the_readme_shows_every_picture_and_lists_every_driver() -> None:
    text = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    for driver in DRIVERS:
        assert f"](docs/{driver}.svg)" in text
        assert f"| `{driver}` |" in text
