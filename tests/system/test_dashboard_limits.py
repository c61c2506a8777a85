"""What the page leaves out of its lists, it counts and says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from api_kit import Cloud, wait_for
from dashboard_kit import NAMES, PROCESSES, City, Visit, announced, chromium, page_cloud
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Browser, expect, sync_playwright
from servers import HOST

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

SETTINGS: dict[str, Any] = {"dashboard": {"tiles": ""}}
SUBSCRIPTIONS = 1_007
"""On one page of the API's there are a thousand."""
ACTIVE = 401
"""Of them: those that a NO2 from 0 to 400 can match."""
STEP = 30
"""Notifications at once; of so many none is lost on a browser that is slow."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, chromium(playwright) as browser:
        yield browser


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """With more than can be shown."""
    with page_cloud(tmp_path_factory.mktemp("limits"), *PROCESSES, **SETTINGS) as running:
        City(running).announce()
        announced(running)
        subscribe_often(running)
        yield running


def subscribe_often(cloud: Cloud) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="many")
    client.connect(HOST, cloud.nats.mqtt_port)
    client.loop_start()
    try:
        for i in range(SUBSCRIPTIONS):
            client.publish(f"spinney/many/sub/of-{i:04d}", f"NO2 = {i}", qos=1)
        with cloud.client() as http:
            mine = {"all_owners": True, "limit": 1}
            wait_for(lambda: http.get("/v1/subscriptions", params=mine).json()["count"] == SUBSCRIPTIONS)
    finally:
        client.disconnect()
        client.loop_stop()


def test_of_a_brokers_filters_the_first_are_shown_and_the_others_counted(browser: Browser, running: Cloud) -> None:
    with Visit(browser, running.url) as visit:
        page = visit.open("health")
        row = page.locator("#broker-rows .row").filter(has_text=NAMES[0])
        expect(row.locator("summary")).to_have_text(f"{ACTIVE} active filters")
        row.locator("summary").click()
        expect(row.locator("li")).to_have_count(50)
        expect(row.locator(".left-out")).to_have_text(f"and {ACTIVE - 50} more")


def test_of_subscriptions_the_others_are_counted_and_can_be_had(browser: Browser, running: Cloud) -> None:
    with Visit(browser, running.url) as visit:
        page = visit.open("subscriptions")
        rows = page.locator("#kept-rows .row")
        expect(rows).to_have_count(1_000)
        expect(page.locator("#kept-rows .left-out")).to_have_text("and 7 more")
        page.get_by_role("button", name="Show 7 more").click()
        expect(rows).to_have_count(SUBSCRIPTIONS)
        expect(page.locator("#kept-rows .left-out")).to_have_count(0)


def test_of_notifications_the_older_ones_are_counted(browser: Browser, running: Cloud) -> None:
    with Visit(browser, running.url) as visit, running.client() as client:
        page = visit.open("notifications")
        expect(page.locator("#told-rows")).to_contain_text("Nothing yet")
        for number in range(STEP, 9 * STEP, STEP):
            readings = [{"source": f"s-{number}-{i}", "NO2": 5} for i in range(STEP)]
            client.post("/v1/publications", json=readings).raise_for_status()
            expect(page.locator("#told-rows .told")).to_have_count(min(number, 200))
            if number > 200:
                expect(page.locator("#told-rows .left-out")).to_have_text(f"and {number - 200} more")
        other = visit.new_page()  # it is told the newest that the server keeps
        other.goto("/dashboard/#/notifications")
        expect(other.locator("#told-rows .told")).to_have_count(200)
        expect(other.locator("#told-rows > .note").last).to_have_text("and older ones")


def test_of_a_readings_values_the_others_are_counted(browser: Browser, running: Cloud) -> None:
    with running.client() as client:
        reading = {"source": "wide", **{f"v{i}": i for i in range(20)}}
        client.post("/v1/publications", json=reading).raise_for_status()
    with Visit(browser, running.url) as visit:
        page = visit.open("sources")
        page.get_by_label("Find a source").fill("wide")
        expect(page.locator(".source")).to_contain_text("and 4 more")
        page.get_by_role("link", name="Map").click()
        expect(page.locator("#figures")).to_contain_text("without a place")
