"""`spinney sub`: what matches, as it happens, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import queue
import re
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from spinney.client import ClientError, Handle, Notification, Subscriber
from spinney.errors import SpinneyError, SyntaxError

from .client_options import DONE, ERROR, OptionError, add_access, advice, certificate, discard_output, password, say
from .colours import COLOURS, coloured
from .interrupts import Interrupts, Work

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 3.0
"""For the cloud to say at the end that what was asked for is done."""
END_SECONDS = 10.0
"""From Ctrl-C to the end, whatever does not answer."""
MAX_WAITING = 1_000
"""Notifications between the thread that gets them and the one that prints."""
LOOK_AGAIN_SECONDS = 0.2

_NAMED = re.compile(r"([A-Za-z0-9_-]{1,64}):\s+(.*)", re.DOTALL)

_EPILOG = """\
examples:
  spinney sub 'NO2 > 40'
  spinney sub 'smog: WHEN PM10 > 150 UNTIL PM10 < 100 EACH street' 'worst: TOP 3 OVER 24h BY NO2 DESC' --json
  spinney sub --user ana --password-file ana.txt --keep --session desk 'smog: PM10 > 150'

A subscription is text, or JSON with options: {"text": "NO2 > 40", "max_per": "10/min"}; `id: ` in front names it.
What comes while the link is down waits at the server. When this ends, so do its subscriptions, unless --keep; then
what comes waits for the next start, with --session under that name.

A second Ctrl-C does not wait for the cloud's word.

exit codes: 0 ended by Ctrl-C or --count, 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney sub` and returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _Run(options).run()
    except (SpinneyError, ValueError) as error:
        say(f"spinney sub: {error}{advice(error)}")
        return ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney sub",
        description="Subscribe, and print notifications as they come.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subscription", nargs="+", help="text or JSON, with `id: ` in front if it is to have a name")
    parser.add_argument("--json", action="store_true", help="print each notification as a JSON object")
    parser.add_argument("--count", type=int, metavar="N", help="end after so many notifications")
    parser.add_argument("--keep", action="store_true", help="leave the subscriptions in the cloud at the end")
    parser.add_argument(
        "--session", metavar="NAME", help="use this session, which stays, instead of one that ends with the command"
    )
    add_access(parser)
    return parser


class _Run:
    """From the first subscription to the end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        name = options.user or options.name
        if name is None and (options.keep or options.session):
            raise OptionError("--keep and --session need --user, or --name to come back under")
        self._found: queue.Queue[Notification] = queue.Queue(MAX_WAITING)
        self._subscriber = Subscriber(
            name or f"sub-{secrets.token_hex(4)}",
            server=options.server,
            password=password(options),
            ca=options.ca,
            certificate=certificate(options),
            session=options.session,
            keep_session=options.keep or options.session is not None,
            program=" ".join(["spinney sub", *sorted(options.subscription)]),
            on_connection=_say_connection,
        )
        self._handles: list[Handle] = []
        self._interrupts = Interrupts()
        self._ending = False
        self._colour = not options.json and sys.stdout.isatty()

    def run(self) -> int:
        """Prints, while other threads subscribe and unsubscribe, until Ctrl-C, SIGTERM or the count."""
        with self._interrupts as interrupts:
            beginning = interrupts.start(self._begin)
            try:
                self._print()
            except KeyboardInterrupt:
                discard_output()
            finally:
                self._ending = True
                ending = interrupts.start(partial(self._finish, beginning))
                if not interrupts.wait_for(ending, interrupts.count + 1, END_SECONDS):
                    say("ended without the cloud's word: subscriptions may go on there")
        if interrupts.error is not None:
            raise interrupts.error
        return DONE

    def _begin(self) -> None:
        try:
            self._subscriber.connect(CONNECT_SECONDS)
            self._subscribe()
        except ClientError:
            if not self._ending:
                raise
        else:
            say(self._subscriber.session)

    def _subscribe(self) -> None:
        for text in self._options.subscription:
            if self._ending:
                return
            sid, text = split(text)
            try:
                handle = self._subscriber.subscribe(text, sid=sid, callback=self._take)
            except SyntaxError as error:
                raise OptionError(f"{sid or 'the subscription'}:{error}\n{_pointer(text, error)}") from None
            self._handles.append(handle)
            say(f"{handle.sid}: {handle.normal} ({handle.cost})")

    def _take(self, notification: Notification) -> None:
        """On the subscriber's thread: waits while the printing is behind, and so does the server."""
        while not self._ending:
            try:
                self._found.put(notification, timeout=LOOK_AGAIN_SECONDS)
            except queue.Full:
                continue
            self._interrupts.wake()
            return

    def _print(self) -> None:
        left = self._options.count
        while (left is None or left > 0) and (notification := self._next()) is not None:
            line = self._line(notification)
            self._interrupts.raising = True
            try:
                print(line, flush=True)
            finally:
                self._interrupts.raising = False
            left = None if left is None else left - 1

    def _next(self) -> Notification | None:
        """None at the end."""
        while not self._interrupts.count and self._interrupts.error is None:
            try:
                return self._found.get_nowait()
            except queue.Empty:
                self._interrupts.wait()
        return None

    def _line(self, notification: Notification) -> str:
        if self._options.json:
            item = {name: value for name, value in asdict(notification).items() if value not in (None, ())}
            return json.dumps(item, ensure_ascii=False)
        why = f"{notification.why:<5}"
        why = coloured(why, COLOURS[notification.why]) if self._colour and notification.why in COLOURS else why
        when = datetime.fromtimestamp(notification.time).astimezone().strftime("%H:%M:%S")
        named = f"{notification.sid:<{self._width()}}  " if len(self._handles) > 1 else ""
        return f"{when}  {named}{why}  {_about(notification)}"

    def _width(self) -> int:
        return max(len(handle.sid) for handle in self._handles)

    def _finish(self, beginning: Work) -> None:
        """Unsubscribes, as far as the cloud answers, and says what is left behind."""
        if self._subscriber.connected:
            beginning.join(ANSWER_SECONDS)  # what has been asked for may be granted yet
        left = [] if self._options.keep else self._unsubscribe()
        self._subscriber.close()
        for text in left:
            say(text)

    def _unsubscribe(self) -> list[str]:
        left: list[str] = []
        end = time.monotonic() + ANSWER_SECONDS
        for handle in self._handles:
            try:
                handle.unsubscribe(timeout_seconds=max(end - time.monotonic(), 0.0))
            except ClientError as error:
                left.append(f"{handle.sid} goes on in the cloud: {error}")
        return left


def _say_connection(up: bool, reason: str) -> None:
    if up and reason:
        say(reason)
    elif not up and reason != "closed":
        say(f"the link is lost ({reason}); connecting again")


def split(text: str) -> tuple[str | None, str]:
    """The name in front, if there is one."""
    match = _NAMED.fullmatch(text)
    return (match[1], match[2]) if match else (None, text)


def _pointer(text: str, error: SyntaxError) -> str:
    """The line that is wrong, with a mark below the column."""
    lines = text.splitlines()
    line = lines[error.line - 1] if error.line <= len(lines) else ""
    return f"  {line}\n  {' ' * (error.column - 1)}^"


def _about(notification: Notification) -> str:
    """Where, what, how much."""
    publication: Mapping[str, Any] = notification.publication or {}
    rank = f"no. {notification.rank} " if notification.rank is not None else ""
    scope = "" if notification.scope is None else str(notification.scope)
    source = publication.get("source", "")
    where = source if scope in ("", source) else f"{scope} ({source})" if source else scope
    rest = "  ".join(
        f"{name} {_text(value)}" for name, value in publication.items() if name not in ("id", "source", "time")
    )
    reason = f"  ({notification.reason})" if notification.reason else ""
    return f"{rank}{where}  {rest}{reason}".rstrip()


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
