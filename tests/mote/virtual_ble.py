"""A small peripheral on the virtual radio, and a beacon, for the simulator's own tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spinney_tools.sim.air import Air
from spinney_tools.sim.beacons import Beacon, Recording
from spinney_tools.sim.mp_bluetooth import BLE, UUID
from spinney_tools.sim.propagation import Place, Propagation
from spinney_tools.sim.radio import Radio

BASE = "5f1a{:04x}-7c3e-4b1e-9f3a-6b2d5a1c0001"
SERVICE, WRITE, NOTIFY, READ, SECURE, INDICATE, SHORT = (BASE.format(number) for number in range(1, 8))
CENTRAL = "F0:00:00:00:00:01"
PERIPHERAL = "C0:00:00:00:00:01"
PLAIN = Propagation(shadowing_db=0.0, fading_db=0.0)
"""Distance alone."""


class Peripheral:
    """Echoes what is written to WRITE on NOTIFY, keeps bonds, and advertises again after each connection."""

    def __init__(self, radio: Radio, passkey: int | None = None) -> None:
        self.radio = radio
        self.events: list[tuple[int, tuple[Any, ...]]] = []
        self.errors: list[BaseException] = []
        self.written: list[bytes] = []
        self.secrets: dict[bytes, bytes] = {}
        self.on_irq: Callable[[int], None] = lambda _event: None
        self._passkey = passkey
        self.ble = BLE(radio, self.errors.append)

    async def start(self, name: str = "p1", connectable: bool = True) -> Peripheral:
        await self.radio.power_on()
        ble = self.ble
        ble.active(True)
        ble.irq(self._irq)
        ble.config(gap_name=name, mtu=247)
        ble.config(bond=True, le_secure=True, mitm=self._passkey is not None, io=3 if self._passkey is None else 0)
        wanted = ((WRITE, 0x0C), (NOTIFY, 0x12), (READ, 0x02), (SECURE, 0x1008), (INDICATE, 0x20), (SHORT, 0x0A))
        characteristics = tuple((UUID(known_as), flags) for known_as, flags in wanted)
        (self.handles,) = ble.gatts_register_services(((UUID(SERVICE), characteristics),))
        ble.gatts_set_buffer(self.handles[0], 512)
        ble.gatts_write(self.handles[2], b"a long value " * 20)
        self.advertise(name, connectable)
        return self

    def advertise(self, name: str = "p1", connectable: bool = True) -> None:
        response = bytes((len(name) + 1, 9)) + name.encode()
        self.ble.gap_advertise(100_000, adv_data=b"\x02\x01\x06", resp_data=response, connectable=connectable)

    def _irq(self, event: int, data: tuple[Any, ...]) -> Any:
        self.events.append((event, data))
        if event == 2:
            self.advertise()
        elif event == 3 and data[1] == self.handles[0]:
            value = self.ble.gatts_read(data[1])
            self.written.append(value)
            self.ble.gatts_notify(data[0], self.handles[1], value[:200])
        elif event == 29:
            found = list(self.secrets.values())
            return (found[data[1]] if data[1] < len(found) else None) if data[2] is None else self.secrets.get(data[2])
        elif event == 30:
            if data[2] is None:
                return self.secrets.pop(bytes(data[1]), None) is not None
            self.secrets[bytes(data[1])] = bytes(data[2])
            return True
        elif event == 31 and self._passkey is not None:
            self.ble.gap_passkey(data[0], data[1], self._passkey)
        self.on_irq(event)
        return None


def beacon(
    air: Air, number: int = 1, place: Place = (0.0, 0.0), interval_ms: float = 100.0, response: bytes = b""
) -> Beacon:
    address = f"C1:00:00:00:{number >> 8:02X}:{number & 0xFF:02X}"
    return Beacon(air, Recording("test", address, (b"\x02\x01\x06",), interval_ms, response=response, place=place))
