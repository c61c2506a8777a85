"""Other makers' sensors on the air: their recorded adverts, replayed from a file.

The file has a JSON object on each line: `maker`, `address`, `interval_ms`, and `adverts`, a list of the advert's bytes
in hexadecimal that are sent one after the other, again and again; and perhaps `public` (the address is no random one),
`response` (the scan response's bytes), `place` ([metres east, metres north]), `power_dbm` and `note`.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bumble import hci

from spinney.errors import SpinneyError

from .air import Air
from .propagation import Place

RECORDED = Path(__file__).with_name("recorded.jsonl")
"""Adverts that the makers publish as examples of their formats."""
MAX_ADVERT_BYTES = 31
_DELAY_S = 0.010


class RecordingError(SpinneyError, ValueError):
    """A line of a file of adverts that cannot be sent: where, and why."""


@dataclass(frozen=True)
class Recording:
    """What one sensor sends."""

    maker: str
    address: str
    adverts: tuple[bytes, ...]
    interval_ms: float
    is_public: bool = False
    response: bytes = b""
    place: Place = (0.0, 0.0)
    power_dbm: float = 0.0


def read(file: Path) -> list[Recording]:
    """All recordings of a file; RecordingError names the line of the first that is wrong."""
    found = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if line.strip():
            try:
                found.append(_recording(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                problem = f"no {error}" if isinstance(error, KeyError) else str(error)
                raise RecordingError(f"{file}:{number}: {problem}") from None
    return found


def _recording(item: dict[str, Any]) -> Recording:
    adverts = tuple(bytes.fromhex(text) for text in item["adverts"])
    response = bytes.fromhex(item.get("response", ""))
    if not adverts:
        raise ValueError("no adverts")
    for data in (*adverts, response):
        if len(data) > MAX_ADVERT_BYTES:
            raise ValueError(f"{len(data)} bytes; an advert has at most {MAX_ADVERT_BYTES}")
    east, north = item.get("place", (0.0, 0.0))
    interval_ms = float(item["interval_ms"])
    if interval_ms < 20:
        raise ValueError(f"an interval of {interval_ms:g} ms; the least is 20 ms")
    hci.Address(item["address"])
    return Recording(
        str(item["maker"]),
        str(item["address"]),
        adverts,
        interval_ms,
        bool(item.get("public", False)),
        response,
        (float(east), float(north)),
        float(item.get("power_dbm", 0.0)),
    )


class Beacon:
    """Sends a recording on the air, from start() to stop()."""

    def __init__(self, air: Air, recording: Recording, place: Place | None = None) -> None:
        self.recording = recording if place is None else replace(recording, place=place)
        self.name = f"{recording.maker} {recording.address}"
        self.place = self.recording.place
        self.power_dbm = recording.power_dbm
        self.scan_response = recording.response
        self.sent = 0
        self._air = air
        kind = hci.Address.PUBLIC_DEVICE_ADDRESS if recording.is_public else hci.Address.RANDOM_DEVICE_ADDRESS
        self._address = hci.Address(recording.address, kind)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._later(self._air.chance.uniform(0.0, self.recording.interval_ms / 1000))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _later(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._send)

    def _send(self) -> None:
        adverts = self.recording.adverts
        data = adverts[self.sent % len(adverts)]
        self.sent += 1
        self._air.transmit(self, self._address, data, connectable=False, scannable=bool(self.scan_response))
        self._later(self.recording.interval_ms / 1000 + self._air.chance.uniform(0.0, _DELAY_S))
