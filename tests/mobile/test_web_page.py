"""The status page: in a real browser, as JSON, as a stream; and who may see it."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from clouds import wait_until

from spinney_mobile.data_dir import DataDir, DataDirError, NotRunning, ask
from spinney_mobile.running import AskError
from spinney_mobile.status import (
    AcquirerStatus,
    FilterStatus,
    OutboxStatus,
    SourceStatus,
    Status,
    UplinkStatus,
)
from spinney_mobile.web import WebApp, WebServer, listen
from spinney_mobile.web import app as app_module

NOW = 1_770_000_000.0


def picture(**more: Any) -> Status:
    """A broker in the middle of its work."""
    given: dict[str, Any] = {
        "name": "roof",
        "started": NOW - 7200,
        "now": NOW,
        "version": "1.2",
        "place": None,
        "acquirers": [
            AcquirerStatus("ble:hci0", "hearing", NOW - 3, 1234),
            AcquirerStatus("serial", "failed", None, 0, "gone"),
        ],
        "sources": [
            SourceStatus(
                "window <b>",
                "AA",
                "ble:hci0",
                NOW - 3,
                -61,
                0.83,
                {"temperature": 21.5},
                {"temperature": "C"},
                sent=2,
                spared=8,
            ),
            SourceStatus(
                *("mote-7", "BB", "motes", NOW - 90, None, None, {"NO2": 57.0}, {}),
                on_mote=2,
                called="hut",
                place={"lat": 45.815, "long": 15.977},
                mote={
                    "connected": False,
                    "waiting": True,
                    "filters": 2,
                    "sampling": False,
                    "adverts": "open",
                    "adverts_note": "its mote.toml says so",
                    "here": [{"why": "the mote does not know lat", "count": 3, "text": "lat > 45"}],
                },
            ),
        ],
        "filters": [FilterStatus("ab", "state", "WHEN NO2 > 40 UNTIL NO2 <= 30", 3, 1)],
        "uplink": UplinkStatus(True, 5, None, NOW - 60, "mqtt://cloud:1883"),
        "outbox": OutboxStatus(3, 420, NOW - 5, 0, 1 << 26),
        "counts": {"sampled": 1000, "sent": 100, "spared": 900, "bytes_spared": 90_000},
        "suppressed": {"night": 4},
        "problems": ["place: no gpsd", "decoder <x>: a bug"],
        "notifications": [{"id": "x", "sid": "alarm", "why": "enter", "time": NOW - 9, "publication": {"NO2": 57.0}}],
    }
    return Status(**{**given, **more})


class Source:
    """A picture instead of a broker: the page must draw whatever there is."""

    def __init__(self) -> None:
        self.picture = picture()
        self.asked = 0

    def status(self) -> Status:
        self.asked += 1
        return self.picture

    def seen(self) -> list[dict[str, Any]]:
        return [{"address": "AA"}]

    def explain(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        if "publication" not in ask:
            raise AskError("expected a source or a publication")
        return {"publication": ask["publication"], "filters": []}


class Served:
    """A page that is served, in a loop on a thread of its own."""

    def __init__(self, folder: Path, token: str | None = None) -> None:
        self.source = Source()
        self.data = DataDir(folder)
        self._token = token
        self._listener = listen("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self._control = self.data.listen()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.app = WebApp(self.source, self._token)
        self._serving = asyncio.create_task(WebServer(self.app, [self._control, self._listener]).run())
        self._ready.set()
        with suppress(asyncio.CancelledError):
            await self._serving

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join(60)
        self._control.close()
        self._listener.close()
        self.data.close()

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        found = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        connection.close()
        return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as served:
        yield served


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_a_browser_draws_what_the_broker_says_and_asks_nobody_else(served: Served, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{served.port}/"
    with Browser(tmp_path) as browser:
        browser.open(url)
        wait_until(lambda: "mote-7" in browser.text(), "the sources")
        text = browser.text()
        for expected in (
            *(
                "roof",
                "cloud connected",
                "window <b>",
                "temperature 21.5 C",
                "-61 dBm",
                "83 %",
                "alarm",
                "NO2 57",
                "failed: gone",
                "mote-7 (hut)",
                "place: no gpsd\ndecoder <x>: a bug",
                "NO2 57, at 45.8150, 15.9770",
            ),
            "90 % of the readings were not sent, because nobody wants them (90.0 kB saved)",
            "WHEN NO2 > 40 UNTIL NO2 <= 30",
            "waits to be connected, not sampling, advertises its readings (its mote.toml says so)",
            "lat > 45 and 2 more: the mote does not know lat",
        ):
            assert expected in text, text
        assert {address.removeprefix(url) for address in browser.asked if address.startswith("http")} == {"", "status"}
        served.source.picture = picture(
            send="all", counts={"sent": 10, "unneeded": 7, "bytes_unneeded": 900, "spared": 1}, sources=[]
        )
        wait_until(lambda: "would have saved 70 % of the readings (900 B)" in browser.text(), "the next picture")
        assert "Nothing has been heard yet." in browser.text()
        served.source.picture = picture(uplink=UplinkStatus(False, None, "no cloud is set", None))
        wait_until(lambda: "no cloud: everything stays here" in browser.text(), "the picture without a cloud")
        assert "spared" not in browser.text()


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_the_page_fits_a_phone_in_light_and_dark(served: Served, tmp_path: Path) -> None:
    name = "serial:usb-Silicon_Labs_CP2102_USB_to_UART_Bridge_Controller_0001-if00-port0"
    failed = AcquirerStatus(name, "failed", None, 0, "/dev/serial/by-id/...: No such file or directory")
    served.source.picture = picture(acquirers=[failed])
    with Browser(tmp_path) as browser:
        colours = set()
        for scheme in ("light", "dark"):
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            browser.open(f"http://127.0.0.1:{served.port}/")
            wait_until(lambda: "mote-7" in browser.text(), "the sources")
            browser.screenshot(tmp_path / f"{scheme}.png", 390, 844)
            assert browser.value("document.documentElement.scrollWidth") <= 390
            sections = "[...document.querySelectorAll('section')]"
            assert browser.value(f"{sections}.every((each) => each.scrollWidth <= each.clientWidth)"), "no sideways"
            colours.add(browser.value("getComputedStyle(document.body).backgroundColor"))
        assert len(colours) == 2


def test_the_page_needs_nothing_from_elsewhere(served: Served) -> None:
    status, headers, body = served.get("/")
    assert status == 200
    assert not re.search(rb"""(src|href|url\()\s*=?\s*["']?https?:""", body)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert b"prefers-color-scheme: dark" in body
    assert headers["x-content-type-options"] == "nosniff"


def test_the_status_is_json_and_a_stream(served: Served) -> None:
    assert json.loads(served.get("/status")[2])["name"] == "roof"
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("GET", "/status", headers={"Accept": "text/event-stream"})
    response = connection.getresponse()
    assert response.getheader("content-type", "").startswith("text/event-stream")
    for name in ("roof", "cellar"):
        line = response.readline()
        assert json.loads(line.removeprefix(b"data: "))["name"] == name
        assert response.readline() == b"\n"
        served.source.picture = picture(name="cellar")
    connection.close()


def test_all_open_pages_are_given_the_same_picture(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "PICTURE_SECONDS", 3600.0)
    connections = [http.client.HTTPConnection("127.0.0.1", served.port, timeout=60) for _ in range(5)]
    for connection in connections:
        connection.request("GET", "/status", headers={"Accept": "text/event-stream"})
        assert json.loads(connection.getresponse().readline().removeprefix(b"data: "))["name"] == "roof"
    assert served.source.asked == 1
    assert json.loads(served.get("/status")[2])["name"] == "roof"
    assert served.source.asked == 2, "who asks once is given a new one"
    for connection in connections:
        connection.close()


def test_a_picture_as_json_is_all_of_it() -> None:
    one = picture()
    assert one.to_json() == asdict(one)


def test_streams_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "MAX_STREAMS", 0)
    assert served.get("/status", Accept="text/event-stream")[0] == 503


def test_a_stream_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        connection.request("GET", "/status", headers={"Accept": "text/event-stream"})
        response = connection.getresponse()
        response.readline()
    assert not served._thread.is_alive()
    connection.close()


def test_metrics_are_what_prometheus_reads(served: Served) -> None:
    status, headers, body = served.get("/metrics")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/plain")
    lines = body.decode().splitlines()
    assert 'spinney_mobile_readings_total{what="spared"} 900' in lines
    assert 'spinney_mobile_suppressed_total{rule="night"} 4' in lines
    assert 'spinney_mobile_source_rssi_dbm{source="window <b>"} -61' in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def test_what_cannot_be_explained_is_said(served: Served, tmp_path: Path) -> None:
    assert ask(tmp_path, "/explain", {"publication": {"a": 1}})["filters"] == []
    with pytest.raises(DataDirError, match="expected a source or a publication"):
        ask(tmp_path, "/explain", {})
    with pytest.raises(DataDirError, match="expected a JSON object"):
        ask(tmp_path, "/explain", [1])
    assert served.get("/nowhere")[0] == 404


@pytest.mark.usefixtures("served")
def test_a_large_question_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "MAX_BODY", 10)
    with pytest.raises(DataDirError, match="more than 10 bytes"):
        ask(tmp_path, "/explain", {"publication": {"a": "x" * 100}})


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_page_elsewhere_whose_name_leads_here_sees_nothing(served: Served, host: str) -> None:
    assert served.get("/status", Host=host)[0] in (400, 403)


def test_beyond_loopback_a_token_is_asked_for(tmp_path: Path) -> None:
    with Served(tmp_path, token="secret") as served:
        for path in ("/", "/status", "/seen", "/metrics", "/status?token=guess"):
            assert served.get(path)[0] == 401
        status, headers, _ = served.get("/?token=secret")
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert served.get("/status", Cookie=cookie.partition(";")[0])[0] == 200
        assert served.get("/status", Authorization="Bearer secret")[0] == 200
        assert served.get("/status", Cookie="spinney_token=guess")[0] == 401
        assert ask(tmp_path, "/status")["name"] == "roof"


# ---- the data directory


def test_who_asks_a_directory_without_a_broker_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="start one with spinney mobile run"):
        ask(tmp_path / "none", "/status")


def test_a_path_that_is_too_long_for_a_socket_works_too(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 60) / ("y" * 60)
    with Served(folder):
        assert ask(folder, "/status")["name"] == "roof"


def test_the_socket_and_the_token_are_for_one_user_alone(tmp_path: Path) -> None:
    with DataDir(tmp_path / "data") as data, data.listen():
        token = data.token()
        assert data.token() == token
        assert len(token) >= 32
        for name in ("control", "token", "lock"):
            assert (data.path / name).stat().st_mode & 0o077 == 0
        assert data.path.stat().st_mode & 0o077 == 0


def test_a_directory_is_one_brokers(tmp_path: Path) -> None:
    with DataDir(tmp_path), pytest.raises(DataDirError, match="is in use by process"):
        DataDir(tmp_path)
    DataDir(tmp_path).close()
