"""`spinney mobile top`: the broker in a terminal, also over ssh and in 80 columns. It asks twice a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from rich.markup import escape
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from .listing import mote
from .pages import ago, named, place, shown, size

EVERY_SECONDS: Final = 1.0
_BARS: Final = ((-60, "▂▄▆█"), (-75, "▂▄▆ "), (-88, "▂▄  "), (-999, "▂   "))
"""Signal from this many dBm on."""

Ask = Callable[[], Mapping[str, Any]]
"""Gives the status as JSON has it; may raise anything that is a reason."""


class Top(App[None]):
    """The page. `ask` is called in a thread, since it may have to wait."""

    TITLE = "spinney mobile"
    CSS = """
    #head { height: 2; padding: 0 1; }
    #problem { height: auto; padding: 0 1; color: $warning; }
    #problem.none { display: none; }
    DataTable { height: 1fr; }
    #filters, #notifications { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("s", "show('sources')", "Sources"),
        Binding("f", "show('wanted')", "Wanted"),
        Binding("n", "show('told')", "Notifications"),
        Binding("a", "show('heard')", "Heard by"),
        Binding("o", "order", "Order"),
    ]
    ORDERS: ClassVar[tuple[str, ...]] = ("name", "heard", "signal", "sent")

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask
        self._order = 0
        self._status: Mapping[str, Any] | None = None

    def compose(self) -> ComposeResult:
        """The page's parts."""
        yield Static("asking ...", id="head")
        yield Static("", id="problem", classes="none")
        with TabbedContent(id="tabs"):
            with TabPane("Sources", id="sources"):
                yield DataTable(id="table", cursor_type="row")
            with TabPane("Wanted", id="wanted"), VerticalScroll():
                yield Static(id="filters")
            with TabPane("Notifications", id="told"), VerticalScroll():
                yield Static(id="notifications")
            with TabPane("Heard by", id="heard"):
                yield DataTable(id="acquirers", cursor_type="none")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        self.query_one("#table", DataTable).add_columns("source", "heard", "signal", "bat", "sent", "spared", "values")
        self.query_one("#acquirers", DataTable).add_columns("by", "state", "heard", "last", "problem")
        self.run_worker(self._keep_asking(), exclusive=True)

    async def _keep_asking(self) -> None:
        while True:
            try:
                status = await asyncio.to_thread(self._ask)
            except Exception as error:  # noqa: BLE001  # whatever it is, the page shows it and asks again
                self._show_problem(str(error) or type(error).__name__)
            else:
                self._show_problem("\n".join(status["problems"]))
                self._draw(status)
            await asyncio.sleep(EVERY_SECONDS)

    def action_show(self, tab: str) -> None:
        """Another tab."""
        self.query_one("#tabs", TabbedContent).active = tab

    def action_order(self) -> None:
        """Another order of the sources."""
        self._order = (self._order + 1) % len(self.ORDERS)
        self.notify(f"by {self.ORDERS[self._order]}", timeout=1)
        if self._status is not None:
            self._draw(self._status)

    # ---- drawing

    def _show_problem(self, text: str) -> None:
        problem = self.query_one("#problem", Static)
        problem.set_class(not text, "none")
        problem.update(escape(text))

    def _draw(self, status: Mapping[str, Any]) -> None:
        self._status = status
        self.query_one("#head", Static).update(head(status))
        self._draw_sources(status)
        self._draw_acquirers(status)
        self.query_one("#filters", Static).update("\n".join([*filters(status), *motes(status)]))
        self.query_one("#notifications", Static).update("\n".join(notifications(status)))

    def _draw_sources(self, status: Mapping[str, Any]) -> None:
        table = self.query_one("#table", DataTable)
        row, scrolled = table.cursor_row, table.scroll_y
        table.clear()
        for source in sorted(status["sources"], key=_KEYS[self.ORDERS[self._order]]):
            table.add_row(*source_row(source, status["now"]))
        table.move_cursor(row=row)
        table.scroll_to(y=scrolled, animate=False)

    def _draw_acquirers(self, status: Mapping[str, Any]) -> None:
        table = self.query_one("#acquirers", DataTable)
        table.clear()
        for each in status["acquirers"]:
            last = ago(status["now"] - each["last_heard"]) if each["last_heard"] else ""
            row = (each["name"], each["state"], f"{each['heard']:,}", last, each["error"] or "")
            table.add_row(*map(escape, row))


_KEYS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "name": lambda source: source["name"],
    "heard": lambda source: -source["heard"],
    "signal": lambda source: -(source["rssi"] if source["rssi"] is not None else -999),
    "sent": lambda source: -source["sent"],
}


def head(status: Mapping[str, Any]) -> str:
    """Two lines: who and how, and what has become of the readings."""
    uplink, outbox, counts = status["uplink"], status["outbox"], status["counts"]
    link = (
        "[green]cloud connected[/]" if uplink["connected"] else f"[yellow]no cloud[/] {escape(uplink['error'] or '')}"
    )
    if uplink["cloud"] is None:
        link = "no cloud: all stays here"
    sent, spared = counts.get("sent", 0), counts.get("spared", 0)
    if status["send"] == "all":
        share = f" ({counts.get('unneeded', 0) / sent:.0%} of them not needed)" if sent else ""
        became = f"sent {sent:,}{share}"
    else:
        share = f" ({spared / (sent + spared):.0%})" if sent + spared else ""
        became = f"sent {sent:,}  spared {spared:,}{share}"
    if uplink["cloud"] is None:
        became = f"heard {counts.get('sampled', 0):,}"
    waiting = f"waiting {outbox['records']:,} ({size(outbox['bytes'])})"
    dropped = f"  [red]dropped {outbox['dropped']:,}[/]" if outbox["dropped"] else ""
    up = ago(status["now"] - status["started"]) + (f"  at {place(status['place'])}" if status["place"] else "")
    return f"[b]{escape(status['name'])}[/]  {link}  up {up}\n{became}  {waiting}{dropped}"


def source_row(source: Mapping[str, Any], now: float) -> tuple[str, ...]:
    """As the table has it."""
    name = escape(named(source))
    if source["error"]:
        name = f"[yellow]{name}[/]"
    elif not source["owned"]:
        name = f"[dim]{name}[/]"
    values = source["error"] or ", ".join(
        f"{key} {shown(value)}{source['units'].get(key, '')}" for key, value in source["values"].items()
    )
    if source["place"]:
        values += f"  at {place(source['place'])}"
    battery = "" if source["battery"] is None else f"{source['battery']:.0%}"
    age = ago(now - source["heard"])
    return name, age, signal(source["rssi"]), battery, f"{source['sent']:,}", f"{source['spared']:,}", escape(values)


def filters(status: Mapping[str, Any]) -> list[str]:
    """What is wanted here, the filter that matched most first."""
    if not status["filters"]:
        return ["[dim]Nobody has asked for anything that can be heard here.[/]"]
    lines = []
    for each in sorted(status["filters"], key=lambda each: -each["matched"]):
        on_motes = f"  [green]on {each['on_motes']} motes[/]" if each["on_motes"] else ""
        lines.append(f"{each['matched']:>8,}  [dim]{each['kind']}[/]  {escape(each['text'])}{on_motes}")
    return lines


def motes(status: Mapping[str, Any]) -> list[str]:
    """What is on them, and what is evaluated here instead, and why."""
    lines = [escape(line) for source in status["sources"] for line in mote(source)]
    return ["", "[b]Motes[/]", *lines] if lines else []


def notifications(status: Mapping[str, Any]) -> list[str]:
    """The newest of one's own subscriptions."""
    if not status["notifications"]:
        return ["[dim]None yet: subscriptions of your own are \\[\\[subscription]] in the configuration.[/]"]
    lines = []
    for note in status["notifications"]:
        reading = note.get("publication") or {}
        what = ", ".join(f"{name} {shown(value)}" for name, value in reading.items() if name not in ("id", "time"))
        why = {"enter": "[red]enter[/]", "exit": "[green]exit[/] "}.get(note["why"], note["why"])
        lines.append(f"{ago(status['now'] - note['time']):>7}  [b]{escape(note['sid'])}[/] {why}  {escape(what)}")
    return lines


def signal(rssi: int | None) -> str:
    """Bars and decibels."""
    if rssi is None:
        return ""
    return f"{next(bars for level, bars in _BARS if rssi >= level)} {rssi}"
