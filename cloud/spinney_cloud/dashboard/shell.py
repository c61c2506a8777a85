"""The page's shell, made with NiceGUI: header, ways about it, and the places in which static/ draws what is alive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from fastapi import Request
from nicegui import ui
from nicegui.elements import leaflet
from nicegui.elements.mixins.text_element import TextElement

from ..api.auth import Caller, Right
from ..api.context import Api
from .guard import BASE

LEAFLET: Final = Path(str(leaflet.__file__)).parent / "dist"
"""Leaflet as NiceGUI brings it, for static/map.js; its own element would have browsers get tiles from outside first."""


class View(NamedTuple):
    """One of the page's views."""

    name: str
    title: str
    icon: str
    right: Right
    draw: Callable[[], None]


def define(api: Api) -> None:
    """The page, at the root of the application that NiceGUI is mounted on."""

    @ui.page("/")
    async def page(request: Request) -> None:
        caller = await api.door.caller(request)
        settings = api.service.settings.dashboard
        views = [view for view in VIEWS if caller.may(view.right)]
        shown = {
            "base": BASE,
            "name": caller.name,
            "role": caller.role,
            "rights": [right.value for right in Right if caller.may(right)],
            "tiles": settings.tiles,
            "attribution": settings.attribution,
            "version": version("spinney"),
        }
        ui.add_head_html(_head(shown))
        ui.add_body_html('<a class="skip" href="#views">Skip to content</a>')
        _header(caller, views, has_users=api.door.has_users)
        _setup()
        with ui.element("div").props("id=views tabindex=-1"):  # NiceGUI's page is the main element already
            for view in views:
                with ui.element("section").props(f'id="view-{view.name}" aria-labelledby="title-{view.name}" hidden'):
                    _text("h1", view.title).props(f'id="title-{view.name}" tabindex=-1')
                    view.draw()


def _head(shown: Mapping[str, object]) -> str:
    about = json.dumps(shown).replace("<", "\\u003c").replace('"', "&quot;").replace("'", "&#39;")
    return (
        f'<meta name="spinney" content="{about}">'
        f'<link rel="stylesheet" href="{BASE}/leaflet/leaflet.css">'
        f'<link rel="stylesheet" href="{BASE}/static/dashboard.css">'
        f'<script src="{BASE}/static/theme.js"></script>'
        f'<script type="module" src="{BASE}/static/app.js"></script>'
    )


def _header(caller: Caller, views: list[View], *, has_users: bool) -> None:
    with ui.header().classes("bar"):
        with ui.element("div").classes("brand"):
            _icon("forest")
            _text("span", "Spinney").classes("brand-name")
        with ui.element("nav").props('aria-label="Views"').classes("nav"):
            for view in views:
                with ui.element("a").props(f'href="#/{view.name}" data-view="{view.name}"'):
                    _icon(view.icon)
                    _text("span", view.title).classes("nav-title")
        with ui.element("div").classes("bar-end"):
            _text("span", "connecting").props('id=link role=status data-state="waiting"').classes("pill")
            with ui.element("button").props('id=theme type=button aria-label="Switch between light and dark"'):
                _icon("contrast")
            if has_users:
                with ui.element("form").props(f'method=post action="{BASE}/logout"').classes("account"):
                    _text("span", caller.name).props(f'title="{caller.role}"').classes("account-name")
                    with ui.element("button").props('type=submit aria-label="Log out"'):
                        _icon("logout")


def _setup() -> None:
    """What is being set up beside the cloud, while it is; shown to operators."""
    with ui.element("div").props("id=setup hidden").classes("setup"):
        _text("span", "").props("id=setup-text")
        ui.element("progress").props('id=setup-share max=1 aria-labelledby="setup-text"')
    _text("span", "").props("id=setup-said role=status").classes("unseen")


def _icon(name: str) -> None:
    ui.icon(name).props("aria-hidden=true")


def _text(tag: str, text: str) -> TextElement:
    return TextElement(tag=tag, text=text)


@contextmanager
def _panel(title: str, ident: str, *, note: str = "", classes: str = "") -> Iterator[None]:
    """A card with a heading."""
    with ui.element("article").classes(f"panel {classes}").props(f'id="{ident}" aria-labelledby="{ident}-title"'):
        with ui.element("div").classes("panel-head"):
            _text("h2", title).props(f'id="{ident}-title"')
            if note:
                _text("p", note).classes("note")
        yield


def _place(ident: str, classes: str = "", props: str = "") -> None:
    """Where static/ draws."""
    ui.element("div").props(f'id="{ident}" {props}').classes(classes)


# ---- The views


def _map() -> None:
    _place("figures", "figures", 'role=group aria-label="At a glance"')
    with ui.element("div").classes("beside"):
        with ui.element("article").classes("panel map-panel").props("aria-label=Map"):
            _place("map", "map", 'role=application aria-label="Map of sources; the view Sources lists the same"')
            _place("map-tools", "map-tools")
            _place("timeline", "timeline")
        with ui.element("div").classes("rail"):
            with _panel("Selected source", "selected"):
                _place("selected-body", "body", "aria-live=polite")
            with _panel("Latest notifications", "latest"):
                _place("latest-body", "body")


def _sources() -> None:
    with _panel("All sources", "source-list", note="What each said last, and its last hour"):
        _place("source-tools", "tools")
        _place("source-rows", "rows")


def _subscriptions() -> None:
    with _panel("New subscription", "new", note="Say what you want to be told; it is checked as you write"):
        _place("editor", "body")
    with _panel("Subscriptions", "kept"):
        _place("kept-rows", "rows")


def _notifications() -> None:
    with _panel("As they come", "told", note="The newest first"):
        _place("told-rows", "rows", "role=log aria-live=off aria-label=Notifications tabindex=0")


def _savings() -> None:
    _place("savings-sum", "figures", 'role=group aria-label="In all"')
    _place("tiers", "tiers")
    with _panel("How this is counted", "counted"):
        _place("counted-body", "body")


def _health() -> None:
    _place("health-figures", "figures", 'role=group aria-label="At a glance"')
    with ui.element("div").classes("two"):
        with _panel("Mobile brokers", "brokers", note="Who gathers, and which filters are active there"):
            _place("broker-rows", "rows")
        with _panel("Processes of the cloud", "processes"):
            _place("process-rows", "rows")


VIEWS: Final = (
    View("map", "Map", "map", Right.LOOK, _map),
    View("sources", "Sources", "sensors", Right.LOOK, _sources),
    View("subscriptions", "Subscriptions", "rule", Right.SUBSCRIBE, _subscriptions),
    View("notifications", "Notifications", "notifications", Right.SUBSCRIBE, _notifications),
    View("savings", "Savings", "savings", Right.LOOK, _savings),
    View("health", "Health", "monitor_heart", Right.LOOK, _health),
)
