"""A cloud with the page, a small city that publishes, and a browser that fails a test for what it complains of."""

from __future__ import annotations

import json
import math
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import paho.mqtt.client as paho
import stepped_cloud
from api_kit import Cloud, cloud, wait_for
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, expect
from servers import HOST

PROCESSES = ("gateway", "coordinator", "matcher", "delivery", "http")
CENTRE = (45.8130, 15.9775)
"""Of the city: Zagreb."""
WAIT_MS = 60_000.0
SHOTS = "SPINNEY_SCREENSHOTS"
"""Names a folder in which tests leave pictures of what they saw."""
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
NAMES = ("north", "centre", "south")

expect.set_options(timeout=WAIT_MS)


class City:
    """Three mobile brokers with sources around each, and what these measure; the same for the same seed.

    Of the sources some may be quiet, here and there: announced, and never with anything to tell.
    """

    def __init__(self, cloud: Cloud, sources: int = 48, seed: int = 7, quiet: int = 0) -> None:
        self._cloud = cloud
        chance = random.Random(seed)
        self.brokers = {
            name: (CENTRE[0] + 0.0048 * (1 - i), CENTRE[1] + 0.0062 * (i % 2 - 0.5)) for i, name in enumerate(NAMES)
        }
        self.places: dict[str, tuple[str, float, float]] = {}
        for i in range(sources):
            broker = NAMES[i % len(NAMES)]
            lat, long = self.brokers[broker]
            self.places[f"mote-{i + 1:02d}"] = (
                broker,
                round(lat + chance.gauss(0, 0.0018), 6),
                round(long + chance.gauss(0, 0.0027), 6),
            )
        self._quiet = set(random.Random(seed).sample(list(self.places), quiet))
        self._chance = chance
        self.round = 0

    def announce(self, *, counts: bool = True) -> None:
        """The brokers say who is there, and what they have sent and spared."""
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id="city")
        client.connect(HOST, self._cloud.nats.mqtt_port)
        client.loop_start()
        try:
            for i, (name, (lat, long)) in enumerate(self.brokers.items()):
                attributes = {
                    "NO2": {"type": "number", "min": 0, "max": 400, "unit": "ug/m3"},
                    "temperature": {"type": "number", "min": -40, "max": 60},
                    "pm25": {"type": "number", "min": 0, "max": 500},
                    "humidity": {"type": "number", "min": 0, "max": 100},
                }
                own = {source: place for source, place in self.places.items() if place[0] == name}
                said: list[dict[str, Any]] = [
                    {
                        "session": "s1",
                        "validity": 3600,
                        "place": {"lat": lat, "long": long, "radius": 420},
                        "battery": 0.9 - 0.23 * i,
                        "sources": [
                            {"name": source, "attributes": attributes, "constants": {"lat": lat, "long": long}}
                            for source, (_, lat, long) in own.items()
                        ],
                    }
                ]
                if counts:
                    said.append({"session": "s1", "counts": counted(i)})
                for item in said:
                    client.publish(f"spinney/{name}/ann", json.dumps(item), qos=1).wait_for_publish(60)
        finally:
            client.disconnect()
            client.loop_stop()

    def readings(self) -> list[dict[str, Any]]:
        """One of each source."""
        self.round += 1
        found = []
        for i, (source, (broker, lat, long)) in enumerate(self.places.items()):
            if source in self._quiet:
                continue
            dirt = 60 * math.exp(-(((lat - CENTRE[0]) / 0.003) ** 2) - (((long - CENTRE[1]) / 0.004) ** 2))
            wave = math.sin(self.round / 5 + i)
            found.append(
                {
                    "source": source,
                    "lat": lat,
                    "long": long,
                    "NO2": round(18 + dirt + 6 * wave + self._chance.gauss(0, 2), 1),
                    "temperature": round(19 + 2.5 * wave + 0.04 * dirt, 1),
                    "pm25": round(7 + dirt / 4 + self._chance.uniform(0, 3), 1),
                    "humidity": round(48 - 6 * wave, 1),
                    "room": broker,
                }
            )
        return found

    def publish(self, rounds: int = 1, **options: Any) -> None:
        """Each source says something."""
        with self._cloud.client(**options) as client:
            for _ in range(rounds):
                client.post("/v1/publications", json=self.readings()).raise_for_status()

    @contextmanager
    def living(self, pause_seconds: float = 0.25, **options: Any) -> Iterator[None]:
        """Publishes until the end of the block."""
        over = threading.Event()

        def publish() -> None:
            while not over.wait(pause_seconds):
                self.publish(**options)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def counted(i: int) -> dict[str, int]:
    """What a mobile broker may have counted."""
    return {
        "motes_sent": 900 + 70 * i,
        "motes_spared": 8_600 + 400 * i,
        "sent": 240 + 20 * i,
        "spared": 660 + 50 * i,
        "bytes_sent": 31_000 + 900 * i,
        "bytes_spared": 88_000 + 2_000 * i,
    }


class Visit:
    """One browser window at the page. A `with` fails if it complained, or asked for anything outside."""

    def __init__(self, browser: Browser, url: str, *, allowed: tuple[str, ...] = (), **options: Any) -> None:
        given: dict[str, Any] = {"viewport": {"width": 1280, "height": 820}, "reduced_motion": "reduce", **options}
        self._context = browser.new_context(base_url=url, **given)
        self._context.set_default_timeout(WAIT_MS)
        self._url = url
        self._allowed = allowed
        self.complaints: list[str] = []
        self.outside: list[str] = []
        self.asked: list[str] = []
        self.page: Page = self.new_page()

    def new_page(self) -> Page:
        """A window that is listened to."""
        page = self._context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", self._said)
        page.on("request", lambda request: self._asked(request.url))
        return page

    def _said(self, message: ConsoleMessage) -> None:
        where = str(message.location.get("url", ""))
        if message.type in ("error", "warning") and not any(one in message.text + where for one in self._allowed):
            self.complaints.append(f"{message.type}: {message.text} ({where})")

    def _asked(self, url: str) -> None:
        self.asked.append(url)
        if not url.startswith((self._url, self._url.replace("http", "ws"), "data:", "blob:", *self._allowed)):
            self.outside.append(url)

    def asked_for(self, url: str) -> bool:
        """Whether anything there was asked for."""
        return any(one.startswith(url) for one in self.asked)

    def forgive(self) -> None:
        """What was said until now was meant to be."""
        self.complaints.clear()

    def open(self, view: str = "") -> Page:
        """A view of the page, alive."""
        self.page.goto(f"/dashboard/#/{view}")
        self.live()
        return self.page

    def live(self) -> None:
        """Until the page says that it is."""
        expect(self.page.locator("#link")).to_have_text("live")

    def log_in(self, name: str, password: str) -> None:
        """As people do."""
        self.page.goto("/dashboard/login")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()

    def cookies(self) -> list[dict[str, Any]]:
        """That the browser has."""
        return [dict(cookie) for cookie in self._context.cookies()]

    def shot(self, name: str) -> None:
        """A picture, where somebody wants them."""
        if folder := os.environ.get(SHOTS):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._context.close()
        if error is None:
            assert not self.complaints, self.complaints
            assert not self.outside, self.outside


@contextmanager
def page_cloud(folder: Path, *names: str, **settings: Any) -> Iterator[Cloud]:
    """A cloud, begun in another thread: an event loop of playwright's runs in this one."""
    with ThreadPoolExecutor(1) as elsewhere, ExitStack() as stack:
        running = elsewhere.submit(stack.enter_context, cloud(folder, *names, **settings)).result()
        yield running


@contextmanager
def chromium(playwright: Playwright, *arguments: str) -> Iterator[Browser]:
    """Debian's, headless."""
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=[*ARGUMENTS, *arguments])
    try:
        yield browser
    finally:
        browser.close()


def make_later(cloud: Cloud, seconds: float) -> None:
    """The page's process begins anew, with a clock that is so far ahead: what is stored now was said a while ago."""
    step_clock(cloud, seconds)
    cloud.stop("http")
    cloud.start("http", program=[str(stepped_cloud.__file__), "--process"])


def step_clock(cloud: Cloud, seconds: float) -> None:
    """So far ahead is the clock of the page's process from now on, if it was made later."""
    part = cloud.run_file.parents[1] / f"{stepped_cloud.STEP}http.part"
    part.write_text(str(seconds))
    part.replace(part.with_suffix(""))


def announced(cloud: Cloud, brokers: int = len(NAMES), **options: Any) -> None:
    """Wait until the coordinator knows them."""
    with cloud.client(**options) as client:
        wait_for(lambda: len(client.get("/v1/brokers").raise_for_status().json()["brokers"]) == brokers)


def subscribe(cloud: Cloud, sid: str, text: str, **options: Any) -> None:
    """A subscription, by the API."""
    with cloud.client(**options) as client:
        answer = client.post("/v1/subscriptions", json={"sid": sid, "subscription": text})
        assert answer.status_code == httpx.codes.CREATED, answer.text
