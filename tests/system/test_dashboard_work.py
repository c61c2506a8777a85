"""What people do at the page: subscribe by clicking, see what is found, read what is wrong; each role its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_kit import Cloud, wait_for
from dashboard_kit import PROCESSES, City, Visit, chromium, page_cloud, subscribe
from playwright.sync_api import Browser, Page, expect, sync_playwright
from security_kit import quick_hashes

from spinney_cloud.api.sessions import COOKIE
from spinney_cloud.users import Role, Users, change

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

SETTINGS: dict[str, Any] = {"dashboard": {"tiles": ""}}
CAST = {"ops": Role.OPERATOR, "sue": Role.SUBSCRIBER, "tom": Role.SUBSCRIBER, "pat": Role.PUBLISHER}


def password(name: str) -> str:
    return f"{name}-alone-knows-it"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, chromium(playwright) as browser:
        yield browser


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with page_cloud(tmp_path_factory.mktemp("work"), *PROCESSES, **SETTINGS) as running:
        City(running, sources=12).publish(2)
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """With users."""
    folder = tmp_path_factory.mktemp("guarded")
    users = Users()
    with quick_hashes():
        for name, role in CAST.items():
            users = users.add(name, role, "default", password(name))
    (folder / "data").mkdir()
    users.save(folder / "data")
    with page_cloud(folder, *PROCESSES, **SETTINGS) as running:
        City(running, sources=6).publish(auth=("ops", password("ops")))
        yield running


def row(page: Page, sid: str) -> Any:
    return page.locator(f'[data-sid="{sid}"]')


def write(page: Page, text: str) -> None:
    page.get_by_label("What do you want to be told?").fill(text)


def test_a_subscription_made_by_clicking_finds_and_can_be_changed_and_ended(browser: Browser, running: Cloud) -> None:
    with Visit(browser, running.url) as visit:
        page = visit.open("subscriptions")
        page.get_by_role("button", name="NO2 > 40").click()
        expect(page.locator("#verdict")).to_contain_text("Valid: content")
        page.get_by_label("Name").fill("by-hand")
        page.get_by_role("button", name="Create").click()
        expect(page.locator("#outcome")).to_contain_text("by-hand is made")
        expect(row(page, "by-hand")).to_contain_text("active")
        visit.shot("dashboard-made")

        page.get_by_role("link", name="Notifications").click()
        with running.client() as client:
            client.post("/v1/publications", json={"source": "s-1", "NO2": 41.25}).raise_for_status()
        told = page.locator("#told-rows .told").filter(has_text="by-hand").filter(has_text="41.25")
        expect(told).to_contain_text("s-1")

        page.get_by_role("link", name="Subscriptions").click()
        page.get_by_role("button", name="Disable by-hand").click()
        expect(row(page, "by-hand")).to_contain_text("disabled")
        page.get_by_role("button", name="Enable by-hand").click()
        expect(row(page, "by-hand")).to_contain_text("active")
        page.get_by_role("button", name="Delete by-hand").click()
        expect(row(page, "by-hand")).to_have_count(1)  # it asks once more
        page.get_by_role("button", name="Delete by-hand").click()
        expect(row(page, "by-hand")).to_have_count(0)


@pytest.mark.parametrize(
    ("text", "place", "marked"),
    [
        ("NO2 > 40 AND\ntemperature >< 25", "Line 2, column 14", "<"),
        ("NO2 >", "Line 1, column 6", " "),
        ("WHEN NO2 > 40 UNTL NO2 < 3", "Line 1, column 15", "UNTL"),
        ("'žłutý😀' = = 3", "Line 1, column 12", "="),
    ],
)
def test_what_is_wrong_is_marked_where_it_stands(
    browser: Browser, running: Cloud, text: str, place: str, marked: str
) -> None:
    with Visit(browser, running.url) as visit:
        page = visit.open("subscriptions")
        write(page, text)
        expect(page.locator("#verdict")).to_contain_text(place)
        assert page.locator("#marks mark").text_content() == marked
        before = page.evaluate("document.querySelector('#marks mark').previousSibling.textContent")
        assert text.startswith(before + marked.strip())
        expect(page.get_by_role("button", name="Create")).to_be_disabled()
        expect(page.get_by_label("What do you want to be told?")).to_have_attribute("aria-invalid", "true")
        visit.shot(f"dashboard-error-{place[-2:].strip()}")
        write(page, "NO2 > 40")
        expect(page.locator("#verdict")).to_contain_text("Valid")
        expect(page.locator("#marks mark")).to_have_count(0)


def test_a_subscription_is_explained_and_tried_on_the_last_hour(browser: Browser, running: Cloud) -> None:
    with running.client() as client:
        client.post(
            "/v1/publications", json=[{"source": "old", "CO": 3}, {"source": "new", "CO": 9}]
        ).raise_for_status()
    with Visit(browser, running.url) as visit:
        page = visit.open("subscriptions")
        write(page, "CO > 5")
        page.get_by_role("button", name="Explain", exact=True).click()
        judged = page.locator("#outcome .row")
        expect(judged.filter(has_text="new").first).to_contain_text("matches")
        expect(judged.filter(has_text="old").first).to_contain_text("CO > 5 (CO is 3)")
        judged.filter(has_text="old").first.locator("summary").click()
        expect(judged.filter(has_text="old").first.locator(".parts").first).to_contain_text("false")
        visit.shot("dashboard-explained")
        page.get_by_role("button", name="Try on the last hour").click()
        expect(page.locator("#outcome")).to_contain_text("1 notification it would have been")
        expect(page.locator("#outcome .told")).to_contain_text("new")
        expect(page.locator("#outcome .complete")).to_contain_text("Complete: nothing that it would have been told")
        expect(page.locator("#fetched")).to_have_count(0)
        page.get_by_label("Ask mobile brokers, too").check()
        page.get_by_role("button", name="Try on the last hour").click()
        expect(page.locator("#fetched")).to_contain_text("fetched")


def test_a_dry_run_of_a_subscription_obeys_its_options_and_says_what_they_leave_out(
    browser: Browser, running: Cloud
) -> None:
    asked = {"sid": "seldom", "subscription": "SO2 > 5", "options": {"max_per": "2/1h"}}
    with running.client() as client:
        client.post("/v1/subscriptions", json=asked).raise_for_status()
        client.post("/v1/publications", json=[{"source": "s", "SO2": 6 + n} for n in range(5)]).raise_for_status()
    with Visit(browser, running.url) as visit:
        page = visit.open("subscriptions")
        page.get_by_role("button", name="Dry run seldom").click()
        expect(page.locator("#outcome")).to_contain_text("2 notifications it would have been")
        expect(page.locator("#outcome")).to_contain_text("Left out by its options: 2 by rate, 1 held")


def test_state_filters_tell_their_begin_and_end(browser: Browser, running: Cloud) -> None:
    subscribe(running, "hot", "WHEN heat > 25 UNTIL heat <= 22")
    with Visit(browser, running.url) as visit, running.client() as client:
        page = visit.open("notifications")
        for heat in (26, 24, 21):
            client.post("/v1/publications", json={"source": "oven", "heat": heat}).raise_for_status()
        told = page.locator("#told-rows .told").filter(has_text="hot")
        expect(told).to_have_count(2)
        expect(told.first).to_contain_text("ends")
        expect(told.last).to_contain_text("begins")


def test_what_others_said_is_never_markup(browser: Browser, running: Cloud) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    subscribe(running, "evil", "evil IS NOT NULL")
    with running.client() as client:
        client.post("/v1/publications", json={"source": evil, "evil": evil, evil: 1}).raise_for_status()
    with Visit(browser, running.url) as visit:
        page = visit.open("sources")
        expect(page.locator(".source").filter(has_text="onerror").first).to_be_visible()
        page.get_by_role("link", name="Notifications").click()
        expect(page.locator(".told").filter(has_text="onerror").first).to_be_visible()
        assert page.locator("#views img, #views script").count() == 0


# ---- Roles


def test_each_role_sees_its_own(browser: Browser, guarded: Cloud) -> None:
    subscribe(guarded, "of-sue", "NO2 > 0", auth=("sue", password("sue")))
    subscribe(guarded, "of-tom", "NO2 > 0", auth=("tom", password("tom")))
    with Visit(browser, guarded.url) as sue, Visit(browser, guarded.url) as ops:
        for visit, name in ((sue, "sue"), (ops, "ops")):
            visit.log_in(name, password(name))
            visit.live()
        page = sue.open("subscriptions")
        expect(row(page, "of-sue")).to_be_visible()
        expect(row(page, "of-tom")).to_have_count(0)
        page = ops.open("subscriptions")
        expect(row(page, "of-sue")).to_be_visible()
        expect(row(page, "of-tom")).to_contain_text("tom")
        page.get_by_role("button", name="Disable of-tom").click()  # an operator may
        expect(row(page, "of-tom")).to_contain_text("disabled")
        page.get_by_role("button", name="Enable of-tom").click()
        expect(row(page, "of-tom")).to_contain_text("active")

        sue.open("notifications")
        ops.open("notifications")
        with guarded.client(auth=("pat", password("pat"))) as client:
            client.post("/v1/publications", json={"source": "p-1", "NO2": 77.5}).raise_for_status()
        for visit, seen in ((sue, {"of-sue"}), (ops, {"of-sue", "of-tom"})):
            told = visit.page.locator("#told-rows .told").filter(has_text="77.5")
            expect(told).to_have_count(len(seen))
            assert {one.split(" ")[0] for one in told.locator("strong").all_inner_texts()} == seen

        expect(sue.open("health").locator("#process-rows")).to_contain_text("For operators")
        expect(ops.open("health").locator("#process-rows .row")).to_have_count(len(PROCESSES))
        sue.shot("dashboard-role-subscriber")


def test_a_publisher_may_look_and_no_more(browser: Browser, guarded: Cloud) -> None:
    with Visit(browser, guarded.url) as visit:
        visit.log_in("pat", password("pat"))
        visit.live()
        expect(visit.page.get_by_role("link", name="Sources")).to_be_visible()
        expect(visit.page.get_by_role("link", name="Subscriptions")).to_have_count(0)
        expect(visit.page.locator("#latest-body")).to_contain_text("Not for this role")


def test_who_is_not_known_is_led_to_the_login_and_out_again(browser: Browser, guarded: Cloud) -> None:
    with Visit(browser, guarded.url) as visit:
        visit.page.goto("/dashboard/")
        expect(visit.page).to_have_url(f"{guarded.url}/dashboard/login")
        visit.shot("dashboard-login")
        visit.log_in("sue", "wrong")
        expect(visit.page.get_by_role("alert")).to_contain_text("another password")
        visit.log_in("sue", password("sue"))
        visit.live()
        [cookie] = [one for one in visit.cookies() if one["name"] == COOKIE]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        visit.page.get_by_role("button", name="Log out").click()
        expect(visit.page).to_have_url(f"{guarded.url}/dashboard/login")
        assert not [one for one in visit.cookies() if one["name"] == COOKIE]


def save_users(folder: Path) -> None:
    """An operator and a subscriber, in the data directory of a cloud that is not yet started."""
    users = Users()
    with quick_hashes():
        for name in ("ops", "sue"):
            users = users.add(name, CAST[name], "default", password(name))
    (folder / "data").mkdir()
    users.save(folder / "data")


def test_a_session_outlives_the_server_and_not_its_user(browser: Browser, tmp_path: Path) -> None:
    save_users(tmp_path)
    with page_cloud(tmp_path, *PROCESSES, **SETTINGS) as running, Visit(browser, running.url) as visit:
        visit.log_in("sue", password("sue"))
        visit.live()
        running.stop("http")
        expect(visit.page.locator("#link")).to_have_text("reconnecting")
        running.start("http")
        visit.live()
        change(running.settings.data, lambda users: users.remove("sue"))
        expect(visit.page).to_have_url(f"{running.url}/dashboard/login")
        wait_for(lambda: visit.complaints)
        visit.forgive()  # that the server was gone, and that it lets nobody in, is said in the console


def test_a_session_that_ended_while_the_server_was_gone_leads_to_the_login(browser: Browser, tmp_path: Path) -> None:
    save_users(tmp_path)
    with page_cloud(tmp_path, *PROCESSES, **SETTINGS) as running, Visit(browser, running.url) as visit:
        visit.log_in("sue", password("sue"))
        visit.live()
        running.stop("http")
        expect(visit.page.locator("#link")).to_have_text("reconnecting")
        change(running.settings.data, lambda users: users.remove("sue"))
        running.start("http")
        expect(visit.page).to_have_url(f"{running.url}/dashboard/login")
        visit.forgive()  # that the server was gone, and that it lets nobody in, is said in the console
