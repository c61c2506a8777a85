"""The first look at Spinney: the city of `spinney up` in a browser, a subscription of one's own, what is spared."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from clouds import Cloud
from dashboard_kit import Visit, chromium
from playwright.sync_api import Browser, expect, sync_playwright
from test_dashboard_page import LOOKS
from test_up import PORTS, UP

from spinney_cloud.configuration import CONFIG_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]
MOTES, BROKERS = 100, 5
SPARED = re.compile(r"Spared\s*(?!0 %)[\d.]+ %")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, chromium(playwright) as browser:
        yield browser


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the page of all that `spinney up` starts unless told otherwise; its map is drawn, whatever the network."""
    folder = tmp_path_factory.mktemp("up")
    (folder / "cloud.toml").write_text('[dashboard]\ntiles = ""\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONFIG_VARIABLE, str(folder / "cloud.toml"))
        with Cloud(folder / "data", program=UP, ports=PORTS) as up:
            yield up.addresses()["HTTP"]


def test_a_city_is_on_the_map_and_who_subscribes_is_told_and_what_is_spared_is_counted(
    browser: Browser, url: str
) -> None:
    with Visit(browser, url) as visit:
        page = visit.open("map")
        expect(page.locator(".broker-mark")).to_have_count(BROKERS)
        expect(page.locator("#figures")).to_contain_text(re.compile(rf"Sources here\s*{MOTES}"))
        expect(page.locator("#latest-body .told").first).to_contain_text("smog")

        page.get_by_role("link", name="Subscriptions").click()
        page.get_by_label("What do you want to be told?").fill("source LIKE 'sol-%' AND temperature > -40")
        page.get_by_label("Name").fill("warmth")
        page.get_by_role("button", name="Create").click()
        expect(page.locator("#outcome")).to_contain_text("warmth is made")
        page.get_by_role("link", name="Notifications").click()
        expect(page.locator("#told-rows .told").filter(has_text="warmth").first).to_contain_text("sol-")

        page.get_by_role("link", name="Map").click()
        expect(page.locator("#figures")).to_contain_text(SPARED)


@pytest.mark.parametrize("look", LOOKS)
def test_it_can_be_looked_at(browser: Browser, url: str, look: str) -> None:
    with Visit(browser, url, **LOOKS[look]) as visit:
        page = visit.open("map")
        expect(page.locator(".broker-mark")).to_have_count(BROKERS)
        page.evaluate("async () => (await import('/dashboard/static/map.js')).select('cibeles-01')")
        expect(page.locator("#selected-body")).to_contain_text("NO2")
        page.wait_for_load_state("networkidle")
        visit.shot(f"up-{look}")
