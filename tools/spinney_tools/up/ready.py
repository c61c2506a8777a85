"""What is ready to try: subscriptions made once, the first notifications, and the lines to copy."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlsplit

from .folder import UpError

OWNER: Final = "anonymous"
"""Who made them at the cloud: whoever comes from this machine."""
SUBSCRIPTIONS: Final = {
    "smog": "WHEN pm25 > 45 UNTIL pm25 <= 35",
    "posts": "source LIKE '%-01'",
}
"""The first one is shown: beginnings and ends of bad air beside a post. The other: all that one post a square says."""
OWN_SUBSCRIPTIONS: Final = {"warm": "temperature > 20"}
"""With a real adapter."""
ANSWER_SECONDS: Final = 20.0


def subscribe(http: str, sid: str, text: str) -> None:
    """Makes a subscription, or leaves the same as it is; UpError if the cloud will not."""
    request = urllib.request.Request(  # noqa: S310 - our own cloud's address
        f"{http}/v1/subscriptions/{sid}",
        json.dumps({"subscription": text}).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode(errors="replace")
        raise UpError(f"the cloud did not take the subscription {sid}: {said}") from None
    except OSError as error:
        raise UpError(f"the cloud did not take the subscription {sid}: {error}") from None


async def notifications(http: str, sid: str) -> AsyncIterator[dict[str, Any]]:
    """Those of a subscription as they come, until the connection ends."""
    address = urlsplit(http)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        request = f"GET /v1/subscriptions/{sid}/notifications HTTP/1.0\r\nHost: {address.netloc}\r\n\r\n"
        writer.write(request.encode())
        while line := await reader.readline():
            if line.startswith(b"data:"):
                yield json.loads(line[5:])
    finally:
        writer.close()


def lines(http: str, mqtt: str, sid: str, text: str) -> list[str]:
    """What to look at and what to try."""
    at = urlsplit(mqtt)
    return [
        f"dashboard   {http}/dashboard/",
        f"to try      {sid}: {text}",
        "            change it there, or make another one; from a terminal:",
        f"            mosquitto_sub -V mqttv311 -q 1 -h {at.hostname} -p {at.port} -t 'spinney/{OWNER}/note/#'",
        f"            curl -N {http}/v1/subscriptions/{sid}/notifications",
    ]
