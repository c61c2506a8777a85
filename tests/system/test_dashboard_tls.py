"""The page over HTTPS: of the cloud itself, and through a reverse proxy that ends TLS."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from api_kit import Cloud
from clouds import Cloud as Command
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from dashboard_kit import PROCESSES, Visit, chromium, page_cloud
from playwright.sync_api import Browser, expect, sync_playwright
from reverse_proxy import reverse_proxy
from security_kit import quick_hashes
from servers import free_ports
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from spinney_cloud.api.sessions import COOKIE
from spinney_cloud.certs import Certificates
from spinney_cloud.users import Role, Users

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

PASSWORD = "sue-alone-knows-it"
FORM = {"name": "sue", "password": PASSWORD}
SPINNEY = [sys.executable, "-m", "spinney_tools", "cloud"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of a CA of our own, as `spinney cloud certs` makes them."""
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    certificates.make_ca()
    certificates.make_server(["localhost", "127.0.0.1"])
    return certificates


@pytest.fixture(scope="module")
def browser(certificates: Certificates) -> Iterator[Browser]:
    """That trusts this one key: chromium takes a CA from nobody but its user's own store."""
    certificate = x509.load_pem_x509_certificate(certificates.path("server").read_bytes())
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode()
    with (
        sync_playwright() as playwright,
        chromium(playwright, f"--ignore-certificate-errors-spki-list={digest}") as browser,
    ):
        yield browser


def with_sue(folder: Path) -> Path:
    """A data directory with one user."""
    with quick_hashes():
        users = Users().add("sue", Role.SUBSCRIBER, "default", PASSWORD)
    (folder / "data").mkdir()
    users.save(folder / "data")
    return folder / "data"


def look_and_subscribe(browser: Browser, url: str) -> None:
    """All that needs a cookie, a socket and an Origin, in a real browser."""
    with Visit(browser, url) as visit:
        page = visit.page
        sockets: list[str] = []
        page.on("websocket", lambda socket: sockets.append(socket.url))
        visit.log_in("sue", PASSWORD)
        visit.live()
        wss = url.replace("https", "wss")
        assert f"{wss}/dashboard/live" in sockets
        assert all(socket.startswith(wss) for socket in sockets)
        [cookie] = [one for one in visit.cookies() if one["name"] == COOKIE]
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
        page.get_by_role("link", name="Subscriptions").click()
        page.get_by_label("What do you want to be told?").fill("NO2 > 40")
        page.get_by_label("Name").fill("over-tls")
        page.get_by_role("button", name="Create").click()
        expect(page.locator("#outcome")).to_contain_text("over-tls is made")
        page.get_by_role("link", name="Sources").click()
        told = page.evaluate(
            """async () => (await fetch('/v1/explain', {
                method: 'POST', headers: { 'content-type': 'application/json' },
                body: JSON.stringify({ subscription: 'NO2 > 40', publication: { NO2: 41 } }),
            })).status"""
        )
        assert told == httpx.codes.OK
        page.goto("/dashboard")
        expect(page).to_have_url(f"{url}/dashboard/")


def test_the_page_over_https_of_the_cloud_itself(browser: Browser, certificates: Certificates, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    tls = ["--http-tls-certificate", certificates.path("server"), "--http-tls-key", certificates.key_path("server")]
    options = [*map(str, tls), "--dashboard-tiles", ""]
    ports = ["--mqtt-port", "0", "--nats-port", "0", "--http-port", str(port)]
    with Command(with_sue(tmp_path), *options, program=SPINNEY, ports=ports) as cloud:
        url = f"https://localhost:{port}"
        assert f"https://127.0.0.1:{port}" in cloud.ready_line
        look_and_subscribe(browser, url)


@contextmanager
def behind_a_proxy(
    folder: Path, certificates: Certificates, *names: str, passes_host: bool, is_said: bool
) -> Iterator[tuple[Cloud, str]]:
    """A cloud over plain HTTP, and the URL of what is in front of it; `is_said`: the cloud knows that URL."""
    (port,) = free_ports(1)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.path("server"), certificates.key_path("server"))
    with_sue(folder)
    http = {"public_url": f"https://localhost:{port}"} if is_said else {}
    with (
        page_cloud(folder, *names, http=http, dashboard={"tiles": ""}) as running,
        reverse_proxy(port, running.http_port, context, passes_host=passes_host) as url,
    ):
        yield running, url


@pytest.mark.parametrize(("passes_host", "is_said"), [(True, False), (False, True), (True, True)])
def test_the_page_through_a_proxy_that_passes_its_host_or_is_known(
    browser: Browser, certificates: Certificates, tmp_path: Path, *, passes_host: bool, is_said: bool
) -> None:
    with behind_a_proxy(tmp_path, certificates, *PROCESSES, passes_host=passes_host, is_said=is_said) as (_, url):
        look_and_subscribe(browser, url)


@pytest.mark.parametrize("is_said", [True, False])
def test_of_other_origins_nobody_is_let_in_through_a_proxy(
    certificates: Certificates, tmp_path: Path, *, is_said: bool
) -> None:
    trusting = ssl.create_default_context(cafile=certificates.path("ca"))
    with behind_a_proxy(tmp_path, certificates, "gateway", "http", passes_host=False, is_said=is_said) as (
        running,
        url,
    ):
        known = url if is_said else running.url
        own = httpx.post(f"{running.url}/dashboard/login", data=FORM, headers={"Origin": known})
        cookie = {"Cookie": f"{COOKIE}={own.cookies[COOKIE]}"}

        def let_in(origin: str) -> tuple[bool, bool, bool]:
            """By the form, to the API, to a socket."""
            headers = {"Origin": origin}
            with httpx.Client(base_url=url, verify=trusting) as client:
                logged_in = "set-cookie" in client.post("/dashboard/login", data=FORM, headers=headers).headers
                body = {"subscription": "a > 1", "publication": {"a": 2}}
                answer = httpx.post(f"{url}/v1/explain", json=body, headers={**cookie, **headers}, verify=trusting)
                asked = answer.status_code == httpx.codes.OK
            with ThreadPoolExecutor(1) as apart:  # playwright has a loop in this thread
                return logged_in, asked, apart.submit(lambda: asyncio.run(opens(origin))).result()

        async def opens(origin: str) -> bool:
            """In a loop: this Python's TLS is not for two threads at once, as the other client has."""
            path = f"{url.replace('https', 'wss')}/dashboard/live"
            with suppress(InvalidStatus):
                async with connect(path, origin=Origin(origin), additional_headers=cookie, ssl=trusting):
                    return True
            return False

        assert let_in(url) == (is_said,) * 3
        foreign = ["https://evil.example", url.replace("https", "http"), f"{url}.evil.example", "null"]
        for other in [*foreign, running.url] if is_said else foreign:  # nor of the name that the proxy has for us
            assert let_in(other) == (False,) * 3, other


def test_a_login_through_a_proxy_of_which_nobody_told_says_what_to_set(
    browser: Browser, certificates: Certificates, tmp_path: Path
) -> None:
    with (
        behind_a_proxy(tmp_path, certificates, "http", passes_host=False, is_said=False) as (running, url),
        Visit(browser, url) as visit,
    ):
        visit.log_in("sue", PASSWORD)
        expect(visit.page.get_by_role("alert")).to_contain_text("http.public_url")
        assert url in running.processes["http"].log()
