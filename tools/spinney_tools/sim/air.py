"""The virtual radio: who transmits what from where, who hears it how well, and who is connected with whom.

It is bumble's LocalLink with true advertising events, physics and lost connections. Everything random comes from one
seed, and nothing depends on the order of a set, so that a run in virtual time can be repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bumble import core, hci, link, ll
from bumble.controller import Controller

from .propagation import Interference, Place, Propagation, survives
from .sniffer import Sniffer

MAX_ON_AIR = 4096
"""Packets remembered as on the air at the same time; what is older cannot collide."""
MAX_LANE = 1024
"""Data packets under way on one connection in one direction."""
_US_PER_BYTE = 8
_OVERHEAD_BYTES = 16
"""Preamble, access address, header, advertiser's address and CRC of an advertising packet."""


class Transmitter(Protocol):
    """Who advertises: a radio, or a beacon that only that."""

    name: str
    place: Place
    power_dbm: float
    scan_response: bytes


class Receiver(Transmitter, Protocol):
    """A radio that may listen."""

    def listening(self) -> float:
        """The share of time it listens: 0 is off."""
        ...

    def hear(self, advert: Advert, rssi_dbm: int) -> None: ...


@dataclass(frozen=True)
class Advert:
    """One advertising event on the air."""

    sender: Transmitter
    address: hci.Address
    data: bytes
    connectable: bool
    scannable: bool
    start_s: float
    end_s: float


class Air(link.LocalLink):
    """Physics between radios. Radios at the same place hear each other perfectly.

    `interval_s` is what a connection needs from packet to packet; `supervision_s` how long it outlives its radio.
    """

    def __init__(
        self,
        seed: int = 0,
        propagation: Propagation | None = None,
        collisions: bool = False,
        interval_s: float = 0.0,
        supervision_s: float = 2.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.propagation = propagation or Propagation(seed=seed)
        self.interference: list[Interference] = []
        self.chance = random.Random(f"air {seed}")  # noqa: S311 - repeatable on purpose
        self.counts: Counter[str] = Counter()
        self.sniffer = Sniffer()
        self.interval_s = interval_s
        self.supervision_s = supervision_s
        self._collisions = collisions
        self._listening: dict[Receiver, None] = {}
        self._places: dict[Controller, Receiver] = {}
        self._on_air: deque[Advert] = deque(maxlen=MAX_ON_AIR)
        self._lanes: dict[tuple[str, str], deque[Callable[[], None]]] = {}
        self._doubtful: dict[frozenset[Controller], asyncio.TimerHandle] = {}

    # ---- who is there

    def add_radio(self, controller: Controller, receiver: Receiver) -> None:
        self.add_controller(controller)
        self._places[controller] = receiver
        self.heed(receiver)

    def remove_radio(self, controller: Controller) -> None:
        """Power off: whoever was connected finds out when the supervision time is over."""
        for connection in list(controller.le_connections.values()):
            peer = self.find_le_controller(connection.peer_address)
            if peer is not None:
                self._later_lost(peer, connection.self_address)
        controller.le_connections.clear()
        self._listening.pop(self._places.pop(controller), None)
        self.remove_controller(controller)

    def heed(self, receiver: Receiver) -> None:
        """Tells that a radio listens now, or no more."""
        if receiver.listening():
            self._listening[receiver] = None
        else:
            self._listening.pop(receiver, None)

    def moved(self, controller: Controller) -> None:
        """Tells that a radio is elsewhere: its connections may be out of range, or in range again."""
        for connection in list(controller.le_connections.values()):
            peer = self.find_le_controller(connection.peer_address)
            if peer is not None:
                self._judge(controller, peer)

    def strength_dbm(self, sender: Transmitter, receiver: Transmitter) -> float:
        """The mean strength at which one hears the other now."""
        return self.propagation.mean_dbm(sender.name, sender.place, receiver.name, receiver.place, sender.power_dbm)

    def cut(self, one: Controller, reason: int = hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR) -> None:
        """Loses every connection of a radio now, on both sides."""
        for connection in list(one.le_connections.values()):
            peer = self.find_le_controller(connection.peer_address)
            one.on_le_disconnected(connection, reason)
            if peer is not None and (other := peer.le_connections.get(connection.self_address)):
                peer.on_le_disconnected(other, reason)

    def find_le_controller(self, address: hci.Address) -> Controller | None:
        for controller in self._places:
            if address in (controller.random_address, controller.public_address):
                return controller
        return None

    # ---- advertising

    def transmit(
        self, sender: Transmitter, address: hci.Address, data: bytes, connectable: bool, scannable: bool
    ) -> None:
        """One advertising event, on all three channels."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        end_s = now_s + (len(data) + _OVERHEAD_BYTES) * _US_PER_BYTE * 1e-6
        advert = Advert(sender, address, data, connectable, scannable, now_s, end_s)
        self.counts["adverts"] += 1
        self.sniffer.advert(sender, data)
        if self._collisions:
            self._on_air.append(advert)
            loop.call_at(end_s, self._arrive, advert)
        else:
            self._arrive(advert)

    def scan_response(self, sender: Transmitter) -> bytes:
        """A scanner that has heard an advert asks for the rest."""
        self.counts["scan responses"] += 1
        self.sniffer.scan_response(sender, sender.scan_response)
        return sender.scan_response

    def _arrive(self, advert: Advert) -> None:
        for receiver in list(self._listening):
            share = receiver.listening() if receiver is not advert.sender else 0.0
            if not share or (share < 1.0 and self.chance.random() >= share):
                continue
            rssi_dbm = self._received(advert, receiver)
            if rssi_dbm is not None:
                receiver.hear(advert, round(rssi_dbm))

    def _received(self, advert: Advert, receiver: Receiver) -> float | None:
        mean_dbm = self.strength_dbm(advert.sender, receiver)
        if mean_dbm < self.propagation.sensitivity_dbm - 3 * self.propagation.fading_db:
            return None
        rssi_dbm = self.propagation.faded_dbm(mean_dbm, self.chance)
        if self.chance.random() < self.propagation.loss(rssi_dbm):
            self.counts["lost: weak"] += 1
        elif self._spoilt(receiver):
            self.counts["lost: interference"] += 1
        elif self._collisions and not survives(rssi_dbm, self._others_dbm(advert, receiver)):
            self.counts["lost: collision"] += 1
        else:
            self.counts["heard"] += 1
            return rssi_dbm
        return None

    def _spoilt(self, receiver: Receiver) -> bool:
        east, north = receiver.place
        for source in self.interference:
            away = (east - source.place[0]) ** 2 + (north - source.place[1]) ** 2
            if away <= source.radius_m**2 and self.chance.random() < source.share:
                return True
        return False

    def _others_dbm(self, advert: Advert, receiver: Receiver) -> list[float]:
        others = []
        for other in reversed(self._on_air):
            if other.start_s < advert.start_s - (advert.end_s - advert.start_s) * 2:
                break
            together = other.start_s < advert.end_s and advert.start_s < other.end_s
            if other is not advert and together and other.sender is not receiver:
                others.append(self.strength_dbm(other.sender, receiver))
        return others

    def send_advertising_pdu(self, sender_controller: Controller, packet: ll.AdvertisingPdu) -> None:
        """bumble's own door: of it only requests to connect come here."""
        if isinstance(packet, ll.ConnectInd):
            asyncio.get_running_loop().call_soon(self._connect, sender_controller, packet)

    def _connect(self, central: Controller, packet: ll.ConnectInd) -> None:
        """Whoever has stopped advertising meanwhile does not answer; the central finds out a few intervals later.

        Nor does who has not heard yet that the central has ended their last connection.
        """
        peer = self.find_le_controller(packet.advertiser_address)
        answers = peer is not None and packet.initiator_address not in peer.le_connections
        if peer is not None and answers:
            peer.on_ll_advertising_pdu(packet)
            answers = packet.initiator_address in peer.le_connections
        if peer is not None and answers:
            self.sniffer.of(self._places[peer]).connections += 1
        else:
            connection = central.le_connections.get(packet.advertiser_address)
            if connection is not None:
                self.counts["connections lost"] += 1
                central.on_le_disconnected(connection, hci.HCI_ErrorCode.CONNECTION_FAILED_TO_BE_ESTABLISHED_ERROR)

    # ---- connections

    def send_acl_data(
        self,
        sender_controller: Controller,
        destination_address: hci.Address,
        transport: core.PhysicalTransport,
        data: bytes,
    ) -> None:
        connection = sender_controller.le_connections.get(destination_address)
        if connection is None:
            return
        source = connection.self_address
        peer = self.find_le_controller(destination_address)
        self.sniffer.data(self._places[sender_controller], None if peer is None else self._places[peer], len(data))
        self.counts["data packets"] += 1
        self.counts["data bytes"] += len(data)

        def deliver() -> None:
            peer = self.find_le_controller(destination_address)
            if peer is not None and source in peer.le_connections:
                peer.on_link_acl_data(source, transport, data)

        self._carry(source, destination_address, deliver)

    def send_ll_control_pdu(
        self, sender_address: hci.Address, receiver_address: hci.Address, packet: ll.ControlPdu
    ) -> None:
        def deliver() -> None:
            peer = self.find_le_controller(receiver_address)
            if peer is not None and sender_address in peer.le_connections:
                peer.on_ll_control_pdu(sender_address, packet)

        self._carry(sender_address, receiver_address, deliver)

    def _carry(self, source: hci.Address, destination: hci.Address, deliver: Callable[[], None]) -> None:
        """Keeps the order of one direction, and holds what is sent while the two are out of range."""
        way = (str(source), str(destination))
        lane = self._lanes.setdefault(way, deque())
        if len(lane) >= MAX_LANE:
            self.counts["lost: lane full"] += 1
            return
        lane.append(deliver)
        asyncio.get_running_loop().call_later(self.interval_s, self._next, way, source, destination)

    def _next(self, way: tuple[str, str], source: hci.Address, destination: hci.Address) -> None:
        lane = self._lanes.get(way)
        if not lane:
            return
        one, other = self.find_le_controller(source), self.find_le_controller(destination)
        if one is None or other is None:
            del self._lanes[way]
            return
        if frozenset((one, other)) in self._doubtful:
            return  # back in range, or lost: either empties the lane
        lane.popleft()()
        if not lane:
            self._lanes.pop(way, None)

    def _flush(self, one: Controller, other: Controller, deliver: bool) -> None:
        names = {str(a) for c in (one, other) for a in (c.random_address, c.public_address)}
        for way in [way for way in self._lanes if names.issuperset(way)]:
            for packet in self._lanes.pop(way):
                if deliver:
                    packet()

    def _judge(self, one: Controller, other: Controller) -> None:
        """Out of range for longer than the supervision time, a connection is lost on both sides."""
        pair = frozenset((one, other))
        strength_dbm = self.strength_dbm(self._places[one], self._places[other])
        if strength_dbm >= self.propagation.sensitivity_dbm:
            if (timer := self._doubtful.pop(pair, None)) is not None:
                timer.cancel()
                self._flush(one, other, deliver=True)
        elif pair not in self._doubtful:
            loop = asyncio.get_running_loop()
            self._doubtful[pair] = loop.call_later(self.supervision_s, self._out_of_range, one, other)

    def _out_of_range(self, one: Controller, other: Controller) -> None:
        self._doubtful.pop(frozenset((one, other)), None)
        self._flush(one, other, deliver=False)
        for here, there in ((one, other), (other, one)):
            for connection in list(here.le_connections.values()):
                if connection.peer_address in (there.random_address, there.public_address):
                    self.counts["connections lost"] += 1
                    here.on_le_disconnected(connection, hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR)

    def _later_lost(self, controller: Controller, peer_address: hci.Address) -> None:
        connection = controller.le_connections.get(peer_address)

        def lose() -> None:
            if connection is not None and controller.le_connections.get(peer_address) is connection:
                self.counts["connections lost"] += 1
                controller.on_le_disconnected(connection, hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR)

        asyncio.get_running_loop().call_later(self.supervision_s, lose)
