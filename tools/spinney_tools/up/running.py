"""One run of `spinney up`, from looking at the machine to the last process's end."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
import webbrowser
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from spinney_cloud.ports import Listener, PortsError, resolve
from spinney_mobile.settings import Cloud, Settings

from .. import clone
from ..sim.mote import FIRMWARE
from . import DONE, FAILED, INTERRUPTED
from .folder import Folder, UpError
from .pipeline import HAVE_IT, Joining, installed, launcher, why_not
from .plan import Plan
from .ready import OWN_SUBSCRIPTIONS, SUBSCRIPTIONS, lines, notifications, subscribe
from .stack import Signals, Stack

HOST: Final = "127.0.0.1"
SHOWN: Final = 5
"""Notifications that are printed; all are on the page."""
WORDS: Final = {"enter": "begins", "exit": "ends", "match": "matches"}


def run(options: argparse.Namespace) -> int:
    """Runs it; the exit code."""
    logging.basicConfig(format="spinney up: %(message)s", level=logging.WARNING)
    try:
        _look(options)
        with Folder(options.data or _default_folder(), fresh=options.fresh) as folder:
            return asyncio.run(_Run(options, folder).run())
    except (UpError, PortsError) as error:
        for line in str(error).splitlines():
            print(f"spinney up: {line}", file=sys.stderr)
        return FAILED


def _default_folder() -> Path:
    """Beside the environment, in a clone."""
    try:
        return clone.root() / ".spinney"
    except clone.NotACloneError:
        return Path("spinney-up")


# ---- before anything is started ---------------------------------------------------------------------------------


def _look(options: argparse.Namespace) -> None:
    """What would stop it later is told now: UpError or PortsError."""
    if options.source == "city" and not (FIRMWARE / "main.py").exists():
        raise UpError("the motes' firmware is not here: run it in a clone of the repository, or use --source ble")
    if options.source == "ble":
        _look_at_adapter()
    if options.pipeline and launcher() is None:
        _look_at_pipeline()


def _ports(options: argparse.Namespace) -> list[int]:
    """Of the page and of MQTT; chosen now where any will do: a cloud broker that is started again has the same."""
    return resolve(
        [
            Listener("the page", HOST, options.http_port, "--http-port"),
            Listener("MQTT", HOST, options.mqtt_port, "--mqtt-port"),
        ]
    )


def _look_at_adapter() -> None:
    from spinney_mobile.doctor import examine

    found = asyncio.run(examine(Settings(cloud=Cloud(url=None))))
    bad = [one for one in found if one.state == "bad" and one.what.startswith(("bluetooth", "bluez"))]
    if bad:
        raise UpError("\n".join(f"{one.what}: {one.text}; {one.remedy}" for one in bad))


def _look_at_pipeline() -> None:
    from spinney_cloud.pipeline.needs import missing

    if text := missing():
        raise UpError(f"the pipeline cannot run: {text}; or leave it out with --no-pipeline")


# ---- the run ----------------------------------------------------------------------------------------------------


class _Run:
    def __init__(self, options: argparse.Namespace, folder: Folder) -> None:
        http, mqtt = _ports(options)
        self._options = options
        self._folder = folder
        self._is_city = options.source == "city"
        self._wishes = SUBSCRIPTIONS if self._is_city else OWN_SUBSCRIPTIONS
        self._plan = Plan(motes=options.motes, seed=options.seed) if self._is_city else None
        self._killed = False
        self._wants_pipeline = self._decide_on_pipeline()
        if options.place is not None:
            folder.note(place=options.place)
        data = str(folder.part("cloud"))
        ports = ["--http-port", str(http), "--mqtt-port", str(mqtt), "--nats-port", "0"]
        # the log waits for a pipeline that has read from it before; one that is only being installed holds back nothing
        waits = ["--log-pipeline", "true"] if self._wants_pipeline and "pipeline" in folder.notes else []
        # with what the pipeline has installed, the cloud's dry runs reach back into the lake
        python = (installed() if self._wants_pipeline else None) or Path(sys.executable)
        self._stack = Stack(folder, self._plan, ["--data", data, *ports, *waits], python)

    async def run(self) -> int:
        """Until Ctrl-C or SIGTERM."""
        signals = Signals(self._kill)
        began = time.monotonic()
        try:
            self._say(f"starting; data in {self._folder.path}")
            if await signals.unless(asyncio.create_task(self._start())):
                self._show(time.monotonic() - began)
                works = [asyncio.create_task(self._tell())]
                if self._wants_pipeline:
                    works.append(asyncio.create_task(Joining(self._folder, self._stack, self._say).run()))
                await signals.stopping.wait()
                for work in works:
                    work.cancel()
                await asyncio.gather(*works, return_exceptions=True)
        finally:
            self._say("stopping; a second Ctrl-C does it at once")
            await self._stack.stop()
            self._say("stopped; ./spinney up goes on where this left off")
        return INTERRUPTED if self._killed else DONE

    def _decide_on_pipeline(self) -> bool:
        """As asked for, now or before; else wherever it can be installed, and has room."""
        if self._options.pipeline is not None:
            return bool(self._options.pipeline)
        if launcher() is None:
            return False
        if reason := why_not(self._options, self._folder.path):
            self._say(f"without the pipeline, by Spark: {reason}; {HAVE_IT}")
        return reason is None

    async def _start(self) -> None:
        await self._stack.start()
        made = self._folder.notes.get("made", [])
        for sid, text in self._wishes.items():
            if sid not in made:  # once: whoever deletes one does not want it back
                await asyncio.to_thread(subscribe, self._stack.address("HTTP"), sid, text)
        self._folder.note(made=sorted({*made, *self._wishes}))

    def _show(self, seconds: float) -> None:
        sid, text = next(iter(self._wishes.items()))
        http, mqtt = self._stack.address("HTTP"), self._stack.address("MQTT")
        plan = self._plan
        what = f"{plan.motes} motes and {plan.brokers} mobile brokers" if plan else "a mobile broker on this adapter"
        self._say(f"{what}, in {seconds:.1f} s")
        if plan is None and "place" not in self._folder.notes:
            self._say("what it hears is among the page's sources; --place LAT,LONG puts it on the map, too")
        print("\n".join(["", *lines(http, mqtt, sid, text), "", "Ctrl-C stops it.", ""]))
        print(f"ready: HTTP {http}, MQTT {mqtt}, data {self._folder.path}", flush=True)
        if self._options.open:
            webbrowser.open(f"{http}/dashboard/")

    async def _tell(self) -> None:
        """The first notifications, as a sign of life."""
        sid = next(iter(self._wishes))
        shown = 0
        try:
            async for one in notifications(self._stack.address("HTTP"), sid):
                self._say(_sentence(sid, one))
                shown += 1
                if shown == SHOWN:
                    self._say("and so on: the page shows all")
                    return
        except (OSError, ValueError) as error:
            self._say(f"notifications cannot be shown here: {error}")

    def _kill(self) -> None:
        self._killed = True
        self._stack.kill()

    @staticmethod
    def _say(text: str) -> None:
        with suppress(
            OSError
        ):  # whoever closed the terminal, or has read enough, wants it stopped in order all the same
            print(f"spinney up: {text}", flush=True)


def _sentence(sid: str, notification: dict[str, Any]) -> str:
    reading = notification.get("publication") or {}
    when = datetime.fromtimestamp(notification.get("time", time.time())).strftime("%H:%M:%S")
    values = ", ".join(f"{name} {value:g}" for name, value in reading.items() if name in ("pm25", "NO2", "temperature"))
    why = WORDS.get(notification.get("why", ""), "")
    return f"{when}  {sid} {why}  {reading.get('source', '')}  {values}"
