"""The page in a real browser: every view, alive, readable, and without a word of complaint in the console."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from api_kit import Cloud, wait_for
from axe_playwright_python.sync_playwright import Axe
from dashboard_kit import NAMES, PROCESSES, WAIT_MS, City, Visit, announced, chromium, page_cloud, subscribe
from playwright.sync_api import Browser, Locator, Page, WebSocketRoute, expect, sync_playwright
from servers import HOST, free_ports

from spinney_cloud import setup_status

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

VIEWS = ("map", "sources", "subscriptions", "notifications", "savings", "health")
QUIET = 16
"""Sources of 48."""
SETTINGS: dict[str, Any] = {"dashboard": {"tiles": ""}}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {
        "color_scheme": "light",
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 1.5,
        "is_mobile": True,
        "has_touch": True,
    },
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, chromium(playwright) as browser:
        yield browser


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with page_cloud(tmp_path_factory.mktemp("page"), *PROCESSES, **SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def city(running: Cloud) -> City:
    """Announced, subscribed to, and heard."""
    city = City(running, quiet=QUIET)
    city.announce()
    announced(running)
    subscribe(running, "smog", "WHEN NO2 > 60 UNTIL NO2 <= 50")
    subscribe(running, "dirty", "pm25 > 20 AND NO2 > 50")
    subscribe(running, "warmest", "TOP 3 OVER 1h BY temperature DESC")
    city.publish(4)
    return city


def look_around(visit: Visit, view: str) -> None:
    """Until there is something to see."""
    page = visit.open(view)
    section = page.locator(f"#view-{view}")
    expect(section).to_be_visible()
    match view:
        case "map":
            expect(page.locator("#figures")).to_contain_text(f"{QUIET} with nothing to tell")
            expect(page.locator("#figures .figure-value").nth(1)).not_to_have_text("0")
            expect(page.locator(".broker-mark")).to_have_count(len(NAMES))
            expect(page.locator("#latest-body .told").first).to_be_visible()
        case "sources":
            expect(section.locator(".source")).to_have_count(40)
        case "subscriptions":
            expect(section.locator(".row")).to_have_count(3)
        case "notifications":
            expect(section.locator(".told").first).to_be_visible()
        case "savings":
            expect(page.locator("#tiers .share-bar").first).to_be_visible()
        case "health":
            expect(page.locator("#process-rows .row")).to_have_count(len(PROCESSES))
            expect(page.locator("#health-figures")).to_contain_text(f"Spinney {version('spinney')}")


@pytest.mark.parametrize("look", LOOKS)
def test_every_view_shows_what_is_there_and_passes_axe(browser: Browser, running: Cloud, city: City, look: str) -> None:
    axe = Axe()
    with Visit(browser, running.url, **LOOKS[look]) as visit, city.living():
        for view in VIEWS:
            look_around(visit, view)
            if view == "map":
                visit.page.evaluate("async () => (await import('/dashboard/static/map.js')).select('mote-11')")
                expect(visit.page.locator("#selected-body")).to_contain_text("NO2")
            found = axe.run(visit.page)
            assert not found.response["violations"], f"{look} {view}:\n{found.generate_report()}"
            width, inner = visit.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert width <= inner, f"{look} {view} is wider than its window"
            visit.shot(f"dashboard-{look}-{view}")


@pytest.mark.usefixtures("city")
def test_readings_move_the_page_without_a_reload(browser: Browser, running: Cloud) -> None:
    with Visit(browser, running.url) as visit:
        page = visit.open("sources")
        page.get_by_label("Find a source").fill("fresh-one")
        expect(page.locator("#source-rows")).to_contain_text("No source fits")
        with running.client() as client:
            client.post("/v1/publications", json={"source": "fresh-one", "CO2": 417.5}).raise_for_status()
        expect(page.locator(".source")).to_contain_text("417.5")
        with running.client() as client:
            client.post("/v1/publications", json={"source": "fresh-one", "CO2": 666}).raise_for_status()
        expect(page.locator(".source")).to_contain_text("666")
        expect(page.locator(".source .spark").first).to_be_attached()


def test_savings_are_what_was_counted(browser: Browser, tmp_path: Path) -> None:
    """By hand: three brokers' tallies added up, and 7 readings of which 2 subscriptions asked for the same 4."""
    with page_cloud(tmp_path, *PROCESSES, **SETTINGS) as running, Visit(browser, running.url) as visit:
        City(running).announce()
        announced(running)
        for sid in ("one", "two"):
            subscribe(running, sid, "NO2 > 40")
        with running.client() as client:
            readings = [{"source": f"s{i}", "NO2": 41 if i < 4 else 40} for i in range(7)]
            client.post("/v1/publications", json=readings).raise_for_status()
        page = visit.open("savings")
        motes, mobile, cloud = (page.get_by_role("article", name=name) for name in ("Motes", "Mobile brokers", "Cloud"))
        expect(motes).to_contain_text("2,910 sent")
        expect(motes).to_contain_text("27,000 spared")
        expect(motes).to_contain_text("90 % spared")  # 27,000 of 29,910
        expect(motes).to_contain_text("837 kB spared")  # 27,000 adverts of 31 bytes
        expect(motes).to_contain_text("2.9 mAh spared")  # each 194 + 31 x 6.29 microcoulombs, of 3,600,000 in a mAh
        expect(motes).to_contain_text("kept off the air")
        expect(mobile).to_contain_text("780 sent")
        expect(mobile).to_contain_text("2,130 spared")
        expect(mobile).to_contain_text("73 % spared")
        expect(mobile).to_contain_text("270 kB spared")
        expect(mobile).to_contain_text("0.79 mAh spared")  # 2,130 x 1,200 and 270,000 x 1 microcoulombs
        expect(cloud).to_contain_text("4 sent")
        expect(cloud).to_contain_text("3 spared")
        expect(cloud).to_contain_text("43 % spared")
        expect(cloud).to_contain_text("8 notifications came of those")
        expect(page.locator("#savings-sum")).to_contain_text("97 %of 29,910 messages")  # 780 of them came up
        expect(page.locator("#savings-sum")).to_contain_text("1.11 MB")


@pytest.mark.usefixtures("city")
def test_the_theme_can_be_switched_and_stays(browser: Browser, running: Cloud) -> None:
    with Visit(browser, running.url, color_scheme="light") as visit:
        page = visit.open("savings")
        root = page.locator("html")
        expect(root).to_have_attribute("data-theme", "light")
        page.get_by_role("button", name="Switch between light and dark").click()
        expect(root).to_have_attribute("data-theme", "dark")
        page.reload()
        visit.live()
        expect(root).to_have_attribute("data-theme", "dark")


@pytest.mark.usefixtures("city")
def test_the_ways_about_the_page_can_be_gone_by_keyboard(browser: Browser, running: Cloud) -> None:
    with Visit(browser, running.url) as visit:
        page = visit.open("map")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        for name in ("Map", "Sources", "Subscriptions"):
            page.keyboard.press("Tab")
            expect(page.get_by_role("link", name=name)).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Subscriptions", level=1)).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_label("What do you want to be told?")).to_be_focused()


def go_to(page: Page, place: Locator) -> None:
    """By the Tab key, from wherever one is."""
    expect(place).to_be_visible()
    for _ in range(100):
        if place.evaluate("(one) => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no way leads to {place}")


@pytest.mark.usefixtures("city")
def test_a_source_is_chosen_by_keyboard(browser: Browser, running: Cloud) -> None:
    with Visit(browser, running.url) as visit:
        page = visit.open("sources")
        go_to(page, page.get_by_label("Find a source"))
        page.keyboard.type("mote-1")
        source = page.get_by_role("button", name="Show mote-11 on the map")
        go_to(page, source)
        told = page.evaluate(TOLD)
        wait_for(lambda: page.evaluate(TOLD) > told)  # the list is drawn anew
        expect(source).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Map", level=1)).to_be_focused()
        expect(page.locator("#selected-body")).to_contain_text("mote-11")
        expect(page.locator("#selected-body")).to_contain_text("NO2")


TOLD = "spinney.state.overview?.now ?? 0"


@pytest.mark.usefixtures("city")
def test_a_subscription_is_made_and_ended_by_keyboard(browser: Browser, running: Cloud) -> None:
    with Visit(browser, running.url) as visit:
        page = visit.open("subscriptions")
        go_to(page, page.get_by_label("What do you want to be told?"))
        page.keyboard.type("humidity > 99")
        expect(page.get_by_role("button", name="Create")).to_be_enabled()
        go_to(page, page.get_by_label("Name"))
        page.keyboard.type("by-keyboard")
        go_to(page, page.get_by_role("button", name="Create"))
        page.keyboard.press("Enter")
        row = page.locator("[data-sid=by-keyboard]")
        expect(row).to_contain_text("active")
        go_to(page, row.get_by_role("button", name="Disable"))
        page.keyboard.press("Enter")
        expect(row.get_by_role("button", name="Enable")).to_be_focused()
        go_to(page, row.get_by_role("button", name="Delete"))
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        expect(row).to_have_count(0)


COLOURS = """() => {
    const canvas = document.querySelector('.leaflet-land-pane canvas');
    const dots = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const found = new Set();
    for (let i = 0; i < dots.length; i += 400) found.add(dots.slice(i, i + 4).join());
    return found.size;
}"""
"""How many the drawn land has."""


class Tiles(http.server.BaseHTTPRequestHandler):
    """One grey tile for all."""

    SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="256" height="256"><path d="M0 0h256v256H0z"/></svg>'

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "image/svg+xml")
        self.send_header("content-length", str(len(self.SVG)))
        self.send_header("cross-origin-resource-policy", "cross-origin")
        self.end_headers()
        self.wfile.write(self.SVG)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as its base names it
        """Say nothing."""


@contextmanager
def tile_server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer((HOST, 0), Tiles) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_tiles_are_shown_where_they_can_be_had(browser: Browser, tmp_path: Path) -> None:
    with tile_server() as tiles:
        settings = {"tiles": tiles + "/{z}/{x}/{y}.svg", "attribution": "Tiles of ours"}
        with page_cloud(tmp_path, "http", dashboard=settings) as running:
            with Visit(browser, running.url, allowed=(tiles,)) as visit:
                page = visit.open("map")
                expect(page.locator("#map")).to_have_attribute("data-base", "tiles")
                expect(page.locator(".leaflet-control-attribution")).to_contain_text("Tiles of ours")
            assert visit.asked_for(tiles)


def test_without_a_tile_to_be_had_the_map_is_drawn_by_itself(browser: Browser, tmp_path: Path) -> None:
    (port,) = free_ports(1)  # nobody listens there
    tiles = f"http://{HOST}:{port}"
    settings = {"tiles": tiles + "/{z}/{x}/{y}.png"}
    with (
        page_cloud(tmp_path, "http", dashboard=settings) as running,
        Visit(browser, running.url, allowed=(tiles,)) as visit,
    ):
        page = visit.open("map")
        expect(page.locator("#map")).to_have_attribute("data-base", "drawn")
        expect(page.locator(".leaflet-tile")).to_have_count(0)
        wait_for(lambda: page.evaluate(COLOURS) > 2)  # sea, land, lines
        visit.shot("dashboard-offline")


def test_a_cloud_without_anything_says_how_to_begin(browser: Browser, tmp_path: Path) -> None:
    with page_cloud(tmp_path, *PROCESSES, **SETTINGS) as running, Visit(browser, running.url) as visit:
        for view, text in {
            "map": "No source selected",
            "sources": "No source yet",
            "subscriptions": "No subscription yet",
            "notifications": "Nothing yet",
            "savings": "Nothing counted yet",
            "health": "No mobile broker yet",
        }.items():
            page = visit.open(view)
            expect(page.locator(f"#view-{view}")).to_contain_text(text)
        visit.shot("dashboard-empty")


def test_the_page_comes_back_by_itself_when_the_server_does(browser: Browser, tmp_path: Path) -> None:
    with page_cloud(tmp_path, *PROCESSES, **SETTINGS) as running:
        city = City(running, sources=6)
        city.publish()
        with Visit(browser, running.url) as visit:
            page = visit.open("sources")
            expect(page.locator(".source")).to_have_count(6)
            running.stop("http")
            expect(page.locator("#link")).to_have_text("reconnecting", timeout=WAIT_MS)
            running.start("http")
            visit.live()
            expect(page.locator(".source")).to_have_count(6)
            with running.client() as client:
                client.post("/v1/publications", json={"source": "late-one", "NO2": 1}).raise_for_status()
            expect(page.locator(".source")).to_have_count(7)
            visit.forgive()  # that the server was gone is said in the console, rightly


def test_a_socket_that_is_lost_is_opened_again(browser: Browser, running: Cloud) -> None:
    """Ours alone: NiceGUI's stays, so the page is not loaded again."""
    with Visit(browser, running.url) as visit:
        ours: list[WebSocketRoute] = []

        def between(route: WebSocketRoute) -> None:
            route.connect_to_server()
            ours.append(route)

        visit.page.route_web_socket(re.compile("/dashboard/live$"), between)
        page = visit.open("sources")
        page.evaluate("window.isStillHere = true")
        ours[0].close()
        wait_for(lambda: page.evaluate("1") and len(ours) > 1)
        visit.live()
        with running.client() as client:
            client.post("/v1/publications", json={"source": "after-all", "NO2": 1}).raise_for_status()
        page.get_by_label("Find a source").fill("after-all")
        expect(page.locator(".source")).to_have_count(1)
        assert page.evaluate("window.isStillHere")


def test_what_is_being_set_up_is_shown_until_it_is(browser: Browser, running: Cloud) -> None:
    file = running.settings.data / setup_status.FILE
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"text": "downloading pyspark.tar.gz, 120 of 434 MB", "done": 120, "size": 480}')
    with Visit(browser, running.url) as visit:
        page = visit.open("health")
        expect(page.locator("#setup")).to_contain_text("Pipeline: downloading pyspark.tar.gz, 120 of 434 MB")
        expect(page.get_by_role("progressbar", name="Pipeline: downloading")).to_have_js_property("value", 0.25)
        expect(page.locator("#setup-said")).to_have_text("The pipeline is being set up")
        expect(page.locator("#health-figures")).to_contain_text("downloading pyspark.tar.gz")
        visit.shot("setup")
        file.unlink()
        expect(page.locator("#setup")).to_be_hidden()
        expect(page.locator("#setup-said")).to_have_text("The pipeline is set up")
