"""The kinds of acquirers, made from settings. What one kind needs is imported when one of it is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from ..samples import Acquirer, AcquirerError
from ..settings import (
    AcquireBle,
    AcquireMotes,
    AcquireMqtt,
    AcquireReplay,
    AcquireSerial,
    AcquireSimulator,
    AnyAcquire,
)


def make(settings: AnyAcquire, clock: Callable[[], float] = time.time) -> Acquirer:
    """The acquirer that these settings describe; AcquirerError for what they cannot mean."""
    name = name_of(settings)
    match settings:
        case AcquireBle():
            from .ble import BleAdverts

            return BleAdverts(name, settings, clock)
        case AcquireMqtt():
            from .mqtt import MqttTopics

            return MqttTopics(name, settings, clock)
        case AcquireSerial():
            from .serial import SerialLines

            return SerialLines(name, settings, clock)
        case AcquireReplay():
            from .replay import Replay

            return Replay(name, settings, clock)
        case AcquireSimulator():
            from .simulator import Simulator

            return Simulator(name, settings, clock)
        case AcquireMotes():
            raise AcquirerError("motes need the whole broker, and are made by it")


def name_of(settings: AnyAcquire) -> str:
    """What settings call it, else its kind and what it hears: `ble:hci0`."""
    if settings.name:
        return settings.name
    match settings:
        case AcquireBle() | AcquireMotes():
            what = settings.adapter or ""
        case AcquireMqtt():
            what = urlsplit(settings.url).netloc
        case AcquireSerial():
            what = settings.port.rpartition("/")[2]
        case AcquireReplay():
            what = settings.file.name
        case AcquireSimulator():
            what = ""
    return f"{settings.kind}:{what}" if what else settings.kind
