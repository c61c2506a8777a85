"""The map with 2,000 sources that all say something all the time: drawn in no time, and where they belong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from api_kit import wait_for
from dashboard_kit import City, Visit, chromium, page_cloud
from playwright.sync_api import Page, expect, sync_playwright

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

SOURCES = 2_000
SETTINGS: dict[str, Any] = {"dashboard": {"tiles": ""}}
DRAWN = 20
MOST_MS = 50.0
"""A tenth of it is usual; the map is drawn twenty times a second at most. A busy machine delays some."""
DRAG = (120, 60)

WATCH = """async () => {
    const { Dots } = await import('/dashboard/static/layers.js');
    const draw = Dots.prototype.draw;
    window.drawn = [];
    Dots.prototype.draw = function () {
        const began = performance.now();
        draw.call(this);
        window.drawn.push(performance.now() - began);
        window.dots = this;
    };
}"""
SPOTS = "window.dots?.spots.length ?? 0"
ASTRAY = """() => {
    const { dots } = window, [x, y, name] = dots.spots[0], source = dots.points.find((one) => one.name === name);
    const canvas = dots.canvas.getBoundingClientRect(), map = dots.map.getContainer().getBoundingClientRect();
    const place = dots.map.latLngToContainerPoint([source.lat, source.long]);
    const across = canvas.left - map.left + dots.margin + x - place.x;
    const down = canvas.top - map.top + dots.margin + y - place.y;
    return [across, down].map((far) => Math.abs(Math.round(far)));
}"""
"""How far from its place on the map a dot is, in pixels."""
LONELY = """([x, y]) => {
    const { left, top } = dots.canvas.getBoundingClientRect(), { margin, spots } = dots;
    const shown = spots.map(([sx, sy, name]) => [left + margin + sx, top + margin + sy, name]);
    const away = (one) => Math.hypot(one[0] - x, one[1] - y);
    const crowded = (one) => shown.some((other) => other !== one && other[0] === one[0] && other[1] === one[1]);
    return shown.sort((a, b) => away(a) - away(b)).find((one) => !crowded(one));
}"""
"""Where on the screen the dot is that is next to a place and alone on its pixel, and its name."""

HERE = "() => { window.here = [dots.map.getCenter(), dots.map.getZoom()]; }"
BACK = "() => { dots.map.setView(...window.here, { animate: false }); }"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The map, alive."""
    with (
        sync_playwright() as playwright,
        chromium(playwright) as browser,
        page_cloud(tmp_path_factory.mktemp("smooth"), "gateway", "http", **SETTINGS) as running,
        Visit(browser, running.url) as visit,
        City(running, sources=SOURCES).living(),
    ):
        page = visit.open("map")
        page.evaluate(WATCH)
        wait_for(lambda: page.evaluate(SPOTS) == SOURCES)
        yield page


def draw_anew(page: Page, times: int = 1) -> list[float]:
    """Until it was drawn so often again; how long each took, in milliseconds."""
    page.evaluate("window.drawn = []")
    wait_for(lambda: page.evaluate("window.drawn.length") >= times)
    found: list[float] = page.evaluate("window.drawn")
    return found


def back_at_a_dot(page: Page, x: float, y: float) -> tuple[float, float, str]:
    """On a busy machine the map begins to glide late, and may be far away from all dots: then it is put back again."""
    found: list[Any] = []

    def is_found() -> bool:
        page.evaluate(BACK)
        draw_anew(page)
        found.append(page.evaluate(LONELY, [x, y]))
        return found[-1] is not None

    wait_for(is_found)
    return found[-1][0], found[-1][1], found[-1][2]


def test_all_sources_are_drawn_at_once(page: Page) -> None:
    took = draw_anew(page, DRAWN)
    assert page.evaluate(SPOTS) == SOURCES
    assert min(took) < MOST_MS, took


def test_dots_lie_where_they_belong_also_while_the_map_is_dragged(page: Page) -> None:
    place = page.locator("#map").bounding_box()
    assert place is not None
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    page.evaluate(HERE)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + DRAG[0], y + DRAG[1], steps=10)
    try:
        draw_anew(page)
        assert page.evaluate(ASTRAY) == [0, 0]
    finally:
        page.mouse.up()
    draw_anew(page)
    wait_for(lambda: page.evaluate("!dots.map._panAnim?._inProgress"))  # it glides on
    assert page.evaluate(ASTRAY) == [0, 0]
    x, y, name = back_at_a_dot(page, x, y)
    page.mouse.click(x, y)
    expect(page.locator("#selected-body .selected-name")).to_contain_text(name)
