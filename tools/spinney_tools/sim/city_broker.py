"""A simulated city's brokers: each listens with bleak, reads adverts, and fetches the events that filters make.

They stand in for real mobile brokers, to show what motes and radio do; a real one uses the same adapters.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bleak import BleakClient, BleakScanner
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData
from bleak.exc import BleakError

from spinney import Subscription
from spinney.known import Known
from spinney.mote import Attribute, Compiled, Delivery, adverts
from spinney.mote import compile as compile_filter
from spinney.mote.advert import BTHOME, COMPANY, PRESENCE, Advert, Presence, ScanData
from spinney.mote.link import MoteLink
from spinney.mote.protocol import Event, EventFlag, Info, LinkError, MoteRefused, ProtocolError

from .propagation import Place
from .radio import Radio

MAX_VISITS = 64
"""Motes that wait to be connected to; others are heard again."""
CONNECT_S = 4.0
EVENTS_S = 1.0
RETRY_S = 20.0
_FILTER_ID = 1

Publish = Callable[[str, dict[str, Any]], None]
"""Told of (source, publication) with `boot` and `sequence` in it."""


class CityBroker:
    """One adapter at a place. With a `subscription`, motes get its filter, and only events are published.

    Then motes advertise as `mode` says, as with their owner: unless it is None, or their configuration says otherwise.
    """

    def __init__(
        self,
        name: str,
        radio: Radio,
        publish: Publish,
        subscription: Subscription | None,
        mode: adverts.Mode | None = adverts.Mode.PRESENCE,
    ) -> None:
        self.name = name
        self.radio = radio
        self.counts: Counter[str] = Counter()
        self.heard: dict[str, float] = {}
        self._publish = publish
        self._subscription = subscription
        self._mode = mode
        self._infos: dict[str, Info] = {}
        self.filtered: dict[str, float] = {}
        """Motes that have the filter, and since when."""
        self._refused: set[str] = set()
        self._next_event: dict[str, int] = {}
        self._visits: dict[str, BLEDevice] = {}
        self._not_before: dict[str, float] = {}
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled."""
        scanner = BleakScanner(self._on_advert, bluez={"adapter": self.name})
        await scanner.start()
        try:
            while True:
                await self._work.wait()
                await self._visit_all()
        finally:
            await scanner.stop()

    def ask(self, subscription: Subscription) -> None:
        """Another filter for all motes: each gets it when it is heard next."""
        self._subscription = subscription
        self.filtered.clear()

    @property
    def place(self) -> Place:
        return self.radio.place

    # ---- adverts

    def _on_advert(self, device: BLEDevice, data: AdvertisementData) -> None:
        self.counts["adverts"] += 1
        now_s = asyncio.get_running_loop().time()
        self.heard[device.address] = now_s
        try:
            has_events = self._listen(device, data)
        except ProtocolError:
            self.counts["unreadable adverts"] += 1
            return
        if has_events is None or self._subscription is None or device.address in self._refused:
            return
        is_due = has_events or device.address not in self.filtered
        if is_due and self._not_before.get(device.address, 0.0) <= now_s:
            self._visit_soon(device)

    def _listen(self, device: BLEDevice, data: AdvertisementData) -> bool | None:
        """Whether a mote has events that were not fetched; None for what is no mote, or does not say."""
        if PRESENCE in data.service_data:
            self.counts["adverts of presence"] += 1
            presence = Presence.decode(data.service_data[PRESENCE])
            return presence is not None and presence.has_events
        scan = ScanData.decode(data.manufacturer_data[COMPANY]) if COMPANY in data.manufacturer_data else None
        if scan is None:
            return None
        if self._subscription is None and BTHOME in data.service_data:
            self._take(device, Advert.decode(data.service_data[BTHOME]), scan)
        return scan.last_event >= self._next_event.get(device.address, 1) & 0xFFFF

    def _take(self, device: BLEDevice, advert: Advert, scan: ScanData) -> None:
        if scan.names(advert):
            values = {reading.name: reading.value for reading in advert.readings}
            self._publish(device.name or device.address, {"boot": scan.boot, "sequence": scan.sequence, **values})

    def _visit_soon(self, device: BLEDevice) -> None:
        if len(self._visits) < MAX_VISITS or device.address in self._visits:
            self._visits[device.address] = device
            self._work.set()

    # ---- connections

    async def _visit_all(self) -> None:
        while self._visits:
            address = next(iter(self._visits))
            device = self._visits.pop(address)
            try:
                await self._visit(device)
                self._visits.pop(address, None)  # adverts from before the visit
            except (BleakError, LinkError, TimeoutError):
                self.counts["failed visits"] += 1
                self._not_before[address] = asyncio.get_running_loop().time() + RETRY_S
        self._work.clear()

    async def _visit(self, device: BLEDevice) -> None:
        self.counts["visits"] += 1
        adapter: Any = {"adapter": self.name}
        async with BleakClient(device, timeout=CONNECT_S, bluez=adapter) as client, MoteLink(client) as link:
            info = await link.info()
            self._infos[device.address] = info
            if device.address not in self.filtered:
                await self._filter(device, link, info)
            if info.next_event > info.first_event:
                await self._fetch(device, link, info)

    async def _filter(self, device: BLEDevice, link: MoteLink, info: Info) -> None:
        assert self._subscription is not None
        made = compile_filter(self._subscription, Known({}), _attributes(info), Delivery(_FILTER_ID))
        if isinstance(made, Compiled):
            table_crc = await link.change_filters({_FILTER_ID: made.program})
            await self._own(link, info, table_crc)
            self.filtered[device.address] = asyncio.get_running_loop().time()
            self.counts["filters written"] += 1
        else:
            self._refused.add(device.address)
            self.counts["filters refused"] += 1

    async def _own(self, link: MoteLink, info: Info, table_crc: int) -> None:
        if self._mode is None or adverts.in_force(info) is None:
            return
        try:
            await adverts.set_mode(link, self._mode, table_crc)
        except MoteRefused:
            self.counts["modes refused"] += 1

    async def _fetch(self, device: BLEDevice, link: MoteLink, info: Info) -> None:
        first = max(info.first_event, self._next_event.get(device.address, 0))
        if first >= info.next_event:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVENTS_S):
                async for event in link.events(first):
                    self._tell(info, event)
                    self._next_event[device.address] = event.number + 1
                    if event.number + 1 >= info.next_event:
                        break
        await link.ack(self._next_event.get(device.address, first) - 1)

    def _tell(self, info: Info, event: Event) -> None:
        self.counts["events"] += 1
        values = {}
        for index, raw in event.values.items():
            row = info.attributes[index]
            values[row.name] = raw * row.p / row.q
        if EventFlag.LABEL in event.flags:
            values["bit"] = event.bit
        self._publish(info.name, {"boot": event.boot, "sequence": event.sequence, **values})


def _attributes(info: Info) -> Sequence[Attribute]:
    return [Attribute(row.name, row.p, row.q, row.low, row.high) for row in info.attributes]
