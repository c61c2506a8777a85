"""Clients made with the SDK, as programs that tests kill: what they have done stands in a file.

`publish NAME SERVER FILE OUTBOX` writes down the id of each publication that it has handed over; `subscribe NAME SERVER
FILE SID TEXT` the id of each notification that it has got.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from time import sleep
from typing import IO

from spinney import Publisher, Subscriber


def publish(name: str, server: str, file: IO[str], outbox: str) -> None:
    """For ever."""
    with Publisher(name, server=server, outbox=Path(outbox), resend_seconds=2.0) as publisher:
        for number in count():
            receipt = publisher.publish({"x": number % 10, "room": "ef"[number % 2]})
            print(receipt.id, file=file)
            sleep(0.01)  # the rate


def subscribe(name: str, server: str, file: IO[str], sid: str, text: str) -> None:
    """For ever. It subscribes once, and resumes later."""
    with Subscriber(name, server=server, session="s3cret") as subscriber:
        file.seek(0, 2)
        handle = subscriber.resume(sid) if file.tell() else subscriber.subscribe(text, sid=sid)
        print("begun", file=file)
        for notification in handle:
            print(notification.id, file=file)


if __name__ == "__main__":
    what, name, server, path, *more = sys.argv[1:]
    with Path(path).open("a", buffering=1) as file:
        {"publish": publish, "subscribe": subscribe}[what](name, server, file, *more)
