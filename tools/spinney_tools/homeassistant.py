"""`spinney homeassistant`: what a cloud broker tells of subscriptions, as sensors and events of Home Assistant.

The mobile broker tells Home Assistant by itself what it hears (`[home_assistant]` in its settings); this is for what
only the cloud knows: readings and notifications of all mobile brokers together.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from spinney.client import ClientError, Handle, Notification, Subscriber
from spinney.errors import SpinneyError
from spinney.identity import PublicationId
from spinney_mobile.home_assistant import HomeAssistant
from spinney_mobile.listening import Taken
from spinney_mobile.loop_handover import LoopHandover
from spinney_mobile.samples import Sample
from spinney_mobile.settings import HomeAssistant as Settings

from .client_options import DONE, ERROR, OptionError, add_access, advice, certificate, password, say
from .sub import split

CONNECT_SECONDS = 10.0
MAX_WAITING = 1_000
"""Notifications between the thread that gets them and the loop that tells them; beyond it the cloud waits."""
UNSUBSCRIBE_SECONDS = 3.0

EPILOG = """\
Each subscription becomes a device with an event entity, and of a state filter (WHEN ... UNTIL ...) also on and off;
each source that it tells of becomes a device with a sensor for each attribute, unavailable when it falls silent. If a
mobile broker tells the same Home Assistant of its sources, name only state filters here, or use --no-sources.

examples:
  spinney homeassistant --to mqtt://homeassistant.local 'smog: WHEN PM10 > 150 UNTIL PM10 < 100 EACH street'
  spinney homeassistant --to mqtt://ha --to-user spinney --to-password-file ha.txt \\
      --server mqtts://cloud.example.org --user ana --password-file ana.txt "air: type = 'air'"

exit codes: 0 ended by Ctrl-C, 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """The command; 0 ended by Ctrl-C or SIGTERM, 2 something was wrong."""
    options = _parser().parse_args(arguments)
    try:
        asyncio.run(_Run(options).run())
    except (SpinneyError, ValueError, OSError) as error:
        say(f"spinney homeassistant: {error}{advice(error)}")
        return ERROR
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney homeassistant",
        description="Tell Home Assistant what a cloud broker notifies, by MQTT discovery.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subscription", nargs="+", help="text or JSON, with `id: ` in front if it is to have a name")
    group = parser.add_argument_group("Home Assistant")
    group.add_argument("--to", metavar="URL", required=True, help="its MQTT server: mqtt://host:port or mqtts://")
    group.add_argument("--to-user", metavar="USER", help="at that server")
    group.add_argument("--to-password-file", type=Path, metavar="FILE", help="whose first line is the password")
    group.add_argument("--to-ca", type=Path, metavar="FILE", help="the certificate to trust instead of the system's")
    group.add_argument("--prefix", default="homeassistant", help="its discovery prefix (default: %(default)s)")
    group.add_argument(
        "--expire-after", type=float, default=900.0, metavar="SECONDS", help="silent for so long: unavailable"
    )
    group.add_argument("--no-sources", action="store_true", help="tell notifications only, make no sensors")
    add_access(parser)
    return parser


class _Run:
    """From the first subscription to the end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._handles: list[tuple[Handle, str]] = []
        self._ending = False
        name = options.user or options.name or f"ha-{secrets.token_hex(4)}"
        settings = Settings(
            url=options.to,
            user=options.to_user,
            password_file=options.to_password_file,
            ca=options.to_ca,
            prefix=options.prefix,
            expire_after=options.expire_after,
        )
        if not options.expire_after > 0:
            raise OptionError("--expire-after has to be above 0")
        self._bridge = HomeAssistant(settings, name, version("spinney"), lambda _: {})
        self._subscriber = Subscriber(
            name,
            server=options.server,
            password=password(options),
            ca=options.ca,
            certificate=certificate(options),
        )

    async def run(self) -> None:
        """Until Ctrl-C or SIGTERM."""
        self._found: LoopHandover[Notification] = LoopHandover(MAX_WAITING)
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        tasks = []
        try:
            await asyncio.to_thread(self._subscribe)
            for handle, text in self._handles:
                normal = handle.normal or text
                self._bridge.subscribed(handle.sid, normal, has_state=normal.startswith("WHEN"))
                say(f"{handle.sid}: {normal}")
            tasks = [asyncio.create_task(work) for work in (self._bridge.run(), self._tell(), ended.wait())]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._ending = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(self._end)

    def _subscribe(self) -> None:
        self._subscriber.connect(CONNECT_SECONDS)
        for given in self._options.subscription:
            sid, text = split(given)
            handle = self._subscriber.subscribe(text, sid=sid, callback=self._take)
            self._handles.append((handle, text))

    def _take(self, note: Notification) -> None:
        """On the subscriber's thread: waits while the loop is behind, and so does the cloud."""
        self._found.put(note, lambda: self._ending)

    async def _tell(self) -> None:
        while True:
            note = await self._found.next()
            self._bridge.notified(note)
            if note.publication is not None and not self._options.no_sources:
                self._bridge.taken(_taken(note))

    def _end(self) -> None:
        """Unsubscribes, as far as the cloud answers."""
        for handle, _ in self._handles:
            with suppress(ClientError):
                handle.unsubscribe(timeout_seconds=UNSUBSCRIBE_SECONDS)
        self._subscriber.close()


def _taken(note: Notification) -> Taken:
    """The reading of a notification, as if it had been heard here and now."""
    publication = note.publication or {}
    reading = PublicationId.parse(str(publication["id"]))
    sample = Sample(reading.source, publication, note.time, time.time(), "cloud")
    return Taken(reading, publication, sample, wanted=True)
