"""`spinney mobile run`: the broker with all that is around it, from its start to its end in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from spinney import native
from spinney.configuring import ConfigurationError
from spinney.errors import SpinneyError
from spinney.logs import set_up_logging

from . import systemd
from .broker import Broker
from .configuration import Configuration
from .conflicts import is_loopback
from .credentials import check_authority, password_of, server_context
from .data_dir import DataDir, DataDirError
from .home_assistant import HomeAssistant
from .listening import Taken
from .local import LocalPort
from .local.port import read_passwords
from .outbox import Outbox
from .settings import Local, Settings
from .status import Status
from .watchdog import EXIT_CODE, AdapterLost
from .web import WebApp, WebServer, listen

log = logging.getLogger(__name__)

NAME: Final = "mobile"
DONE, FAILED = 0, 1
MAX_LATEST: Final = 1_000
"""Sources whose latest reading can be explained."""
HOT: Final = frozenset({"acquire", "devices", "device", "subscription", "logging"})
"""Settings that change while it runs."""
MAX_PASSWORD_MODE: Final = 0o077


class StartError(Exception):
    """Why the broker cannot start, and what to do about it."""


class AskError(SpinneyError):
    """A question that cannot be answered."""


class Running:
    """One running broker. It is the web page's Source, and a Listener."""

    def __init__(self, configuration: Configuration, reread: Callable[[], Configuration]) -> None:
        self._settings = configuration.settings
        self._reread = reread
        self._latest: OrderedDict[str, Taken] = OrderedDict()
        self._broker: Broker | None = None
        self._local: LocalPort | None = None
        self._home: HomeAssistant | None = None
        self._reloading: set[asyncio.Task[None]] = set()
        self._local_listener: socket.socket | None = None
        self._web_listener: socket.socket | None = None

    async def run(self) -> int:
        """Until told to stop; the exit code."""
        with DataDir(self._settings.data) as data:
            control = data.listen()
            with control:
                outbox = Outbox(data.path / "outbox", self._settings.outbox)
                outbox.open()
                try:
                    return await self._run(data, control, outbox)
                finally:
                    outbox.close()

    async def _run(self, data: DataDir, control: socket.socket, outbox: Outbox) -> int:
        settings = self._settings
        check_authority("home_assistant", settings.home_assistant.ca)
        password_of("home_assistant", settings.home_assistant.password_file)
        self._local_listener = _listener("local", settings.local.host, settings.local.port)
        self._web_listener = _listener("web", settings.web.host, settings.web.port)
        broker = self._broker = Broker(settings, outbox)
        broker.taking.listeners.append(self)
        parts = [*self._local_life(data, broker), self._web(data, control)]
        self._catch_signals(broker)
        tasks = [asyncio.create_task(part) for part in parts]
        running = asyncio.create_task(broker.run())
        try:
            self._say_ready()
            await asyncio.wait([running, *tasks], return_when=asyncio.FIRST_COMPLETED)
            systemd.notify("STOPPING=1")
            broker.stop()
            await running
            return next((FAILED for task in tasks if task.done()), DONE)
        except AdapterLost as error:
            log.critical("%s; leaving, so that systemd starts anew", error)
            return EXIT_CODE
        finally:
            for task in tasks:
                if task.done() and not task.cancelled() and (why := task.exception()):
                    log.critical("ended by an error", exc_info=why)
            for task in (*tasks, *self._reloading):
                task.cancel()
            await asyncio.gather(*tasks, *self._reloading, return_exceptions=True)

    # ---- the parts around the broker

    def _local_life(self, data: DataDir, broker: Broker) -> list[Coroutine[Any, Any, None]]:
        settings = self._settings
        passwords = None if settings.local.password_file is None else _passwords(settings.local.password_file)
        local = self._local = LocalPort(
            broker,
            data.path,
            subscriptions=settings.local.subscriptions,
            passwords=passwords,
            tls=_tls(settings.local),
            unpublish=broker.unpublish,
            want=broker.want_locally,
        )
        local.configured(settings.client, _own(settings))
        broker.notifications = lambda: list(local.subscriptions.recent)
        broker.taking.listeners.append(local)
        parts: list[Coroutine[Any, Any, None]] = [local.run(self._local_listener)]
        if systemd.beat_seconds() is not None:
            parts.append(systemd.beat())
        if settings.home_assistant.url is not None:
            home = self._home = HomeAssistant(
                settings.home_assistant, settings.client, version("spinney"), broker.announcer.units
            )
            broker.taking.listeners.append(home)
            parts.append(home.run())
        return parts

    def _web(self, data: DataDir, control: socket.socket) -> Coroutine[Any, Any, None]:
        token = None if is_loopback(self._settings.web.host) else data.token()
        sockets = [control] if self._web_listener is None else [control, self._web_listener]
        return WebServer(WebApp(self, token), sockets).run()

    def _say_ready(self) -> None:
        settings = self._settings
        parts = [
            f"{settings.client} for {settings.cloud.url}" if settings.cloud.url else f"{settings.client}, no cloud"
        ]
        if self._web_listener is not None:
            parts.append(f"page {_url('http', self._web_listener)}/")
        if self._local_listener is not None:
            parts.append(f"local {_url('mqtts' if settings.local.key else 'mqtt', self._local_listener)}")
        line = f"ready: {', '.join(parts)}"
        print(line, flush=True)
        if self._web_listener is not None and not is_loopback(settings.web.host):
            log.info("the page's token is in %s", settings.data.absolute() / "token")
        systemd.notify(f"READY=1\nSTATUS={line}")

    # ---- signals

    def _catch_signals(self, broker: Broker) -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            log.info("stopping")
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)  # a second one ends it at once
            broker.stop()

        loop.add_signal_handler(signal.SIGTERM, stop)
        loop.add_signal_handler(signal.SIGINT, stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        """What can change while it runs, does; of all else it is said that it needs a restart."""
        try:
            new = self._reread().settings
        except ConfigurationError as error:
            log.error("the configuration is left as it was: %s", "; ".join(error.problems))
            return
        task = asyncio.create_task(self._take_over(new))
        self._reloading.add(task)
        task.add_done_callback(self._taken_over)

    def _taken_over(self, task: asyncio.Task[None]) -> None:
        """Whatever a reload raises, the broker goes on, and says so."""
        self._reloading.discard(task)
        if not task.cancelled() and (why := task.exception()) is not None:
            is_told = isinstance(why, SpinneyError)
            log.error("the configuration is taken over in part only: %s", why, exc_info=None if is_told else why)

    async def _take_over(self, new: Settings) -> None:
        assert self._broker is not None
        assert self._local is not None
        set_up_logging(NAME, new.logging)
        self._local.configured(new.client, _own(new))
        await self._broker.configure(new)
        rest = [name for name, value in _values(new).items() if value != _values(self._settings)[name]]
        needs = [name for name in rest if name not in HOT]
        log.info("the configuration has been read again%s", f"; needs a restart: {', '.join(needs)}" if needs else "")

    # ---- a Listener, and the page's Source

    def taken(self, taken: Taken) -> None:
        """The newest of each source, to be explained."""
        self._latest[taken.id.source] = taken
        self._latest.move_to_end(taken.id.source)
        if len(self._latest) > MAX_LATEST:
            self._latest.popitem(last=False)

    def status(self) -> Status:
        """A picture of this moment."""
        assert self._broker is not None
        status = self._broker.status()
        counts = dict(status.counts)
        if self._local is not None:
            counts |= {f"local_{name}": count for name, count in self._local.server.counts.items()}
            counts["local_notifications"] = self._local.subscriptions.told
            counts["local_valid_dropped"] = self._local.subscriptions.valid.dropped
        if self._home is not None:
            status.problems += [] if self._home.error is None else [f"Home Assistant: {self._home.error}"]
            counts |= {f"home_assistant_{name.replace(' ', '_')}": n for name, n in self._home.counts.items()}
        status.counts = counts
        return status

    def seen(self) -> list[dict[str, Any]]:
        """All devices heard."""
        assert self._broker is not None
        return [one.to_json() for one in self._broker.devices.seen()]

    def explain(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """`{"source": ...}` for its newest reading, or `{"publication": {...}}`."""
        assert self._broker is not None
        match ask:
            case {"publication": dict(publication)}:
                return {"publication": publication, "filters": self._broker.explain(publication)}
            case {"source": str(source)}:
                taken = self._latest.get(source)
                if taken is None:
                    raise AskError(f"nothing of {source!r} has been taken yet; spinney mobile seen lists what is heard")
                publication = dict(taken.publication)
                return {
                    "publication": publication,
                    "wanted": taken.wanted,
                    "filters": self._broker.explain(publication),
                }
        raise AskError("expected a source or a publication")


def _values(settings: Settings) -> dict[str, Any]:
    return {field.name: getattr(settings, field.name) for field in fields(settings)}


def _own(settings: Settings) -> dict[str, str]:
    return {each.sid: each.text for each in settings.subscription}


def _passwords(file: Path) -> dict[str, str]:
    try:
        if file.stat().st_mode & MAX_PASSWORD_MODE:
            raise StartError(f"{file} can be read by others: chmod 600 {file}")
        return read_passwords(file)
    except (OSError, ValueError) as error:
        raise StartError(f"local.password_file: {error}") from None


def _tls(local: Local) -> ssl.SSLContext | None:
    if local.certificate is None or local.key is None:
        return None
    return server_context("local", local.certificate, local.key)


def _listener(section: str, host: str, port: int | None) -> socket.socket | None:
    if port is None:
        return None
    try:
        return listen(host, port)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        remedy = f"choose another with --{section}-port, or none"
        raise StartError(f"{section}.port {port} on {host}: {why}; {remedy}") from None


def _url(scheme: str, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def run(configuration: Configuration, reread: Callable[[], Configuration]) -> int:
    """Run a broker; the exit code."""
    set_up_logging(NAME, configuration.settings.logging)
    with warnings.catch_warnings(record=True) as caught:
        native.core()
    for warning in caught:
        log.warning("%s", warning.message)
    try:
        return asyncio.run(Running(configuration, reread).run())
    except (StartError, DataDirError, SpinneyError, OSError, ValueError) as error:
        for line in str(error).splitlines():
            if configuration.settings.logging.format == "json":
                log.critical(line)
            else:
                print(f"spinney mobile: {line}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
