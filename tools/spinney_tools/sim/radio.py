"""A radio on the virtual air: bumble's controller and host with the gaps filled that matter for motes.

Bumble 0.0.236 itself repeats the advert as scan response, never sends non-connectable adverts, takes an advertising
interval's units for milliseconds, reports a constant RSSI, never fragments data and does not end a cancelled attempt
to connect.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from bumble import hci
from bumble.controller import Controller, LegacyAdvertiser
from bumble.core import PhysicalTransport
from bumble.device import AdvertisingType, Device
from bumble.host import Host
from bumble.keys import MemoryKeyStore
from bumble.transport.common import AsyncPipeSink

from .air import Advert, Air
from .propagation import Place
from .sniffer import Traffic

_Kind = hci.HCI_LE_Advertising_Report_Event.EventType
_CONNECTABLE = AdvertisingType.UNDIRECTED_CONNECTABLE_SCANNABLE
_SCANNABLE = (_CONNECTABLE, AdvertisingType.UNDIRECTED_SCANNABLE)
_ADVERTS = (*_SCANNABLE, AdvertisingType.UNDIRECTED)
_UNIT_S = 0.000625
_ADV_DELAY_S = 0.010
"""Each event comes up to this much late, as the standard wants it, so that two motes do not collide for ever."""
_FIRST_FRAGMENT, _NEXT_FRAGMENT = 2, 1
_ACTIVE_SCAN = 1
_LISTENING = ("le_scan_enable", "pending_le_connection")


class _Advertiser(LegacyAdvertiser):
    def start(self) -> None:
        """The first event comes at a random moment of the first interval's delay."""
        self.stop()
        self.enabled = True
        self._later(0.0)

    def send_advertising_data(self) -> None:
        controller = self.controller
        assert isinstance(controller, RadioController)
        if self.enabled and self.advertising_type in _ADVERTS:
            controller.radio.scan_response = self.scan_response_data
            kind = self.advertising_type
            controller.air.transmit(
                controller.radio, self.address, self.advertising_data, kind == _CONNECTABLE, kind in _SCANNABLE
            )

    def _on_timer_fired(self) -> None:
        self.send_advertising_data()
        self._later(self.advertising_interval_min * _UNIT_S)

    def _later(self, interval_s: float) -> None:
        controller = self.controller
        assert isinstance(controller, RadioController)
        delay_s = interval_s + controller.air.chance.uniform(0.0, _ADV_DELAY_S)
        self.timer_handle = asyncio.get_running_loop().call_later(delay_s, self._on_timer_fired)


class RadioController(Controller):
    """The controller below a host; LE only, legacy advertising only, as on the motes' boards."""

    le_features = Controller.le_features & ~hci.LeFeatureMask.LE_EXTENDED_ADVERTISING

    def __init__(self, radio: Radio, air: Air, public_address: str | None, fragment_bytes: int) -> None:
        super().__init__(radio.name, public_address=public_address)
        self.link = air
        self.air = air
        self.radio = radio
        self.le_acl_data_packet_length = fragment_bytes
        self.acl_data_packet_length = fragment_bytes
        self.le_legacy_advertiser = _Advertiser(self)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name in _LISTENING and "radio" in self.__dict__ and self.radio.is_on:
            self.air.heed(self.radio)

    def send_hci_packet(self, packet: hci.HCI_Packet) -> None:
        """As bumble's, which writes each packet down for its log first, and that takes longer than all else."""
        if self.host:
            asyncio.get_running_loop().call_soon(self.host.on_packet, bytes(packet))

    def on_hci_packet(self, packet: hci.HCI_Packet) -> None:
        if isinstance(packet, hci.HCI_Command):
            self.on_hci_command_packet(packet)
        elif isinstance(packet, hci.HCI_AclDataPacket):
            self.on_hci_acl_data_packet(packet)

    def hear(self, advert: Advert, rssi_dbm: int) -> None:
        if self.le_scan_enable:
            kind = _Kind.ADV_IND if advert.connectable else _Kind.ADV_NONCONN_IND
            kind = _Kind.ADV_SCAN_IND if advert.scannable and not advert.connectable else kind
            self._report(kind, advert.address, advert.data, rssi_dbm)
            if advert.scannable and self.le_scan_type == _ACTIVE_SCAN:
                self._report(_Kind.SCAN_RSP, advert.address, self.air.scan_response(advert.sender), rssi_dbm)
        wanted = self.pending_le_connection
        if wanted and advert.connectable and wanted.peer_address == advert.address:
            self.create_le_connection(advert.address)

    def on_link_acl_data(self, sender_address: hci.Address, transport: PhysicalTransport, data: bytes) -> None:
        """In fragments that the host's buffers hold; a real host drops what exceeds them."""
        del transport  # it is always LE
        connection = self.le_connections.get(sender_address)
        if connection is None:
            return
        size = self.le_acl_data_packet_length
        for at in range(0, len(data), size):
            part = data[at : at + size]
            boundary = _NEXT_FRAGMENT if at else _FIRST_FRAGMENT
            self.send_hci_packet(hci.HCI_AclDataPacket(connection.handle, boundary, 0, len(part), part))

    def on_hci_le_create_connection_cancel_command(
        self, _command: hci.HCI_LE_Create_Connection_Cancel_Command
    ) -> hci.HCI_StatusReturnParameters:
        wanted, self.pending_le_connection = self.pending_le_connection, None
        if wanted is None:
            return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.COMMAND_DISALLOWED_ERROR)
        peer = wanted.peer_address
        event = hci.HCI_LE_Connection_Complete_Event(
            status=hci.HCI_ErrorCode.UNKNOWN_CONNECTION_IDENTIFIER_ERROR,
            connection_handle=0,
            role=hci.Role.CENTRAL,
            peer_address_type=peer.address_type,
            peer_address=peer,
            connection_interval=0,
            peripheral_latency=0,
            supervision_timeout=0,
            central_clock_accuracy=0,
        )
        asyncio.get_running_loop().call_soon(self.send_hci_packet, event)
        return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.SUCCESS)

    def _report(self, kind: int, address: hci.Address, data: bytes, rssi_dbm: int) -> None:
        report = hci.HCI_LE_Advertising_Report_Event.Report(
            event_type=kind, address_type=address.address_type, address=address, data=data, rssi=rssi_dbm
        )
        self.send_hci_packet(hci.HCI_LE_Advertising_Report_Event([report]))


class QuietHost(Host):
    """bumble's, without the log of each packet, too."""

    def on_hci_packet(self, packet: hci.HCI_Packet) -> None:
        if isinstance(packet, hci.HCI_Event):
            self.on_hci_event_packet(packet)
        elif isinstance(packet, hci.HCI_AclDataPacket):
            self.on_hci_acl_data_packet(packet)

    def send_hci_packet(self, packet: hci.HCI_Packet) -> None:
        if self.hci_sink:
            self.hci_sink.on_packet(bytes(packet))


@dataclass(eq=False)
class Radio:
    """One radio at a place: of a mote, or an adapter of a mobile broker.

    `scan_share` is how much of the time a scan listens; `address` is a static random one (C0... to FF...).
    """

    air: Air
    name: str
    address: str
    place: Place = (0.0, 0.0)
    power_dbm: float = 0.0
    scan_share: float = 1.0
    fragment_bytes: int = 251
    public_address: str | None = None
    scan_response: bytes = b""
    is_on: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._build()

    def _build(self) -> None:
        self.controller = RadioController(self, self.air, self.public_address, self.fragment_bytes)
        host = QuietHost(self.controller, AsyncPipeSink(self.controller))
        self.device = Device(name=self.name, address=hci.Address(self.address), host=host)
        self.device.keystore = MemoryKeyStore()

    async def power_on(self) -> None:
        if not self.is_on:
            self.is_on = True
            self.air.add_radio(self.controller, self)
            await self.device.power_on()

    def power_off(self) -> None:
        """At once and silently; on again, it is a new controller and host that know nothing."""
        if self.is_on:
            self.is_on = False
            self.controller.le_legacy_advertiser.stop()
            self.air.remove_radio(self.controller)
            self.controller.host = None
            self._build()

    def move(self, place: Place) -> None:
        self.place = place
        if self.is_on:
            self.air.moved(self.controller)

    def listening(self) -> float:
        controller = self.controller
        if controller.pending_le_connection:
            return 1.0
        return self.scan_share if controller.le_scan_enable else 0.0

    def hear(self, advert: Advert, rssi_dbm: int) -> None:
        self.controller.hear(advert, rssi_dbm)

    @property
    def traffic(self) -> Traffic:
        """What the sniffer has counted of it."""
        return self.air.sniffer.of(self)

    @property
    def adverts(self) -> int:
        """Advertising events so far."""
        return self.traffic.adverts
