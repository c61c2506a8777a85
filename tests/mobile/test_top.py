"""The terminal page, by Textual's own pilot: what stands on the screen, and its keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from test_web_page import NOW, picture
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import DataTable, TabbedContent

from spinney_mobile.pages import ago, shown, size
from spinney_mobile.status import FilterStatus, OutboxStatus, SourceStatus, UplinkStatus
from spinney_mobile.top import Top, filters, head, signal


class Asked:
    """Answers that a test can change."""

    def __init__(self, **more: Any) -> None:
        self.answer: Mapping[str, Any] = picture(**more).to_json()
        self.error: Exception | None = None

    def __call__(self) -> Mapping[str, Any]:
        if self.error:
            raise self.error
        return self.answer


def screen(app: App[None]) -> str:
    """All text on it."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def look(asked: Asked, then: Callable[[Top, Pilot[None]], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> None:
    async def run() -> None:
        app = Top(asked)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "roof" in screen(app))
            await then(app, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    for _ in range(1200):
        if holds():
            return
        await pilot.pause(0.05)
    raise AssertionError(screen(pilot.app))


def test_sources_fit_into_80_by_24() -> None:
    async def then(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "mote-7" in screen(app))
        text = screen(app)
        for expected in ("cloud connected", "sent 100  spared 900 (90%)", "waiting 3", "▂▄▆  -61", "83%", "window <b>"):
            assert expected in text, text
        assert "temperature 21.5C" in text
        assert all(len(line) <= 80 for line in text.splitlines())

    look(Asked(), then)


def test_keys_lead_to_what_is_wanted_notifications_and_acquirers() -> None:
    async def then(app: Top, pilot: Pilot[None]) -> None:
        for key, tab, expected in (
            ("f", "wanted", "WHEN NO2 > 40 UNTIL NO2 <= 30"),
            ("f", "wanted", "here: lat > 45 and 2 more: the mote does not know lat"),
            ("n", "told", "alarm enter"),
            ("a", "heard", "gone"),
            ("s", "sources", "mote-7"),
        ):
            await pilot.press(key)
            await until(pilot, lambda tab=tab: app.query_one("#tabs", TabbedContent).active == tab)  # type: ignore[misc]
            await until(pilot, lambda expected=expected: expected in screen(app))  # type: ignore[misc]  # bound at once

    look(Asked(), then)


def test_the_order_of_the_sources_can_be_changed() -> None:
    async def then(app: Top, pilot: Pilot[None]) -> None:
        table = app.query_one("#table", DataTable)
        await until(pilot, lambda: table.row_count == 2)
        assert str(table.get_row_at(0)[0]) == "mote-7 (hut)"
        await pilot.press("o")
        await until(pilot, lambda: str(table.get_row_at(0)[0]).startswith("window"))

    look(Asked(), then)


def test_sources_are_ordered_by_name_age_signal_or_what_they_send() -> None:
    sources = [
        SourceStatus("a", "", "ble", NOW - 10, None, sent=5),
        SourceStatus("b", "", "ble", NOW - 30, -60, sent=1),
        SourceStatus("c", "", "ble", NOW - 20, -90, sent=9),
    ]

    async def then(app: Top, pilot: Pilot[None]) -> None:
        table = app.query_one("#table", DataTable)

        def names() -> str:
            return "".join(str(table.get_row_at(row)[0]) for row in range(table.row_count))

        for order in ("abc", "acb", "bca", "cab", "abc"):
            await until(pilot, lambda order=order: names() == order)  # type: ignore[misc]  # bound at once
            await pilot.press("o")

    look(Asked(sources=sources), then)


def test_a_broker_that_goes_away_is_said_and_seen_again() -> None:
    async def then(app: Top, pilot: Pilot[None]) -> None:
        asked.error = OSError("the broker does not answer")
        await until(pilot, lambda: "the broker does not answer" in screen(app))
        asked.error = None
        await until(pilot, lambda: "the broker does not answer" not in screen(app))

    asked = Asked()
    look(asked, then)


def test_hundreds_of_sources_keep_the_place_of_the_cursor() -> None:
    sources = [SourceStatus(f"m{number:03}", "", "ble", NOW, values={"t": 1.0}) for number in range(500)]

    async def then(app: Top, pilot: Pilot[None]) -> None:
        table = app.query_one("#table", DataTable)
        await until(pilot, lambda: table.row_count == 500)
        table.focus()
        table.move_cursor(row=300)
        before = app._status
        asked.answer = dict(asked.answer)
        await until(pilot, lambda: app._status is not before)
        assert table.cursor_row == 300

    asked = Asked(sources=sources)
    look(asked, then)


def test_what_others_write_is_no_markup() -> None:
    sources = [SourceStatus("[red]x[/red] [", "", "ble", NOW, values={"[/]": "[bold]"})]

    async def then(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "[red]x[/red] [" in screen(app))
        assert "[bold]" in screen(app)

    look(Asked(sources=sources), then)


def test_the_head_says_what_would_have_been_saved() -> None:
    status = picture(
        send="all",
        counts={"sent": 200, "unneeded": 150},
        uplink=UplinkStatus(False, None, "no [way]", None, "mqtt://c:1"),
    )
    text = head(status.to_json())
    assert "sent 200 (75% of them not needed)" in text
    assert "no cloud" in text
    assert "\\[way]" in text
    assert "dropped" not in text


def test_the_head_says_what_was_dropped() -> None:
    assert "dropped 7" in head(picture(outbox=OutboxStatus(3, 420, NOW - 5, 7, 1 << 26)).to_json())


def test_a_filter_that_motes_evaluate_says_on_how_many() -> None:
    active = [FilterStatus("a", "state", "x", 3, 1), FilterStatus("b", "state", "y", 5, 0)]
    most, other = filters(picture(filters=active).to_json())
    assert most.endswith("y")
    assert other.endswith("x  [green]on 1 motes[/]")


def test_without_a_cloud_the_head_says_so_and_nothing_of_sending() -> None:
    text = head(picture(uplink=UplinkStatus(False, None, "no cloud is set", None)).to_json())
    assert "no cloud: all stays here" in text
    assert "heard 1,000" in text
    assert "sent" not in text


@pytest.mark.parametrize(
    ("rssi", "expected"), [(None, ""), (-50, "▂▄▆█ -50"), (-70, "▂▄▆  -70"), (-80, "▂▄   -80"), (-100, "▂    -100")]
)
def test_signal_as_bars(rssi: int | None, expected: str) -> None:
    assert signal(rssi) == expected


def test_few_characters_for_numbers_times_and_sizes() -> None:
    assert [ago(seconds) for seconds in (0, 5, 300, 7200, 200_000)] == ["now", "5 s", "5 min", "2 h", "2 d"]
    assert [size(count) for count in (3, 2_500, 3_000_000, 5e9)] == ["3 B", "2.5 kB", "3 MB", "5 GB"]
    assert [shown(value) for value in (True, 21.0, 1 / 3, "eco")] == ["yes", "21", "0.333333", "eco"]
