"""Who is let in at the page's doors: each route and each socket, with users and without; and what browsers are told."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_kit import Cloud, cloud, wait_for
from security_kit import quick_hashes
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from spinney_cloud.api.sessions import COOKIE, Sessions
from spinney_cloud.data_dir import Secrets, read_secrets
from spinney_cloud.users import Role, Users, change

SOCKETS = ("/dashboard/live", "/dashboard/_nicegui_ws/socket.io/?EIO=4&transport=websocket")
OPEN = ("/dashboard/login", "/dashboard/static/login.css", "/dashboard/static/icon.svg", "/dashboard/static/theme.js")
SECONDS = 60.0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Without users."""
    with cloud(tmp_path_factory.mktemp("alone"), "gateway", "http") as running:
        yield running


@pytest.fixture(scope="module")
def users() -> Users:
    with quick_hashes():
        users = Users()
        for name, role, tenant in (
            ("ops", Role.OPERATOR, "default"),
            ("sue", Role.SUBSCRIBER, "default"),
            ("eve", Role.OPERATOR, "other"),
        ):
            users = users.add(name, role, tenant, f"secret of {name}")
    return users


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, users: Users) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "data").mkdir()
    users.save(folder / "data")
    with cloud(folder, "gateway", "http") as running:
        yield running


def cookie_of(cloud: Cloud, users: Users, name: str, now: float | None = None) -> dict[str, str]:
    sessions = Sessions(read_secrets(cloud.settings.data), 3600.0)
    given = sessions.give(users.user(name), time.time() if now is None else now)
    return {"Cookie": f"{COOKIE}={given}"}


def opened(cloud: Cloud, path: str, origin: str | None, headers: dict[str, str] | None = None) -> int:
    """The status of a socket's opening."""
    try:
        with connect(
            cloud.url.replace("http", "ws") + path,
            origin=origin,  # type: ignore[arg-type]
            additional_headers=headers,
            open_timeout=SECONDS,
        ):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def told(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of a kind."""
    while True:
        message: dict[str, Any] = json.loads(socket.recv(SECONDS))
        if message["kind"] == kind:
            return message


def ask_until_closed(socket: ClientConnection, question: str) -> None:
    """An error if it stays open."""
    deadline = time.monotonic() + SECONDS
    with suppress(ConnectionClosed):
        while time.monotonic() < deadline:
            socket.send(question)
            socket.recv(SECONDS)
        raise AssertionError("it is open still")


# ---- Routes


def test_without_users_the_page_is_this_machines_own(alone: Cloud) -> None:
    with alone.client() as client:
        page = client.get("/", follow_redirects=True)
        assert (page.status_code, page.url.path) == (200, "/dashboard/")
        assert client.get("/dashboard").headers["location"] == "/dashboard/"  # no host: a proxy may have another
        assert "Subscriptions" in page.text
        assert client.get("/dashboard/login").headers["location"] == "/dashboard/"
        assert client.get("/dashboard/", headers={"Host": "evil.example"}).status_code == 403


def test_without_users_nobody_is_let_in_where_a_proxy_may_be(tmp_path: Path) -> None:
    with cloud(tmp_path, "http", http={"public_url": "https://spinney.example"}) as running, running.client() as client:
        assert client.get("/dashboard/").status_code == 401
        assert client.get("/v1/sources").status_code == 401
        assert opened(running, "/dashboard/live", running.url) == 403
        assert opened(running, "/dashboard/live", "https://spinney.example") == 403


def test_with_users_only_the_login_is_for_everybody(guarded: Cloud) -> None:
    with guarded.client() as client:
        for path in OPEN:
            assert client.get(path).status_code == 200, path
        nicegui = f"/dashboard/_nicegui/{__import__('nicegui').__version__}/static/nicegui.js"
        for path in ("/dashboard/", "/dashboard/static/app.js", "/dashboard/static/land.json", nicegui, "/dashboard/x"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/login"), path
        assert client.post("/dashboard/check", content="NO2 > 1").status_code == 303
        assert client.get("/dashboard/_nicegui_ws/socket.io/?EIO=4&transport=polling").status_code == 404


def test_a_login_gives_a_cookie_that_no_script_sees(guarded: Cloud) -> None:
    with guarded.client() as client:
        origin = {"Origin": guarded.url}
        form = {"name": "sue", "password": "secret of sue"}
        answer = client.post("/dashboard/login", data=form, headers=origin)
        assert answer.headers["location"] == "/dashboard/"
        assert re.search(r"HttpOnly.*SameSite=strict", answer.headers["set-cookie"])
        assert client.get("/dashboard/").status_code == 200
        assert client.get("/v1/subscriptions").status_code != 401
        for wrong in ({"name": "sue", "password": "x"}, {"name": "nobody", "password": "x"}, {}):
            refused = httpx.post(f"{guarded.url}/dashboard/login", data=wrong, headers=origin)
            assert (refused.headers["location"], refused.headers.get("set-cookie")) == ("/dashboard/login#wrong", None)
        strange = httpx.post(f"{guarded.url}/dashboard/login", data=form, headers={"Origin": "http://evil.example"})
        assert (strange.headers["location"], "set-cookie" in strange.headers) == ("/dashboard/login#elsewhere", False)


def test_a_cookie_does_for_the_api_what_its_page_asks_and_no_other_site(guarded: Cloud, users: Users) -> None:
    body = {"subscription": "temp > 3", "publication": {"temp": 4}}
    cookie = cookie_of(guarded, users, "sue")
    with guarded.client() as client:

        def explain(**more: str) -> int:
            return client.post("/v1/explain", json=body, headers={**cookie, **more}).status_code

        assert explain(Origin=guarded.url) == 200
        assert explain(Origin="http://evil.example") == 403
        assert explain(Origin="null") == 403
        assert explain() == 403  # browsers always say from where they post
        assert client.get("/metrics", headers=cookie).status_code == 403  # her role is asked as ever


def test_a_password_that_a_browser_kept_serves_no_other_site(guarded: Cloud) -> None:
    body = {"subscription": "temp > 3", "publication": {"temp": 4}}
    with guarded.client(auth=("sue", "secret of sue")) as client:

        def explain(**headers: str) -> int:
            return client.post("/v1/explain", json=body, headers=headers).status_code

        assert explain() == 200  # a program
        assert explain(Origin=guarded.url) == 200
        for origin in ("http://evil.example", "null"):
            assert explain(Origin=origin) == 403
            bodiless = client.post("/v1/subscriptions/any/disable", headers={"Origin": origin})  # a form can send that
            assert bodiless.status_code == 403


def _another_end(cookie: str) -> str:
    return cookie[:-1] + ("1" if cookie.endswith("0") else "0")


SPOILT: dict[str, Callable[[str], str]] = {
    "another end": _another_end,
    "another name": lambda cookie: cookie.replace("sue", "ops"),
    "longer": lambda cookie: re.sub(r"\.(\d+)\.", r".9\1.", cookie),
    "nothing": lambda cookie: cookie[:0],
    "no signature": lambda cookie: cookie.rpartition(".")[0],
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_cookie_that_was_made_up_is_none(guarded: Cloud, users: Users, how: str) -> None:
    cookie = cookie_of(guarded, users, "sue")["Cookie"].partition("=")[2]
    headers = {"Cookie": f"{COOKIE}={SPOILT[how](cookie)}", "Sec-Fetch-Mode": "cors"}
    with guarded.client() as client:
        answer = client.get("/v1/sources", headers=headers)
        assert answer.status_code == 401
        assert "Basic" not in answer.headers["www-authenticate"]  # else the browser would ask, over our page


def test_a_cookie_ends_with_its_time_its_password_and_its_user(users: Users) -> None:
    sessions = Sessions(Secrets("n", "m", "s", "p"), 60.0)
    cookie = sessions.give(users.user("sue"), 1000.0)
    assert sessions.user(users, cookie, 1059.0) == users.user("sue")
    assert sessions.user(users, cookie, 1061.0) is None
    assert sessions.user(users.remove("sue"), cookie, 1059.0) is None
    with quick_hashes():
        assert sessions.user(users.set_password("sue", "another"), cookie, 1059.0) is None
    assert Sessions(Secrets("other", "m", "s", "p"), 60.0).user(users, cookie, 1059.0) is None


def test_every_answer_says_what_the_browser_may_load(alone: Cloud) -> None:
    with alone.client() as client:
        for path in ("/dashboard/", "/dashboard/static/app.js"):
            headers = client.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
            assert "img-src 'self' data: blob: https://tile.openstreetmap.org" in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff"
        page = client.get("/dashboard/")
        nonce = re.search(r"'nonce-([^']+)'", page.headers["content-security-policy"])
        assert nonce
        assert len(re.findall(r"<script", page.text)) == page.text.count(f'<script nonce="{nonce[1]}"')
        assert nonce[1] not in client.get("/dashboard/").text
        assert "http://" not in re.sub(r"http://www.w3.org[^\"' ]*", "", page.text)


# ---- Sockets


@pytest.mark.parametrize("path", SOCKETS)
def test_sockets_open_for_our_own_page_only(alone: Cloud, guarded: Cloud, users: Users, path: str) -> None:
    cookie = cookie_of(guarded, users, "sue")
    assert opened(alone, path, alone.url) == 101
    assert opened(alone, path, "http://evil.example") == 403
    assert opened(alone, path, None) == 403
    assert opened(guarded, path, guarded.url, cookie) == 101
    assert opened(guarded, path, guarded.url) == 403
    assert opened(guarded, path, "http://evil.example", cookie) == 403
    assert opened(guarded, path, None, cookie) == 403
    assert opened(guarded, path, guarded.url, cookie_of(guarded, users, "sue", now=1.0)) == 403


@pytest.mark.parametrize("path", SOCKETS)
def test_sockets_end_with_their_user(tmp_path: Path, users: Users, path: str) -> None:
    (tmp_path / "data").mkdir()
    users.save(tmp_path / "data")
    with cloud(tmp_path, "http") as running:
        url = running.url.replace("http", "ws") + path
        with connect(url, origin=running.url, additional_headers=cookie_of(running, users, "sue")) as socket:  # type: ignore[arg-type]
            socket.recv(SECONDS)
            change(running.settings.data, lambda users: users.remove("sue"))
            ask_until_closed(socket, '{"series":[]}' if "live" in path else "3")


def test_each_tenant_sees_its_own_readings(guarded: Cloud, users: Users) -> None:
    for name in ("ops", "eve"):
        with guarded.client(auth=(name, f"secret of {name}")) as client:
            client.post("/v1/publications", json={"source": f"of-{name}", "NO2": 1}).raise_for_status()

    def seen(name: str) -> set[str]:
        """Of all that is there."""
        url = guarded.url.replace("http", "ws") + "/dashboard/live"
        with connect(url, origin=guarded.url, additional_headers=cookie_of(guarded, users, name)) as socket:  # type: ignore[arg-type]
            wait_for(lambda: told(socket, "overview")["sources"])
        with connect(url, origin=guarded.url, additional_headers=cookie_of(guarded, users, name)) as socket:  # type: ignore[arg-type]
            return {item[0] for item in told(socket, "points")["items"]}

    assert seen("sue") == {"of-ops"}
    assert seen("eve") == {"of-eve"}


def test_what_a_browser_asks_is_answered_and_nonsense_ends_it(alone: Cloud) -> None:
    with alone.client() as client:
        client.post("/v1/publications", json={"source": "a", "NO2": 7, "lat": 45.81, "long": 15.97}).raise_for_status()

    def live() -> ClientConnection:
        return connect(alone.url.replace("http", "ws") + "/dashboard/live", origin=alone.url)  # type: ignore[arg-type]

    with live() as socket:
        wait_for(lambda: told(socket, "overview")["sources"] == 1)
        socket.send(json.dumps({"series": ["a", "b"]}))
        assert told(socket, "series")["series"]["b"] == []
        socket.send(json.dumps({"at": time.time(), "resolution": 5}))
        past = told(socket, "past")
        assert ([point[0] for point in past["points"]], len(past["cells"])) == (["a"], 1)
        socket.send(json.dumps({"resolution": 4}))
        assert told(socket, "cells")["resolution"] == 4
    for nonsense in ("{", "[]", '{"resolution":99}', '{"series":"a"}', '{"at":"x"}', "x" * 20_000):
        with live() as socket:
            ask_until_closed(socket, nonsense)
    with alone.client() as client:  # and it harmed nobody
        assert client.get("/healthz").status_code == 200


def test_the_page_can_be_left_out(tmp_path: Path) -> None:
    with cloud(tmp_path, "http", dashboard={"enabled": False}) as running, running.client() as client:
        assert client.get("/dashboard/").status_code == 404
        assert client.get("/").status_code == 404
        assert opened(running, "/dashboard/live", running.url) in (403, 404)
