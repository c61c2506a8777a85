"""Spinney motes: BTHome in the advert, and a scan response that says which sample it is (rule I1).

An advert is a sample only if it holds all of the mote's attributes exactly, which is known once the mote has been asked
for its attributes. Until then, and otherwise, it is mere presence. Where nobody will ever ask, it is taken for what it
is: as much of the sample as BTHome can say, under the low bits of its number. A mote that advertises presence alone has
no reading and no number in its adverts, and is never taken for a sample.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spinney.expression import Value
from spinney.mote.advert import BTHOME, COMPANY, OBJECTS, PRESENCE, Advert, Presence, Reading, ScanData
from spinney.mote.adverts import Mode
from spinney.mote.protocol import AttributeRow, ProtocolError

from ..samples import Ability, Heard
from .bthome import ENCRYPTED, BTHome, opened_data, values_of
from .decoder import Decoded, DecodeError

MAX_MOTES: Final = 1000
"""Motes whose attributes are remembered; beyond it the one described first is mere presence again."""
_BOOT_BITS, _SEQUENCE_BITS = 16, 24


@dataclass(frozen=True, slots=True)
class Description:
    """What a mote has said of itself: its attributes, and its newest sample's number."""

    attributes: Sequence[AttributeRow]
    boot: int
    sequence: int

    def values(self, readings: Sequence[Reading]) -> dict[str, Value] | None:
        """The sample by the mote's own names; None unless the advert holds all of it exactly."""
        if len(readings) != len(self.attributes):
            return None
        left = list(readings)
        values: dict[str, Value] = {}
        for row in self.attributes:
            reading = next((each for each in left if each.object_id == row.object_id), None)
            raw = None if reading is None else _raw(row, reading)
            if reading is None or raw is None:
                return None
            left.remove(reading)
            values[row.name] = raw * row.p / row.q
        return values

    def number(self, scan: ScanData) -> tuple[int, int]:
        """The whole (boot, sequence) of which an advert has the low bits: the one nearest to what is known."""
        boot = _nearest(scan.boot, self.boot, _BOOT_BITS)
        sequence = self.sequence if boot == self.boot else 0
        return boot, _nearest(scan.sequence, sequence, _SEQUENCE_BITS)


class Spinney:
    """Asked before BTHome, which would take a mote's advert for any other sensor's."""

    name = "spinney"
    abilities: Mapping[str, Ability] = {}
    """The mote's own description tells them."""

    def __init__(self, is_asked: bool = True) -> None:
        """`is_asked`: this mobile broker connects to motes."""
        self._is_asked = is_asked
        self._motes: OrderedDict[str, Description] = OrderedDict()

    def describe(self, address: str, description: Description) -> None:
        """Whoever has asked the mote tells what it said; again after each of its starts."""
        self._motes[address] = description
        self._motes.move_to_end(address)
        if len(self._motes) > MAX_MOTES:
            self._motes.popitem(last=False)

    def decode(self, heard: Heard, key: bytes | None) -> Decoded | None:
        """None unless it is a mote: by its presence, its scan response, or because it has been described."""
        if PRESENCE in heard.services:
            there = presence(heard)
            battery = None if there is None else there.battery
            return Decoded({} if battery is None else {"battery": float(round(100 * battery))}, presence=True)
        described = self._motes.get(heard.address)
        scan = scan_data(heard)
        if scan is None and described is None:
            return None
        data = heard.services.get(BTHOME)
        if not data:
            return Decoded({}, presence=True)
        counter, advert = _advert(data, heard.address, key)
        if described is not None and scan is not None and scan.names(advert):
            values = described.values(advert.readings)
            if values is not None:
                return Decoded(values, scan.sequence, counter, *described.number(scan))
        if not self._is_asked and scan is not None and scan.names(advert):
            return Decoded(values_of(advert), scan.sequence, counter, scan.boot, scan.sequence)
        return Decoded(values_of(advert), counter=counter, presence=True)


def presence(heard: Heard) -> Presence | None:
    """What a mote says that advertises presence alone; None if this is another advert, or of a later version."""
    data = heard.services.get(PRESENCE)
    try:
        return None if data is None else Presence.decode(data)
    except ProtocolError:
        return None


def advert_mode(heard: Heard) -> Mode | None:
    """What a mote advertises; None where its scan response alone was told."""
    if PRESENCE in heard.services:
        return Mode.PRESENCE
    data = heard.services.get(BTHOME)
    if not data:
        return None
    return Mode.ENCRYPTED if data[0] & ENCRYPTED else Mode.OPEN


def scan_data(heard: Heard) -> ScanData | None:
    """What a mote's scan response says; None if it is no mote's, or none was heard."""
    data = heard.manufacturers.get(COMPANY)
    if data is None:
        return None
    try:
        return ScanData.decode(data)
    except ProtocolError:
        return None


def is_current(scan: ScanData, heard: Heard) -> bool:
    """Whether a scan response is that of its advert: BlueZ goes on to tell an old one where none is heard.

    Of an advert that is encrypted nobody knows, and it is believed.
    """
    if (there := presence(heard)) is not None:
        return there.table_crc == scan.table_crc
    data = heard.services.get(BTHOME)
    try:
        return not data or (advert := Advert.decode(data)).encrypted or scan.names(advert)
    except ProtocolError:
        return False


def _advert(data: bytes, address: str, key: bytes | None) -> tuple[int | None, Advert]:
    """The counter if it is encrypted, and what it says; DecodeError."""
    try:
        advert = Advert.decode(data)
        if not advert.encrypted:
            return None, advert
        counter, data = opened_data(data, address, key)
        return counter, Advert.decode(data)
    except ProtocolError as error:
        raise DecodeError(str(error)) from None


def _raw(row: AttributeRow, reading: Reading) -> int | None:
    """The mote's own raw value; None if BTHome's scale or unit may have changed it."""
    name, _, p, q = OBJECTS.get(reading.object_id, (reading.name, 1, 1, 1))
    up, down = row.p * q, row.q * p
    if row.unit not in ("", BTHome.abilities[name].unit or "") or up % down or up == 0:
        return None
    steps, rest = divmod(reading.raw, up // down)
    return None if rest else steps


def _nearest(low: int, known: int, bits: int) -> int:
    """The number nearest to `known` that ends with these bits, and is not below 0."""
    span = 1 << bits
    number = known - known % span + low
    if number - known > span // 2 and number >= span:
        return number - span
    return number + span if known - number > span // 2 else number
