"""The hour, and who is here without saying anything, in a real browser: what has been stored a while ago is there."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from api_kit import Cloud, wait_for
from dashboard_kit import NAMES, PROCESSES, City, Visit, announced, chromium, make_later, page_cloud, step_clock
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Browser, Page, WebSocketRoute, expect, sync_playwright
from servers import HOST

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

SETTINGS: dict[str, Any] = {"dashboard": {"tiles": ""}}
SOURCES = 12
MINUTES = 20
"""That have passed since they said something."""
SLOTS_PER_MINUTE = 2
NEWEST_SLOT = 119
ASK_AGAIN_MS = 30_000

WATCH = """async () => {
    const { Dots } = await import('/dashboard/static/layers.js');
    const draw = Dots.prototype.draw;
    Dots.prototype.draw = function () { draw.call(this); window.dots = this; };
}"""
DRAWN = "window.dots?.spots.map(([, , name]) => name).sort() ?? []"
DOING = """async () => {
    const { doing, sources } = await import('/dashboard/static/live.js');
    return Object.fromEntries([...sources.values()].map((one) => [one.name, doing(one)]));
}"""
KEPT = "(name) => (spinney.state.series[name] ?? []).map(([, values]) => values.NO2)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, chromium(playwright) as browser:
        yield browser


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cloud, City]]:
    """All that is announced said something a while ago, but `mute`; so did `loner`, whom nobody announces."""
    with page_cloud(tmp_path_factory.mktemp("hour") / "cloud", *PROCESSES, **SETTINGS) as running:
        city = City(running, SOURCES)
        city.publish(2)
        with running.client() as client:
            loner = {"source": "loner", "NO2": 7, "lat": 45.813, "long": 15.977}
            client.post("/v1/publications", json=loner).raise_for_status()
        city.places["mute"] = (NAMES[0], 45.8135, 15.978)
        city.announce()
        announced(running)
        make_later(running, MINUTES * 60)
        yield running, city


def look_back(page: Page, minutes: float) -> None:
    page.get_by_label("Look back over the last hour").fill(str(round(NEWEST_SLOT - minutes * SLOTS_PER_MINUTE)))


def test_who_is_here_with_nothing_to_tell_is_on_the_map_as_such(browser: Browser, city: tuple[Cloud, City]) -> None:
    running, town = city
    with Visit(browser, running.url) as visit:
        page = visit.open("map")
        expect(page.locator("#figures")).to_contain_text(f"0 sending, {SOURCES + 1} with nothing to tell, 1 silent")
        expect(page.get_by_role("list", name="What the dots mean")).to_contain_text("here, nothing to tell")
        page.evaluate(WATCH)
        wait_for(lambda: page.evaluate(DRAWN) == sorted([*town.places, "loner"]))
        assert page.evaluate(DOING) == {**dict.fromkeys(town.places, "spared"), "loner": "silent"}
        visit.shot("dashboard-spared")
        page.get_by_role("link", name="Sources").click()
        mute = page.locator(".source").filter(has_text="mute")
        expect(mute).to_contain_text(f"with {NAMES[0]}, nothing to tell")
        mute.get_by_role("button").click()
        expect(page.locator("#selected-body")).to_contain_text("has told nothing yet")


def test_whose_broker_has_gone_is_here_no_more(browser: Browser, city: tuple[Cloud, City]) -> None:
    running, town = city
    gone = [source for source, (broker, *_) in town.places.items() if broker == NAMES[0]]
    with Visit(browser, running.url) as visit:
        page = visit.open("map")
        wait_for(lambda: page.evaluate(DOING).get("mute") == "spared")
        say(running, NAMES[0], {"session": "s1", "away": True})
        wait_for(lambda: "mute" not in page.evaluate(DOING))
        found = page.evaluate(DOING)
        assert {name for name, does in found.items() if does == "silent"} == {*gone, "loner"} - {"mute"}
        town.announce()
        wait_for(lambda: page.evaluate(DOING).get("mute") == "spared")


def say(cloud: Cloud, broker: str, item: dict[str, Any]) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="leaving")
    client.connect(HOST, cloud.nats.mqtt_port)
    client.loop_start()
    try:
        client.publish(f"spinney/{broker}/ann", json.dumps(item), qos=1).wait_for_publish(60)
    finally:
        client.disconnect()
        client.loop_stop()


def test_the_hour_can_be_looked_back_over(browser: Browser, city: tuple[Cloud, City]) -> None:
    running, town = city
    heard = sorted([*town.places, "loner"])
    heard.remove("mute")
    with Visit(browser, running.url) as visit:
        page = visit.open("map")
        page.evaluate(WATCH)
        page.evaluate("async () => (await import('/dashboard/static/map.js')).select('mote-03')")
        figures, chosen = page.locator("#figures"), page.locator("#selected-body")
        expect(chosen).to_contain_text("with south: measuring")
        look_back(page, MINUTES - 3)
        expect(page.locator("#when")).not_to_have_text("now")
        wait_for(lambda: page.evaluate(DRAWN) == heard)
        assert page.evaluate("spinney.state.past.cells.length") > 0
        expect(figures).to_contain_text("had said something in ten minutes")
        expect(figures.locator(".figure-value").first).to_have_text(str(len(heard)))
        expect(chosen).to_contain_text("NO2")
        expect(chosen).not_to_contain_text("measuring")
        visit.shot("dashboard-past")
        look_back(page, MINUTES + 3)
        wait_for(lambda: page.evaluate(DRAWN) == [])  # nobody had said anything yet
        expect(chosen).to_contain_text("It had said nothing then")
        page.get_by_role("button", name="Live").click()
        expect(page.locator("#when")).to_have_text("now")
        expect(chosen).to_contain_text("with south: measuring")


def test_the_hour_goes_on_while_one_looks_at_a_time_in_it(browser: Browser, city: tuple[Cloud, City]) -> None:
    running, _ = city
    with Visit(browser, running.url) as visit:
        page = visit.open("map")
        look_back(page, MINUTES - 3)
        wait_for(lambda: page.evaluate("spinney.state.past?.points.length > 0"))
        slider = page.get_by_label("Look back over the last hour")
        before, when = int(slider.input_value()), page.locator("#when").inner_text()
        step_clock(running, (MINUTES + 5) * 60)
        try:
            wait_for(lambda: 9 <= before - int(slider.input_value()) <= 11)
            assert page.locator("#when").inner_text() == when
        finally:
            step_clock(running, MINUTES * 60)


def test_a_new_connection_is_asked_at_once_for_all_that_is_shown(browser: Browser, city: tuple[Cloud, City]) -> None:
    running, _ = city
    with Visit(browser, running.url) as visit:
        ours: list[WebSocketRoute] = []
        said: list[list[str]] = []

        def between(route: WebSocketRoute) -> None:
            server = route.connect_to_server()
            ours.append(route)
            said.append([])
            heard = said[-1]
            route.on_message(lambda text: (heard.append("asked " + next(iter(json.loads(text)))), server.send(text)))
            server.on_message(lambda text: (heard.append("told"), route.send(text)))

        def asked() -> list[str]:
            """Before anything was told."""
            return list(itertools.takewhile(lambda one: one != "told", said[1])) if len(said) > 1 else []

        visit.page.route_web_socket(re.compile("/dashboard/live$"), between)
        page = visit.open("map")
        look_back(page, MINUTES - 3)
        page.evaluate("async () => (await import('/dashboard/static/map.js')).select('mote-03')")
        wait_for(lambda: page.evaluate(KEPT, "mote-03") and page.evaluate("spinney.state.past?.points.length > 0"))
        page.evaluate("spinney.state.past = null, spinney.state.series = {}")
        ours[0].close()
        wait_for(lambda: page.evaluate("1") and len(said) > 1 and "told" in said[1])
        assert asked()[:2] == ["asked resolution", "asked series"]  # then perhaps what the page draws next
        wait_for(lambda: page.evaluate("spinney.state.past?.points.length > 0"))  # when next drawn
        wait_for(lambda: page.evaluate(KEPT, "mote-03"))


def test_charts_have_the_hour_however_the_page_is_opened(browser: Browser, city: tuple[Cloud, City]) -> None:
    running, _ = city
    with Visit(browser, running.url) as visit:
        page = visit.open("sources")  # directly: no other view has asked
        wait_for(lambda: page.evaluate(KEPT, "loner") == [7])
        page.reload()
        visit.live()
        wait_for(lambda: page.evaluate(KEPT, "loner") == [7])


def test_the_hour_of_what_is_shown_is_asked_for_again_as_it_goes_on(browser: Browser, tmp_path: Path) -> None:
    with page_cloud(tmp_path, "gateway", "http", **SETTINGS) as running, Visit(browser, running.url) as visit:

        def publish(source: str, value: float) -> None:
            with running.client() as client:
                client.post("/v1/publications", json={"source": source, "NO2": value}).raise_for_status()

        publish("a", 1)
        visit.page.clock.install()
        page = visit.open("sources")
        wait_for(lambda: page.evaluate(KEPT, "a")[-1:] == [1])
        publish("a", 2)
        expect(page.locator(".source")).to_contain_text("2")
        assert page.evaluate(KEPT, "a")[-1] == 1
        page.clock.fast_forward(ASK_AGAIN_MS)
        wait_for(lambda: page.evaluate(KEPT, "a")[-1] == 2)
        publish("newcomer", 3)  # what comes into the list later is asked for, too
        wait_for(lambda: page.evaluate(KEPT, "newcomer") == [3])
