"""How smooth the map is in a real browser: its frames, and what the page's own scripts do in each.

There is no GPU on most machines that measure, so that what a frame takes is what drawing by the processor takes. What
is ours to keep small are the scripts: that is what has a target.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .stuck import Stuck
from .table import number

if TYPE_CHECKING:
    from playwright.async_api import Page

SCRIPT: Final = Path(__file__).with_name("frames.js")
ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
WIDTH, HEIGHT = 1280, 820
MOST_WORK_MS = 16.0
"""Of scripts in 95 of 100 frames: sixty frames a second leave as much."""
DRAG_PIXELS, DRAG_STEPS = 160, 30
KNOWN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Frames:
    """Of one browser, in milliseconds."""

    frame_p50: float
    frame_p95: float
    work_p50: float
    work_p95: float
    longest_task: float

    def missed(self) -> list[str]:
        """The target, in words, if it is not reached."""
        if self.work_p95 <= MOST_WORK_MS:
            return []
        return [f"scripts take {self.work_p95:.1f} ms of a frame instead of {MOST_WORK_MS:g}"]

    def as_json(self) -> dict[str, float]:
        """All of it."""
        return asdict(self)

    def cells(self) -> tuple[str, str, str]:
        """For a table's columns: a frame, the scripts in it, the longest task."""
        return (
            f"{number(self.frame_p50)} / {number(self.frame_p95)} ms",
            f"{number(self.work_p50)} / {number(self.work_p95)} ms",
            f"{self.longest_task:.0f} ms" if self.longest_task else "< 50 ms",
        )


def missing() -> str | None:
    """What is not here and is needed."""
    if shutil.which("chromium") is None:
        return "chromium (apt install chromium)"
    return None if find_spec("playwright") else "playwright (pip install playwright)"


@asynccontextmanager
async def page_of(url: str, sources: int) -> AsyncIterator[Page]:
    """The map of a dashboard in chromium, once it knows so many sources."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        try:
            page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            await page.add_init_script(path=SCRIPT)
            await page.goto(f"{url}/dashboard/#/map")
            await _until_known(page, sources)
            yield page
        finally:
            await browser.close()


async def _until_known(page: Page, sources: int) -> None:
    deadline = time.monotonic() + KNOWN_SECONDS
    while await page.evaluate("async () => (await import('/dashboard/static/live.js')).sources.size") < sources:
        if time.monotonic() > deadline:
            raise Stuck(f"chromium was not told of all sources in {KNOWN_SECONDS:g} s")
        await asyncio.sleep(0.1)


async def shown(page: Page, seconds: float) -> Frames:
    """The map as it is."""
    await _begin(page)
    await asyncio.sleep(seconds)
    return await _end(page)


async def moved(page: Page, seconds: float) -> Frames:
    """The map dragged to and fro, nearer and away."""
    place = await page.locator("#map").bounding_box()
    assert place is not None
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    await _begin(page)
    ends, way = time.monotonic() + seconds, 1
    while time.monotonic() < ends:
        await page.mouse.move(x, y)
        await page.mouse.down()
        await page.mouse.move(x + way * DRAG_PIXELS, y + way * DRAG_PIXELS / 2, steps=DRAG_STEPS)
        await page.mouse.up()
        await page.mouse.wheel(0, way * 120)
        way = -way
        await page.wait_for_timeout(400)  # the zoom's own animation
    return await _end(page)


async def _begin(page: Page) -> None:
    await page.evaluate("framesUntilNow()")


async def _end(page: Page) -> Frames:
    found: dict[str, Any] = await page.evaluate("framesUntilNow()")
    frame, work = _percentiles(found["frames"]), _percentiles(found["work"])
    return Frames(*frame, *work, found["longest"])


def _percentiles(values: list[float]) -> tuple[float, float]:
    """The 50th and the 95th."""
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return cuts[9], cuts[18]
